//! When pending permissions expire and when a turn has taken as long as it may, by a clock that nobody sets.
//!
//! `expires_at` is for people. What counts is the span between it and `requested_at`, measured on the monotonic clock:
//! a wall clock that jumps must neither reject a question that was just asked nor keep one open for hours.

use std::time::Duration;

use tokio::time::Instant;

use crate::session::id::{PermissionId, TurnId};
use crate::session::permission::Permission;
use crate::session::snapshot::Snapshot;

/// The deadlines of what is pending, and of the running turn.
#[derive(Debug, Default)]
pub(in crate::session) struct Deadlines {
    /// How long a turn may take; zero: as long as it likes.
    turn_duration: Duration,
    /// The running turn, and when its time is up; no longer then.
    turn: Option<(TurnId, Option<Instant>)>,
    /// In the order in which they were asked. There are only ever a few.
    pending: Vec<(PermissionId, Instant)>,
}

impl Deadlines {
    pub(in crate::session) fn new(turn_duration: Duration) -> Self {
        Self { turn_duration, ..Self::default() }
    }

    /// Begins to count for what is new, and forgets what is over.
    pub(super) fn follow(&mut self, snapshot: &Snapshot) {
        self.follow_turn(snapshot.current_turn.as_ref().map(|turn| turn.id));
        self.follow_permissions(&snapshot.pending_permissions);
    }

    fn follow_turn(&mut self, running: Option<TurnId>) {
        if self.turn_duration.is_zero() || self.turn.map(|(turn, _)| turn) == running {
            return;
        }
        // A duration that no clock counts to is no limit.
        self.turn = running.map(|turn| (turn, Instant::now().checked_add(self.turn_duration)));
    }

    fn follow_permissions(&mut self, pending: &[Permission]) {
        if pending.is_empty() {
            self.pending.clear();
            return;
        }
        self.pending.retain(|(id, _)| pending.iter().any(|permission| permission.id == *id));
        for permission in pending {
            if !self.pending.iter().any(|(id, _)| *id == permission.id) {
                let span = permission.expires_at.remaining(permission.requested_at);
                self.pending.push((permission.id, Instant::now() + span));
            }
        }
    }

    /// The next one.
    pub(super) fn next(&self) -> Option<Instant> {
        let turn = self.turn.and_then(|(_, deadline)| deadline);
        self.pending.iter().map(|(_, deadline)| *deadline).chain(turn).min()
    }

    /// The running turn, once its time is up; once only.
    pub(super) fn due_turn(&mut self) -> Option<TurnId> {
        let (turn, deadline) = self.turn.as_mut()?;
        deadline.take_if(|deadline| *deadline <= Instant::now()).map(|_| *turn)
    }

    /// Whose time is up.
    pub(super) fn due(&self) -> Vec<PermissionId> {
        let now = Instant::now();
        self.pending.iter().filter(|(_, deadline)| *deadline <= now).map(|(id, _)| *id).collect()
    }
}
