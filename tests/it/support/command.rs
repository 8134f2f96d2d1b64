//! The program's own commands, on a folder of their own.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::PATIENCE;

/// A gander command on this folder, without anything from the tests' environment.
pub(crate) fn command(dir: &Path, goose: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gander"));
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", dir.join("home"))
        .env("GANDER_STORAGE__DIR", dir.join("storage"))
        .env("GANDER_GOOSE__COMMAND", goose)
        .stdin(Stdio::null());
    command
}

/// What a command says that ends by itself; one that serves instead fails the test.
pub(crate) async fn output(command: Command) -> Output {
    let output = tokio::process::Command::from(command).kill_on_drop(true).output();
    tokio::time::timeout(PATIENCE, output).await.expect("the command ends by itself").unwrap()
}
