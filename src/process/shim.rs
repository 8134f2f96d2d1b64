//! The process that sees a child to its end.
//!
//! One per child, between the gateway and the program: a session leader and subreaper with a single thread, no
//! signal handler and no protocol. It holds nothing but two process handles. Whatever the program starts, also in
//! sessions of its own, stays below the shim, and when either the program or the gateway is gone the shim kills all
//! of it. Then it ends as the program ended, so the gateway's `wait` sees the truth.
//!
//! A shim that lingers tells the program's end through a pipe and goes on while anything that the program started still
//! runs. The other end of that pipe is the gateway's: when it is closed, the shim kills what is left.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getpid, getppid, getrlimit,
    kill_process, pidfd_open, set_child_subreaper, setrlimit, setsid, wait,
};

use super::handshake::{Report, Step, receive_descriptor};
use super::sweep::kill_every_descendant;
use super::table::positive;

/// How long the program may take to end by itself when the gateway is gone: its standard input is at its end, and
/// a clean end removes its temporary folders.
const ORPHAN_GRACE: Duration = Duration::from_millis(300);

/// How often adopted processes that ended are reaped. Their deaths wake nobody: that would take a signal handler.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the shim until nothing of the program is left.
pub(super) fn run(arguments: &[OsString]) -> ExitCode {
    let Some(gateway) = super::pid_argument(arguments) else { return ExitCode::from(super::USAGE_EXIT_CODE) };
    let lingers = arguments.get(3).is_some_and(|argument| argument == super::LINGERS);
    match supervise(gateway, lingers) {
        Ok(status) => end_like(status),
        Err(error) => {
            Report::Failed(Step::Setup, error.raw_os_error().unwrap_or_default())
                .send(rustix::stdio::stderr());
            ExitCode::from(super::SETUP_EXIT_CODE)
        }
    }
}

/// Starts the program, waits for its end or the gateway's, and kills what is left. The program's end, if it was seen.
fn supervise(gateway: Pid, lingers: bool) -> io::Result<Option<WaitStatus>> {
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    let gateway_handle = pidfd_open(gateway, PidfdFlags::empty())?;
    // Only while the gateway is the parent does its number, and so the handle, mean the gateway.
    if getppid() != Some(gateway) {
        return Err(io::Error::from(rustix::io::Errno::SRCH));
    }
    // A folder that the gateway was started in is not to be kept busy.
    std::env::set_current_dir("/")?;
    // The program's memory holds its user's keys, and this process may have to end by a signal that dumps core.
    let core = Rlimit { current: Some(0), ..getrlimit(Resource::Core) };
    setrlimit(Resource::Core, core)?;

    // It comes before the descriptor that the exec helper takes.
    let reports = if lingers { Some(receive_descriptor(rustix::stdio::stderr())?) } else { None };
    let mut reaper = Reaper { program: start_exec_helper()?, status: None };
    // From here on every way out has to leave nothing behind.
    let watched = let_go_of_stdio().and_then(|()| watch(&gateway_handle, reports.as_ref(), &mut reaper));
    kill_every_descendant(|| reaper.reap() == Children::None);
    watched.map(|()| reaper.status)
}

/// Starts the exec helper, which inherits standard input, output and error.
fn start_exec_helper() -> io::Result<Pid> {
    // The link means the running binary even if its file has been replaced.
    let helper = Command::new("/proc/self/exe")
        .arg0("gander")
        .arg(super::EXEC_HELPER)
        .arg(getpid().as_raw_nonzero().to_string())
        .spawn()?;
    i32::try_from(helper.id()).ok().and_then(positive).ok_or_else(|| rustix::io::Errno::SRCH.into())
}

/// Drops the shim's own ends of the pipes, so that their ends tell of the program alone.
fn let_go_of_stdio() -> io::Result<()> {
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    Ok(())
}

/// Waits until the program has ended, or the gateway has and the program had its time to follow. With `reports` it tells
/// the program's end there and then waits until nothing is left, or nobody reads there any more.
fn watch(gateway: &OwnedFd, reports: Option<&OwnedFd>, reaper: &mut Reaper) -> io::Result<()> {
    let program = pidfd_open(reaper.program, PidfdFlags::empty())?;
    while reaper.status.is_none() {
        let mut handles = vec![PollFd::new(gateway, PollFlags::IN), PollFd::new(&program, PollFlags::IN)];
        // That the reading end is closed shows without being asked for.
        handles.extend(reports.map(|reports| PollFd::new(reports, PollFlags::empty())));
        wait_for(&mut handles, REAP_INTERVAL)?;
        let is_gone = |handle: &PollFd<'_>| !handle.revents().is_empty();
        let (gateway_gone, nobody_reads) = (is_gone(&handles[0]), handles.get(2).is_some_and(is_gone));
        if nobody_reads {
            return Ok(());
        }
        if gateway_gone && reaper.status.is_none() {
            wait_for(&mut [PollFd::new(&program, PollFlags::IN)], ORPHAN_GRACE)?;
            return Ok(());
        }
        reaper.reap();
    }
    match (reports, reaper.status) {
        (Some(reports), Some(status)) => linger(gateway, reports, status, reaper),
        _ => Ok(()),
    }
}

/// Tells how the program ended and waits until nothing that it started is left, the gateway is gone, or nobody wants
/// what is left to go on.
fn linger(gateway: &OwnedFd, reports: &OwnedFd, status: WaitStatus, reaper: &mut Reaper) -> io::Result<()> {
    Report::Ended(status.as_raw()).send(reports);
    while reaper.reap() == Children::Some {
        let mut handles = [PollFd::new(gateway, PollFlags::IN), PollFd::new(reports, PollFlags::empty())];
        wait_for(&mut handles, REAP_INTERVAL)?;
        if handles.iter().any(|handle| !handle.revents().is_empty()) {
            break;
        }
    }
    Ok(())
}

/// Waits for one of the handles, or for as long as given.
fn wait_for(handles: &mut [PollFd<'_>], limit: Duration) -> io::Result<()> {
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    match poll(handles, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether the shim has children left.
#[derive(PartialEq, Eq)]
enum Children {
    Some,
    None,
}

/// Takes the dead children off the process table and keeps the program's end.
struct Reaper {
    program: Pid,
    status: Option<WaitStatus>,
}

impl Reaper {
    /// Reaps all that have ended. [`Children::None`] in a subreaper proves that nothing is left below it.
    fn reap(&mut self) -> Children {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.program => self.status = Some(status),
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return Children::Some,
                Err(_) => return Children::None,
            }
        }
    }
}

/// Ends this process with the program's exit code or signal.
fn end_like(status: Option<WaitStatus>) -> ExitCode {
    let Some(status) = status else { return ExitCode::from(super::SETUP_EXIT_CODE) };
    if let Some(code) = status.exit_status() {
        return ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX));
    }
    let number = status.terminating_signal().unwrap_or_default();
    if let Some(signal) = Signal::from_named_raw(number) {
        // The Rust runtime's handler for stack overflows takes the first SEGV or BUS and only then steps aside.
        for _ in 0..2 {
            let _alive = kill_process(getpid(), signal);
        }
    }
    // Left are PIPE, which the Rust runtime ignores, and real-time signals: what a shell would say.
    ExitCode::from(u8::try_from(number).unwrap_or_default().saturating_add(128))
}
