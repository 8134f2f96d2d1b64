//! The port itself, without an agent: what is left when nobody waits or listens any more.

use std::path::Path;
use std::time::Duration;

use futures_util::poll;
use gander::client_tools::{SessionTools, ToolSettings};
use gander::process::Spawner;
use gander::session::agent::client_tools::{
    ClientToolEvent, ClientToolReply, ClientToolRequest, ClientTools, OfferedTools, TerminalSpec,
};
use gander::shutdown::Tasks;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::process::machine::{Tag, eventually};

fn settings() -> ToolSettings {
    ToolSettings {
        offered: OfferedTools { filesystem: true, terminal: true },
        extra_roots: Vec::new(),
        file_bytes: 1000,
        diff_bytes: 1000,
        terminals: 8,
        live_bytes: 1 << 30,
        kept_bytes: 1000,
        duration: Duration::ZERO,
        environment: vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())],
    }
}

/// The port in a turn, and its folder.
struct Port {
    tools: SessionTools,
    events: mpsc::Receiver<ClientToolEvent>,
    folder: TempDir,
}

impl Port {
    fn open(settings: ToolSettings) -> Self {
        let (folder, tasks) = (tempfile::tempdir().unwrap(), Tasks::new());
        let executable = env!("CARGO_BIN_EXE_gander").into();
        let spawner = Spawner::new(executable, "port".to_owned(), tasks.clone()).unwrap();
        let cwd = folder.path().canonicalize().unwrap();
        let (tools, events) = SessionTools::new(settings, cwd, spawner, tasks);
        tools.turn_begun();
        Self { tools, events, folder }
    }

    async fn run(&self, line: &str) -> String {
        let spec = TerminalSpec { command: line.to_owned(), ..TerminalSpec::default() };
        match self.tools.call(ClientToolRequest::CreateTerminal(spec)).await {
            Ok(ClientToolReply::Created(terminal)) => terminal,
            other => panic!("{other:?}"),
        }
    }

    fn write(&self, name: &str) -> ClientToolRequest {
        ClientToolRequest::WriteTextFile { path: self.folder.path().join(name), content: "x".to_owned() }
    }
}

#[tokio::test]
async fn a_sweep_that_nobody_waits_for_ends_the_turn_s_commands_all_the_same() {
    let port = Port::open(settings());
    let tags = [Tag::new(), Tag::new()];
    for tag in &tags {
        port.run(&format!("sleep {tag} & setsid sleep {tag} & wait")).await;
    }
    eventually("all run", || tags.iter().all(|tag| tag.sleeping() == 2)).await;
    {
        let sweep = port.tools.sweep();
        tokio::pin!(sweep);
        assert!(poll!(sweep.as_mut()).is_pending());
    }
    port.tools.end().await;
    assert!(tags.iter().all(|tag| tag.running().is_empty()), "the end waits for what the sweep had begun");
}

#[tokio::test]
async fn a_command_s_time_runs_out_also_when_nobody_takes_what_it_writes() {
    let port = Port::open(ToolSettings { duration: Duration::from_secs(1), ..settings() });
    let tag = Tag::new();
    port.run(&format!("sleep {tag} & yes")).await;
    eventually("no more of it can be told", || port.events.len() == port.events.max_capacity()).await;
    eventually("nothing is left of it", || tag.running().is_empty()).await;
    assert_eq!(port.events.len(), port.events.max_capacity(), "nobody has taken anything");
}

#[tokio::test]
async fn releasing_a_command_kills_it_and_answers_who_waits_for_it() {
    let mut port = Port::open(settings());
    let tag = Tag::new();
    let terminal = port.run(&format!("sleep {tag}")).await;
    eventually("it runs", || tag.sleeping() == 1).await;
    let waiting = port.tools.call(ClientToolRequest::WaitForExit(terminal.clone()));
    tokio::pin!(waiting);
    assert!(poll!(waiting.as_mut()).is_pending());
    port.tools.call(ClientToolRequest::Release(terminal.clone())).await.unwrap();
    let Ok(ClientToolReply::Exited(exit)) = waiting.await else { panic!("the wait was not answered") };
    assert_eq!((exit.exit_code, exit.signal.as_deref()), (None, Some("SIGKILL")));
    assert!(tag.running().is_empty());
    assert!(matches!(port.events.recv().await, Some(ClientToolEvent::Ended { .. })));
    let refusal = port.tools.call(ClientToolRequest::TerminalOutput(terminal)).await.unwrap_err();
    assert!(refusal.0.contains("there is no terminal"), "{refusal}");
}

#[tokio::test]
async fn a_command_starts_in_no_folder_that_is_not_the_session_s() {
    let port = Port::open(settings());
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), port.folder.path().join("link")).unwrap();
    for cwd in
        [outside.path(), Path::new("/"), &port.folder.path().join("link"), &port.folder.path().join("..")]
    {
        let spec = TerminalSpec {
            command: "touch ran".to_owned(),
            cwd: Some(cwd.to_owned()),
            ..TerminalSpec::default()
        };
        let refusal = port.tools.call(ClientToolRequest::CreateTerminal(spec)).await.unwrap_err();
        assert!(refusal.0.contains("outside of the session's folder"), "{}: {refusal}", cwd.display());
    }
    assert_eq!(port.tools.background().await, 0);
    assert!(!outside.path().join("ran").exists());
}

#[tokio::test]
async fn a_write_that_a_cancel_overtakes_is_refused() {
    let port = Port::open(settings());
    let write = port.tools.call(port.write("a"));
    tokio::pin!(write);
    assert!(poll!(write.as_mut()).is_pending(), "it has passed the first look at the turn");
    port.tools.turn_over();
    let refusal = write.await.unwrap_err();
    assert!(refusal.0.contains("is being cancelled"), "{refusal}");
    assert_eq!(std::fs::read_dir(port.folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_sweep_waits_for_writes_that_have_begun() {
    let port = Port::open(settings());
    let mut write = port.tools.call(port.write("a"));
    assert!(poll!(&mut write).is_pending());
    let sweep = port.tools.sweep();
    tokio::pin!(sweep);
    assert!(poll!(sweep.as_mut()).is_pending(), "a write is under way");
    let (written, swept) = tokio::join!(write, sweep);
    assert!(written.is_err());
    assert_eq!(swept, (0, true));
}
