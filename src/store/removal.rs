//! Removes what deleted sessions leave: in small steps, with other writes in between.

use std::collections::VecDeque;

use rusqlite::{Connection, TransactionBehavior};

use super::queue::Deleted;
use super::record::{Fault, LAST_ID, key, may_pass};
use crate::session::id::{EventId, SessionNumber};

/// Rows removed at once. Measured: at most 4 ms.
pub(super) const STEP_ROWS: u32 = 2000;
/// Pages given back to the file system at once.
const STEP_PAGES: u32 = 256;

/// Removes at most ?3 events with keys from ?1 to ?2.
const REMOVE_EVENTS: &str =
    "DELETE FROM events WHERE k IN (SELECT k FROM events WHERE k BETWEEN ?1 AND ?2 LIMIT ?3)";
/// Each removes at most ?2 rows of session ?1.
const REMOVE_ROWS: [&str; 3] = [
    "DELETE FROM runs WHERE position IN (SELECT position FROM runs WHERE session = ?1 LIMIT ?2)",
    "DELETE FROM turns WHERE k IN (SELECT k FROM turns WHERE session = ?1 LIMIT ?2)",
    "DELETE FROM permissions WHERE k IN (SELECT k FROM permissions WHERE session = ?1 LIMIT ?2)",
];

#[derive(Debug)]
struct Removal {
    session: SessionNumber,
    /// Absent for what an earlier run left.
    deleted: Option<Deleted>,
}

/// What is still to be removed.
#[derive(Debug, Default)]
pub(super) struct Removals {
    pending: VecDeque<Removal>,
    /// Whether the file may have free pages to give back.
    shrink: bool,
}

impl Removals {
    /// What the last run did not get done.
    pub(super) fn left(connection: &Connection) -> rusqlite::Result<Self> {
        let mut sessions = connection.prepare("SELECT session FROM deletions ORDER BY session")?;
        let pending = sessions
            .query_map((), |row| Ok(Removal { session: SessionNumber(row.get(0)?), deleted: None }))?
            .collect::<Result<VecDeque<_>, _>>()?;
        Ok(Self { shrink: !pending.is_empty(), pending })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && !self.shrink
    }

    /// Takes a session whose row is gone and whose entry in `deletions` is committed.
    pub(super) fn push(&mut self, session: SessionNumber, deleted: Deleted) {
        self.pending.push_back(Removal { session, deleted: Some(deleted) });
    }

    /// One step; whether anything was written. An error means that there was no room: the step is still to be done.
    pub(super) fn step(&mut self, connection: &mut Connection) -> rusqlite::Result<bool> {
        if let Some(removal) = self.pending.front() {
            match remove(connection, removal.session) {
                Ok(false) => {}
                Ok(true) => {
                    self.shrink = true;
                    self.end(Ok(()));
                }
                Err(error) if may_pass(&error) => return Err(error),
                // The entry in `deletions` stays: the next start goes on.
                Err(error) => {
                    tracing::error!(%error, "a deleted session's data could not be removed");
                    self.end(Err(error));
                }
            }
            return Ok(true);
        }
        if self.shrink {
            self.shrink = match shrink(connection) {
                Err(error) if may_pass(&error) => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "the database could not be made smaller");
                    false
                }
                Ok(more) => more,
            };
            return Ok(true);
        }
        Ok(false)
    }

    fn end(&mut self, result: Result<(), rusqlite::Error>) {
        if let Some(Removal { deleted: Some(deleted), .. }) = self.pending.pop_front() {
            // Nobody waits when the caller is gone.
            let _ = deleted.send(result.map_err(|error| Fault::from(error).into()));
        }
    }
}

/// Removes some rows; true when there are none left.
fn remove(connection: &mut Connection, session: SessionNumber) -> rusqlite::Result<bool> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (first, last) = (key(session, EventId(1)), key(session, LAST_ID));
    let mut removed = transaction.prepare_cached(REMOVE_EVENTS)?.execute((first, last, STEP_ROWS))?;
    for sql in REMOVE_ROWS {
        if removed == 0 {
            removed = transaction.prepare_cached(sql)?.execute((session.0, STEP_ROWS))?;
        }
    }
    if removed == 0 {
        transaction.execute("DELETE FROM lost WHERE session = ?1", (session.0,))?;
        transaction.execute("DELETE FROM deletions WHERE session = ?1", (session.0,))?;
    }
    transaction.commit()?;
    Ok(removed == 0)
}

/// Gives some free pages back; whether there are more.
fn shrink(connection: &Connection) -> rusqlite::Result<bool> {
    // Every page is a row of the answer: who does not read them all frees one page only.
    let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({STEP_PAGES})"))?;
    let mut pages = vacuum.query(())?;
    while pages.next()?.is_some() {}
    let free: i64 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    Ok(free > 0)
}
