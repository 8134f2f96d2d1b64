//! Reading: a few threads, each with a connection of its own, and short transactions.
//!
//! A long transaction would keep the write-ahead log from starting again, and a thread per request would make
//! hundreds of threads when many subscribers come back at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::record::{Fault, LAST_ID, id_of, key, permission_state};
use crate::session::event::EventKind;
use crate::session::id::{EventId, PermissionId, SessionId, SessionNumber, TurnId};
use crate::session::log::{Owner, Page, PermissionsOf, SessionRecord, StoreError};
use crate::session::permission::{Permission, PermissionState};
use crate::session::run::{Run, RunBuilder};
use crate::session::snapshot::{SessionState, Snapshot};
use crate::session::turn::Turn;

/// Requests that may wait for a thread; the next ones wait to be queued.
const QUEUE: usize = 256;

/// An event as it is kept: its JSON.
type StoredEvent = (EventId, Box<[u8]>);

type Work = Box<dyn FnOnce(&Connection) + Send>;

enum Job {
    Read(Work),
    Stop,
}

/// The way to the reading threads. Cheap to clone.
#[derive(Clone)]
pub(super) struct Readers {
    jobs: mpsc::Sender<Job>,
}

impl Readers {
    /// Starts a thread per connection.
    pub(super) fn start(connections: Vec<Connection>) -> std::io::Result<(Self, Vec<JoinHandle<()>>)> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        // The threads take turns at the receiver: who holds the lock waits for the next job.
        let queue = Arc::new(Mutex::new(queue));
        let threads = connections
            .into_iter()
            .map(|connection| {
                let queue = Arc::clone(&queue);
                thread::Builder::new().name("store-reader".into()).spawn(move || serve(&connection, &queue))
            })
            .collect::<Result<_, _>>()?;
        Ok((Self { jobs }, threads))
    }

    /// Reads on one of the threads.
    pub(super) async fn read<T, F>(self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let work: Work = Box::new(move |connection| {
            // Who asked may have left in the meantime.
            if !reply.is_closed() {
                let _ = reply.send(work(connection).map_err(StoreError::from));
            }
        });
        self.jobs.send(Job::Read(work)).await.map_err(|_| StoreError::Closed)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Ends the threads when they have done what is queued. Not for asynchronous tasks.
    pub(super) fn stop(&self) {
        // It fails when they have ended already.
        let _ = self.jobs.blocking_send(Job::Stop);
    }
}

fn serve(connection: &Connection, queue: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        let work = {
            let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            match queue.blocking_recv() {
                Some(Job::Read(work)) => work,
                Some(Job::Stop) => {
                    queue.close();
                    continue;
                }
                None => return,
            }
        };
        work(connection);
    }
}

/// A session whose row is gone has no events, though some rows may still be there.
pub(super) fn events(
    connection: &Connection,
    session: SessionNumber,
    after: EventId,
    max_bytes: usize,
) -> Result<Option<Run>, Fault> {
    events_up_to(connection, session, after, LAST_ID, max_bytes)
}

/// Likewise, but nothing behind `last`.
pub(super) fn events_up_to(
    connection: &Connection,
    session: SessionNumber,
    after: EventId,
    last: EventId,
    max_bytes: usize,
) -> Result<Option<Run>, Fault> {
    if after >= last {
        return Ok(None);
    }
    let mut select = connection.prepare_cached(
        "SELECT k, kind, turn, data FROM events
         WHERE k > ?1 AND k <= ?2 AND EXISTS (SELECT 1 FROM sessions WHERE number = ?3) ORDER BY k",
    )?;
    let mut rows = select.query((key(session, after), key(session, last), session.0))?;
    let mut run = RunBuilder::new(after.next());
    while let Some(row) = rows.next()? {
        let key: i64 = row.get(0)?;
        let json = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
        if run.size() > 0 && run.size() + json.len() > max_bytes {
            break;
        }
        if id_of(key) != run.next_id() {
            check_gap(connection, session, run.next_id(), id_of(key))?;
            if run.size() > 0 {
                break;
            }
            run = RunBuilder::new(id_of(key));
        }
        let turn: Option<[u8; 16]> = row.get(2)?;
        let turn = turn.map(|bytes| TurnId::from(Uuid::from_bytes(bytes)));
        run.push_json(event_kind(key, row.get(1)?)?, turn, json);
    }
    Ok(run.finish()?)
}

/// Whether ids are missing because they were lost with the power. Whoever has read all before them reads on behind
/// them; a cursor among them is of an event that is no more.
fn check_gap(
    connection: &Connection,
    session: SessionNumber,
    expected: EventId,
    found: EventId,
) -> Result<(), Fault> {
    let kept: Option<i64> = connection
        .prepare_cached("SELECT kept FROM lost WHERE session = ?1 AND kept < ?2 AND next = ?3")?
        .query_row((session.0, expected.0.cast_signed(), found.0.cast_signed()), |row| row.get(0))
        .optional()?;
    match kept {
        Some(kept) if kept + 1 == expected.0.cast_signed() => Ok(()),
        Some(_) => Err(Fault::CursorLost),
        None => Err(Fault::Gap { expected, found }),
    }
}

fn event_kind(key: i64, kind: i64) -> Result<EventKind, Fault> {
    let known = u8::try_from(kind).ok().and_then(EventKind::from_code);
    known.ok_or(Fault::UnknownKind { key, kind })
}

pub(super) fn message_events(
    connection: &Connection,
    session: SessionNumber,
    after: EventId,
    until: EventId,
    limit: usize,
) -> Result<Vec<StoredEvent>, Fault> {
    let mut select = connection.prepare_cached(
        "SELECT k, data FROM events
         WHERE k > ?1 AND k <= ?2 AND kind IN (?4, ?5, ?6)
             AND EXISTS (SELECT 1 FROM sessions WHERE number = ?3)
         ORDER BY k LIMIT ?7",
    )?;
    let parameters = (
        key(session, after),
        key(session, until),
        session.0,
        EventKind::TurnStarted.code(),
        EventKind::MessageDelta.code(),
        EventKind::MessageUser.code(),
        row_limit(limit),
    );
    let events = select.query_map(parameters, |row| {
        Ok((id_of(row.get(0)?), row.get_ref(1)?.as_blob().map(Box::from).map_err(rusqlite::Error::from)?))
    })?;
    Ok(events.collect::<Result<_, _>>()?)
}

/// The key of session `s`'s last event; null when it has none.
const LAST_KEY: &str = "(SELECT k FROM events
    WHERE k BETWEEN (s.number << 40) + 1 AND (s.number << 40) + 1099511627775 ORDER BY k DESC LIMIT 1)";

fn last_event(row: &Row<'_>, column: usize) -> rusqlite::Result<EventId> {
    let key: Option<i64> = row.get(column)?;
    Ok(key.map_or(EventId(0), id_of))
}

pub(super) fn all_sessions(
    connection: &Connection,
) -> Result<Vec<(SessionNumber, SessionRecord, EventId)>, Fault> {
    let sql = format!("SELECT s.record, s.number, {LAST_KEY} FROM sessions s ORDER BY s.number");
    let mut select = connection.prepare(&sql)?;
    let mut rows = select.query(())?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next()? {
        sessions.push((SessionNumber(row.get(1)?), record(row)?, last_event(row, 2)?));
    }
    Ok(sessions)
}

/// A session that is being deleted is in no list any more: whoever has seen its last event must not find it there.
pub(super) fn sessions(
    connection: &Connection,
    owner: Owner,
    state: Option<SessionState>,
    page: &Page<SessionId>,
) -> Result<Vec<Snapshot>, Fault> {
    let (of_owner, owner) = owner_filter(owner);
    let in_state = if state.is_some() { "s.state = ?2" } else { "?2 IS NULL" };
    let sql = format!(
        "SELECT s.record, {LAST_KEY} FROM sessions s
         WHERE {of_owner} AND {in_state} AND s.id < ?3 AND NOT coalesce(s.record ->> 'deleting', FALSE)
         ORDER BY s.id DESC LIMIT ?4"
    );
    let mut select = connection.prepare_cached(&sql)?;
    let before = before(page.before.map(|id| id.as_uuid()));
    let mut rows = select.query((owner, state.map(SessionState::as_str), before, row_limit(page.limit)))?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next()? {
        let SessionRecord { mut snapshot, .. } = record(row)?;
        snapshot.last_event_id = last_event(row, 1)?;
        sessions.push(snapshot);
    }
    Ok(sessions)
}

/// One session, as [`sessions`] gives it.
pub(super) fn session(connection: &Connection, number: SessionNumber) -> Result<Option<Snapshot>, Fault> {
    let sql = format!("SELECT s.record, {LAST_KEY} FROM sessions s WHERE s.number = ?1");
    let mut select = connection.prepare_cached(&sql)?;
    let mut rows = select.query((number.0,))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let SessionRecord { mut snapshot, .. } = record(row)?;
    snapshot.last_event_id = last_event(row, 1)?;
    Ok(Some(snapshot))
}

/// A condition on `s.owner`, and the value of ?1 in it.
fn owner_filter(owner: Owner) -> (&'static str, Option<String>) {
    match owner {
        Owner::Anyone => ("?1 IS NULL", None),
        Owner::Caller(name) => ("s.owner = ?1", Some(name)),
    }
}

/// What the ids of a page are smaller than: behind every version 7 id when the page is the first.
fn before(id: Option<Uuid>) -> [u8; 16] {
    id.unwrap_or(Uuid::max()).into_bytes()
}

fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(super) fn turns(
    connection: &Connection,
    session: SessionNumber,
    page: &Page<TurnId>,
) -> Result<Vec<Turn>, Fault> {
    let mut select = connection.prepare_cached(
        "SELECT record FROM turns
         WHERE session = ?1 AND EXISTS (SELECT 1 FROM sessions WHERE number = ?1) AND id < ?2
         ORDER BY id DESC LIMIT ?3",
    )?;
    let before = before(page.before.map(|id| id.as_uuid()));
    records(select.query((session.0, before, row_limit(page.limit)))?)
}

pub(super) fn turn(
    connection: &Connection,
    session: SessionNumber,
    id: TurnId,
) -> Result<Option<Turn>, Fault> {
    let mut select = connection.prepare_cached(
        "SELECT record FROM turns
         WHERE session = ?1 AND EXISTS (SELECT 1 FROM sessions WHERE number = ?1) AND id = ?2",
    )?;
    let mut found = records(select.query((session.0, id.as_uuid().as_bytes()))?)?;
    Ok(found.pop())
}

pub(super) fn permissions(
    connection: &Connection,
    of: PermissionsOf,
    state: Option<PermissionState>,
    page: &Page<PermissionId>,
) -> Result<Vec<Permission>, Fault> {
    let before = before(page.before.map(|id| id.as_uuid()));
    // The plus keeps the index on states out: a session has few permissions, a state has everybody's.
    let in_state = match (&of, state) {
        (_, None) => "?2 IS NULL",
        (PermissionsOf::Session(_), Some(_)) => "+p.state = ?2",
        (PermissionsOf::Owner(_), Some(_)) => "p.state = ?2",
    };
    let state = state.map(permission_state);
    let select = |of: &str| {
        connection.prepare_cached(&format!(
            "SELECT p.record FROM permissions p JOIN sessions s ON s.number = p.session
             WHERE {of} AND {in_state} AND p.id < ?3 ORDER BY p.id DESC LIMIT ?4"
        ))
    };
    match of {
        PermissionsOf::Session(session) => {
            let mut select = select("p.session = ?1")?;
            records(select.query((session.0, state, before, row_limit(page.limit)))?)
        }
        PermissionsOf::Owner(owner) => {
            let (of_owner, owner) = owner_filter(owner);
            let mut select = select(of_owner)?;
            records(select.query((owner, state, before, row_limit(page.limit)))?)
        }
    }
}

pub(super) fn permission(
    connection: &Connection,
    session: SessionNumber,
    id: PermissionId,
) -> Result<Option<Permission>, Fault> {
    let mut select = connection.prepare_cached(
        "SELECT record FROM permissions
         WHERE session = ?1 AND EXISTS (SELECT 1 FROM sessions WHERE number = ?1) AND id = ?2",
    )?;
    let mut found = records(select.query((session.0, id.as_uuid().as_bytes()))?)?;
    Ok(found.pop())
}

/// The last event of a session and the session's owner; `None` when there is no such session.
pub(super) fn head(
    connection: &Connection,
    session: SessionNumber,
) -> rusqlite::Result<Option<(EventId, String)>> {
    connection
        .prepare_cached(&format!("SELECT {LAST_KEY}, s.owner FROM sessions s WHERE s.number = ?1"))?
        .query_row((session.0,), |row| Ok((last_event(row, 0)?, row.get(1)?)))
        .optional()
}

/// The record in a row's first column.
fn record<T: DeserializeOwned>(row: &Row<'_>) -> Result<T, Fault> {
    let json = row.get_ref(0)?;
    let json =
        json.as_str().map_err(|_| rusqlite::Error::InvalidColumnType(0, "record".into(), Type::Text))?;
    Ok(serde_json::from_str(json)?)
}

fn records<T: DeserializeOwned>(mut rows: rusqlite::Rows<'_>) -> Result<Vec<T>, Fault> {
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        records.push(record(row)?);
    }
    Ok(records)
}
