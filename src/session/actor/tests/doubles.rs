//! Agents that do what a test says, and the registry on them and a store in memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::store::MemoryStore;
use crate::session::agent::{
    Agent, AgentCommand, AgentEvent, AgentEvents, AgentExit, AgentFacts, AgentGone, AgentLauncher, BoxFuture,
    LaunchError, LaunchSpec, LaunchedAgent, Mode, Notice, Resume, ResumeToken, Sweep, Unfit,
};
use crate::session::fake_permissions::permissions;
use crate::session::handle::SessionHandle;
use crate::session::id::SessionId;
use crate::session::policy::PermissionPolicy;
use crate::session::registry::{CrashBounds, CreateError, NewSession, Registry, SessionSettings};
use crate::session::turn::TurnErrorClass;
use crate::shutdown::Tasks;

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
        self.succeed_in(PathBuf::from("/work"))
    }

    /// An agent that works in this directory.
    pub(super) fn succeed_in(self, cwd: PathBuf) -> RunningAgent {
        self.succeed_as(cwd, 0, false)
    }

    /// An agent of which nothing ends, and whose processes nobody can find.
    pub(super) fn succeed_stuck(self) -> RunningAgent {
        self.succeed_as(PathBuf::from("/work"), 0, true)
    }

    /// An agent of which so many processes in the background end one by one.
    pub(super) fn succeed_with(self, background: usize) -> RunningAgent {
        self.succeed_as(PathBuf::from("/work"), background, false)
    }

    fn succeed_as(self, cwd: PathBuf, background: usize, stuck: bool) -> RunningAgent {
        let (commands, said) = mpsc::unbounded_channel();
        let ended = CancellationToken::new();
        let background = Arc::new(AtomicUsize::new(background));
        let agent = FakeAgent { commands, ended: ended.clone(), background: background.clone(), stuck };
        let facts = AgentFacts {
            name: "fake".into(),
            version: "1".into(),
            transport: "stdio",
            pid: Some(7),
            cwd,
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

/// What becomes of removing what belongs to a session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Discards {
    #[default]
    AtOnce,
    Fail,
    /// Takes for ever.
    Hang,
}

struct FakeLauncher {
    launches: mpsc::UnboundedSender<Launch>,
    discards: Arc<Mutex<Discards>>,
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
        match *self.discards.lock().unwrap() {
            Discards::AtOnce => Box::pin(std::future::ready(Ok(()))),
            Discards::Fail => Box::pin(std::future::ready(Err(std::io::Error::other("no")))),
            Discards::Hang => Box::pin(std::future::pending()),
        }
    }
}

/// A registry on the doubles.
pub(super) struct World {
    pub(super) registry: Registry,
    pub(super) store: MemoryStore,
    pub(super) launches: mpsc::UnboundedReceiver<Launch>,
    discards: Arc<Mutex<Discards>>,
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
        let discards = Arc::<Mutex<Discards>>::default();
        let starter = Arc::new(FakeLauncher { launches: sender, discards: Arc::clone(&discards) });
        let registry =
            Registry::open(Arc::new(store.clone()), starter, settings, Tasks::new()).await.unwrap();
        Self { registry, store, launches, discards }
    }

    /// Says what becomes of removing what belongs to sessions.
    pub(super) fn discards(&self, discards: Discards) {
        *self.discards.lock().unwrap() = discards;
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
