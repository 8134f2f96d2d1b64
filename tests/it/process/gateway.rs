//! Gateways that are killed, and gateways that adopt. Each is a process of its own: `examples/bare_gateway`, which does
//! what it is told on its standard input.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use super::machine::{Tools, children, eventually, field, is_alive, signal, zombies_below};
use super::spawner;

/// Makes what follows the first process of a pid namespace that ends with it.
const UNSHARE: [&str; 7] =
    ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Cargo builds it with the tests.
fn bare_gateway() -> PathBuf {
    let gateway = Path::new(env!("CARGO_BIN_EXE_gander")).parent().unwrap().join("examples/bare_gateway");
    assert!(gateway.is_file(), "no gateway at {}: build it with `cargo build --examples`", gateway.display());
    gateway
}

struct Gateway {
    process: tokio::process::Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Gateway {
    async fn start(storage_id: &str) -> Self {
        Self::start_by(Command::new(bare_gateway()), storage_id).await
    }

    /// The gateway as the first process of a pid namespace, as in a container; its parent is [`Gateway::process`].
    async fn start_as_first_process(storage_id: &str) -> Self {
        let mut unshare = Command::new(UNSHARE[0]);
        unshare.args(&UNSHARE[1..]).arg(bare_gateway());
        Self::start_by(unshare, storage_id).await
    }

    async fn start_by(mut command: Command, storage_id: &str) -> Self {
        let mut process = command
            .arg(env!("CARGO_BIN_EXE_gander"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let commands = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut gateway = Self { process, commands, answers };
        assert_eq!(gateway.tell(storage_id).await, "ready");
        gateway
    }

    fn pid(&self) -> u32 {
        self.process.id().unwrap()
    }

    /// One command, one answer.
    async fn tell(&mut self, command: &str) -> String {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        self.answers.next_line().await.unwrap().expect("the gateway's answer")
    }

    /// Starts a child with the tools, a program that no end of input ends; the program's number and the shim's.
    async fn spawn_with(&mut self, tools: &Tools) -> (u32, u32) {
        let program =
            self.tell(&format!("spawn {} exec sleep 9999999", tools.script())).await.parse().unwrap();
        tools.all_run().await;
        (program, field(program, 4).unwrap())
    }

    async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }
}

#[tokio::test]
async fn no_tool_outlives_a_killed_gateway() {
    let tools = Tools::new();
    let mut gateway = Gateway::start("test").await;
    let (program, shim) = gateway.spawn_with(&tools).await;
    gateway.kill().await;
    eventually("nothing is left", || tools.running().is_empty() && !is_alive(program) && !is_alive(shim))
        .await;
}

#[tokio::test]
async fn no_stopped_program_outlives_a_killed_gateway() {
    let tools = Tools::new();
    let mut gateway = Gateway::start("test").await;
    let (program, shim) = gateway.spawn_with(&tools).await;
    signal(program, Signal::STOP);
    gateway.kill().await;
    eventually("nothing is left", || tools.running().is_empty() && !is_alive(program) && !is_alive(shim))
        .await;
}

#[tokio::test]
async fn a_gateway_adopts_and_kills_what_a_killed_shim_leaves() {
    let tools = Tools::new();
    let mut gateway = Gateway::start("test").await;
    let (program, shim) = gateway.spawn_with(&tools).await;
    signal(shim, Signal::KILL);
    eventually("nothing is left", || tools.running().is_empty() && !is_alive(program)).await;
    eventually("all are reaped", || zombies_below(gateway.pid()).is_empty()).await;
    assert_eq!(gateway.tell("end 20000").await, "signal: 9 (SIGKILL)");
}

#[tokio::test]
async fn a_stopped_shim_does_not_hold_up_the_end() {
    let tools = Tools::new();
    let mut gateway = Gateway::start("test").await;
    let (program, shim) = gateway.spawn_with(&tools).await;
    signal(shim, Signal::STOP);
    assert_eq!(gateway.tell("end 20").await, "signal: 9 (SIGKILL)");
    assert_eq!(tools.running(), Vec::<u32>::new());
    assert!(!is_alive(program) && !is_alive(shim));
    assert_eq!(zombies_below(gateway.pid()), Vec::<u32>::new());
}

#[tokio::test]
async fn adopting_takes_no_childs_exit_code() {
    let mut gateway = Gateway::start("test").await;
    assert_eq!(gateway.tell("exit-codes").await, "all as they were");
    eventually("all are reaped", || zombies_below(gateway.pid()).is_empty()).await;
}

#[tokio::test]
async fn children_of_a_gateway_that_lives_or_has_other_storage_are_not_left_over() {
    let storage_id = uuid::Uuid::now_v7().to_string();
    let tools = Tools::new();
    let mut gateway = Gateway::start(&storage_id).await;
    let (_, shim) = gateway.spawn_with(&tools).await;
    assert_eq!(spawner(&storage_id).kill_left_over().await, 0);
    // Stopped, the shim cannot see to it; then only the next start can.
    signal(shim, Signal::STOP);
    gateway.kill().await;
    assert_eq!(spawner("another").kill_left_over().await, 0);
    assert_eq!(tools.running().len(), 4);
    // The tools, the program and the shim.
    assert_eq!(spawner(&storage_id).kill_left_over().await, 6);
    assert_eq!(tools.running(), Vec::<u32>::new());
    eventually("the shim is gone", || !is_alive(shim)).await;
}

#[tokio::test]
async fn what_lost_gateway_and_shim_at_once_is_found_by_its_mark() {
    let storage_id = uuid::Uuid::now_v7().to_string();
    let tools = Tools::new();
    let mut gateway = Gateway::start(&storage_id).await;
    let (program, shim) = gateway.spawn_with(&tools).await;
    signal(shim, Signal::STOP);
    gateway.kill().await;
    signal(shim, Signal::KILL);
    // The parent-death signal.
    eventually("the program is gone", || !is_alive(program)).await;
    eventually("the shim is gone", || !is_alive(shim)).await;
    assert_eq!(tools.running().len(), 4);
    assert_eq!(spawner(&storage_id).kill_left_over().await, 3);
    // What cleared its environment and has nobody above it cannot be found.
    assert_eq!(tools.running(), tools.unmarked.running());
    signal(tools.unmarked.running()[0], Signal::KILL);
}

#[tokio::test]
async fn a_containers_first_process_adopts_and_takes_no_childs_exit_code() {
    let mut trial = Command::new(UNSHARE[0]);
    if !trial.args(&UNSHARE[1..]).arg("true").status().await.is_ok_and(|status| status.success()) {
        eprintln!("not tested: this machine gives no pid namespaces");
        return;
    }
    let tools = Tools::new();
    let mut gateway = Gateway::start_as_first_process("test").await;
    gateway.tell(&format!("spawn {} exec sleep 9999999", tools.script())).await;
    tools.all_run().await;
    // The namespace's numbers are not this one's.
    let gateway_pid = children(gateway.pid())[0];
    let shim = children(gateway_pid)[0];
    signal(shim, Signal::KILL);
    eventually("nothing is left", || tools.running().is_empty()).await;
    eventually("all are reaped", || zombies_below(gateway_pid).is_empty()).await;
    assert_eq!(gateway.tell("end 20000").await, "signal: 9 (SIGKILL)");
    assert_eq!(gateway.tell("exit-codes").await, "all as they were");
}
