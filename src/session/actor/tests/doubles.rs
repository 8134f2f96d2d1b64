//! A store in memory, agents that do what a test says, and the registry on them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::session::agent::{
    Agent, AgentCommand, AgentEvent, AgentEvents, AgentExit, AgentFacts, AgentGone, AgentLauncher, BoxFuture,
    LaunchError, LaunchSpec, LaunchedAgent, Mode, Notice, Resume, ResumeToken, Sweep, Unfit,
};
use crate::session::audit::AuditEntry;
use crate::session::event::EventKind;
use crate::session::fake_permissions::permissions;
use crate::session::handle::SessionHandle;
use crate::session::id::{EventId, PermissionId, SessionId, SessionNumber, TurnId};
use crate::session::log::{
    Append, Change, Owner, Page, PermissionsOf, SessionRecord, Store, StoreError, StoreFuture,
};
use crate::session::order::{EventOrder, OrderFilter, OrderHead, OrderedRuns, Position, StoreTag};
use crate::session::permission::{Permission, PermissionState};
use crate::session::policy::PermissionPolicy;
use crate::session::registry::{CrashBounds, CreateError, NewSession, Registry, SessionSettings};
use crate::session::run::Run;
use crate::session::snapshot::{SessionState, Snapshot};
use crate::session::turn::{Turn, TurnErrorClass};
use crate::shutdown::Tasks;

/// What the store does with what it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Commits {
    #[default]
    AtOnce,
    /// Keeps it until [`MemoryStore::commit`].
    OnDemand,
    /// Takes it and fails then.
    Fail,
    /// Does not take it.
    Refused,
}

#[derive(Default)]
struct Kept {
    trouble: watch::Sender<Option<StoreError>>,
    commits: Commits,
    waiting: Vec<Append>,
    turns: HashMap<TurnId, Turn>,
    permissions: HashMap<PermissionId, Permission>,
    kinds: Vec<EventKind>,
    sessions: u32,
}

/// A store in memory that can be slow or broken.
#[derive(Clone, Default)]
pub(super) struct MemoryStore {
    kept: Arc<Mutex<Kept>>,
}

impl MemoryStore {
    pub(super) fn set(&self, commits: Commits) {
        self.kept.lock().unwrap().commits = commits;
    }

    /// Says what keeps it from writing.
    pub(super) fn trouble_is(&self, error: Option<StoreError>) {
        self.kept.lock().unwrap().trouble.send_replace(error);
    }

    /// Commits what waits, and from now on everything at once.
    pub(super) fn commit(&self) {
        let waiting = {
            let mut kept = self.kept.lock().unwrap();
            kept.commits = Commits::AtOnce;
            std::mem::take(&mut kept.waiting)
        };
        for append in waiting {
            self.keep(append);
        }
    }

    /// Waits until there is something to commit.
    pub(super) async fn something_waits(&self) {
        while self.kept.lock().unwrap().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// The kinds of all committed events, in order.
    pub(super) fn kinds(&self) -> Vec<EventKind> {
        self.kept.lock().unwrap().kinds.clone()
    }

    fn keep(&self, append: Append) {
        let mut kept = self.kept.lock().unwrap();
        for change in append.changes {
            match change {
                Change::Turn(turn) => drop(kept.turns.insert(turn.id, *turn)),
                Change::Permission(permission) => {
                    kept.permissions.insert(permission.id, *permission);
                }
                Change::Session(_) => {}
            }
        }
        if let Some(run) = append.run {
            kept.kinds.extend(run.frames_after(EventId(0)).map(|frame| frame.kind));
            append.log.committed(run);
        }
    }
}

fn ready<T: Send + 'static>(value: T) -> StoreFuture<T> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Store for MemoryStore {
    fn create_session(&self, _: SessionRecord) -> StoreFuture<SessionNumber> {
        let mut kept = self.kept.lock().unwrap();
        kept.sessions += 1;
        ready(SessionNumber(kept.sessions))
    }

    fn append(&self, append: Append) -> StoreFuture<()> {
        let commits = self.kept.lock().unwrap().commits;
        match commits {
            Commits::AtOnce => self.keep(append),
            Commits::OnDemand => self.kept.lock().unwrap().waiting.push(append),
            Commits::Fail => append.log.failed(),
            Commits::Refused => return Box::pin(std::future::ready(Err(StoreError::failed("full")))),
        }
        ready(())
    }

    fn delete_session(&self, _: SessionNumber, _: AuditEntry) -> StoreFuture<()> {
        ready(())
    }

    fn note(&self, _: AuditEntry) -> StoreFuture<()> {
        ready(())
    }

    fn events(&self, _: SessionNumber, _: EventId, _: usize) -> StoreFuture<Option<Arc<Run>>> {
        ready(None)
    }

    fn order(&self) -> EventOrder {
        EventOrder::new(StoreTag(0), OrderHead::default(), 0)
    }

    fn ordered_events(
        &self,
        _: OrderFilter,
        _: Position,
        through: Position,
        _: usize,
    ) -> StoreFuture<OrderedRuns> {
        ready(OrderedRuns { runs: Vec::new(), through })
    }

    fn message_events(
        &self,
        _: SessionNumber,
        _: EventId,
        _: EventId,
        _: usize,
    ) -> StoreFuture<Vec<(EventId, Box<[u8]>)>> {
        ready(Vec::new())
    }

    fn all_sessions(&self) -> StoreFuture<Vec<(SessionNumber, SessionRecord, EventId)>> {
        ready(Vec::new())
    }

    fn sessions(&self, _: Owner, _: Option<SessionState>, _: Page<SessionId>) -> StoreFuture<Vec<Snapshot>> {
        ready(Vec::new())
    }

    fn turns(&self, _: SessionNumber, _: Page<TurnId>) -> StoreFuture<Vec<Turn>> {
        ready(Vec::new())
    }

    fn turn(&self, _: SessionNumber, id: TurnId) -> StoreFuture<Option<Turn>> {
        ready(self.kept.lock().unwrap().turns.get(&id).cloned())
    }

    fn permissions(
        &self,
        _: PermissionsOf,
        _: Option<PermissionState>,
        _: Page<PermissionId>,
    ) -> StoreFuture<Vec<Permission>> {
        ready(Vec::new())
    }

    fn permission(&self, _: SessionNumber, id: PermissionId) -> StoreFuture<Option<Permission>> {
        ready(self.kept.lock().unwrap().permissions.get(&id).cloned())
    }

    fn session(&self, _: SessionNumber) -> StoreFuture<Option<Snapshot>> {
        ready(None)
    }

    fn trouble(&self) -> watch::Receiver<Option<StoreError>> {
        self.kept.lock().unwrap().trouble.subscribe()
    }
}

struct FakeAgent {
    commands: mpsc::UnboundedSender<AgentCommand>,
    ended: CancellationToken,
    background: Arc<AtomicUsize>,
    /// Whether nothing that is done with its processes is ever done.
    stuck: bool,
}

/// What is done at once, or never.
fn done<T: Send + 'static>(value: T, stuck: bool) -> BoxFuture<T> {
    if stuck { Box::pin(std::future::pending()) } else { Box::pin(std::future::ready(value)) }
}

impl Agent for FakeAgent {
    fn send(&self, command: AgentCommand) -> Result<(), AgentGone> {
        self.commands.send(command).map_err(|_| AgentGone)
    }

    fn prepare_turn(&self) -> BoxFuture<Result<(), Unfit>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn check_extensions(&self, _: Mode) -> BoxFuture<Result<Vec<Notice>, Unfit>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn sweep(&self) -> BoxFuture<Sweep> {
        done(Sweep { killed: 0, complete: true }, self.stuck)
    }

    /// One fewer each time it is asked.
    fn background(&self) -> BoxFuture<usize> {
        let background = self.background.load(Ordering::SeqCst);
        self.background.store(background.saturating_sub(1), Ordering::SeqCst);
        done(background, self.stuck)
    }

    fn end(&self, _: Duration) -> BoxFuture<()> {
        self.ended.cancel();
        done((), self.stuck)
    }
}

/// A start that waits for the test to say how it goes. One that is dropped has the launcher panic.
pub(super) struct Launch {
    pub(super) events: mpsc::Sender<AgentEvents>,
    pub(super) cancel: CancellationToken,
    outcome: oneshot::Sender<Result<LaunchedAgent, LaunchError>>,
}

impl Launch {
    pub(super) fn succeed(self) -> RunningAgent {
        self.succeed_as(0, false)
    }

    /// An agent of which nothing ends, and whose processes nobody can find.
    pub(super) fn succeed_stuck(self) -> RunningAgent {
        self.succeed_as(0, true)
    }

    /// An agent of which so many processes in the background end one by one.
    pub(super) fn succeed_with(self, background: usize) -> RunningAgent {
        self.succeed_as(background, false)
    }

    fn succeed_as(self, background: usize, stuck: bool) -> RunningAgent {
        let (commands, said) = mpsc::unbounded_channel();
        let ended = CancellationToken::new();
        let background = Arc::new(AtomicUsize::new(background));
        let agent = FakeAgent { commands, ended: ended.clone(), background: background.clone(), stuck };
        let facts = AgentFacts {
            name: "fake".into(),
            version: "1".into(),
            transport: "stdio",
            pid: Some(7),
            cwd: PathBuf::from("/work"),
            mode: Mode::Approve,
            extensions: Vec::new(),
            config_options: Vec::new(),
            default_effort: None,
        };
        let resume = ResumeToken("agents_1".into());
        let launched = LaunchedAgent { agent: Arc::new(agent), facts, resume, notices: Vec::new() };
        assert!(self.outcome.send(Ok(launched)).is_ok(), "the start is waited for");
        RunningAgent { events: self.events, commands: said, ended, background }
    }

    /// Nothing is heard of the agent any more, and then its start is told.
    pub(super) fn lose_connection_and_succeed(mut self) -> RunningAgent {
        let (nowhere, _) = mpsc::channel(1);
        drop(std::mem::replace(&mut self.events, nowhere));
        self.succeed()
    }

    pub(super) fn fail(self) {
        let error = LaunchError::Failed { detail: "no".into(), stderr_tail: None };
        assert!(self.outcome.send(Err(error)).is_ok(), "the start is waited for");
    }
}

/// The agent's side of a session.
pub(super) struct RunningAgent {
    pub(super) events: mpsc::Sender<AgentEvents>,
    pub(super) commands: mpsc::UnboundedReceiver<AgentCommand>,
    pub(super) ended: CancellationToken,
    pub(super) background: Arc<AtomicUsize>,
}

impl RunningAgent {
    pub(super) async fn says(&self, event: AgentEvent) {
        self.events.send(vec![event]).await.unwrap();
    }

    pub(super) async fn exits(&self) {
        let exit = AgentExit {
            how: "signal 9".into(),
            stderr_tail: String::new(),
            class: TurnErrorClass::AgentExited,
        };
        self.says(AgentEvent::Exited(exit)).await;
    }
}

struct FakeLauncher {
    launches: mpsc::UnboundedSender<Launch>,
}

impl AgentLauncher for FakeLauncher {
    fn launch(
        &self,
        _: SessionId,
        _: LaunchSpec,
        _: Option<Resume>,
        events: mpsc::Sender<AgentEvents>,
        cancel: CancellationToken,
    ) -> BoxFuture<Result<LaunchedAgent, LaunchError>> {
        let (outcome, decided) = oneshot::channel();
        self.launches.send(Launch { events, cancel, outcome }).unwrap();
        Box::pin(async { decided.await.expect("a launcher that panics") })
    }

    fn discard(&self, _: SessionId) -> BoxFuture<std::io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A registry on the doubles.
pub(super) struct World {
    pub(super) registry: Registry,
    pub(super) store: MemoryStore,
    pub(super) launches: mpsc::UnboundedReceiver<Launch>,
}

impl World {
    pub(super) async fn new(change: impl FnOnce(&mut SessionSettings)) -> Self {
        let mut settings = SessionSettings {
            max_sessions: 10,
            max_running: 10,
            max_starting: 10,
            tail_bytes: 1024 * 1024,
            output_bytes: 1024,
            pending_permissions: 8,
            permissions: Arc::new(permissions()),
            end_grace: Duration::ZERO,
            stop_grace: Duration::from_mins(1),
            turn_duration: Duration::ZERO,
            crash: CrashBounds {
                deaths: 3,
                within: Duration::from_mins(1),
                cooldown: Duration::from_mins(1),
            },
            idle_hibernate: Duration::ZERO,
            event_queue: 8,
            queued_turns: 2,
            turn_notices: 5,
            linked_file_bytes: 10,
        };
        change(&mut settings);
        let store = MemoryStore::default();
        let (sender, launches) = mpsc::unbounded_channel();
        let starter = Arc::new(FakeLauncher { launches: sender });
        let registry =
            Registry::open(Arc::new(store.clone()), starter, settings, Tasks::new()).await.unwrap();
        Self { registry, store, launches }
    }

    pub(super) async fn create(&self) -> Result<SessionHandle, CreateError> {
        let launch = LaunchSpec::new(Mode::Approve);
        let metadata = std::collections::BTreeMap::new();
        let (by, permission_policy) = ("alice".into(), PermissionPolicy::default());
        let new = NewSession { by, title: None, metadata, permission_policy, launch };
        self.registry.create(new).await
    }

    /// The next start that is asked for.
    pub(super) async fn launch(&mut self) -> Launch {
        self.launches.recv().await.unwrap()
    }

    /// A session whose agent is ready.
    pub(super) async fn ready(&mut self) -> (SessionHandle, RunningAgent) {
        let session = self.create().await.unwrap();
        let agent = self.launch().await.succeed();
        session.started().await.unwrap().unwrap();
        (session, agent)
    }
}
