//! Commands for the agent. Each runs under a lingering shim of its own: its parent has no variable but gander's mark, and
//! what it leaves in the background stays below that shim, where it is found again.
//!
//! A command's end is known when its program has ended and what that wrote has been read; jobs that it left may hold its
//! pipes open, so these are read on, into nothing, for as long as anything runs.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::output::KeptEnd;
use super::{Refusal, ToolSettings, refused};
use crate::process::{LingeringChild, LingeringControl, ProcessSpec, SpawnError, Spawner};
use crate::session::agent::client_tools::{
    ClientToolEvent, ClientToolReply, TerminalExit, TerminalId, TerminalSpec,
};
use crate::shutdown::Tasks;

mod pump;

use self::pump::Pump;

/// How long killed processes may take to be gone; what is left then hangs in the kernel.
pub(super) const END_PATIENCE: Duration = Duration::from_secs(5);
/// The shells that take a line, the best first.
const SHELLS: [&str; 2] = ["bash", "sh"];
/// Output that a command keeps for an agent that does not say how much it wants, in bytes.
const USUAL_KEPT_BYTES: u64 = 50_000;

/// The commands of one session's agent.
pub(super) struct Terminals {
    settings: ToolSettings,
    spawner: Spawner,
    events: mpsc::Sender<ClientToolEvent>,
    tasks: Tasks,
    last_id: AtomicU64,
    /// Those that the agent may still ask about, and those that have left something running. A standard mutex: held for
    /// look-ups and changes, never across an await.
    all: Arc<Mutex<HashMap<TerminalId, Kept>>>,
}

/// A command that is known, until it is both released and gone.
struct Kept {
    terminal: Arc<Terminal>,
    /// Whether the agent asks about it no more.
    is_released: bool,
    /// Whether nothing of it runs any more.
    is_gone: bool,
}

/// One command.
struct Terminal {
    /// The turn that it was started in.
    turn: u64,
    control: LingeringControl,
    output: Arc<Mutex<KeptEnd>>,
    /// How it has ended, once all that it wrote is read.
    exit: watch::Receiver<Option<TerminalExit>>,
}

/// Commands that are to end: at once by [`Ending::begin`], at the latest when this is dropped, which is also how a caller
/// who does not wait any longer leaves it.
struct Ending(Vec<LingeringControl>);

impl Ending {
    fn begin(&self) {
        self.0.iter().for_each(LingeringControl::end);
    }

    /// Waits until nothing is left of them; false when that takes too long.
    async fn gone(&self) -> bool {
        timeout(END_PATIENCE, join_all(self.0.iter().map(LingeringControl::gone))).await.is_ok()
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.begin();
    }
}

impl Terminals {
    pub(super) fn new(
        settings: ToolSettings,
        spawner: Spawner,
        events: mpsc::Sender<ClientToolEvent>,
        tasks: Tasks,
    ) -> Self {
        Self { settings, spawner, events, tasks, last_id: AtomicU64::new(0), all: Arc::default() }
    }

    /// Starts a command in a turn; `is_current` tells whether that turn still runs when the command does.
    pub(super) async fn create(
        &self,
        spec: TerminalSpec,
        cwd: PathBuf,
        turn: u64,
        is_current: impl Fn() -> bool,
    ) -> Result<TerminalId, Refusal> {
        if self.all().len() >= self.settings.terminals {
            return Err(refused(format!(
                "{} commands run already, with what earlier ones have left in the background: no more can be started",
                self.settings.terminals
            )));
        }
        let kept = spec.output_byte_limit.unwrap_or(USUAL_KEPT_BYTES);
        let kept = usize::try_from(kept).unwrap_or(usize::MAX).min(self.settings.kept_bytes);
        let LingeringParts { child, control } = self.start(spec, cwd).await?.into();
        let id = format!("terminal-{}", self.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let output = Arc::new(Mutex::new(KeptEnd::new(kept)));
        let (tell_exit, exit) = watch::channel(None);
        let terminal =
            Arc::new(Terminal { turn, control: control.clone(), output: Arc::clone(&output), exit });
        {
            let mut all = self.all();
            // Under the lock, so that whoever ends the turn's commands either finds this one or has it refused here.
            if !is_current() || all.len() >= self.settings.terminals {
                drop(all);
                control.end();
                return Err(refused("the turn is over: the command was ended"));
            }
            all.insert(id.clone(), Kept { terminal, is_released: false, is_gone: false });
        }
        let pump = Pump {
            id: id.clone(),
            control,
            output,
            events: self.events.clone(),
            live_left: Some(self.settings.live_bytes),
            duration: self.settings.duration,
            exit: tell_exit,
        };
        let all = Arc::clone(&self.all);
        let forgotten = id.clone();
        self.tasks.spawn(async move {
            pump.run(child).await;
            let mut all = lock(&all);
            if let Some(kept) = all.get_mut(&forgotten) {
                kept.is_gone = true;
                if kept.is_released {
                    all.remove(&forgotten);
                }
            }
        });
        Ok(id)
    }

    /// Starts the program, or a shell with the line.
    async fn start(&self, spec: TerminalSpec, cwd: PathBuf) -> Result<LingeringChild, Refusal> {
        let TerminalSpec { command, arguments, environment, .. } = spec;
        let environment: Vec<_> = self
            .settings
            .environment
            .iter()
            .cloned()
            .chain(environment)
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let program = |program: &str, arguments: Vec<String>| ProcessSpec {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: environment.clone(),
            cwd: cwd.clone(),
        };
        let specs = if arguments.is_empty() {
            SHELLS.map(|shell| program(shell, vec!["-c".to_owned(), command.clone()])).to_vec()
        } else {
            vec![program(&command, arguments)]
        };
        let mut failure = None;
        for spec in specs {
            match self.spawner.spawn_lingering(spec).await {
                Ok(child) => return Ok(child),
                // The next shell may be there.
                Err(error @ SpawnError::ProgramNotFound { .. }) => failure = Some(error),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let reason = failure.map_or_else(String::new, |error| error.to_string());
        tracing::warn!(reason, "a command of the agent could not be started");
        Err(refused(format!("the command could not be started: {reason}")))
    }

    pub(super) fn output(&self, id: &str) -> Result<ClientToolReply, Refusal> {
        let terminal = self.find(id)?;
        let exit = terminal.exit.borrow().clone();
        let mut kept = terminal.output.lock().unwrap_or_else(PoisonError::into_inner);
        let (output, truncated) = kept.get();
        Ok(ClientToolReply::Output { output: output.to_owned(), truncated, exit })
    }

    pub(super) async fn wait_for_exit(&self, id: &str) -> Result<TerminalExit, Refusal> {
        let mut exit = self.find(id)?.exit.clone();
        let exit = exit.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone());
        exit.ok_or_else(|| refused("the command was ended with the gateway"))
    }

    /// Kills a command and everything that it started; returns when its end is known.
    pub(super) async fn kill(&self, id: &str) -> Result<(), Refusal> {
        self.find(id)?.control.end();
        self.wait_for_exit(id).await.map(drop)
    }

    /// The agent asks about a command no more: one that still runs is killed, what an ended one has left runs on.
    pub(super) fn release(&self, id: &str) -> Result<(), Refusal> {
        self.find(id)?;
        self.release_those(|known| known == id);
        Ok(())
    }

    /// Releases all that the agent has not released.
    pub(super) fn release_all(&self) {
        self.release_those(|_| true);
    }

    fn release_those(&self, is_meant: impl Fn(&str) -> bool) {
        self.all().retain(|id, kept| {
            if is_meant(id) && !kept.is_released {
                kept.is_released = true;
                if kept.terminal.exit.borrow().is_none() {
                    kept.terminal.control.end();
                }
            }
            // Whoever sees it gone last removes it.
            !(kept.is_released && kept.is_gone)
        });
    }

    /// Kills the commands of one turn with what they started. How many processes, and whether none was left. Dropping
    /// the future gives up the wait, not the kill.
    pub(super) async fn end_those_of(&self, turn: u64) -> (usize, bool) {
        let ending = self.ending(|terminal| terminal.turn == turn);
        let count = LingeringControl::running(&ending.0).await;
        ending.begin();
        (count, ending.gone().await)
    }

    /// Kills everything.
    pub(super) async fn end(&self) {
        let ending = self.ending(|_| true);
        ending.begin();
        ending.gone().await;
    }

    /// Kills everything and waits for nothing.
    pub(super) fn end_now(&self) {
        drop(self.ending(|_| true));
    }

    /// Those that are to end. They are released, and known until nothing is left of them.
    fn ending(&self, is_to_end: impl Fn(&Terminal) -> bool) -> Ending {
        let mut ending = Vec::new();
        self.all().retain(|_, kept| {
            if !is_to_end(&kept.terminal) {
                return true;
            }
            kept.is_released = true;
            if !kept.is_gone {
                ending.push(kept.terminal.control.clone());
            }
            !kept.is_gone
        });
        Ending(ending)
    }

    /// How many processes there are of all commands.
    pub(super) async fn running(&self) -> usize {
        let controls: Vec<_> = self
            .all()
            .values()
            .filter(|kept| !kept.is_gone)
            .map(|kept| kept.terminal.control.clone())
            .collect();
        LingeringControl::running(&controls).await
    }

    fn find(&self, id: &str) -> Result<Arc<Terminal>, Refusal> {
        let all = self.all();
        let found = all.get(id).filter(|kept| !kept.is_released).map(|kept| Arc::clone(&kept.terminal));
        found.ok_or_else(|| refused(format!("there is no terminal {id}")))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<TerminalId, Kept>> {
        lock(&self.all)
    }
}

fn lock(all: &Mutex<HashMap<TerminalId, Kept>>) -> MutexGuard<'_, HashMap<TerminalId, Kept>> {
    // A map is whole after every single operation.
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A started command, and how to end it.
struct LingeringParts {
    child: LingeringChild,
    control: LingeringControl,
}

impl From<LingeringChild> for LingeringParts {
    fn from(child: LingeringChild) -> Self {
        let control = child.control();
        Self { child, control }
    }
}

/// A program's end in ACP's words.
fn exit_of(status: ExitStatus) -> TerminalExit {
    use std::os::unix::process::ExitStatusExt;
    TerminalExit {
        exit_code: status.code().and_then(|code| u32::try_from(code).ok()),
        signal: status.signal().map(signal_name),
    }
}

/// The names of the signals that end programs; others by their numbers.
fn signal_name(number: i32) -> String {
    const NAMES: [(i32, &str); 16] = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (5, "SIGTRAP"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (10, "SIGUSR1"),
        (11, "SIGSEGV"),
        (12, "SIGUSR2"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
    ];
    let known = NAMES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("SIG{number}"), |(_, name)| (*name).to_owned())
}
