//! Tests of the whole store, on real files.

mod answers;
mod audit;
mod deletion;
mod failure;
mod fence;
mod full;
mod lists;
mod opening;
mod order;
mod ordered;

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::{SqliteStore, StoreConfig};
use crate::session::agent::{LaunchSpec, Mode};
use crate::session::audit::{AuditEntry, By};
use crate::session::event::{EventBody, EventKind};
use crate::session::id::{EventId, MessageId, SessionId, SessionNumber, Timestamp, TurnId};
use crate::session::log::{Append, Change, SessionLog, SessionRecord, Store, StoreError};
use crate::session::run::{Run, RunBuilder};
use crate::session::snapshot::{SessionState, Snapshot};
use crate::session::turn::{Prompt, Turn, TurnState};

/// Kept in memory per session: everything, unless a test wants less.
const TAIL_BYTES: usize = 64 * 1024 * 1024;

fn open(dir: &Path) -> Arc<SqliteStore> {
    SqliteStore::open(StoreConfig::new(dir.to_owned())).unwrap()
}

fn fresh() -> (TempDir, Arc<SqliteStore>) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    (dir, store)
}

/// A moment in whole milliseconds, as it comes back from JSON.
fn moment() -> Timestamp {
    Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123))
}

/// Who deletes a session.
fn deletion() -> AuditEntry {
    AuditEntry::session_deleted(SessionId::new(), &By::caller("alice"))
}

fn session_record(owner: &str, state: SessionState) -> SessionRecord {
    let launch = LaunchSpec::new(Mode::Approve);
    let snapshot = Snapshot { state, cwd: Some("/work".into()), ..Snapshot::new(owner, &launch, moment()) };
    SessionRecord::new(snapshot, launch)
}

fn turn_of(session: SessionId, state: TurnState) -> Turn {
    Turn {
        id: TurnId::new(),
        session_id: session,
        state,
        prompt: Some(Prompt::Text("Do it".into())),
        text: None,
        stop_reason: None,
        error: None,
        usage: None,
        created_at: moment(),
        started_at: None,
        ended_at: None,
        first_event_id: EventId(1),
        last_event_id: None,
        request_id: None,
        traceparent: None,
    }
}

/// A session with its log, as its one writer has it.
struct Writing {
    store: Arc<SqliteStore>,
    log: SessionLog,
    next: EventId,
}

impl Writing {
    async fn new(store: &Arc<SqliteStore>) -> Self {
        let record = session_record("alice", SessionState::Idle);
        let id = record.snapshot.id;
        let number = store.create_session(record).await.unwrap();
        Self::go_on(store, id, number, EventId(0))
    }

    fn go_on(store: &Arc<SqliteStore>, id: SessionId, number: SessionNumber, last: EventId) -> Self {
        let port: Arc<dyn Store> = Arc::<SqliteStore>::clone(store);
        Self {
            store: Arc::clone(store),
            log: SessionLog::new(id, number, port, last, TAIL_BYTES),
            next: last.next(),
        }
    }

    /// The next events: `count` pieces of a message.
    fn run(&mut self, count: usize, text: &str) -> Run {
        let mut run = RunBuilder::new(self.next);
        let message_id = MessageId::new();
        for index in 0..count {
            let body = EventBody::Text { message_id, text: format!("{text} {index}") };
            let turn = (index % 2 == 0).then(TurnId::new);
            run.push(self.log.session(), turn, moment(), EventKind::MessageDelta, &body).unwrap();
        }
        self.next = run.next_id();
        run.finish().unwrap().unwrap()
    }

    fn appending(&mut self, count: usize, changes: Vec<Change>) -> Append {
        let run = (count > 0).then(|| self.run(count, "piece"));
        Append { log: self.log.clone(), run, changes, audit: Vec::new() }
    }

    /// Queues events and records.
    async fn append(&mut self, count: usize, changes: Vec<Change>) -> Result<(), StoreError> {
        let append = self.appending(count, changes);
        self.store.append(append).await
    }

    /// Waits until everything that was queued is committed.
    async fn committed(&self) -> Result<(), StoreError> {
        self.log.wait_committed(EventId(self.next.0 - 1)).await
    }

    /// Everything that the database has, read in pieces of about `max_bytes`.
    async fn stored(&self, max_bytes: usize) -> Vec<Arc<Run>> {
        let mut runs = Vec::new();
        let mut after = EventId(0);
        while let Some(run) = self.store.events(self.log.number(), after, max_bytes).await.unwrap() {
            after = run.last();
            runs.push(run);
        }
        runs
    }
}

/// Polls once: what it asks of the store is queued then, if there is room. Without the budget that the runtime gives a
/// task, a future is pending only when it has to wait for the store.
fn queue_now<F: Future + Unpin>(future: F) -> Option<F::Output> {
    tokio::task::unconstrained(future).now_or_never()
}

/// Keeps the writer in the middle of a commit until the returned sender is used or dropped.
async fn hold_writer(store: &SqliteStore) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel();
    let (reached, holds) = oneshot::channel();
    let call = store.call(move |_| {
        let _ = reached.send(());
        let _ = released.recv();
        Ok(())
    });
    assert!(queue_now(call).is_none());
    holds.await.unwrap();
    release
}

/// Looks into the tables.
async fn count(store: &SqliteStore, sql: &'static str) -> i64 {
    store.read(move |connection| Ok(connection.query_row(sql, (), |row| row.get(0))?)).await.unwrap()
}

/// Commits something of `session` until a query gives 0. The writer takes a step of a removal after each commit, so
/// that it has to be done with it after a known number of them.
async fn commit_until_zero(session: &mut Writing, sql: &'static str) {
    for _ in 0..1000 {
        if count(&session.store, sql).await == 0 {
            return;
        }
        session.append(1, Vec::new()).await.unwrap();
        session.committed().await.unwrap();
    }
    panic!("still not 0: {sql}");
}

/// The runs' rows in the order of their positions: position, session, first event, count.
async fn positions(store: &SqliteStore) -> Vec<(i64, u32, i64, i64)> {
    let select = |connection: &rusqlite::Connection| {
        let mut select =
            connection.prepare("SELECT position, session, first, count FROM runs ORDER BY position")?;
        let rows = select.query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        Ok(rows.collect::<Result<Vec<_>, _>>()?)
    };
    store.read(select).await.unwrap()
}
