//! Event streams: one loop that reads a session's log by cursor and makes the chunks of an SSE body.
//!
//! Replay and live are the same loop: read the committed events behind the cursor, pass them on, and when there are
//! none wait for the log's head to move. Nothing is queued per subscriber; one that is slow reads on from the log.
//!
//! Architecture invariant: `Subscription` knows no HTTP. What ends a stream from outside (shutdown, a token that was
//! taken away) comes in as one future.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use utoipa::ToSchema;

use crate::session::event::EventKind;
use crate::session::id::{EventId, TurnId};
use crate::session::log::{Head, SessionLog, StoreError};
use crate::session::run::{Frame, Run};

/// How long a browser waits before it connects again, in milliseconds.
const RETRY_MS: u32 = 2_000;

/// A set of event kinds: one bit for each kind's code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventKinds(u64);

impl EventKinds {
    /// Adds a kind.
    pub(super) fn insert(&mut self, kind: EventKind) {
        self.0 |= Self::bit(kind);
    }

    /// Whether a kind is in it.
    pub(super) fn contains(self, kind: EventKind) -> bool {
        self.0 & Self::bit(kind) != 0
    }

    fn bit(kind: EventKind) -> u64 {
        1_u64.checked_shl(u32::from(kind.code())).unwrap_or(0)
    }
}

/// Whether frames carry their `event:` field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Naming {
    /// They do, for `EventSource.addEventListener`.
    #[default]
    Named,
    /// They do not, for `EventSource.onmessage`.
    Unnamed,
}

/// Which events a subscriber gets, and in which form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// Only this turn's; `None`: also what is outside any turn.
    pub(super) turn: Option<TurnId>,
    /// Only these kinds; `None`: every kind.
    pub(super) kinds: Option<EventKinds>,
    /// Their form.
    pub(super) naming: Naming,
}

impl Selection {
    /// Whether the log's bytes can be passed on as they are.
    fn is_everything(self) -> bool {
        self.turn.is_none() && self.kinds.is_none() && self.naming == Naming::Named
    }

    fn takes(self, frame: &Frame<'_>) -> bool {
        self.turn.is_none_or(|turn| frame.turn == Some(turn))
            && self.kinds.is_none_or(|kinds| kinds.contains(frame.kind))
    }
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Behind this event; 0 is before the first one.
    After(EventId),
    /// With what is committed from now on.
    Latest,
}

/// Where a stream ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Only with the log.
    LogEnds,
    /// With the last event that is committed now.
    Now,
    /// With the turn's last event.
    TurnEnds(TurnId),
}

/// The event that tells a subscriber that its cursor is not in this log: what it knows of the session may be wrong, so
/// it loads the snapshot again. The events that follow begin with the oldest. It has no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = StreamResetEvent)]
pub struct StreamReset {
    /// Always `stream.reset`.
    #[serde(rename = "type")]
    pub kind: StreamResetType,
    /// Why, for programs.
    pub reason: StreamResetReason,
    /// The session's last event now.
    pub last_event_id: EventId,
}

impl StreamReset {
    fn new(reason: StreamResetReason, last_event_id: EventId) -> Self {
        Self { kind: StreamResetType::StreamReset, reason, last_event_id }
    }
}

/// The type of the event that resets a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub enum StreamResetType {
    /// The only value.
    #[serde(rename = "stream.reset")]
    StreamReset,
}

impl StreamResetType {
    /// As in the `event:` field.
    pub const NAME: &'static str = "stream.reset";
}

/// Why a cursor cannot be honoured. Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamResetReason {
    /// No event of that id has been given out yet.
    CursorBeyondHead,
    /// The event of that id was lost when the machine lost its power.
    EventsLost,
}

/// Why a subscription goes on.
enum Wake {
    /// There are events behind its cursor.
    Events,
    /// A comment is due.
    Heartbeat,
    /// There will be nothing more.
    Over,
}

/// Done when a stream has to end although its log goes on.
pub(super) type Ended = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// One subscriber's way through a log.
pub(super) struct Subscription {
    log: SessionLog,
    head: watch::Receiver<Head>,
    selection: Selection,
    /// The last event that was looked at: everything selected up to it has been given out.
    cursor: EventId,
    /// The last id the subscriber was told, by a frame or by a bare `id:` line.
    told: EventId,
    /// No event behind this one is given out.
    until: EventId,
    /// The turn whose last event ends the stream.
    until_turn: Option<TurnId>,
    /// The first chunk, until it is given out.
    opening: Option<Bytes>,
    heartbeat: Interval,
    ended: Ended,
    /// Whether nothing more is given out.
    done: bool,
}

impl Subscription {
    /// Begins to read `log`. `ended` ends it from outside; a comment goes out every `heartbeat`.
    pub(super) fn new(
        log: SessionLog,
        start: Start,
        until: Until,
        selection: Selection,
        heartbeat: Duration,
        ended: Ended,
    ) -> Self {
        let head = log.watch();
        let committed = head.borrow().committed;
        let (cursor, reset) = match start {
            Start::Latest => (committed, None),
            Start::After(after) if after <= committed => (after, None),
            Start::After(_) => (EventId(0), Some(StreamResetReason::CursorBeyondHead)),
        };
        let reset = reset.map(|reason| StreamReset::new(reason, committed));
        // A period of zero would panic.
        let heartbeat = heartbeat.max(Duration::from_millis(1));
        let mut heartbeat = interval_at(Instant::now() + heartbeat, heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            log,
            head,
            selection,
            cursor,
            told: cursor,
            until: if until == Until::Now { committed } else { EventId(u64::MAX) },
            until_turn: if let Until::TurnEnds(turn) = until { Some(turn) } else { None },
            opening: Some(opening(selection.naming, reset)),
            heartbeat,
            ended,
            done: false,
        }
    }

    /// The next piece of the body: whole frames, as many as one read of the log brings. `None` when the stream is
    /// over, and ever after.
    pub(super) async fn next_chunk(&mut self) -> Option<Bytes> {
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        loop {
            if self.done {
                return None;
            }
            if self.cursor >= self.until {
                self.done = true;
                return self.bare_id();
            }
            let cursor = self.cursor;
            // Biased: an end is not put off by what there is to read, a heartbeat not by events that are not selected.
            let wake = tokio::select! {
                biased;
                () = &mut self.ended => Wake::Over,
                _ = self.heartbeat.tick() => Wake::Heartbeat,
                head = self.head.wait_for(|head| head.committed > cursor || head.closed || head.failed) => {
                    // At the head of a log that gets no further there is nothing to wait for.
                    head.map_or(Wake::Over, |head| if head.committed > cursor { Wake::Events } else { Wake::Over })
                }
            };
            match wake {
                Wake::Events => {}
                Wake::Heartbeat => return Some(self.heartbeat_chunk()),
                Wake::Over => {
                    self.done = true;
                    return None;
                }
            }
            match self.log.read(cursor).await {
                Ok(Some(run)) => {
                    if let Some(chunk) = self.take(&run) {
                        return Some(chunk);
                    }
                }
                // The events are being deleted together with their session.
                Ok(None) => self.done = true,
                Err(StoreError::CursorLost) => {
                    self.cursor = EventId(0);
                    self.told = self.cursor;
                    let last_event_id = self.log.head().committed;
                    let reset = StreamReset::new(StreamResetReason::EventsLost, last_event_id);
                    return Some(reset_frame(self.selection.naming, reset).into());
                }
                Err(error) => {
                    tracing::warn!(session = %self.log.session(), %error, "an event stream ends: its log cannot be read");
                    self.done = true;
                }
            }
        }
    }

    /// What is selected of a run, and the cursor behind it.
    fn take(&mut self, run: &Run) -> Option<Bytes> {
        let after = self.cursor;
        if self.selection.is_everything() && run.last() <= self.until {
            self.cursor = run.last();
            self.told = self.cursor;
            return Some(run.bytes_after(after));
        }
        let mut chunk = BytesMut::new();
        for frame in run.frames_after(after).take_while(|frame| frame.id <= self.until) {
            self.cursor = frame.id;
            if self.selection.takes(&frame) {
                match self.selection.naming {
                    Naming::Named => chunk.put(frame.bytes()),
                    Naming::Unnamed => frame.put_unnamed(&mut chunk),
                }
                self.told = frame.id;
            }
            if frame.kind.ends_turn() && self.until_turn.is_some() && frame.turn == self.until_turn {
                self.done = true;
                break;
            }
        }
        (!chunk.is_empty()).then(|| chunk.freeze())
    }

    /// A line that moves the subscriber's cursor over events it did not get. By the HTML standard ("dispatch the
    /// event") a block without `data:` sets the last event id and dispatches nothing.
    fn bare_id(&mut self) -> Option<Bytes> {
        if self.told == self.cursor {
            return None;
        }
        self.told = self.cursor;
        Some(Bytes::from(format!("id: {}\n\n", self.cursor)))
    }

    fn heartbeat_chunk(&mut self) -> Bytes {
        match self.bare_id() {
            Some(id) => [b":\n", id.as_ref()].concat().into(),
            None => Bytes::from_static(b":\n\n"),
        }
    }
}

/// The first bytes: a comment, so that proxies and browsers see the answer begin, the time to wait before connecting
/// again, and the reset if there is one.
fn opening(naming: Naming, reset: Option<StreamReset>) -> Bytes {
    let mut text = format!(": gander\nretry: {RETRY_MS}\n\n");
    if let Some(reset) = reset {
        text.push_str(&reset_frame(naming, reset));
    }
    text.into()
}

fn reset_frame(naming: Naming, reset: StreamReset) -> String {
    let json = serde_json::to_string(&reset).unwrap_or_default();
    let name = StreamResetType::NAME;
    match naming {
        Naming::Named => format!("event: {name}\ndata: {json}\n\n"),
        Naming::Unnamed => format!("data: {json}\n\n"),
    }
}

/// Counts the streams that each caller has open.
#[derive(Clone, Debug, Default)]
pub struct OpenStreams {
    /// By the caller's name; nobody is in it with zero. A standard mutex: held for one change, never across an await.
    counts: Arc<Mutex<HashMap<String, usize>>>,
}

impl OpenStreams {
    /// Counts one more, unless the caller has `limit` already. It is counted until the answer is dropped.
    pub(super) fn open(&self, caller: &str, limit: usize) -> Option<OpenStream> {
        let mut counts = self.lock();
        let count = counts.get(caller).copied().unwrap_or(0);
        if count >= limit {
            return None;
        }
        counts.insert(caller.to_owned(), count + 1);
        Some(OpenStream { streams: self.clone(), caller: caller.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        // Nothing that could panic happens while it is held.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open stream of a caller.
#[derive(Debug)]
pub(super) struct OpenStream {
    streams: OpenStreams,
    caller: String,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut counts = self.streams.lock();
        if let Some(count) = counts.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests;
