//! A disk that is full or fails: what was to be written is kept and tried again until there is room.
//!
//! Meanwhile nothing new is begun (who asks is refused), agents are held back by the bounded queue, and reading goes
//! on. Deletions go first, since they make the room; for them the reserve on the disk is given up.

use std::thread;
use std::time::{Duration, Instant};

use super::checkpoint;
use super::queue::Share;
use super::writer::{Call, Writer};
use crate::session::log::StoreError;

/// How long the writer leaves a full disk alone before it looks what it is asked.
const PAUSE: Duration = Duration::from_millis(20);
/// Between the first two tries; then twice as long each time.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// Between two tries, at most.
const LONGEST_DELAY: Duration = Duration::from_secs(2);

/// What waits for room.
pub(super) struct Trouble {
    error: StoreError,
    /// What the failed commit was to write, in order: nothing else of these sessions is written before.
    shares: Vec<Share>,
    /// Requests that wait with it.
    calls: Vec<Box<dyn Call>>,
    /// Deletions, which go first.
    deletions: Vec<Share>,
    retry_at: Instant,
    delay: Duration,
    /// Whether deleted rows are going: then there is no waiting.
    removing: bool,
}

impl Trouble {
    /// Whether deleted rows are going.
    pub(super) fn is_removing(&self) -> bool {
        self.removing
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
    pub(super) fn begin_trouble(&mut self, error: StoreError, shares: Vec<Share>, calls: Vec<Box<dyn Call>>) {
        tracing::error!(%error, sessions = shares.len(), "nothing can be written; it is tried again until it can");
        let mut trouble = Trouble {
            error: error.clone(),
            shares,
            calls: Vec::new(),
            deletions: Vec::new(),
            retry_at: Instant::now() + FIRST_DELAY,
            delay: FIRST_DELAY,
            removing: false,
        };
        trouble.refuse(calls);
        self.trouble = Some(trouble);
        // Told last: who is refused finds that it is so.
        self.parts.told.send_replace(Some(error));
    }

    /// What a commit is while there is no room.
    pub(super) fn commit_in_trouble(&mut self, calls: Vec<Box<dyn Call>>) {
        let Some(mut trouble) = self.trouble.take() else { return };
        trouble.refuse(calls);
        trouble.doom(self.lanes.take_deletions());
        if !trouble.deletions.is_empty() {
            self.parts.reserve.release();
            self.lift_bound(true);
            let deletions = std::mem::take(&mut trouble.deletions);
            match self.try_commit(deletions, Vec::new()) {
                None => trouble.removing = true,
                Some((_, deletions, _)) => trouble.deletions = deletions,
            }
            self.lift_bound(false);
        }
        if trouble.removing || Instant::now() < trouble.retry_at {
            self.trouble = Some(trouble);
            return;
        }
        // What is in the database need not be in the log of changes, which then has room.
        checkpoint::passive(&self.parts.connection);
        trouble.shares.retain_mut(Share::drop_given_up);
        let probed = if trouble.shares.is_empty() { self.probe() } else { Ok(()) };
        let failed = match probed {
            Err(error) => Some((error, Vec::new(), trouble.calls)),
            Ok(()) => self.try_commit(trouble.shares, trouble.calls),
        };
        match failed {
            None if trouble.deletions.is_empty() => {
                tracing::info!("writing works again");
                self.parts.told.send_replace(None);
                self.parts.reserve.hold();
            }
            failed => {
                let (error, shares, calls) =
                    failed.unwrap_or_else(|| (trouble.error.clone(), Vec::new(), Vec::new()));
                let delay = (trouble.delay * 2).min(LONGEST_DELAY);
                let retry_at = Instant::now() + delay;
                // What an earlier deletion left is tried now and then too.
                let removing = !self.removals.is_empty();
                self.trouble = Some(Trouble { error, shares, calls, delay, retry_at, removing, ..trouble });
            }
        }
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
        checkpoint::passive(&self.parts.connection);
    }

    /// gander ends, and there is still no room: what waits is lost, as all its askers are told.
    pub(super) fn give_up(&mut self) {
        let Some(trouble) = self.trouble.take() else { return };
        let mut shares = trouble.shares;
        let mut calls = trouble.calls;
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
            call.conclude(Err(trouble.error.clone()));
        }
    }
}

impl Trouble {
    /// Refuses what need not be done, keeps the rest.
    fn refuse(&mut self, calls: Vec<Box<dyn Call>>) {
        for call in calls {
            if call.is_patient() {
                self.calls.push(call);
            } else {
                call.conclude(Err(self.error.clone()));
            }
        }
    }

    /// Lets sessions go whose deletion was asked for: what was to be written of them is given up.
    fn doom(&mut self, deletions: Vec<Share>) {
        for mut share in std::mem::take(&mut self.shares) {
            if share.delete.is_some() {
                share.give_up();
                self.deletions.push(share);
            } else {
                if deletions.iter().any(|deletion| deletion.session == share.session) {
                    share.give_up();
                }
                self.shares.push(share);
            }
        }
        self.deletions.extend(deletions);
    }
}
