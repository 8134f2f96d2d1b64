//! When pending permissions expire, by a clock that nobody sets.
//!
//! `expires_at` is for people. What counts is the span between it and `requested_at`, measured on the monotonic clock:
//! a wall clock that jumps must neither reject a question that was just asked nor keep one open for hours.

use tokio::time::Instant;

use crate::session::id::PermissionId;
use crate::session::permission::Permission;

/// The deadlines of what is pending.
#[derive(Debug, Default)]
pub(in crate::session) struct Deadlines {
    /// In the order in which they were asked. There are only ever a few.
    pending: Vec<(PermissionId, Instant)>,
}

impl Deadlines {
    /// Begins to count for what is newly pending, and forgets what is pending no more.
    pub(super) fn follow(&mut self, pending: &[Permission]) {
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
        self.pending.iter().map(|(_, deadline)| *deadline).min()
    }

    /// Whose time is up.
    pub(super) fn due(&self) -> Vec<PermissionId> {
        let now = Instant::now();
        self.pending.iter().filter(|(_, deadline)| *deadline <= now).map(|(id, _)| *id).collect()
    }
}
