//! A running child, as its owner sees it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::shutdown::Tasks;

use super::lingering::Watch;
use super::listening::listens_on;
use super::marked::{ProcessMark, Which, count_marked, kill_marked};
use super::registry::{Registration, Registry};
use super::sweep::{DescendantSnapshot, SWEEP_LIMIT, count_background, count_running, sweep_since};
use super::table::{Identity, ProcessTable};

/// A program under its shim. Its pipes can be moved out; [`Child::control`] stays behind.
#[derive(Debug)]
pub struct Child {
    /// The program's standard input. Dropping it is how a program is asked to end.
    pub stdin: ChildStdin,
    /// The program's standard output, with 1 MiB of room where the system allows it.
    pub stdout: ChildStdout,
    /// The program's standard error.
    pub stderr: ChildStderr,
    pub(super) control: ChildControl,
}

impl Child {
    /// The program's own process number, not the shim's.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.control.pid()
    }

    /// What can be done to the child while others own its pipes.
    #[must_use]
    pub fn control(&self) -> ChildControl {
        self.control.clone()
    }
}

/// Ends a child, waits for its end, sweeps what it started. Cheap to clone; with the last clone the program is killed.
#[derive(Clone, Debug)]
pub struct ChildControl {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    program: ProgramHandle,
    shim: Identity,
    /// Set once, when the shim and with it everything below it is gone.
    exited: watch::Receiver<Option<ExitStatus>>,
    tasks: Tasks,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.program.kill();
    }
}

/// The program by number and by a handle that cannot come to mean another process.
#[derive(Clone, Debug)]
pub(super) struct ProgramHandle {
    pub(super) identity: Identity,
    pub(super) pidfd: Arc<OwnedFd>,
}

impl ProgramHandle {
    pub(super) fn kill(&self) {
        // The only failure there is: it has ended.
        let _ended = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits until the program has ended.
    #[expect(
        deprecated,
        reason = "its successor is unsafe; what that asks for holds, since an owned descriptor \
                                   in an `Arc` stays open and the same"
    )]
    async fn ended(&self) -> io::Result<()> {
        AsyncFd::new(Arc::clone(&self.pidfd))?.readable().await.map(|_| ())
    }
}

impl ChildControl {
    /// Takes over the shim: a task waits for its end from now on.
    pub(super) fn new(
        shim: (tokio::process::Child, Registration),
        shim_identity: Identity,
        program: ProgramHandle,
        lingers: Option<Watch>,
        registry: Arc<Registry>,
        tasks: &Tasks,
    ) -> Self {
        let (report, exited) = watch::channel(None);
        let end = ShimEnd { program: program.clone(), lingers, registry, tasks: tasks.clone() };
        tasks.spawn(async move {
            let status = end.wait(shim).await;
            report.send_replace(Some(status));
        });
        Self { inner: Arc::new(Inner { program, shim: shim_identity, exited, tasks: tasks.clone() }) }
    }

    /// The program's own process number, not the shim's.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.inner.program.identity.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until the program has ended and nothing that it started is left. The program's own exit code or signal
    /// (one that the shim cannot end by, as PIPE, shows as exit code 128 + signal). Any number may wait.
    pub async fn exited(&self) -> ExitStatus {
        let mut exited = self.inner.exited.clone();
        let status = exited.wait_for(Option::is_some).await.ok().and_then(|status| *status);
        // Only a runtime that is shut down drops the waiting task, and then the shim sees to the rest.
        status.unwrap_or_else(killed)
    }

    /// Kills the program; the shim then kills everything that it started. Returns at once.
    pub fn kill(&self) {
        self.inner.program.kill();
    }

    /// Waits up to `grace` for the program to end by itself, then kills it. Returns when nothing is left. Whoever
    /// owns [`Child::stdin`] drops it first, else the program has no reason to end.
    pub async fn end(&self, grace: Duration) -> ExitStatus {
        if let Ok(status) = timeout(grace, self.exited()).await {
            return status;
        }
        self.kill();
        self.exited().await
    }

    /// The command lines of the program's children, the oldest first. What ends meanwhile is left out.
    pub async fn child_command_lines(&self) -> Vec<Vec<String>> {
        let program = self.inner.program.identity;
        let read =
            self.inner.tasks.spawn_blocking(move || ProcessTable::read().command_lines_below(program)).await;
        read.unwrap_or_else(|error| {
            tracing::error!(%error, "looking at the child's processes failed");
            Vec::new()
        })
    }

    /// What runs below the child now.
    pub async fn snapshot(&self) -> DescendantSnapshot {
        let shim = self.inner.shim;
        let taken = self.inner.tasks.spawn_blocking(move || DescendantSnapshot::take(shim)).await;
        taken.unwrap_or_else(|error| {
            tracing::error!(%error, "looking at the child's processes failed");
            DescendantSnapshot::default()
        })
    }

    /// How many processes run below the program that its tools have started since the snapshot: not the program, nor
    /// its children in process groups of their own.
    pub async fn background(&self, since: &DescendantSnapshot) -> usize {
        let (shim, program, since) = (self.inner.shim, self.inner.program.identity, since.clone());
        let counted = self.inner.tasks.spawn_blocking(move || count_background(shim, program, &since)).await;
        counted.unwrap_or_else(|error| {
            tracing::error!(%error, "counting the child's processes failed");
            0
        })
    }

    /// How many processes run below the children's shims, the programs among them. One look for all.
    pub async fn running(of: &[&Self]) -> usize {
        let Some(first) = of.first() else { return 0 };
        let shims: Vec<_> = of.iter().map(|child| child.inner.shim).collect();
        let counted = first.inner.tasks.spawn_blocking(move || count_running(&shims)).await;
        counted.unwrap_or_else(|error| {
            tracing::error!(%error, "counting the children's processes failed");
            0
        })
    }

    /// Kills what was started since the snapshot: tools of the program, and everything that left its parent. The
    /// program stays, with its children in process groups of their own and what ran at the snapshot. Returns how
    /// many processes were killed, when two looks in a row found none, or after a while: then it says that it is not
    /// complete.
    pub async fn sweep(&self, since: &DescendantSnapshot) -> (usize, bool) {
        let (shim, program, since) = (self.inner.shim, self.inner.program.identity, since.clone());
        let swept = self.inner.tasks.spawn_blocking(move || sweep_since(shim, program, &since)).await;
        swept.unwrap_or_else(|error| {
            tracing::error!(%error, "sweeping the child's processes failed");
            (0, false)
        })
    }
}

/// The part of the child's processes that carries a mark.
impl ChildControl {
    /// As [`ChildControl::background`], of the marked ones.
    pub async fn background_of(&self, mark: &ProcessMark, since: &DescendantSnapshot) -> usize {
        let (ends, mark, since) = (self.ends(), mark.clone(), since.clone());
        let counted = self.inner.tasks.spawn_blocking(move || count_marked(ends, &since, &mark)).await;
        counted.unwrap_or_else(|error| {
            tracing::error!(%error, "counting the child's processes failed");
            0
        })
    }

    /// As [`ChildControl::sweep`], of the marked ones.
    pub async fn sweep_of(&self, mark: &ProcessMark, since: &DescendantSnapshot) -> (usize, bool) {
        self.kill_of(mark, since.clone(), Which::Tools).await
    }

    /// Kills all that are marked, but not the program. How many, and whether none was left.
    pub async fn kill_all_of(&self, mark: &ProcessMark) -> (usize, bool) {
        self.kill_of(mark, DescendantSnapshot::default(), Which::All).await
    }

    async fn kill_of(&self, mark: &ProcessMark, since: DescendantSnapshot, which: Which) -> (usize, bool) {
        let (ends, mark) = (self.ends(), mark.clone());
        let killed = self.inner.tasks.spawn_blocking(move || kill_marked(ends, &since, which, &mark)).await;
        killed.unwrap_or_else(|error| {
            tracing::error!(%error, "sweeping the child's processes failed");
            (0, false)
        })
    }

    fn ends(&self) -> (Identity, Identity) {
        (self.inner.shim, self.inner.program.identity)
    }

    /// Whether the program itself listens on a TCP port now.
    pub async fn listens_on(&self, port: u16) -> bool {
        let pid = self.inner.program.identity.pid;
        let looked = self.inner.tasks.spawn_blocking(move || listens_on(pid, port)).await;
        looked.unwrap_or_else(|error| {
            tracing::error!(%error, "looking at the child's ports failed");
            false
        })
    }
}

/// What is said of a program whose own end nobody saw.
pub(super) fn killed() -> ExitStatus {
    ExitStatus::from_raw(Signal::KILL.as_raw())
}

/// What the task that waits for a shim needs.
struct ShimEnd {
    program: ProgramHandle,
    /// Of a shim that goes on when its program has ended.
    lingers: Option<Watch>,
    registry: Arc<Registry>,
    tasks: Tasks,
}

impl ShimEnd {
    async fn wait(self, (mut shim, registration): (tokio::process::Child, Registration)) -> ExitStatus {
        let status = tokio::select! {
            // The shim's own end first: the other two only hasten it.
            biased;
            status = shim.wait() => status,
            () = self.overdue() => {
                tracing::warn!(pid = %registration.pid.as_raw_nonzero(), "a shim does not end; killing it");
                let _ended = shim.start_kill();
                shim.wait().await
            }
        };
        drop(registration);
        let status = status.unwrap_or_else(|error| {
            tracing::error!(%error, "waiting for a shim failed");
            killed()
        });
        // A shim that was killed left its processes to the gateway.
        if status.signal().is_some() {
            self.registry.clear_strays().await;
        }
        status
    }

    /// Returns when the shim has no reason to go on and has had twice the time that it allows itself: it is stopped or
    /// stuck. That is when the program is gone, or, of one that lingers, when nobody wants the rest to go on. The hard
    /// shutdown is the end of all.
    async fn overdue(&self) {
        if let Some(Watch { end }) = &self.lingers {
            tokio::select! {
                biased;
                () = end.cancelled() => {}
                () = self.tasks.hard().cancelled() => end.cancel(),
            }
            return sleep(2 * SWEEP_LIMIT).await;
        }
        tokio::select! {
            biased;
            ended = self.program.ended() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a program's end cannot be watched");
                    return std::future::pending().await;
                }
            }
            () = self.tasks.hard().cancelled() => self.program.kill(),
        }
        sleep(2 * SWEEP_LIMIT).await;
    }
}
