//! Child processes and their ends. Knows neither goose nor sessions.
//!
//! ```text
//! gateway ──▶ gander shim ──▶ gander exec-helper, which becomes the program ──▶ tools, servers, whatever they start
//! ```
//!
//! A shim per child sees to it that nothing which the program starts outlives the program or the gateway, not even
//! what makes a session of its own, and also when the gateway is killed. `shim.rs` says how; `exec_helper.rs`
//! what has to happen in the program's own process; `handshake.rs` how both learn what to run; `lingering.rs` what
//! becomes of a program whose children may outlive it; `registry.rs` what happens when a shim itself is killed;
//! `sweep.rs` how processes are found and killed, `marked.rs` those of one user of a program that works for several.
//!
//! **Invariant: while [strays are killed](crate::process::Spawner::adopt_and_kill_strays), every child process of the
//! gateway is started here.** Any other would be taken for what a killed shim left, and killed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open, set_child_subreaper};
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio_util::sync::CancellationToken;

use crate::shutdown::Tasks;

use self::child::ProgramHandle;
use self::handshake::{Report, Step};
use self::lingering::Watch;
use self::registry::{Registration, Registry};
use self::sweep::{MARKER, Mark};
use self::table::{Entry, Identity, positive};

mod child;
mod exec_helper;
mod handshake;
mod lingering;
mod listening;
mod marked;
mod registry;
mod shim;
mod sweep;
mod table;

pub use self::child::{Child, ChildControl};
pub use self::handshake::InvalidSpec;
pub use self::lingering::{LingeringChild, LingeringControl};
pub use self::marked::ProcessMark;
pub use self::sweep::DescendantSnapshot;

/// The first arguments that make gander's binary a helper.
const SHIM: &str = "shim";
const EXEC_HELPER: &str = "exec-helper";
/// The argument of a shim that goes on while anything that its program started still runs.
const LINGERS: &str = "lingers";

/// `EX_USAGE` and `EX_OSERR` of `sysexits.h`.
const USAGE_EXIT_CODE: u8 = 64;
const SETUP_EXIT_CODE: u8 = 71;

/// Room in the standard output's pipe. A flood went a third faster with it than with the default of 64 KiB, since
/// one read brings more lines.
const STDOUT_PIPE_BYTES: usize = 1 << 20;

/// Runs a helper, if the command line is one's, and returns its exit code. To be called first thing in `main`: the
/// helpers need a process with a single thread.
#[must_use]
pub fn dispatch(arguments: &[OsString]) -> Option<ExitCode> {
    match arguments.get(1)?.to_str()? {
        SHIM => Some(shim::run(arguments)),
        EXEC_HELPER => Some(exec_helper::run(arguments)),
        _ => None,
    }
}

/// The one argument of a helper: its parent's process number.
fn pid_argument(arguments: &[OsString]) -> Option<Pid> {
    positive(arguments.get(2)?.to_str()?.parse().ok()?)
}

/// What to run. The child gets nothing of the gateway's own: no variable, no descriptor.
#[derive(Clone, PartialEq, Eq)]
pub struct ProcessSpec {
    /// The program: a path (a relative one starts at `cwd`), or a bare name that is looked for in `PATH` of
    /// `environment`.
    pub program: PathBuf,
    /// Its arguments, without the program's name.
    pub arguments: Vec<OsString>,
    /// Its whole environment, but for `GANDER_INSTANCE`, which is always added. Of a name given twice the last counts.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub cwd: PathBuf,
}

impl std::fmt::Debug for ProcessSpec {
    /// Without arguments and values of variables: both may be secrets.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&OsStr> = self.environment.iter().map(|(name, _)| name.as_os_str()).collect();
        formatter
            .debug_struct("ProcessSpec")
            .field("program", &self.program)
            .field("arguments", &self.arguments.len())
            .field("environment", &names)
            .field("cwd", &self.cwd)
            .finish()
    }
}

/// Why a program does not run. When this is returned, no process of the attempt is left.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no such program.
    #[error("program {} was not found", program.display())]
    ProgramNotFound {
        /// As it was asked for.
        program: PathBuf,
    },
    /// The program is there, but no permission, no format that the system runs, or no interpreter. A text file without
    /// `#!` does run: `exec` hands it to `sh`, as shells do.
    #[error("program {} cannot be executed", program.display())]
    NotExecutable {
        /// As it was asked for.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The working directory is missing, no directory, or closed to this user.
    #[error("working directory {} cannot be entered", cwd.display())]
    WorkingDirectory {
        /// As it was asked for.
        cwd: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The specification cannot be handed to the system.
    #[error("the program cannot be started")]
    Invalid(#[from] InvalidSpec),
    /// The system refused something: out of processes, descriptors or memory, arguments too long.
    #[error("the program could not be started")]
    System(#[from] io::Error),
    /// A helper process ended before it could start the program: somebody killed it.
    #[error("the helper process that starts the program ended early")]
    HelperEnded,
}

/// Starts children and keeps track of them. One per gateway; cheap to clone.
#[derive(Clone)]
pub struct Spawner {
    shared: Arc<Shared>,
}

struct Shared {
    /// gander's own binary, which is also the helpers'.
    executable: PathBuf,
    storage_id: String,
    /// The value of `GANDER_INSTANCE` in this run's children.
    mark: String,
    gateway: Pid,
    registry: Arc<Registry>,
    tasks: Tasks,
}

impl Spawner {
    /// Makes this process the one that adopts what a killed shim leaves behind (a subreaper).
    ///
    /// `executable` is gander's own binary; `/proc/self/exe` stays right when the file is replaced. `storage_id`
    /// names the storage that the children work on, the same in every run: children are marked with
    /// `GANDER_INSTANCE=<storage id>:<gateway's pid>:<gateway's start>`, by which [`Spawner::kill_left_over`] finds
    /// an earlier run's.
    pub fn new(executable: PathBuf, storage_id: String, tasks: Tasks) -> io::Result<Self> {
        let gateway = getpid();
        set_child_subreaper(Some(gateway))?;
        let identity = Entry::read(gateway).map(|entry| entry.identity);
        let identity = identity.ok_or_else(|| io::Error::other("/proc does not show this process"))?;
        let mark = Mark { storage: &storage_id, gateway: identity }.render();
        let registry = Arc::new(Registry::new(tasks.clone()));
        Ok(Self { shared: Arc::new(Shared { executable, storage_id, mark, gateway, registry, tasks }) })
    }

    /// Kills and reaps, from now on, every child of this process that was not started by this spawner (nor was there
    /// before it): what a killed shim left, and what a container's first process inherits. See the module's invariant.
    pub fn adopt_and_kill_strays(&self) -> io::Result<()> {
        self.shared.registry.adopt()
    }

    /// Kills what a gateway that is gone left of its children on the same storage, and how many processes that were.
    /// To be called at the start, before anything is spawned.
    pub async fn kill_left_over(&self) -> usize {
        let shared = Arc::clone(&self.shared);
        let killed =
            self.shared.tasks.spawn_blocking(move || sweep::kill_left_over(&shared.storage_id)).await;
        let killed = killed.unwrap_or_else(|error| {
            tracing::error!(%error, "looking for an earlier run's processes failed");
            0
        });
        self.shared.registry.count_killed(killed);
        killed
    }

    /// How many processes were killed since the start because nobody was left that they belonged to.
    #[must_use]
    pub fn killed(&self) -> u64 {
        self.shared.registry.killed()
    }

    /// Starts a program under a shim of its own; returns when it runs. Dropping the future ends the attempt.
    pub async fn spawn(&self, spec: ProcessSpec) -> Result<Child, SpawnError> {
        let (stdin, child) = self.start(spec, Stdio::piped(), None).await?;
        let Pipes { stdout, stderr, control } = child;
        Ok(Child { stdin: stdin.ok_or(SpawnError::HelperEnded)?, stdout, stderr, control })
    }

    /// Starts a program with no standard input, whose children may outlive it: the shim, and with it all that the
    /// program started, stays when the program has ended, until nothing is left or [`LingeringControl::end`].
    pub async fn spawn_lingering(&self, spec: ProcessSpec) -> Result<LingeringChild, SpawnError> {
        let (reports, shim_reports) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let watch = Watch { end: CancellationToken::new() };
        let (_none, child) = self.start(spec, Stdio::null(), Some((shim_reports, watch.clone()))).await?;
        let Pipes { stdout, stderr, control } = child;
        Ok(LingeringChild::new((stdout, stderr), control, reports, watch, &self.shared.tasks)?)
    }

    async fn start(
        &self,
        mut spec: ProcessSpec,
        stdin: Stdio,
        lingers: Option<(OwnedFd, Watch)>,
    ) -> Result<(Option<ChildStdin>, Pipes), SpawnError> {
        spec.environment.push((MARKER.into(), self.shared.mark.clone().into()));
        let encoded = handshake::encode_spec(&spec)?;

        let (control, shim_control) = UnixStream::pair()?;
        let (stderr, program_stderr) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let watch = match lingers {
            Some((reports, watch)) => {
                handshake::send_descriptor(&control, reports)?;
                Some(watch)
            }
            None => None,
        };
        handshake::send_descriptor(&control, program_stderr)?;
        control.set_nonblocking(true)?;
        let mut control = tokio::net::UnixStream::from_std(control)?;
        let (mut shim, registration) = self.start_shim(shim_control, stdin, watch.is_some())?;
        let shim_identity = identity_of(registration.pid)?;
        let stdin = shim.stdin.take();
        let Some(stdout) = shim.stdout.take() else { return Err(SpawnError::HelperEnded) };
        // Best effort: the system limits how much pipe room a user may have.
        let _smaller = fcntl_setpipe_size(&stdout, STDOUT_PIPE_BYTES);
        let stderr = ChildStderr::from_std(stderr.into())?;

        // Nothing has to be cleaned up if this future is dropped here: the helper sees the socket's end.
        let program = match Report::receive(&mut control).await {
            Some(Report::Started(pid)) => {
                // The helper waits for the specification, so the number means the helper.
                let pidfd = Arc::new(pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from)?);
                ProgramHandle { identity: identity_of(pid)?, pidfd }
            }
            other => {
                drop(control);
                let _status = shim.wait().await;
                return Err(failure(other, &spec));
            }
        };
        let control_of_child = ChildControl::new(
            (shim, registration),
            shim_identity,
            program,
            watch,
            Arc::clone(&self.shared.registry),
            &self.shared.tasks,
        );

        // A helper that is gone cannot be written to; its last report tells why.
        let _sent = control.write_all(&encoded).await;
        let _ended = control.shutdown().await;
        let mut reports = Vec::with_capacity(2);
        while let Some(report) = Report::receive(&mut control).await {
            reports.push(report);
        }
        if reports == [Report::Ready] {
            return Ok((stdin, Pipes { stdout, stderr, control: control_of_child }));
        }
        control_of_child.kill();
        control_of_child.exited().await;
        Err(failure(reports.last().copied(), &spec))
    }

    fn start_shim(
        &self,
        control: UnixStream,
        stdin: Stdio,
        lingers: bool,
    ) -> io::Result<(tokio::process::Child, Registration)> {
        let mut command = Command::new(&self.shared.executable);
        command
            .arg0("gander")
            .arg(SHIM)
            .arg(self.shared.gateway.as_raw_nonzero().to_string())
            .args(lingers.then_some(LINGERS))
            .env_clear()
            .env(MARKER, &self.shared.mark)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(OwnedFd::from(control));
        self.shared.registry.start(&mut command)
    }
}

/// What every started program has.
struct Pipes {
    stdout: ChildStdout,
    stderr: ChildStderr,
    control: ChildControl,
}

/// The identity of a process that is known not to be reaped yet.
fn identity_of(pid: Pid) -> Result<Identity, SpawnError> {
    Entry::read(pid).map(|entry| entry.identity).ok_or(SpawnError::HelperEnded)
}

/// What a helper's last report means to the caller.
fn failure(report: Option<Report>, spec: &ProcessSpec) -> SpawnError {
    let Some(Report::Failed(step, number)) = report else { return SpawnError::HelperEnded };
    let source = io::Error::from_raw_os_error(number);
    let program = spec.program.clone();
    match (step, Errno::from_raw_os_error(number)) {
        (Step::WorkingDirectory, _) => SpawnError::WorkingDirectory { cwd: spec.cwd.clone(), source },
        (Step::Exec, Errno::NOENT | Errno::NOTDIR) => SpawnError::ProgramNotFound { program },
        (Step::Exec, Errno::ACCESS | Errno::PERM | Errno::NOEXEC | Errno::ISDIR) => {
            SpawnError::NotExecutable { program, source }
        }
        (Step::Setup | Step::Exec, _) => SpawnError::System(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_helpers_command_lines_are_taken() {
        for line in [&[][..], &["gander"], &["gander", "serve"], &["gander", "serve", "shim"]] {
            let arguments: Vec<OsString> = line.iter().map(OsString::from).collect();
            assert!(dispatch(&arguments).is_none(), "{line:?}");
        }
    }

    #[test]
    fn debug_output_holds_no_secret() {
        let spec = ProcessSpec {
            program: "p".into(),
            arguments: vec!["secret".into()],
            environment: vec![("KEY".into(), "secret".into())],
            cwd: "/".into(),
        };
        let shown = format!("{spec:?}");
        assert!(shown.contains("KEY") && !shown.contains("secret"), "{shown}");
    }
}
