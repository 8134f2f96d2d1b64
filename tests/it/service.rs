//! gander as a service: what its manager is told, and signals at moments that nobody waits for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{PATIENCE, Setup, descendants, lives, signal, until};

fn told(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 256];
    let count = manager.recv(&mut buffer).unwrap();
    String::from_utf8(buffer[..count].to_vec()).unwrap()
}

#[tokio::test]
async fn the_service_manager_is_told_when_gander_serves_and_when_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let config = "[server]\nshutdown_grace = \"1h\"";
    let mut gander =
        Setup::fake().config(config).env("NOTIFY_SOCKET", socket.to_str().unwrap()).start().await;
    assert_eq!(told(&manager), "READY=1");
    let session = gander.session(&json!({})).await;
    let turn = session.turn("env NOTIFY_SOCKET").await;
    assert_eq!(turn["text"], "(not set)", "an agent has nothing to tell the manager");
    let mut events = session.events_with("?after=latest").await;
    let turn = session.prompt("echo on\nwait").await;
    events.until("message.delta").await;
    gander.signal("TERM");
    // While the turn still runs, and with the time that it may take.
    assert_eq!(told(&manager), "STOPPING=1\nEXTEND_TIMEOUT_USEC=3608000000");
    session.cancel(&turn).await;
    assert_eq!(gander.ended().await.code(), Some(0));
    manager.set_nonblocking(true).unwrap();
    assert!(manager.recv(&mut [0; 256]).is_err(), "each is told once");
}

#[tokio::test]
async fn signals_are_heard_while_gander_starts() {
    let dir = tempfile::tempdir().unwrap();
    // What is asked for its version and never tells it holds up the start.
    let goose = dir.path().join("goose");
    fs::write(&goose, "#!/bin/sh\nexec sleep 600\n").unwrap();
    fs::set_permissions(&goose, fs::Permissions::from_mode(0o755)).unwrap();
    let mut gander = Command::new(env!("CARGO_BIN_EXE_gander"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("GANDER_STORAGE__DIR", dir.path().join("storage"))
        .env("GANDER_GOOSE__COMMAND", &goose)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let children = || descendants(gander.id());
    // The shim and the program.
    until("goose is asked", || children().len() == 2).await;
    let mut started = children();
    signal(gander.id(), "TERM");
    assert!(gander.try_wait().unwrap().is_none());
    signal(gander.id(), "INT");
    let mut status = None;
    until("gander ends", || {
        status = gander.try_wait().unwrap();
        status.is_some()
    })
    .await;
    assert_eq!(status.unwrap().code(), Some(1));
    until("nothing is left", || {
        started.retain(|pid| lives(*pid));
        started.is_empty()
    })
    .await;
}
