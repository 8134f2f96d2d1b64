//! The process that becomes the program.
//!
//! It does what has to be done in the process itself, between fork and exec, without unsafe code. Its parent is
//! the shim, which has a single thread: the parent-death signal follows the parent's *thread*, so under the
//! gateway's runtime it would fire when some worker ends.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setsid};

use super::ProcessSpec;
use super::handshake::{Report, Step, decode_spec, receive_descriptor};

/// Runs the helper: only returns when the program could not be started.
pub(super) fn run(arguments: &[OsString]) -> ExitCode {
    let Some(shim) = super::pid_argument(arguments) else { return ExitCode::from(super::USAGE_EXIT_CODE) };
    let control = match rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3) {
        Ok(control) => File::from(control),
        Err(_) => return ExitCode::from(super::SETUP_EXIT_CODE),
    };
    let (step, error) = match prepare(shim, &control) {
        Ok(spec) => become_program(spec, &control),
        Err(error) => (Step::Setup, error),
    };
    Report::Failed(step, error.raw_os_error().unwrap_or_default()).send(&control);
    ExitCode::from(super::SETUP_EXIT_CODE)
}

/// Makes this process what the program shall find, and reads what the program is.
fn prepare(shim: Pid, mut control: &File) -> io::Result<ProcessSpec> {
    setsid()?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A shim that died before the line above sends no signal any more.
    if getppid() != Some(shim) {
        return Err(io::Error::from(rustix::io::Errno::SRCH));
    }
    Report::Started(getpid()).send(control);
    let stderr = receive_descriptor(control)?;
    let mut encoded = Vec::new();
    control.read_to_end(&mut encoded)?;
    let spec = decode_spec(&encoded).ok_or(rustix::io::Errno::BADMSG)?;
    rustix::stdio::dup2_stderr(&stderr)?;
    Ok(spec)
}

/// Enters the working directory and becomes the program; comes back only with what prevented it.
fn become_program(spec: ProcessSpec, control: &File) -> (Step, io::Error) {
    if let Err(error) = std::env::set_current_dir(&spec.cwd) {
        return (Step::WorkingDirectory, error);
    }
    Report::Ready.send(control);
    let error = Command::new(&spec.program).args(spec.arguments).env_clear().envs(spec.environment).exec();
    // A script whose interpreter is missing gives the same error as a program that is missing.
    let there = spec.program.components().count() > 1 && spec.program.exists();
    if error.kind() == io::ErrorKind::NotFound && there {
        return (Step::Exec, rustix::io::Errno::NOEXEC.into());
    }
    (Step::Exec, error)
}
