//! The port to the store, and a session's log as its readers see it.
//!
//! Architecture invariant: nobody sees an event before the store has committed it. [`SessionLog::committed`] is the
//! only place that makes events visible, and only the store's writer calls it.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::audit::AuditEntry;
use super::id::{EventId, MessageId, PermissionId, SessionId, SessionNumber, TurnId};
use super::order::{EventOrder, OrderFilter, OrderedRuns, Position};
use super::permission::{Permission, PermissionState};
use super::run::Run;
use super::snapshot::{SessionState, Snapshot};
use super::turn::Turn;

/// A store's answer. The text of an error is for the log, never for callers.
pub type StoreFuture<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'static>>;

/// The store did not do it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused: disk full, input or output error, corruption.
    #[error("the store failed: {0}")]
    Failed(Arc<str>),
    /// It cannot write at the moment: disk full, input or output error, `storage.max_bytes` reached. It tries again
    /// until it can.
    #[error("the store cannot write at the moment: {0}")]
    Unavailable(Arc<str>),
    /// The cursor stands behind an event that was lost together with the power.
    #[error("the events around the cursor were lost")]
    CursorLost,
    /// The writer is gone: gander stops.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// With the cause's words, for the log.
    pub fn failed(cause: impl std::fmt::Display) -> Self {
        Self::Failed(cause.to_string().into())
    }
}

/// Words that the agent has taken for the running turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenSteer {
    /// The id of the message that they become.
    pub message: MessageId,
    /// The agent's id of it.
    pub agents_id: String,
}

/// A session as the store keeps it: what a restarted gateway needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The session at its last recorded change. `last_event_id` in it is not kept true: the log is.
    pub snapshot: Snapshot,
    /// Whether a caller set the title, so that the agent's is not taken.
    pub title_is_callers: bool,
    /// Whether its deletion has begun: a restarted gateway goes on with it.
    #[serde(default)]
    pub deleting: bool,
    /// Who began it, as [`By::who`](super::audit::By::who) says it.
    #[serde(default)]
    pub deleted_by: Option<String>,
    /// By which its agent goes on with it; `None` until one has started.
    #[serde(default)]
    pub resume: Option<super::agent::ResumeToken>,
    /// The thinking effort that the agent had by itself, to go back to; `None` until one has started.
    #[serde(default)]
    pub default_effort: Option<String>,
    /// What the agent has taken for the running turn and not used yet.
    #[serde(default)]
    pub taken_steers: Vec<TakenSteer>,
    /// How its agent is started.
    pub launch: super::agent::LaunchSpec,
    /// What "always" has remembered, oldest first.
    #[serde(default)]
    pub grants: Vec<super::permission::PermissionGrant>,
}

impl SessionRecord {
    /// A session that begins.
    #[must_use]
    pub fn new(snapshot: Snapshot, launch: super::agent::LaunchSpec) -> Self {
        Self {
            title_is_callers: snapshot.title.is_some(),
            snapshot,
            deleting: false,
            deleted_by: None,
            resume: None,
            default_effort: None,
            taken_steers: Vec::new(),
            launch,
            grants: Vec::new(),
        }
    }

    /// How another agent goes on with it; `None` until one has started.
    #[must_use]
    pub fn resume(&self) -> Option<super::agent::Resume> {
        let extensions = self.snapshot.extensions.iter().map(|extension| extension.name.clone()).collect();
        self.resume.clone().map(|token| super::agent::Resume { token, extensions })
    }
}

/// A record that is written together with events.
#[derive(Clone, Debug)]
pub enum Change {
    /// The session changed.
    Session(Box<SessionRecord>),
    /// A turn began or changed.
    Turn(Box<Turn>),
    /// A permission was asked for or decided.
    Permission(Box<Permission>),
}

/// Events and records that are committed together or not at all.
#[derive(Debug)]
pub struct Append {
    /// Whose.
    pub log: SessionLog,
    /// The events; `None` for a change that is not told.
    pub run: Option<Run>,
    /// The records.
    pub changes: Vec<Change>,
    /// Who did what of it.
    pub audit: Vec<AuditEntry>,
}

/// Which sessions, turns or permissions a list holds; newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page<Id> {
    /// Only what is older than this one.
    pub before: Option<Id>,
    /// At most so many.
    pub limit: usize,
}

/// Whose things a list holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Everybody's.
    Anyone,
    /// One caller's.
    Caller(String),
}

/// Where events and records are kept.
pub trait Store: Send + Sync + 'static {
    /// Makes a session's row; the log of its events begins at 1.
    fn create_session(&self, record: SessionRecord) -> StoreFuture<SessionNumber>;

    /// Queues events and records, in order per session, and returns when they are queued (the queue is bounded). When
    /// they are committed the store calls [`SessionLog::committed`]; when that fails [`SessionLog::failed`].
    fn append(&self, append: Append) -> StoreFuture<()>;

    /// Removes everything of a session but the audit, in small steps. Its log gets no further events. `entry` says who
    /// did it, and is committed with it.
    fn delete_session(&self, number: SessionNumber, entry: AuditEntry) -> StoreFuture<()>;

    /// Keeps who did something that is of no session.
    fn note(&self, entry: AuditEntry) -> StoreFuture<()>;

    /// The events behind `after`, at least one if there is one, at most about `max_bytes`. Shared with others who
    /// read the same.
    fn events(
        &self,
        session: SessionNumber,
        after: EventId,
        max_bytes: usize,
    ) -> StoreFuture<Option<Arc<Run>>>;

    /// The order of all sessions' events.
    fn order(&self) -> EventOrder;

    /// The selected events behind `after` up to and with `until`, which is committed, in their order; at most about
    /// `max_bytes`. What was deleted is left out, but for the `session.deleted` that a session ended with.
    fn ordered_events(
        &self,
        filter: OrderFilter,
        after: Position,
        until: Position,
        max_bytes: usize,
    ) -> StoreFuture<OrderedRuns>;

    /// The events behind `after` up to and with `until` of the kinds that make up messages (`turn.started`,
    /// `message.delta`, `message.user`), as JSON; at most `limit`.
    fn message_events(
        &self,
        session: SessionNumber,
        after: EventId,
        until: EventId,
        limit: usize,
    ) -> StoreFuture<Vec<(EventId, Box<[u8]>)>>;

    /// Every session there is, oldest first, with its number and the id of its last event: for start-up.
    fn all_sessions(&self) -> StoreFuture<Vec<(SessionNumber, SessionRecord, EventId)>>;

    /// Sessions, newest first; the snapshot's `last_event_id` is the log's.
    fn sessions(
        &self,
        owner: Owner,
        state: Option<SessionState>,
        page: Page<SessionId>,
    ) -> StoreFuture<Vec<Snapshot>>;

    /// A session's turns, newest first.
    fn turns(&self, session: SessionNumber, page: Page<TurnId>) -> StoreFuture<Vec<Turn>>;

    /// One turn of a session.
    fn turn(&self, session: SessionNumber, id: TurnId) -> StoreFuture<Option<Turn>>;

    /// Permissions of one session or of all of an owner's, newest first.
    fn permissions(
        &self,
        of: PermissionsOf,
        state: Option<PermissionState>,
        page: Page<PermissionId>,
    ) -> StoreFuture<Vec<Permission>>;

    /// One permission of a session.
    fn permission(&self, session: SessionNumber, id: PermissionId) -> StoreFuture<Option<Permission>>;

    /// A session as committed; the snapshot's `last_event_id` is the log's.
    fn session(&self, session: SessionNumber) -> StoreFuture<Option<Snapshot>>;

    /// What keeps the store from writing at the moment ([`StoreError::Unavailable`]), and when that changes. What was
    /// queued stays queued meanwhile; nothing new should be begun.
    fn trouble(&self) -> watch::Receiver<Option<StoreError>>;
}

/// Whose permissions a list holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionsOf {
    /// One session's.
    Session(SessionNumber),
    /// All of an owner's sessions.
    Owner(Owner),
}

/// How far a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The last committed event.
    pub committed: EventId,
    /// Whether nothing will follow.
    pub closed: bool,
    /// Whether a commit failed; then nothing will follow either, until a restart.
    pub failed: bool,
}

/// The recent part of a log, in memory.
#[derive(Debug, Default)]
struct Tail {
    /// Consecutive runs, oldest first; the last one ends at the head.
    runs: VecDeque<Arc<Run>>,
    /// The sum of the runs' weights.
    weight: usize,
}

struct Shared {
    session: SessionId,
    number: SessionNumber,
    store: Arc<dyn Store>,
    /// A standard mutex: it is held for a push or a search, never across an await.
    tail: Mutex<Tail>,
    tail_bytes: usize,
    /// The only wake-up of readers. A watch holds no queue: a slow reader sees the newest head.
    head: watch::Sender<Head>,
}

/// A session's log: cheap to clone, the same for writer and readers.
#[derive(Clone)]
pub struct SessionLog {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for SessionLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionLog")
            .field("session", &self.shared.session)
            .field("head", &*self.shared.head.borrow())
            .finish_non_exhaustive()
    }
}

/// How much is read from the store at once.
const READ_BYTES: usize = 256 * 1024;

impl SessionLog {
    /// The log of a session whose events up to `committed` are in the store. At most `tail_bytes` of the newest are
    /// kept in memory.
    #[must_use]
    pub fn new(
        session: SessionId,
        number: SessionNumber,
        store: Arc<dyn Store>,
        committed: EventId,
        tail_bytes: usize,
    ) -> Self {
        let (head, _) = watch::channel(Head { committed, closed: false, failed: false });
        let shared = Shared { session, number, store, tail: Mutex::default(), tail_bytes, head };
        Self { shared: Arc::new(shared) }
    }

    /// The session's id.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.shared.session
    }

    /// The session's number in the store.
    #[must_use]
    pub fn number(&self) -> SessionNumber {
        self.shared.number
    }

    /// How far it is.
    #[must_use]
    pub fn head(&self) -> Head {
        *self.shared.head.borrow()
    }

    /// Wakes when it gets further.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Head> {
        self.shared.head.subscribe()
    }

    /// Makes a committed run visible. For the store's writer only, in order.
    pub fn committed(&self, run: impl Into<Arc<Run>>) {
        let run = run.into();
        let last = run.last();
        {
            let mut tail = self.lock_tail();
            tail.weight += run.weight();
            tail.runs.push_back(run);
            while tail.weight > self.shared.tail_bytes && tail.runs.len() > 1 {
                if let Some(oldest) = tail.runs.pop_front() {
                    tail.weight -= oldest.weight();
                }
            }
        }
        self.shared.head.send_modify(|head| head.committed = last);
    }

    /// Gives back the memory of the recent events, which are read from the store from then on: for a session that
    /// hibernates, of which there may be thousands.
    pub fn release_tail(&self) {
        *self.lock_tail() = Tail::default();
    }

    /// Tells that a commit failed. For the store's writer only.
    pub fn failed(&self) {
        self.shared.head.send_modify(|head| head.failed = true);
    }

    /// Tells readers that nothing will follow.
    pub fn close(&self) {
        self.shared.head.send_modify(|head| head.closed = true);
    }

    /// Waits until `id` is committed; an error when it never will be.
    pub async fn wait_committed(&self, id: EventId) -> Result<(), StoreError> {
        let mut head = self.watch();
        let head = head
            .wait_for(|head| head.committed >= id || head.failed)
            .await
            .map_err(|_| StoreError::Closed)?;
        if head.committed >= id { Ok(()) } else { Err(StoreError::Failed("a commit failed".into())) }
    }

    /// The committed events behind `after`: from memory if they are there, else from the store. `None` at the head.
    pub async fn read(&self, after: EventId) -> Result<Option<Arc<Run>>, StoreError> {
        if after >= self.head().committed {
            return Ok(None);
        }
        if let Some(run) = self.in_tail(after) {
            return Ok(Some(run));
        }
        self.shared.store.events(self.shared.number, after, READ_BYTES).await
    }

    fn in_tail(&self, after: EventId) -> Option<Arc<Run>> {
        let tail = self.lock_tail();
        let first = tail.runs.front()?.first();
        if after.next() < first {
            return None;
        }
        let index = tail.runs.partition_point(|run| run.last() <= after);
        tail.runs.get(index).cloned()
    }

    fn lock_tail(&self) -> MutexGuard<'_, Tail> {
        // A panic while it was held leaves a tail that is at worst too short: the store has everything.
        self.shared.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
