//! Moves committed pages from the write-ahead log into the database, beside the writer.
//!
//! `SQLite` would do it within a commit, and everybody would wait. A thread alone never gets the log to start again
//! from its beginning, since the writer is always a little ahead: so when it has become large, the writer moves the
//! little that is left right after the thread. It then waits for the disk three times, and everybody with it: done at
//! every checkpoint that took 3 % of its time with 4,000 events a second, and so was what the slowest hundredth of them
//! waited for.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

/// How long changes may wait for a checkpoint.
const INTERVAL: Duration = Duration::from_millis(750);
/// With so much written the checkpoint is due at once.
const LARGE_BYTES: usize = 8 * 1024 * 1024;
/// A write-ahead log of so many pages is to start again: 64 MiB.
const RESTART_PAGES: i64 = 16 * 1024;
/// What a commit writes besides its contents, about: whole pages, not rows.
const COMMIT_BYTES: usize = 16 * 1024;

#[derive(Debug, Default)]
struct Written {
    /// Since the last checkpoint, about.
    bytes: usize,
    stop: bool,
}

/// How much the write-ahead log holds, and whose turn it is.
#[derive(Debug)]
pub(super) struct Wal {
    /// A standard mutex: it is held to add a number, and given up while waiting.
    written: Mutex<Written>,
    changed: Condvar,
    /// Set by the thread after its checkpoint when the log is large, cleared by the writer after its own.
    writers_turn: AtomicBool,
    restart_pages: i64,
}

impl Default for Wal {
    fn default() -> Self {
        Self::new(RESTART_PAGES)
    }
}

impl Wal {
    fn new(restart_pages: i64) -> Self {
        let (written, changed, writers_turn) = Default::default();
        Self { written, changed, writers_turn, restart_pages }
    }

    /// The writer has committed so much.
    pub(super) fn wrote(&self, bytes: usize) {
        let mut written = self.lock();
        let before = written.bytes;
        written.bytes = before.saturating_add(bytes).saturating_add(COMMIT_BYTES);
        if before == 0 || (before < LARGE_BYTES && written.bytes >= LARGE_BYTES) {
            self.changed.notify_one();
        }
    }

    /// The writer's short checkpoint, when the thread has just done the long one and the log is large.
    pub(super) fn finish(&self, writer: &Connection) {
        if self.writers_turn.swap(false, Ordering::AcqRel) {
            passive_or_warn(writer);
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
            self.begin(connection);
        }
    }

    /// The long checkpoint, beside the writer.
    fn begin(&self, connection: &Connection) {
        if passive_or_warn(connection).pages >= self.restart_pages {
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

/// What a checkpoint came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    /// Pages in the write-ahead log.
    pages: i64,
    /// Whether all of them are in the database now, so that the log starts again with the next commit.
    pub(super) all: bool,
}

/// A checkpoint that waits for nobody. That it could not move everything is no failure: the next one will.
pub(super) fn passive(connection: &Connection) -> rusqlite::Result<Moved> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |row| {
        let (busy, pages, moved): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Moved { pages, all: busy == 0 && pages == moved })
    })
}

fn passive_or_warn(connection: &Connection) -> Moved {
    passive(connection).unwrap_or_else(|error| {
        tracing::warn!(%error, "the database's checkpoint failed");
        Moved::default()
    })
}

/// Moves everything and empties the write-ahead log; whether it did. For the end, when no other connection is open.
pub(super) fn truncate(connection: &Connection) -> bool {
    match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, bool>(0)) {
        Ok(busy) => !busy,
        Err(error) => {
            tracing::warn!(%error, "the database's last checkpoint failed");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use super::*;
    use crate::store::schema::{self, Synchronous};

    /// Bytes 12 to 15 of the write-ahead log's header count how often it has started again.
    fn starts(dir: &Path) -> u32 {
        let mut count = [0; 4];
        File::open(dir.join("gander.db-wal")).unwrap().read_exact_at(&mut count, 12).unwrap();
        u32::from_be_bytes(count)
    }

    #[test]
    fn the_log_starts_again_when_the_writer_finishes_what_the_thread_began() {
        let dir = tempfile::tempdir().unwrap();
        let writer = schema::open(dir.path(), Synchronous::Normal).unwrap();
        let thread = schema::open_checkpointer(dir.path(), Synchronous::Normal).unwrap();
        let wal = Wal::new(1);
        let write =
            || writer.execute("INSERT INTO events (kind, data) VALUES (1, zeroblob(10000))", ()).unwrap();
        let read = |sql: &str| thread.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap();

        write();
        // A subscriber that reads keeps the thread from moving what is written after.
        let reader = schema::open_reader(dir.path()).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM events").unwrap();
        write();
        let before = starts(dir.path());
        wal.begin(&thread);
        drop(reader);
        write();
        assert_eq!(starts(dir.path()), before, "the writer was ahead");
        wal.finish(&writer);
        write();
        assert_eq!(starts(dir.path()), before + 1);

        // Only right after the thread: else the writer would do all of it.
        write();
        wal.finish(&writer);
        write();
        assert_eq!(starts(dir.path()), before + 1);
        // And only when the log is large.
        let wal = Wal::new(1_000);
        let reader = schema::open_reader(dir.path()).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM events").unwrap();
        write();
        wal.begin(&thread);
        drop(reader);
        wal.finish(&writer);
        write();
        assert_eq!(starts(dir.path()), before + 1);
        assert_eq!(read("SELECT count(*) FROM events"), 8);
    }

    #[test]
    fn a_checkpoint_is_due_when_much_was_written_and_never_after_the_end() {
        let wal = Wal::default();
        wal.wrote(LARGE_BYTES);
        assert!(wal.due());
        wal.wrote(LARGE_BYTES);
        wal.stop();
        assert!(!wal.due());
    }
}
