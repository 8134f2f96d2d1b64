//! gander's own file system and terminal for the agent's tools: what an agent asks of the machine that it works on.
//!
//! One [`SessionTools`] serves one agent. It does what is asked only while a turn runs that nobody is cancelling, keeps
//! files to the session's folder and the extra ones (`roots`), and runs each command under a shim of its own, in an
//! environment without anybody's keys (`terminal`).
//!
//! Architecture invariant: how the requests come, over which transport and in which protocol, is not known here. None of
//! this is a sandbox: a command may do what gander's user may.

mod filesystem;
mod output;
mod roots;
mod terminal;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};

use self::roots::Roots;
use self::terminal::Terminals;
use crate::process::Spawner;
use crate::session::agent::BoxFuture;
use crate::session::agent::client_tools::{
    ClientToolEvent, ClientToolRefusal, ClientToolReply, ClientToolRequest, ClientTools, OfferedTools,
};
use crate::shutdown::Tasks;

/// How many events may wait for the session. Each is at most one read of a command's output.
const QUEUED_EVENTS: usize = 16;
/// How many files one session reads or writes at a time; more wait.
const FILES_AT_A_TIME: u32 = 4;

/// What the agents of all sessions are offered, and its bounds.
#[derive(Clone, Debug)]
pub struct ToolSettings {
    /// What they are offered.
    pub offered: OfferedTools,
    /// Folders besides the session's own in which files may be read and written.
    pub extra_roots: Vec<PathBuf>,
    /// Bytes of a file that is read or written.
    pub file_bytes: usize,
    /// Bytes of each of a diff's texts.
    pub diff_bytes: usize,
    /// Commands that one session may have at a time, those included that have left something running.
    pub terminals: usize,
    /// Bytes of a command's output that are told while it runs.
    pub live_bytes: usize,
    /// Bytes of a command's output that are kept at most, the last ones.
    pub kept_bytes: usize,
    /// How long a command may run, with all that it started.
    pub duration: Duration,
    /// The whole environment of commands, but for what the agent adds.
    pub environment: Vec<(String, String)>,
}

/// Why something is not done, for the agent.
type Refusal = ClientToolRefusal;

fn refused(reason: impl Into<String>) -> Refusal {
    ClientToolRefusal(reason.into())
}

fn no_turn() -> Refusal {
    refused("no turn is running, or it is being cancelled: nothing is done")
}

/// Does what one session's agent asks for. Cheap to clone; with the last clone every command is killed.
#[derive(Clone)]
pub struct SessionTools {
    shared: Arc<Shared>,
}

struct Shared {
    settings: ToolSettings,
    /// The session's folder first. Looked up once, off the runtime's threads.
    roots: tokio::sync::OnceCell<Arc<Roots>>,
    cwd: PathBuf,
    files: Arc<Semaphore>,
    turn: Mutex<TurnState>,
    terminals: Terminals,
    events: mpsc::Sender<ClientToolEvent>,
    tasks: Tasks,
}

/// Which turn runs. A standard mutex guards it, held for a copy and never across an await.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TurnState {
    /// How many have begun.
    number: u64,
    /// Whether one runs that is not being stopped.
    is_open: bool,
}

impl SessionTools {
    /// For an agent that works in `cwd`. What happens is told to the receiver, which has to be emptied.
    #[must_use]
    pub fn new(
        settings: ToolSettings,
        cwd: PathBuf,
        spawner: Spawner,
        tasks: Tasks,
    ) -> (Self, mpsc::Receiver<ClientToolEvent>) {
        let (events, told) = mpsc::channel(QUEUED_EVENTS);
        let terminals = Terminals::new(settings.clone(), spawner, events.clone(), tasks.clone());
        let shared = Shared {
            settings,
            roots: tokio::sync::OnceCell::new(),
            cwd,
            files: Arc::new(Semaphore::new(FILES_AT_A_TIME as usize)),
            turn: Mutex::default(),
            terminals,
            events,
            tasks,
        };
        (Self { shared: Arc::new(shared) }, told)
    }

    /// Kills the commands of the turn that runs, or ran last, with all that they started, and waits for its writes that
    /// have begun; later ones are refused. How many processes, and whether none was left.
    pub async fn sweep(&self) -> (usize, bool) {
        let turn = {
            let mut turn = self.shared.turn();
            turn.is_open = false;
            turn.number
        };
        let (swept, ()) = tokio::join!(self.shared.terminals.end_those_of(turn), self.shared.files_done());
        swept
    }

    /// How many processes of earlier commands, or of one that runs, there are now.
    pub async fn background(&self) -> usize {
        self.shared.terminals.running().await
    }

    /// Kills all commands with all that they started, and takes no more.
    pub async fn end(&self) {
        self.shared.turn().is_open = false;
        tokio::join!(self.shared.terminals.end(), self.shared.files_done());
    }

    /// As [`SessionTools::end`], without a wait.
    pub fn end_now(&self) {
        self.shared.turn().is_open = false;
        self.shared.terminals.end_now();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.terminals.end_now();
    }
}

impl ClientTools for SessionTools {
    fn offered(&self) -> OfferedTools {
        self.shared.settings.offered
    }

    fn turn_begun(&self) {
        let mut turn = self.shared.turn();
        *turn = TurnState { number: turn.number + 1, is_open: true };
        drop(turn);
        // What an agent has forgotten to release.
        self.shared.terminals.release_all();
    }

    fn turn_over(&self) {
        self.shared.turn().is_open = false;
    }

    fn call(&self, request: ClientToolRequest) -> BoxFuture<Result<ClientToolReply, Refusal>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.call(request).await })
    }
}

impl Shared {
    fn turn(&self) -> MutexGuard<'_, TurnState> {
        // Two plain values that any moment is right for.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn that runs; what is asked for outside of one, or once it is being cancelled, is refused.
    fn open_turn(&self) -> Result<u64, Refusal> {
        let turn = *self.turn();
        turn.is_open.then_some(turn.number).ok_or_else(no_turn)
    }

    /// Fails unless that turn still runs.
    fn check_turn(&self, number: u64) -> Result<(), Refusal> {
        if *self.turn() == (TurnState { number, is_open: true }) { Ok(()) } else { Err(no_turn()) }
    }

    /// Waits until nothing is under way with files, for a while only: a disk can hang.
    async fn files_done(&self) {
        let all = self.files.acquire_many(FILES_AT_A_TIME);
        if tokio::time::timeout(terminal::END_PATIENCE, all).await.is_err() {
            tracing::warn!("reading or writing a file takes long and is not waited for");
        }
    }

    async fn call(self: Arc<Self>, request: ClientToolRequest) -> Result<ClientToolReply, Refusal> {
        let OfferedTools { filesystem, terminal } = self.settings.offered;
        let is_offered = match &request {
            ClientToolRequest::ReadTextFile { .. } | ClientToolRequest::WriteTextFile { .. } => filesystem,
            _ => terminal,
        };
        if !is_offered {
            return Err(refused("this was not offered"));
        }
        match request {
            ClientToolRequest::ReadTextFile { path, line, limit } => {
                self.open_turn()?;
                let most = self.settings.file_bytes;
                let read = move |roots: &Roots| filesystem::read(roots, &path, line, limit, most);
                self.with_files(read).await.map(ClientToolReply::Content)
            }
            ClientToolRequest::WriteTextFile { path, content } => {
                let turn = self.open_turn()?;
                let bounds = filesystem::Bounds {
                    file_bytes: self.settings.file_bytes,
                    diff_bytes: self.settings.diff_bytes,
                };
                let (file, shared) = (path.clone(), Arc::clone(&self));
                // What waited for its place, or for the disk, may have outlived its turn.
                let is_current = move || shared.check_turn(turn);
                let written = self
                    .with_files(move |roots| filesystem::write(roots, &file, &content, bounds, is_current))
                    .await?;
                // Nobody listens when the agent is gone; the file is written all the same.
                let _ = self.events.send(ClientToolEvent::Written { path, content: written }).await;
                Ok(ClientToolReply::Done)
            }
            ClientToolRequest::CreateTerminal(spec) => {
                let turn = self.open_turn()?;
                let asked = spec.cwd.clone().unwrap_or_else(|| self.cwd.clone());
                let cwd = self.with_files(move |roots| roots.folder(&asked)).await?;
                let shared = Arc::clone(&self);
                let is_current = move || shared.check_turn(turn).is_ok();
                self.terminals.create(spec, cwd, turn, is_current).await.map(ClientToolReply::Created)
            }
            ClientToolRequest::TerminalOutput(id) => self.terminals.output(&id),
            ClientToolRequest::WaitForExit(id) => {
                self.terminals.wait_for_exit(&id).await.map(ClientToolReply::Exited)
            }
            ClientToolRequest::Kill(id) => {
                self.terminals.kill(&id).await?;
                Ok(ClientToolReply::Done)
            }
            ClientToolRequest::Release(id) => {
                self.terminals.release(&id)?;
                Ok(ClientToolReply::Done)
            }
        }
    }

    /// Does something with files, on a thread that may block.
    async fn with_files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Roots) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let failed = |error: &dyn std::fmt::Display| {
            tracing::error!(%error, "doing what an agent asked of files failed");
            refused("this failed within the gateway")
        };
        // The semaphore is never closed.
        let permit = Arc::clone(&self.files).acquire_owned().await.map_err(|error| failed(&error))?;
        let roots = self.roots.get_or_try_init(|| async {
            let (cwd, extra) = (self.cwd.clone(), self.settings.extra_roots.clone());
            self.tasks.spawn_blocking(move || Arc::new(Roots::new(cwd, extra))).await
        });
        let roots = Arc::clone(roots.await.map_err(|error| failed(&error))?);
        let done = self.tasks.spawn_blocking(move || {
            // Held while it works, also when nobody waits for it any more.
            let _permit = permit;
            work(&roots)
        });
        done.await.unwrap_or_else(|error| Err(failed(&error)))
    }
}
