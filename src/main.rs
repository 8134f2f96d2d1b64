//! The gander binary.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // Before any thread is started: the helpers need a process with a single thread.
    if let Some(code) = gander::process::dispatch(&arguments) {
        return code;
    }
    gander::cli::run(arguments)
}
