//! A program whose children may outlive it, as its owner sees it: a command with jobs in the background.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;

use tokio::net::unix::pipe::Receiver;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::child::{ChildControl, killed};
use super::handshake::Report;
use crate::shutdown::Tasks;

/// What the tasks around a lingering shim know of each other.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    /// Given when nothing that the program started is to go on.
    pub(super) end: CancellationToken,
}

/// A program under a shim that lingers.
#[derive(Debug)]
pub struct LingeringChild {
    /// The program's standard output, which its children may hold open.
    pub stdout: ChildStdout,
    /// The program's standard error, likewise.
    pub stderr: ChildStderr,
    control: LingeringControl,
}

/// Watches and ends a program and all that it started. Cheap to clone; with the last clone everything is killed.
#[derive(Clone, Debug)]
pub struct LingeringControl {
    child: ChildControl,
    /// The program's own end, once it is known.
    ended: watch::Receiver<Option<ExitStatus>>,
    end: CancellationToken,
    _last: Arc<DropGuard>,
}

impl LingeringChild {
    pub(super) fn new(
        (stdout, stderr): (ChildStdout, ChildStderr),
        child: ChildControl,
        reports: OwnedFd,
        Watch { end }: Watch,
        tasks: &Tasks,
    ) -> io::Result<Self> {
        let mut reports = Receiver::from_owned_fd(reports)?;
        let (tell, ended) = watch::channel(None);
        let (shim, given) = (child.clone(), end.clone());
        tasks.spawn(async move {
            // Dropping the pipe is what tells the shim to kill what is left. The token comes first: a program that does
            // not end must be killed by it.
            let report = tokio::select! {
                biased;
                () = given.cancelled() => None,
                report = Report::receive(&mut reports) => report,
            };
            if let Some(Report::Ended(status)) = report {
                tell.send_replace(Some(ExitStatus::from_raw(status)));
                tokio::select! {
                    biased;
                    () = given.cancelled() => {}
                    _ = shim.exited() => {}
                }
                return;
            }
            drop(reports);
            shim.kill();
            // A shim ends as its program did, whoever has killed that.
            tell.send_replace(Some(shim.exited().await));
        });
        let guard = Arc::new(end.clone().drop_guard());
        Ok(Self { stdout, stderr, control: LingeringControl { child, ended, end, _last: guard } })
    }

    /// What can be done to the child while others own its pipes.
    #[must_use]
    pub fn control(&self) -> LingeringControl {
        self.control.clone()
    }
}

impl LingeringControl {
    /// Waits until the program itself has ended: its exit code or signal. What it started may go on.
    pub async fn ended(&self) -> ExitStatus {
        let mut ended = self.ended.clone();
        let status = ended.wait_for(Option::is_some).await.ok().and_then(|status| *status);
        // Only a runtime that is shut down drops the waiting task.
        status.unwrap_or_else(killed)
    }

    /// Waits until nothing is left of the program and of what it started.
    pub async fn gone(&self) {
        self.child.exited().await;
    }

    /// How many processes run now of all of these: the programs, and what they started. One look for all.
    pub async fn running(of: &[Self]) -> usize {
        let children: Vec<_> = of.iter().map(|control| &control.child).collect();
        ChildControl::running(&children).await
    }

    /// Kills the program and everything that it started. Returns at once.
    pub fn end(&self) {
        self.end.cancel();
    }
}
