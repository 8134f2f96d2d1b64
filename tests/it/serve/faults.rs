//! A `goose serve` that cannot be had: it ends again and again, somebody else has its port, its secret is not ours.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{readiness, ready, shared};
use crate::support::{Setup, real_goose, refusal, text, until, until_async};

/// A path as one word of a shell.
fn word(path: &Path) -> String {
    let path = path.to_str().unwrap();
    assert!(!path.contains('\''), "{path}");
    format!("'{path}'")
}

/// The real goose behind a shell script that may do something else first: `$real` is its path.
fn goose_behind(dir: &Path, script: &str) -> PathBuf {
    let path = dir.join("goose");
    let real = word(&real_goose());
    std::fs::write(&path, format!("#!/bin/sh\nreal={real}\n{script}\nexec \"$real\" \"$@\"\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

fn with_goose(goose: PathBuf) -> Setup {
    Setup::with_agent(goose).env("GANDER_GOOSE__TRANSPORT", "websocket")
}

#[tokio::test]
async fn a_goose_that_ends_again_and_again_is_waited_for_longer_and_shows_in_readiness() {
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken");
    std::fs::write(&broken, "").unwrap();
    let count = dir.path().join("count");
    let script = format!(
        "if [ \"$1\" = serve ] && [ -e {} ]; then echo >> {}; echo no luck >&2; exit 3; fi",
        word(&broken),
        word(&count)
    );
    let config = "[goose.serve]\nrestart_backoff = \"20ms\"\nrestart_backoff_max = \"400ms\"";
    let gander = with_goose(goose_behind(dir.path(), &script)).config(config).start().await;
    let starts = || std::fs::read_to_string(&count).unwrap_or_default().lines().count();
    until("it has been tried some times", || starts() >= 4).await;
    until_async("readiness tells of a loop", || async {
        let (status, agent) = readiness(&gander).await;
        status == StatusCode::SERVICE_UNAVAILABLE
            && text(&agent["detail"]).contains("exit code 3")
            && text(&agent["detail"]).contains("times in a row")
    })
    .await;
    // Nobody hangs on it, and who asks is told why.
    let asked = gander.request(Method::POST, "/v1/sessions").json(&json!({}));
    let refused = refusal(asked, 502, "agent-start-failed").await;
    assert!(text(&refused["detail"]).contains("goose serve does not run"), "{refused}");
    assert!(gander.log().contains("no luck"), "its last words are in the log");
    // The waits grow: gander says how long each is, and the last is longer than the longest first one.
    let waits: Vec<_> = gander
        .log()
        .lines()
        .filter_map(|line| {
            humantime::parse_duration(line.split("again_in=").nth(1)?.split(" the").next()?.trim_matches('"'))
                .ok()
        })
        .collect();
    assert!(waits.first().is_some_and(|first| first.as_millis() <= 20), "{waits:?}");
    assert!(waits.last().is_some_and(|last| last.as_millis() > 20), "{waits:?}");

    // It comes back by itself when it can.
    std::fs::remove_file(&broken).unwrap();
    ready(&gander).await;
    gander.session(&json!({})).await;
    gander.stop().await;
}

#[tokio::test]
async fn a_secret_that_goose_does_not_take_is_a_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let goose = goose_behind(dir.path(), "export GOOSE_SERVER__SECRET_KEY=another");
    let gander = with_goose(goose).start().await;
    ready(&gander).await;
    let asked = gander.request(Method::POST, "/v1/sessions").json(&json!({}));
    let refused = refusal(asked, 502, "agent-start-failed").await;
    assert!(text(&refused["detail"]).contains("refuses the secret"), "{refused}");
    gander.stop().await;
}

#[tokio::test]
async fn another_port_is_found_when_somebody_is_faster() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    // The first `serve` finds that its port has been taken since gander looked.
    let once = dir.path().join("once");
    let script = format!(
        "if [ \"$1\" = serve ] && [ ! -e {once} ]; then touch {once}; shift 5; exec \"$real\" serve --host 127.0.0.1 --port {port} \"$@\"; fi",
        once = word(&once)
    );
    let gander = with_goose(goose_behind(dir.path(), &script)).start().await;
    gander.session(&json!({})).await;
    assert!(once.exists());
    assert!(gander.log().contains("was faster on the port"), "{}", gander.log());
    assert!(!gander.log().contains("ERROR"), "that is no failure");
    gander.stop().await;
}

#[tokio::test]
async fn a_port_of_the_configuration_that_is_taken_is_a_clear_error_until_it_is_free() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let config =
        format!("[goose.serve]\nport = {port}\nrestart_backoff = \"50ms\"\nrestart_backoff_max = \"50ms\"");
    let gander = shared().config(&config).start().await;
    until_async("readiness names the port", || async {
        text(&readiness(&gander).await.1["detail"]).contains(&format!("127.0.0.1:{port} (goose.serve.port)"))
    })
    .await;
    drop(taken);
    ready(&gander).await;
    gander.session(&json!({})).await;
    gander.stop().await;
}

/// Whoever has the port and says that it is well is not taken for goose, and never told the secret.
#[tokio::test]
async fn another_process_on_the_port_is_never_told_the_secret() {
    let dir = tempfile::tempdir().unwrap();
    // It answers in place of a goose that hangs before it listens.
    let program = r#"
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection, _ = listener.accept()
    asked = connection.recv(65536)
    open(sys.argv[2], "ab").write(asked)
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
    connection.close()
"#;
    let server = dir.path().join("server.py");
    std::fs::write(&server, program).unwrap();
    let heard = dir.path().join("heard");
    let script =
        format!("if [ \"$1\" = serve ]; then python3 {} $5 {} & sleep 9999; fi", word(&server), word(&heard));
    let config = "[goose.serve]\nstartup_timeout = \"1500ms\"";
    let gander = with_goose(goose_behind(dir.path(), &script)).config(config).start().await;
    until_async("readiness tells", || async {
        let (_, agent) = readiness(&gander).await;
        agent["detail"].as_str().is_some_and(|detail| detail.contains("did not answer /health"))
    })
    .await;
    let heard = std::fs::read_to_string(heard).unwrap();
    assert!(heard.contains("GET /health") && !heard.to_lowercase().contains("secret"), "{heard}");
    gander.stop().await;
}
