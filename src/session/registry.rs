//! All sessions of this gateway.

mod places;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

pub(super) use self::places::Place;
use self::places::Places;
use super::actor::{Child, Deadlines, Reports, SessionActor};
use super::agent::{AgentLauncher, LaunchSpec};
use super::audience::Audience;
use super::audit::By;
use super::handle::{SessionHandle, Status};
use super::id::{EventId, SessionId, SessionNumber, Timestamp};
use super::log::{SessionLog, SessionRecord, Store, StoreError};
use super::permission::PermissionSettings;
use super::policy::PermissionPolicy;
use super::snapshot::{SessionState, Snapshot};
pub use super::state::CrashBounds;
use super::state::{Bounds, Machine};
use crate::shutdown::Tasks;

/// Commands of callers that may wait for one session; further ones wait in their own tasks.
const COMMAND_QUEUE: usize = 16;

/// The bounds and habits of sessions, from the configuration.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// How many sessions there may be.
    pub max_sessions: usize,
    /// How many agents may run at once.
    pub max_running: usize,
    /// How many agents may be started at once.
    pub max_starting: usize,
    /// Bytes of recent events kept in memory for each session.
    pub tail_bytes: usize,
    /// Bytes of live output passed on for each tool call.
    pub output_bytes: usize,
    /// Permission requests that may be pending in one session.
    pub pending_permissions: usize,
    /// What decides permission requests.
    pub permissions: Arc<PermissionSettings>,
    /// How long an agent may take to end by itself.
    pub end_grace: Duration,
    /// How long an agent may take to end a turn that is being stopped before it is killed.
    pub stop_grace: Duration,
    /// How long a turn may take; zero: as long as it likes.
    pub turn_duration: Duration,
    /// When a session fails whose agent dies again and again.
    pub crash: CrashBounds,
    /// After how long without a turn an agent is let go; zero: never.
    pub idle_hibernate: Duration,
    /// Batches of agent events that may wait for the session.
    pub event_queue: usize,
    /// Turns that may wait in one session.
    pub queued_turns: usize,
    /// Notices that an agent may give in one turn.
    pub turn_notices: usize,
    /// Bytes that the files which one prompt links may have together.
    pub linked_file_bytes: u64,
}

/// What a new session begins with.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// Who makes it, and owns it.
    pub by: By,
    /// The caller's title.
    pub title: Option<String>,
    /// The caller's notes.
    pub metadata: BTreeMap<String, String>,
    /// The session's own rules and terms, checked.
    pub permission_policy: PermissionPolicy,
    /// How the agent is started.
    pub launch: LaunchSpec,
}

/// Why no session was made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CreateError {
    /// As many as there may be.
    #[error("{0}")]
    AtCapacity(&'static str),
    /// gander stops.
    #[error("the gateway is shutting down")]
    Draining,
    /// It could not be written down.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All sessions. Cheap to clone.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    launcher: Arc<dyn AgentLauncher>,
    settings: SessionSettings,
    tasks: Tasks,
    audience: Audience,
    /// A standard mutex: held for a look-up or an insertion, never across an await.
    sessions: Mutex<HashMap<SessionId, SessionHandle>>,
    /// How many sessions have a task, for those who wait for their end.
    count: watch::Sender<usize>,
    /// One permit for each session that may be.
    room: Arc<Semaphore>,
    places: Places,
}

impl Registry {
    /// The sessions of the store, with whatever an earlier run left open in them closed.
    pub async fn open(
        store: Arc<dyn Store>,
        launcher: Arc<dyn AgentLauncher>,
        settings: SessionSettings,
        tasks: Tasks,
    ) -> Result<Self, StoreError> {
        let kept = store.all_sessions().await?;
        // More sessions may be kept than a lowered limit allows; none is lost, but none is added.
        let room = Arc::new(Semaphore::new(settings.max_sessions.max(kept.len())));
        let places = Places::new(settings.max_running, settings.max_starting);
        let sessions = Mutex::default();
        let count = watch::Sender::new(0);
        let audience = Audience::default();
        let shared = Shared { store, launcher, settings, tasks, audience, sessions, count, room, places };
        let registry = Self { shared: Arc::new(shared) };
        let mut closing = Vec::new();
        for (number, mut record, last_event_id) in kept {
            // The session's record has its running turn without the prompt; the turn's own record has it.
            if let Some(turn) = &mut record.snapshot.current_turn
                && let Some(whole) = registry.shared.store.turn(number, turn.id).await?
            {
                *turn = whole;
            }
            let place = Arc::clone(&registry.shared.room).try_acquire_owned().ok();
            let deleting = record.deleting;
            let machine = Machine::restore(record, last_event_id, registry.bounds(), registry.permissions());
            let (handle, actor) = registry.attach(machine, number, last_event_id, place);
            if !deleting {
                closing.push(handle.status.clone());
            }
            registry.lock().insert(handle.id(), handle);
            registry.shared.tasks.spawn(actor.run_restored());
        }
        // Whoever asks now must not be told of turns that run no more. A task that has ended has nothing to close.
        for mut status in closing {
            let _ = status.wait_for(|status| status.state != SessionState::Starting).await;
        }
        Ok(registry)
    }

    /// Makes a session and begins to start its agent.
    pub async fn create(&self, new: NewSession) -> Result<SessionHandle, CreateError> {
        if self.shared.tasks.soft().is_cancelled() {
            return Err(CreateError::Draining);
        }
        let place = Arc::clone(&self.shared.room)
            .try_acquire_owned()
            .map_err(|_| CreateError::AtCapacity("as many sessions exist as there may be (sessions.max)"))?;
        let agents_place = self.place_for_agent().await.map_err(CreateError::AtCapacity)?;
        let by = new.by.clone();
        let record = first_record(new);
        let number = self.shared.store.create_session(record.clone()).await?;
        let machine = Machine::new(record, self.bounds(), self.permissions());
        let (handle, actor) = self.attach(machine, number, EventId(0), Some(place));
        self.lock().insert(handle.id(), handle.clone());
        self.shared.tasks.spawn(actor.run_new(by, agents_place));
        Ok(handle)
    }

    /// The session's task is over.
    pub(super) fn forget(&self, id: SessionId) {
        if self.lock().remove(&id).is_some() {
            self.shared.count.send_modify(|count| *count -= 1);
        }
    }

    /// A session of any owner.
    #[must_use]
    pub fn find(&self, id: SessionId) -> Option<SessionHandle> {
        self.lock().get(&id).cloned()
    }

    /// How many agents run or are being started.
    #[must_use]
    pub fn agents(&self) -> usize {
        self.shared.settings.max_running.saturating_sub(self.shared.places.free())
    }

    /// Every session there is.
    #[must_use]
    pub fn all(&self) -> Vec<SessionHandle> {
        self.lock().values().cloned().collect()
    }

    /// Waits until no session's task runs any more.
    pub async fn all_ended(&self) {
        let mut count = self.shared.count.subscribe();
        // The sender is in this very structure.
        let _ = count.wait_for(|count| *count == 0).await;
    }

    /// Who reads the sessions' events, and so would see what an agent asks.
    #[must_use]
    pub fn audience(&self) -> &Audience {
        &self.shared.audience
    }

    /// The store, for lists.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    fn attach(
        &self,
        machine: Machine,
        number: SessionNumber,
        committed: EventId,
        place: Option<OwnedSemaphorePermit>,
    ) -> (SessionHandle, SessionActor) {
        let shared = &self.shared;
        let id = machine.snapshot().id;
        let log =
            SessionLog::new(id, number, Arc::clone(&shared.store), committed, shared.settings.tail_bytes);
        let (commands_in, commands) = mpsc::channel(COMMAND_QUEUE);
        let (status, status_out) = watch::channel(Status {
            state: SessionState::Starting,
            turns: [].into(),
            start_failure: None,
            idle_since: None,
        });
        let handle = SessionHandle {
            owner: machine.snapshot().owner.as_str().into(),
            log: log.clone(),
            store: Arc::clone(&shared.store),
            commands: commands_in,
            status: status_out,
            tasks: shared.tasks.clone(),
        };
        shared.count.send_modify(|count| *count += 1);
        let actor = SessionActor {
            machine,
            log,
            store: Arc::clone(&shared.store),
            launcher: Arc::clone(&shared.launcher),
            tasks: shared.tasks.clone(),
            commands,
            status,
            end_grace: shared.settings.end_grace,
            idle_hibernate: shared.settings.idle_hibernate,
            event_queue: shared.settings.event_queue,
            linked_file_bytes: shared.settings.linked_file_bytes,
            child: Child::none(),
            reports: Reports::new(),
            stop_grace: shared.settings.stop_grace,
            stop_until: None,
            deadlines: Deadlines::new(shared.settings.turn_duration),
            look_again: None,
            waiting_patch: None,
            kept_since: None,
            broken: None,
            deletion: None,
            upcoming: None,
            registry: self.clone(),
            place,
        };
        (handle, actor)
    }

    fn permissions(&self) -> Arc<PermissionSettings> {
        Arc::clone(&self.shared.settings.permissions)
    }

    fn bounds(&self) -> Bounds {
        let settings = &self.shared.settings;
        Bounds {
            output_bytes: settings.output_bytes,
            pending_permissions: settings.pending_permissions,
            turn_duration: settings.turn_duration,
            crash: settings.crash,
            queued_turns: settings.queued_turns,
            turn_notices: settings.turn_notices,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, SessionHandle>> {
        // The map is whole after any panic: insert and remove are its only changes.
        self.shared.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn first_record(new: NewSession) -> SessionRecord {
    let NewSession { by, title, metadata, permission_policy, launch } = new;
    let began = Snapshot::new(by.name().to_owned(), &launch, Timestamp::now());
    let snapshot = Snapshot { title, metadata, permission_policy, ..began };
    SessionRecord::new(snapshot, launch)
}
