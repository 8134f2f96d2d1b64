//! Keeps ids from being given twice after a loss of power.
//!
//! With `sync = "normal"` a commit survives the death of the process at once, but that of the machine only when the
//! next checkpoint has synced the log. A power loss takes back the last moments, which subscribers may have seen. So
//! every run notes, synced, in which boot of the kernel it runs; a run that has ended well takes the note back. When a
//! start finds the note of another boot, every session's ids and the global positions go on far behind all that can
//! have been given out, with a notice as the first event. A cursor in the gap is one of those that were lost.

use rusqlite::{Connection, TransactionBehavior};

use super::commit::next_position;
use super::reader;
use super::record::{Fault, write_events};
use crate::session::agent::NoticeLevel;
use crate::session::event::{EventBody, EventKind};
use crate::session::id::{EventId, SessionId, Timestamp};
use crate::session::run::RunBuilder;

/// How far ids jump. The log is synced about every second; the fastest flood has given ids for a quarter of a minute
/// when it reaches this.
pub(super) const JUMP: u64 = 10_000_000;

/// What tells one boot of the kernel from another; empty when the kernel does not say.
pub(super) fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Notes that a run begins, before anything is told to anybody; `at_risk` when its commits do not wait for the disk.
/// First makes up for what the run before may have lost. The note is on the disk when this returns.
pub(super) fn begin_run(connection: &mut Connection, boot: &str, at_risk: bool) -> Result<(), Fault> {
    synced(connection, |connection| {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (last_boot, was_at_risk): (String, bool) =
            transaction
                .query_row("SELECT boot, at_risk FROM last_run", (), |row| Ok((row.get(0)?, row.get(1)?)))?;
        if was_at_risk && (boot.is_empty() || last_boot != boot) {
            let sessions = jump(&transaction)?;
            tracing::warn!(
                sessions,
                "the machine has ended without gander ending first: the last moments may be lost, and ids go on \
                 {JUMP} further"
            );
        }
        transaction.execute("UPDATE last_run SET boot = ?1, at_risk = ?2", (boot, at_risk))?;
        Ok(transaction.commit()?)
    })
}

/// Notes that a run ends and everything is on the disk.
pub(super) fn end_run(connection: &mut Connection) -> rusqlite::Result<()> {
    synced(connection, |connection| connection.execute("UPDATE last_run SET at_risk = 0", ()).map(drop))
}

/// Does work whose commit waits for the disk.
fn synced<E: From<rusqlite::Error>>(
    connection: &mut Connection,
    work: impl FnOnce(&mut Connection) -> Result<(), E>,
) -> Result<(), E> {
    let usual: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let result = work(connection);
    connection.pragma_update(None, "synchronous", usual)?;
    result
}

/// Lets every session's ids and the positions go on behind a gap; gives the number of sessions.
fn jump(connection: &Connection) -> Result<usize, Fault> {
    let mut position = next_position(connection)? + JUMP.cast_signed();
    // Over all sessions every older cursor is refused: it may stand behind events of any of them.
    connection.execute("UPDATE event_order SET forgotten = ?1", (position,))?;
    let sessions = reader::all_sessions(connection)?;
    let count = sessions.len();
    for (number, record, kept) in sessions {
        let next = EventId(kept.0 + JUMP);
        connection
            .prepare_cached("INSERT INTO lost (session, kept, next) VALUES (?1, ?2, ?3)")?
            .execute((number.0, kept.0.cast_signed(), next.0.cast_signed()))?;
        let session: SessionId = record.snapshot.id;
        let mut run = RunBuilder::new(next);
        let message = format!(
            "the machine has ended without gander ending first: events behind {kept} may be lost, and ids go on \
             with {next}"
        );
        let notice = EventBody::Notice { level: NoticeLevel::Warning, code: "events-lost".into(), message };
        run.push(session, None, Timestamp::now(), EventKind::Notice, &notice)?;
        if let Some(run) = run.finish()? {
            write_events(connection, number, &run)?;
            connection
                .prepare_cached("INSERT INTO runs (position, session, first, count) VALUES (?1, ?2, ?3, 1)")?
                .execute((position, number.0, next.0.cast_signed()))?;
            position += 1;
        }
    }
    connection.execute("UPDATE next_position SET position = ?1", (position,))?;
    Ok(count)
}
