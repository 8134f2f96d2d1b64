//! What one commit of the writer does.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::call::Call;
use super::ordered;
use super::queue::Share;
use super::record::write_events;
use crate::session::order::Position;

/// What a commit says of the order of all events.
pub(super) struct Written {
    pub(super) next_position: i64,
    pub(super) forgotten: Position,
}

/// One transaction.
pub(super) fn write(
    connection: &mut Connection,
    calls: &mut [Box<dyn Call>],
    shares: &[Share],
    mut position: i64,
    mut forgotten: Position,
) -> rusqlite::Result<Written> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for call in calls {
        call.run(&transaction);
        // A severe error ends the transaction, and what followed would be written outside one: this commit fails.
        if transaction.is_autocommit() {
            return transaction.commit().map(|()| Written { next_position: position, forgotten });
        }
    }
    for share in shares {
        position = write_share(&transaction, share, position)?;
    }
    if shares.iter().any(|share| share.delete.is_some()) {
        transaction.execute("UPDATE next_position SET position = ?1", (position,))?;
        forgotten = ordered::forget_ends(&transaction)?;
    }
    transaction.commit()?;
    Ok(Written { next_position: position, forgotten })
}

fn write_share(connection: &Connection, share: &Share, position: i64) -> rusqlite::Result<i64> {
    let mut events = None;
    for append in &share.appends {
        if let Some(run) = &append.run {
            write_events(connection, share.session, run)?;
            let (first, _) = events.unwrap_or((run.first(), run.last()));
            events = Some((first, run.last()));
        }
        for record in &append.records {
            record.write(connection, share.session)?;
        }
    }
    for entry in share.appends.iter().flat_map(|append| &append.audit) {
        entry.write(connection)?;
    }
    let mut next_position = position;
    if let Some((first, last)) = events {
        // A share's runs follow each other: one row is enough for all.
        let (first, count) = (first.0.cast_signed(), (last.0 - first.0 + 1).cast_signed());
        connection
            .prepare_cached("INSERT INTO runs (position, session, first, count) VALUES (?1, ?2, ?3, ?4)")?
            .execute((position, share.session.0, first, count))?;
        next_position += count;
    }
    if let Some(deletion) = &share.delete {
        deletion.entry.write(connection)?;
        ordered::keep_end(connection, share.session)?;
        // From here on nobody can read it; the rest goes step by step.
        connection.execute("DELETE FROM sessions WHERE number = ?1", (share.session.0,))?;
        connection.execute("INSERT OR IGNORE INTO deletions (session) VALUES (?1)", (share.session.0,))?;
    }
    Ok(next_position)
}

/// Behind every position that was ever given.
pub(super) fn next_position(connection: &Connection) -> rusqlite::Result<i64> {
    let kept: i64 = connection.query_row("SELECT position FROM next_position", (), |row| row.get(0))?;
    let behind_runs: Option<i64> = connection
        .query_row("SELECT position + count FROM runs ORDER BY position DESC LIMIT 1", (), |row| row.get(0))
        .optional()?;
    Ok(behind_runs.unwrap_or(kept).max(kept))
}
