//! The order of all sessions' events, in the tables `runs` and `ended_sessions`.
//!
//! What a deleted session said is gone with it, but its `session.deleted` stays, at its place: whoever was away learns
//! why there is nothing more. The newest [`ENDS_KEPT`] are kept.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};

use super::reader;
use super::record::{Fault, id_of, key};
use crate::session::event::EventKind;
use crate::session::id::{EventId, SessionNumber};
use crate::session::order::{OrderFilter, OrderHead, OrderedRuns, PlacedRun, Position, StoreTag};
use crate::session::run::RunBuilder;

/// How many deleted sessions' last events are kept: about 3 MB.
const ENDS_KEPT: u32 = 10_000;
/// How many runs are looked at in one read, whoever owns them: a read has to be short.
const STEP_RUNS: u32 = 1000;

/// Which database this is, and how far its order is when `next_position` comes next.
pub(super) fn state(connection: &Connection, next_position: i64) -> rusqlite::Result<(StoreTag, OrderHead)> {
    connection.query_row("SELECT tag, forgotten FROM event_order", (), |row| {
        let head = OrderHead { committed: position(next_position - 1), forgotten: position(row.get(1)?) };
        Ok((StoreTag(row.get(0)?), head))
    })
}

fn position(column: i64) -> Position {
    Position(column.cast_unsigned())
}

fn column(position: Position) -> i64 {
    i64::try_from(position.0).unwrap_or(i64::MAX)
}

/// A row of `runs`, with the owner of its session if that still exists.
struct RunRow {
    position: Position,
    session: SessionNumber,
    first: EventId,
    count: u64,
    owner: Option<String>,
}

pub(super) fn events(
    connection: &Connection,
    filter: &OrderFilter,
    after: Position,
    until: Position,
    max_bytes: usize,
) -> Result<OrderedRuns, Fault> {
    // One view of all tables: a session that is being deleted has either its events or its end.
    let connection = connection.unchecked_transaction()?;
    let (rows, mut through) = runs(&connection, after, until)?;
    let ends = ends(&connection, after, &mut through)?;
    let mut ends = ends.into_iter().filter(|end| filter.takes(&end.owner, end.session)).peekable();
    let mut runs = Vec::new();
    let mut bytes = 0;
    for row in rows {
        if row.position > through || bytes >= max_bytes {
            through = through.min(Position(row.position.0 - 1));
            break;
        }
        let Some(owner) = row.owner else { continue };
        if !filter.takes(&owner, row.session) {
            continue;
        }
        while let Some(end) = ends.next_if(|end| end.position < row.position) {
            runs.push(end);
        }
        let owner = Arc::<str>::from(owner);
        let mut before = EventId(row.first.0 - 1 + (after.0 + 1).saturating_sub(row.position.0));
        let last = EventId(row.first.0 + row.count - 1);
        while before < last && bytes < max_bytes {
            let Some(run) = reader::events_up_to(&connection, row.session, before, last, max_bytes - bytes)?
            else {
                return Err(Fault::Gap { expected: before.next(), found: last.next() });
            };
            let position = Position(row.position.0 + run.first().0 - row.first.0);
            before = run.last();
            bytes += run.size();
            runs.push(PlacedRun {
                position,
                owner: Arc::clone(&owner),
                session: row.session,
                run: run.into(),
            });
        }
        if before < last {
            through = through.min(Position(row.position.0 + before.0 - row.first.0));
            break;
        }
    }
    runs.extend(ends.take_while(|end| end.position <= through));
    Ok(OrderedRuns { runs, through })
}

/// The runs with something behind `after`, and how far they go.
fn runs(
    connection: &Connection,
    after: Position,
    until: Position,
) -> rusqlite::Result<(Vec<RunRow>, Position)> {
    // The first one may begin before: the greatest position that is not behind the next event.
    let mut select = connection.prepare_cached(
        "SELECT r.position, r.session, r.first, r.count, s.owner
         FROM runs r LEFT JOIN sessions s ON s.number = r.session
         WHERE r.position >= coalesce((SELECT max(position) FROM runs WHERE position <= ?1), ?1)
             AND r.position <= ?2
         ORDER BY r.position LIMIT ?3",
    )?;
    let rows = select
        .query_map((column(after).saturating_add(1), column(until), STEP_RUNS), |row| {
            Ok(RunRow {
                position: position(row.get(0)?),
                session: SessionNumber(row.get(1)?),
                first: EventId(row.get::<_, i64>(2)?.cast_unsigned()),
                count: row.get::<_, i64>(3)?.cast_unsigned(),
                owner: row.get(4)?,
            })
        })?
        .collect::<Result<Vec<_>, _>>()?;
    let through = match rows.last() {
        Some(last) if rows.len() == STEP_RUNS as usize => Position(last.position.0 + last.count - 1),
        _ => until,
    };
    Ok((rows, through))
}

/// The ends of deleted sessions behind `after`. When there are too many for one read `through` is lowered.
fn ends(connection: &Connection, after: Position, through: &mut Position) -> Result<Vec<PlacedRun>, Fault> {
    let mut select = connection.prepare_cached(
        "SELECT position, session, event, owner, data FROM ended_sessions
         WHERE position > ?1 AND position <= ?2 ORDER BY position LIMIT ?3",
    )?;
    let mut rows = select.query((column(after), column(*through), STEP_RUNS))?;
    let mut ends = Vec::new();
    while let Some(row) = rows.next()? {
        let mut run = RunBuilder::new(EventId(row.get::<_, i64>(2)?.cast_unsigned()));
        let json = row.get_ref(4)?.as_blob().map_err(rusqlite::Error::from)?;
        run.push_json(EventKind::SessionDeleted, None, json);
        let Some(run) = run.finish()? else { continue };
        ends.push(PlacedRun {
            position: position(row.get(0)?),
            session: SessionNumber(row.get(1)?),
            owner: row.get::<_, String>(3)?.into(),
            run: run.into(),
        });
    }
    if let Some(last) = ends.last()
        && ends.len() == STEP_RUNS as usize
    {
        *through = (*through).min(last.position);
    }
    Ok(ends)
}

/// Keeps the `session.deleted` of a session that is about to be deleted, if it ended with one.
pub(super) fn keep_end(connection: &Connection, session: SessionNumber) -> rusqlite::Result<()> {
    let last = connection
        .prepare_cached("SELECT k, kind FROM events WHERE k BETWEEN ?1 AND ?2 ORDER BY k DESC LIMIT 1")?
        .query_row((key(session, EventId(1)), key(session, EventId(u64::MAX))), |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })
        .optional()?;
    let Some((k, kind)) = last else { return Ok(()) };
    if kind != i64::from(EventKind::SessionDeleted.code()) {
        return Ok(());
    }
    connection
        .prepare_cached(
            "INSERT OR IGNORE INTO ended_sessions (position, session, event, owner, data)
             SELECT r.position + ?2 - r.first, s.number, ?2, s.owner, e.data
             FROM sessions s JOIN events e ON e.k = ?3 JOIN runs r ON r.session = s.number AND r.first <= ?2
             WHERE s.number = ?1 ORDER BY r.first DESC LIMIT 1",
        )?
        .execute((session.0, id_of(k).0.cast_signed(), k))?;
    Ok(())
}

/// Drops the oldest ends when there are too many; gives the position up to which there were such.
pub(super) fn forget_ends(connection: &Connection) -> rusqlite::Result<Position> {
    let oldest: Option<i64> = connection
        .prepare_cached("SELECT position FROM ended_sessions ORDER BY position DESC LIMIT 1 OFFSET ?1")?
        .query_row((ENDS_KEPT,), |row| row.get(0))
        .optional()?;
    if let Some(oldest) = oldest {
        connection.prepare_cached("DELETE FROM ended_sessions WHERE position <= ?1")?.execute((oldest,))?;
        connection.prepare_cached("UPDATE event_order SET forgotten = ?1")?.execute((oldest,))?;
    }
    connection.query_row("SELECT forgotten FROM event_order", (), |row| row.get(0)).map(position)
}
