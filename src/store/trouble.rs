//! A disk that is full or fails: what was to be written is kept and tried again until there is room.
//!
//! Meanwhile nothing new is begun (who asks is refused), agents are held back by the bounded queue, and reading goes
//! on. Deletions go first, since they make the room; for them the reserve on the disk is given up.

use std::thread;
use std::time::{Duration, Instant};

use super::call::Call;
use rusqlite::Connection;

use super::checkpoint;
use super::queue::Share;
use super::writer::Writer;
use crate::session::log::StoreError;

/// How long the writer leaves a full disk alone before it looks what it is asked.
const PAUSE: Duration = Duration::from_millis(20);
/// Between the first two tries; then twice as long each time.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// Between two tries, at most.
const LONGEST_DELAY: Duration = Duration::from_secs(2);

/// What a commit was to write and found no room for.
pub(super) struct NoRoom {
    pub(super) error: StoreError,
    /// Nothing else of these sessions is written before.
    pub(super) shares: Vec<Share>,
    pub(super) calls: Vec<Box<dyn Call>>,
}

impl NoRoom {
    /// Nothing but the reason.
    pub(super) fn of(error: StoreError) -> Self {
        Self { error, shares: Vec::new(), calls: Vec::new() }
    }
}

/// What waits for room.
pub(super) struct Trouble {
    waiting: NoRoom,
    /// Deletions, which go first.
    deletions: Vec<Share>,
    retry_at: Instant,
    delay: Duration,
    /// Whether deleted rows are going: then there is no waiting.
    removing: bool,
}

impl Trouble {
    /// Whether the next deleted rows may go now. Each step takes room in the log of changes until what it did is moved
    /// into the database; only when that cannot be done for long, a step is tried all the same.
    pub(super) fn may_remove(&mut self, connection: &Connection) -> bool {
        if !self.removing {
            return false;
        }
        if checkpoint::passive(connection).is_ok_and(|moved| moved.all) || self.retry_at <= Instant::now() {
            self.retry_at = Instant::now() + self.delay;
            return true;
        }
        thread::sleep(PAUSE);
        false
    }

    /// A pause, so that the writer does not run hot.
    pub(super) fn wait(&self) {
        if !self.removing {
            thread::sleep(PAUSE);
        }
    }
}

impl Writer {
    /// A commit found no room.
    pub(super) fn begin_trouble(&mut self, no_room: NoRoom) {
        let NoRoom { error, shares, calls } = no_room;
        tracing::error!(%error, sessions = shares.len(), "nothing can be written; it is tried again until it can");
        let mut trouble = Trouble {
            waiting: NoRoom { error: error.clone(), shares, calls: Vec::new() },
            deletions: Vec::new(),
            retry_at: Instant::now() + FIRST_DELAY,
            delay: FIRST_DELAY,
            removing: false,
        };
        // Told first: who is refused finds that it is so.
        self.parts.told.send_replace(Some(error));
        trouble.refuse(calls);
        self.trouble = Some(trouble);
    }

    /// What a commit is while there is no room.
    pub(super) fn commit_in_trouble(&mut self, calls: Vec<Box<dyn Call>>) {
        let Some(mut trouble) = self.trouble.take() else { return };
        trouble.refuse(calls);
        let deletions = self.lanes.take_deletions();
        let is_due = !deletions.is_empty() || trouble.retry_at <= Instant::now();
        trouble.doom(deletions);
        if is_due && !trouble.deletions.is_empty() {
            trouble.removing |= self.delete_first(&mut trouble);
        }
        if !trouble.removing && trouble.retry_at <= Instant::now() {
            self.retry(trouble);
        } else {
            self.trouble = Some(trouble);
        }
    }

    /// Begins the deletions; whether it could.
    fn delete_first(&mut self, trouble: &mut Trouble) -> bool {
        self.parts.reserve.release();
        // With the room moves what is already written, so that the log of changes need not grow.
        let _ = checkpoint::passive(&self.parts.connection);
        self.lift_bound(true);
        let no_room = self.try_commit(std::mem::take(&mut trouble.deletions), Vec::new());
        self.lift_bound(false);
        let done = no_room.is_none();
        trouble.deletions = no_room.map(|no_room| no_room.shares).unwrap_or_default();
        done
    }

    fn retry(&mut self, mut trouble: Trouble) {
        // What is in the database need not be in the log of changes, which then has room.
        let _ = checkpoint::passive(&self.parts.connection);
        let NoRoom { error, mut shares, calls } = trouble.waiting;
        shares.retain_mut(Share::drop_given_up);
        // Without anything to write, something is written to see whether that works.
        let probed = if shares.is_empty() { self.probe() } else { Ok(()) };
        let no_room = match probed {
            Err(error) => Some(NoRoom { error, shares, calls }),
            Ok(()) => self.try_commit(shares, calls),
        };
        if no_room.is_none() && trouble.deletions.is_empty() {
            tracing::info!("writing works again");
            self.parts.told.send_replace(None);
            self.parts.reserve.hold();
            return;
        }
        trouble.waiting = no_room.unwrap_or_else(|| NoRoom::of(error));
        trouble.delay = (trouble.delay * 2).min(LONGEST_DELAY);
        trouble.retry_at = Instant::now() + trouble.delay;
        // What an earlier deletion left is tried now and then too.
        trouble.removing = !self.removals.is_empty();
        self.trouble = Some(trouble);
    }

    /// A step of a removal was done, or found no room.
    pub(super) fn removed_in_trouble(&mut self, done: bool) {
        let more = done && !self.removals.is_empty();
        let Some(trouble) = &mut self.trouble else {
            if done && !more {
                self.parts.reserve.hold();
            }
            return;
        };
        trouble.removing = more;
        if done && !more {
            // Now the room is there, if ever.
            trouble.retry_at = Instant::now();
        }
    }

    /// gander ends, and there is still no room: what waits is lost, as all its askers are told.
    pub(super) fn give_up(&mut self) {
        let Some(trouble) = self.trouble.take() else { return };
        let NoRoom { error, mut shares, mut calls } = trouble.waiting;
        shares.extend(trouble.deletions);
        while !self.lanes.is_empty() {
            shares.extend(self.lanes.take());
        }
        calls.extend(self.take_calls());
        tracing::error!(sessions = shares.len(), "gander ends without having written everything");
        for mut share in shares {
            share.give_up();
        }
        for call in calls {
            call.conclude(Err(error.clone()));
        }
    }
}

impl Trouble {
    /// Refuses what need not be done, keeps the rest.
    fn refuse(&mut self, calls: Vec<Box<dyn Call>>) {
        for call in calls {
            if call.is_patient() {
                self.waiting.calls.push(call);
            } else {
                call.conclude(Err(self.waiting.error.clone()));
            }
        }
    }

    /// Lets sessions go whose deletion was asked for: what was to be written of them is given up.
    fn doom(&mut self, deletions: Vec<Share>) {
        for mut share in std::mem::take(&mut self.waiting.shares) {
            if share.delete.is_some() {
                share.give_up();
                self.deletions.push(share);
            } else {
                if deletions.iter().any(|deletion| deletion.session == share.session) {
                    share.give_up();
                }
                self.waiting.shares.push(share);
            }
        }
        self.deletions.extend(deletions);
    }
}
