//! The order of all sessions' events: the one in which they were committed.
//!
//! Every event has a position in it besides its id in its session. Positions only grow and are never given twice;
//! those of deleted sessions are left out. Like a session's log, the order has a bounded tail in memory, and one head
//! whose moves are the only wake-up of readers.
//!
//! Architecture invariant: nobody sees a position before the store has committed it. [`EventOrder::committed`] is the
//! only place that makes positions visible, and only the store's writer calls it.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::id::{EventId, SessionNumber};
use super::log::{Owner, Store, StoreError};
use super::run::Run;

/// An event's place among the events of all sessions: 1, 2, 3, … 0 stands for "before the first".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position(pub u64);

/// Which database a position is of. Drawn when the database is made, so that a cursor of another one is told from a
/// good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreTag(pub u32);

/// A position as callers carry it around: 24 hexadecimal digits, opaque to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderCursor {
    /// The database.
    pub store: StoreTag,
    /// The last event that was seen.
    pub position: Position,
}

/// A text that no gateway gave out as a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor")]
pub struct NotACursor;

/// Digits of the database's tag, then of the position.
const TAG_DIGITS: usize = 8;
const CURSOR_DIGITS: usize = TAG_DIGITS + 16;

impl fmt::Display for OrderCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}{:016x}", self.store.0, self.position.0)
    }
}

impl FromStr for OrderCursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        // As it was given out: Rust's own parser takes a sign and upper case too.
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != CURSOR_DIGITS || !text.bytes().all(is_digit) {
            return Err(NotACursor);
        }
        let (tag, position) = text.split_at(TAG_DIGITS);
        Ok(Self {
            store: StoreTag(u32::from_str_radix(tag, 16).map_err(|_| NotACursor)?),
            position: Position(u64::from_str_radix(position, 16).map_err(|_| NotACursor)?),
        })
    }
}

/// Consecutive events of one session with their place in the order.
#[derive(Clone, Debug)]
pub struct PlacedRun {
    /// The first event's; the others follow.
    pub position: Position,
    /// Whose session.
    pub owner: Arc<str>,
    /// Which session.
    pub session: SessionNumber,
    /// The events.
    pub run: Arc<Run>,
}

impl PlacedRun {
    /// The last event's position.
    #[must_use]
    pub fn last(&self) -> Position {
        Position(self.position.0 + self.run.len() as u64 - 1)
    }

    /// The id behind which the events behind `after` begin.
    #[must_use]
    pub fn id_behind(&self, after: Position) -> EventId {
        EventId((self.run.first().0 + after.0).saturating_sub(self.position.0))
    }
}

/// What a read of the order brings.
#[derive(Clone, Debug)]
pub struct OrderedRuns {
    /// What was selected, in order. The first run may begin at or before the position that was read from.
    pub runs: Vec<PlacedRun>,
    /// Nothing selected up to here is missing from `runs`.
    pub through: Position,
}

/// Which sessions' events a reader gets.
#[derive(Clone, Debug)]
pub struct OrderFilter {
    /// Whose.
    pub owner: Owner,
    /// Only these sessions; `None`: all of the owner's, also those to come.
    pub sessions: Option<HashSet<SessionNumber>>,
}

impl OrderFilter {
    /// Whether a session of `owner` is selected.
    #[must_use]
    pub fn takes(&self, owner: &str, session: SessionNumber) -> bool {
        let is_owners = match &self.owner {
            Owner::Anyone => true,
            Owner::Caller(name) => name == owner,
        };
        is_owners && self.sessions.as_ref().is_none_or(|sessions| sessions.contains(&session))
    }
}

/// How far the order is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderHead {
    /// The last committed event.
    pub committed: Position,
    /// Up to here not even the ends of deleted sessions are all known any more.
    pub forgotten: Position,
}

/// The recent part of the order, in memory.
#[derive(Debug)]
struct Tail {
    /// In order; with every event behind `after` up to `end`.
    runs: VecDeque<PlacedRun>,
    after: Position,
    end: Position,
    /// The sum of the runs' weights.
    weight: usize,
}

struct Shared {
    tag: StoreTag,
    /// A standard mutex: it is held for a push or a short search, never across an await.
    tail: Mutex<Tail>,
    tail_bytes: usize,
    /// The only wake-up of readers. A watch holds no queue: a slow reader sees the newest head.
    head: watch::Sender<OrderHead>,
}

/// The order of all sessions' events: cheap to clone, the same for writer and readers.
#[derive(Clone)]
pub struct EventOrder {
    shared: Arc<Shared>,
}

impl fmt::Debug for EventOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventOrder").field("head", &*self.shared.head.borrow()).finish_non_exhaustive()
    }
}

/// How much is read at once, in bytes of frames.
const READ_BYTES: usize = 256 * 1024;
/// How many runs of the tail are looked at in one go, so that nobody holds its lock for long.
const TAIL_STEP: usize = 512;

impl EventOrder {
    /// The order of a store whose positions up to the head are committed. At most `tail_bytes` of the newest events
    /// are kept in memory, shared with the sessions' own tails.
    #[must_use]
    pub fn new(tag: StoreTag, head: OrderHead, tail_bytes: usize) -> Self {
        let end = head.committed;
        let tail = Mutex::new(Tail { runs: VecDeque::new(), after: end, end, weight: 0 });
        let (head, _) = watch::channel(head);
        Self { shared: Arc::new(Shared { tag, tail, tail_bytes, head }) }
    }

    /// Which database it is of.
    #[must_use]
    pub fn tag(&self) -> StoreTag {
        self.shared.tag
    }

    /// How far it is.
    #[must_use]
    pub fn head(&self) -> OrderHead {
        *self.shared.head.borrow()
    }

    /// Wakes when it gets further.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<OrderHead> {
        self.shared.head.subscribe()
    }

    /// Makes committed runs visible. For the store's writer only, in order. Positions that are left out belong to
    /// commits that failed: whether their events are there, only the store can say.
    pub fn committed(&self, runs: Vec<PlacedRun>, forgotten: Position) {
        let mut committed = None;
        {
            let mut tail = self.lock_tail();
            for placed in runs {
                if placed.position.0 != tail.end.0 + 1 {
                    tail.runs.clear();
                    tail.weight = 0;
                    tail.after = Position(placed.position.0 - 1);
                }
                tail.end = placed.last();
                tail.weight += placed.run.weight();
                tail.runs.push_back(placed);
                while tail.weight > self.shared.tail_bytes && tail.runs.len() > 1 {
                    if let Some(oldest) = tail.runs.pop_front() {
                        tail.weight -= oldest.run.weight();
                        tail.after = oldest.last();
                    }
                }
                committed = Some(tail.end);
            }
        }
        self.shared.head.send_if_modified(|head| {
            let before = *head;
            head.committed = committed.unwrap_or(head.committed);
            head.forgotten = forgotten;
            *head != before
        });
    }

    /// The next of the selected events behind `after`: from memory if they are there, else from the store. `None` at
    /// the head.
    pub async fn read(
        &self,
        store: &dyn Store,
        filter: &OrderFilter,
        after: Position,
    ) -> Result<Option<OrderedRuns>, StoreError> {
        let until = self.head().committed;
        if after >= until {
            return Ok(None);
        }
        if let Some(found) = self.in_tail(filter, after) {
            return Ok(Some(found));
        }
        store.ordered_events(filter.clone(), after, until, READ_BYTES).await.map(Some)
    }

    fn in_tail(&self, filter: &OrderFilter, after: Position) -> Option<OrderedRuns> {
        let tail = self.lock_tail();
        if after < tail.after {
            return None;
        }
        let mut found = OrderedRuns { runs: Vec::new(), through: tail.end };
        let mut bytes = 0;
        let start = tail.runs.partition_point(|placed| placed.last() <= after);
        for (step, placed) in tail.runs.range(start..).enumerate() {
            if step == TAIL_STEP || bytes >= READ_BYTES {
                found.through = Position(placed.position.0 - 1);
                break;
            }
            if filter.takes(&placed.owner, placed.session) {
                bytes += placed.run.size();
                found.runs.push(placed.clone());
            }
        }
        Some(found)
    }

    fn lock_tail(&self) -> MutexGuard<'_, Tail> {
        // A panic while it was held can only come from an allocation; the process does not outlive that.
        self.shared.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
