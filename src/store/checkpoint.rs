//! Moves committed pages from the write-ahead log into the database, beside the writer.
//!
//! `SQLite` would do it within a commit, and everybody would wait. A thread alone never gets the log to start again
//! from its beginning, since the writer is always a little ahead: so right after the thread, the writer moves the
//! little that is left.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

/// How long changes may wait for a checkpoint.
const INTERVAL: Duration = Duration::from_millis(750);
/// With so much written the checkpoint is due at once.
const LARGE_BYTES: usize = 8 * 1024 * 1024;
/// What a commit writes besides its contents, about: whole pages, not rows.
const COMMIT_BYTES: usize = 16 * 1024;

#[derive(Debug, Default)]
struct Written {
    /// Since the last checkpoint, about.
    bytes: usize,
    stop: bool,
}

/// How much the write-ahead log holds, and whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Wal {
    /// A standard mutex: it is held to add a number, and given up while waiting.
    written: Mutex<Written>,
    changed: Condvar,
    /// Set by the thread after its checkpoint, cleared by the writer after its own.
    writers_turn: AtomicBool,
}

impl Wal {
    /// The writer has committed so much.
    pub(super) fn wrote(&self, bytes: usize) {
        let mut written = self.lock();
        let before = written.bytes;
        written.bytes = before.saturating_add(bytes).saturating_add(COMMIT_BYTES);
        if before == 0 || (before < LARGE_BYTES && written.bytes >= LARGE_BYTES) {
            self.changed.notify_one();
        }
    }

    /// The writer's short checkpoint, when the thread has just done the long one.
    pub(super) fn finish(&self, writer: &Connection) {
        if self.writers_turn.swap(false, Ordering::AcqRel) {
            passive(writer);
        }
    }

    /// Ends [`Wal::checkpoints`].
    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_one();
    }

    /// The thread: a checkpoint whenever something was written for a while, or much.
    pub(super) fn checkpoints(&self, connection: &Connection) {
        while self.due() {
            passive(connection);
            self.writers_turn.store(true, Ordering::Release);
        }
    }

    /// Waits for the next checkpoint; false when there will be none.
    fn due(&self) -> bool {
        let idle = |written: &mut Written| written.bytes == 0 && !written.stop;
        let small = |written: &mut Written| written.bytes < LARGE_BYTES && !written.stop;
        let written = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(written, INTERVAL, small);
        let (mut written, _) = waited.unwrap_or_else(PoisonError::into_inner);
        mem::take(&mut written.bytes);
        !written.stop
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        // Nothing can be half done within an addition.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A checkpoint that waits for nobody. That it could not move everything is no failure: the next one will.
fn passive(connection: &Connection) {
    if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(())) {
        tracing::warn!(%error, "the database's checkpoint failed");
    }
}

/// Moves everything and empties the write-ahead log. For the end, when no other connection is open.
pub(super) fn truncate(connection: &Connection) {
    if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())) {
        tracing::warn!(%error, "the database's last checkpoint failed");
    }
}
