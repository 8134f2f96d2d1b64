//! The event log and the records in one `SQLite` file: the implementation of the port
//! [`Store`].
//!
//! ```text
//! append ──▶ room (bytes per session, bytes of all) ──▶ channel ──▶ writer thread ──▶ commit ──▶ SessionLog
//! reads  ──▶ channel ──▶ a few reader threads                          ▲
//!                                  checkpoint thread ──(its turn)──────┘
//! ```
//!
//! The writer takes a bounded share of every session that has something queued, and commits all shares together: many
//! small appends cost one commit, and a session that floods delays no other.
//!
//! Architecture invariant: nothing else knows that there is SQL.

mod answers;
mod audit;
mod call;
mod checkpoint;
mod commit;
mod fence;
mod on_commit;
mod ordered;
mod queue;
mod reader;
mod record;
mod removal;
mod reserve;
mod schema;
mod shared;
mod trouble;
mod writer;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

pub use answers::{AnswerKey, AnswerState, StoredAnswer};
pub use audit::AuditLog;
pub use on_commit::OnCommit;
pub use schema::{OpenError, Synchronous};

use audit::AuditRow;
use checkpoint::Wal;
use queue::{Backlog, Deletion, Prepared};
use reader::Readers;
use record::Fault;
use reserve::Reserve;
use shared::{SharedReads, Wanted};
use writer::{Job, Writer, WriterParts};

use crate::session::audit::AuditEntry;
use crate::session::id::{EventId, PermissionId, SessionId, SessionNumber, Timestamp, TurnId};
use crate::session::log::{
    Append, Owner, Page, PermissionsOf, SessionRecord, Store, StoreError, StoreFuture,
};
use crate::session::order::{EventOrder, OrderFilter, OrderedRuns, Position};
use crate::session::permission::{Permission, PermissionState};
use crate::session::run::Run;
use crate::session::snapshot::{SessionState, Snapshot};
use crate::session::turn::Turn;

/// Jobs in the writer's channel. It is emptied before every commit; what waits longer is bounded in bytes.
const JOBS: usize = 1024;

/// Where the store is and how much it may use.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The folder; made when there is none.
    pub dir: PathBuf,
    /// What a commit survives.
    pub synchronous: Synchronous,
    /// Bytes of all sessions that may wait to be committed.
    pub queue_bytes: u32,
    /// Bytes of one session that may wait to be committed.
    pub session_queue_bytes: u32,
    /// Bytes of the newest events of all sessions together that are kept in memory.
    pub tail_bytes: usize,
    /// Threads that read.
    pub readers: usize,
    /// How long answers to requests with an idempotency key are kept.
    pub answers_kept: Duration,
    /// The most bytes that the database may have; 0 for no limit.
    pub max_bytes: u64,
    /// Bytes held in reserve on the disk, for deletions when it is full.
    pub reserve_bytes: u64,
    /// What tells this boot of the kernel from another.
    pub boot: String,
    /// Told of every commit.
    pub on_commit: OnCommit,
}

impl StoreConfig {
    /// The usual sizes.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            synchronous: Synchronous::default(),
            queue_bytes: 128 * 1024 * 1024,
            session_queue_bytes: 4 * 1024 * 1024,
            tail_bytes: 1024 * 1024,
            readers: 4,
            answers_kept: Duration::from_hours(24),
            max_bytes: 0,
            reserve_bytes: 8 * 1024 * 1024,
            boot: fence::boot_id(),
            on_commit: OnCommit::default(),
        }
    }
}

/// The store. Its threads end with [`SqliteStore::close`], or by themselves when nobody holds it any more.
pub struct SqliteStore {
    jobs: mpsc::Sender<Job>,
    readers: Readers,
    shared: Arc<SharedReads>,
    backlog: Arc<Backlog>,
    order: EventOrder,
    answers_kept: Duration,
    /// What keeps the writer from writing.
    trouble: watch::Receiver<Option<StoreError>>,
    /// Given when every thread but the writer's has ended and the database is closed.
    closed: CancellationToken,
    /// Taken by the one who joins it.
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("backlog", &self.backlog).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the database, makes or migrates its tables, and starts the threads. It waits for the disk.
    pub fn open(config: StoreConfig) -> Result<Arc<Self>, OpenError> {
        let dir = config.dir;
        let lock = schema::lock(&dir)?;
        let reserve = Reserve::new(&dir, config.reserve_bytes);
        let mut connection = schema::open(&dir, config.synchronous)?;
        let at_risk = config.synchronous == Synchronous::Normal;
        fence::begin_run(&mut connection, &config.boot, at_risk).map_err(|error| match error {
            Fault::Database(error) => schema::open_error(&dir, error),
            error => OpenError::Damaged { path: dir.clone(), detail: error.to_string() },
        })?;
        let readers = config.readers.max(1);
        let readers = (0..readers).map(|_| schema::open_reader(&dir)).collect::<Result<Vec<_>, _>>()?;
        let checkpointer = schema::open_checkpointer(&dir, config.synchronous)?;

        let backlog = Arc::new(Backlog::new(config.queue_bytes, config.session_queue_bytes));
        let wal = Arc::new(Wal::default());
        let (jobs, queue) = mpsc::channel(JOBS);
        let now_ms = Timestamp::now().as_millis();
        let (told, trouble) = watch::channel(None);
        answers::clean_up(&connection, now_ms, config.answers_kept)
            .map_err(|error| schema::open_error(&dir, error))?;
        let writer = Writer::new(WriterParts {
            connection,
            jobs: queue,
            backlog: Arc::clone(&backlog),
            wal: Arc::clone(&wal),
            reserve,
            max_bytes: config.max_bytes,
            on_commit: config.on_commit,
            told,
            tail_bytes: config.tail_bytes,
        })
        .map_err(|error| schema::open_error(&dir, error))?;

        let order = writer.order();
        let (readers, mut threads) = Readers::start(readers).map_err(OpenError::Thread)?;
        let closed = CancellationToken::new();
        let checkpoints = {
            let wal = Arc::clone(&wal);
            move || wal.checkpoints(&checkpointer)
        };
        threads.push(spawn("store-wal", checkpoints).map_err(OpenError::Thread)?);
        let write = {
            let (readers, closed) = (readers.clone(), closed.clone());
            move || {
                let mut connection = writer.run();
                readers.stop();
                wal.stop();
                for thread in threads {
                    // A thread that panicked has said so.
                    let _ = thread.join();
                }
                // Only what has reached the disk is nothing to worry about.
                if checkpoint::truncate(&connection)
                    && let Err(error) = fence::end_run(&mut connection)
                {
                    tracing::warn!(%error, "that gander has ended well could not be noted");
                }
                drop(connection);
                drop(lock);
                closed.cancel();
            }
        };
        let writer = Mutex::new(Some(spawn("store-writer", write).map_err(OpenError::Thread)?));
        let answers_kept = config.answers_kept;
        Ok(Arc::new(Self {
            jobs,
            readers,
            shared: Arc::default(),
            backlog,
            order,
            answers_kept,
            trouble,
            closed,
            writer,
        }))
    }

    /// Commits what is queued, ends the threads, and closes the database. What is asked later is refused.
    pub async fn close(&self) {
        // It fails when somebody else has closed it.
        let _ = self.jobs.send(Job::Close).await;
        self.closed.cancelled().await;
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            // It has only to return.
            let _ = writer.join();
        }
    }

    /// Bytes that wait to be committed.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.backlog.queued_bytes()
    }

    /// Writes a little, to see whether that works.
    pub async fn check_writable(&self) -> Result<(), StoreError> {
        self.call(writer::check_writable).await
    }

    /// Begins a request with an idempotency key, unless it is known. `now_ms`: milliseconds since 1970.
    pub async fn begin_answer(
        &self,
        key: AnswerKey,
        body_hash: [u8; 32],
        now_ms: i64,
    ) -> Result<AnswerState, StoreError> {
        let kept = self.answers_kept;
        self.call(move |connection| answers::begin(connection, &key, &body_hash, now_ms, kept)).await
    }

    /// Keeps the answer of a request that [`SqliteStore::begin_answer`] began; what it says of `session` is kept until
    /// the session is deleted.
    pub async fn finish_answer(
        &self,
        key: AnswerKey,
        session: Option<SessionId>,
        answer: StoredAnswer,
    ) -> Result<(), StoreError> {
        call::finish_answer(self.jobs.clone(), key, session, answer).await
    }

    /// Forgets a request that failed, so that it may run again.
    pub async fn forget_answer(&self, key: AnswerKey) -> Result<(), StoreError> {
        self.call(move |connection| answers::forget(connection, &key)).await
    }

    fn call<T, F>(&self, work: F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: FnOnce(&rusqlite::Connection) -> Result<T, Fault> + Send + 'static,
    {
        Box::pin(call::call(self.jobs.clone(), work))
    }

    fn read<T, F>(&self, work: F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: FnOnce(&rusqlite::Connection) -> Result<T, Fault> + Send + 'static,
    {
        Box::pin(self.readers.clone().read(work))
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(work)
}

impl Store for SqliteStore {
    fn create_session(&self, record: SessionRecord) -> StoreFuture<SessionNumber> {
        self.call(move |connection| {
            let id = record.snapshot.id.as_uuid().into_bytes();
            let json = serde_json::to_string(&record)?;
            connection
                .prepare_cached("INSERT INTO sessions (id, owner, state, record) VALUES (?1, ?2, ?3, ?4)")?
                .execute((id, record.snapshot.owner, record.snapshot.state.as_str(), json))?;
            u32::try_from(connection.last_insert_rowid()).map(SessionNumber).map_err(|_| Fault::NumbersUsedUp)
        })
    }

    fn append(&self, append: Append) -> StoreFuture<()> {
        let prepared = Prepared::new(append);
        let (backlog, jobs) = (Arc::clone(&self.backlog), self.jobs.clone());
        Box::pin(async move {
            let append = prepared.map_err(Fault::from)?;
            let room = backlog.room(&append).await?;
            // Asked last: a commit may have failed while this waited.
            if append.log.head().failed {
                return Err(StoreError::Failed("an earlier commit of the session failed".into()));
            }
            jobs.send(Job::Append(append, room)).await.map_err(|_| StoreError::Closed)
        })
    }

    fn delete_session(&self, number: SessionNumber, entry: AuditEntry) -> StoreFuture<()> {
        let (jobs, shared) = (self.jobs.clone(), Arc::clone(&self.shared));
        Box::pin(async move {
            let entry = AuditRow::new(entry).map_err(Fault::from)?;
            let (deleted, done) = oneshot::channel();
            let deletion = Deletion { entry, deleted };
            jobs.send(Job::Delete(number, deletion)).await.map_err(|_| StoreError::Closed)?;
            let deleted = done.await.unwrap_or(Err(StoreError::Closed));
            shared.forget(number);
            deleted
        })
    }

    fn note(&self, entry: AuditEntry) -> StoreFuture<()> {
        self.call(move |connection| Ok(AuditRow::new(entry)?.write(connection)?))
    }

    fn events(
        &self,
        session: SessionNumber,
        after: EventId,
        max_bytes: usize,
    ) -> StoreFuture<Option<Arc<Run>>> {
        let (readers, shared) = (self.readers.clone(), Arc::clone(&self.shared));
        Box::pin(async move {
            let read = async || {
                let read = move |connection: &_| reader::events(connection, session, after, max_bytes);
                readers.read(read).await
            };
            shared.events(Wanted { session, after, max_bytes }, read).await
        })
    }

    fn order(&self) -> EventOrder {
        self.order.clone()
    }

    fn ordered_events(
        &self,
        filter: OrderFilter,
        after: Position,
        until: Position,
        max_bytes: usize,
    ) -> StoreFuture<OrderedRuns> {
        self.read(move |connection| ordered::events(connection, &filter, after, until, max_bytes))
    }

    fn message_events(
        &self,
        session: SessionNumber,
        after: EventId,
        until: EventId,
        limit: usize,
    ) -> StoreFuture<Vec<(EventId, Box<[u8]>)>> {
        self.read(move |connection| reader::message_events(connection, session, after, until, limit))
    }

    fn all_sessions(&self) -> StoreFuture<Vec<(SessionNumber, SessionRecord, EventId)>> {
        self.read(reader::all_sessions)
    }

    fn sessions(
        &self,
        owner: Owner,
        state: Option<SessionState>,
        page: Page<SessionId>,
    ) -> StoreFuture<Vec<Snapshot>> {
        self.read(move |connection| reader::sessions(connection, owner, state, &page))
    }

    fn turns(&self, session: SessionNumber, page: Page<TurnId>) -> StoreFuture<Vec<Turn>> {
        self.read(move |connection| reader::turns(connection, session, &page))
    }

    fn turn(&self, session: SessionNumber, id: TurnId) -> StoreFuture<Option<Turn>> {
        self.read(move |connection| reader::turn(connection, session, id))
    }

    fn permissions(
        &self,
        of: PermissionsOf,
        state: Option<PermissionState>,
        page: Page<PermissionId>,
    ) -> StoreFuture<Vec<Permission>> {
        self.read(move |connection| reader::permissions(connection, of, state, &page))
    }

    fn permission(&self, session: SessionNumber, id: PermissionId) -> StoreFuture<Option<Permission>> {
        self.read(move |connection| reader::permission(connection, session, id))
    }

    fn session(&self, session: SessionNumber) -> StoreFuture<Option<Snapshot>> {
        self.read(move |connection| reader::session(connection, session))
    }

    fn trouble(&self) -> watch::Receiver<Option<StoreError>> {
        self.trouble.clone()
    }
}
