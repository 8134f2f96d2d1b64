//! The command line: what each command prints, and how it exits.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use gander::http::openapi::document_json;
use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    Setup, command, fake_agent, kinds, lives, real_goose, refusal, signal, text, until, until_async,
};

/// A gander command that would listen on a free port, with the fake agent.
fn gander(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = command(dir, &fake_agent(), arguments);
    command.env("GANDER_SERVER__LISTEN", "127.0.0.1:0");
    command
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The command must fail with this code and say why in one line on standard error, and nothing else.
fn one_line(output: &Output, code: i32) -> String {
    let (out, error) = (shown(&output.stdout), shown(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{error}");
    assert_eq!(out, "");
    assert!(error.starts_with("gander: ") && error.ends_with('\n'), "{error:?}");
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[test]
fn config_prints_the_commented_defaults_and_they_are_a_configuration() {
    let dir = folder();
    let output = gander(dir.path(), &["config"]).output().unwrap();
    assert!(output.status.success());
    assert_eq!(shown(&output.stdout), include_str!("../../gander.default.toml"));
    let file = dir.path().join("gander.toml");
    fs::write(&file, &output.stdout).unwrap();
    let token = gander(dir.path(), &["token", "--config", file.to_str().unwrap()]).output().unwrap();
    assert!(token.status.success(), "{}", shown(&token.stderr));
}

#[test]
fn openapi_prints_the_document() {
    let output = gander(folder().path(), &["openapi"]).output().unwrap();
    assert!(output.status.success());
    assert_eq!(shown(&output.stdout), document_json().unwrap());
}

#[test]
fn token_makes_the_token_once_and_prints_it_alone() {
    let dir = folder();
    let token = || gander(dir.path(), &["token"]).output().unwrap();
    let first = token();
    assert!(first.status.success());
    let kept = fs::read_to_string(dir.path().join("storage/token")).unwrap();
    assert_eq!(shown(&first.stdout), kept.trim());
    assert_eq!(token().stdout, first.stdout);
    // Where there is no such token, it says so.
    let with = |name: &str, value: &str| gander(dir.path(), &["token"]).env(name, value).output().unwrap();
    assert!(one_line(&with("GANDER_AUTH__REQUIRED", "false"), 1).contains("auth.required"));
    assert!(one_line(&with("GANDER_AUTH__TOKENS_FILE", "/x.toml"), 1).contains("auth.tokens_file"));
}

#[test]
fn check_tells_what_a_session_would_get() {
    let dir = folder();
    let output = gander(dir.path(), &["check"])
        .env("GANDER_GOOSE__COMMAND", real_goose())
        .env("GOOSE_PROVIDER", "openai")
        .env("GOOSE_MODEL", "gpt-4o")
        .env("OPENAI_API_KEY", "sk-x")
        .env("OPENAI_HOST", "http://127.0.0.1:9")
        .output()
        .unwrap();
    let (out, error) = (shown(&output.stdout), shown(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{error}");
    for word in ["1.52.0", "openai", "gpt-4o", "smart_approve", "developer", "todo"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    assert!(!out.contains("summon") && !out.contains("extensionmanager"), "{out}");
    assert!(!out.contains("sk-x"));
    // It leaves nothing behind.
    let left: Vec<_> = fs::read_dir(dir.path().join("storage")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn check_exits_3_when_only_a_provider_is_missing() {
    let output =
        gander(folder().path(), &["check"]).env("GANDER_GOOSE__COMMAND", real_goose()).output().unwrap();
    let out = shown(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{out}{}", shown(&output.stderr));
    assert!(out.contains("provider"), "{out}");
}

#[test]
fn check_exits_1_when_goose_cannot_be_used() {
    let dir = folder();
    let with = |command: &Path| {
        gander(dir.path(), &["check"]).env("GANDER_GOOSE__COMMAND", command).output().unwrap()
    };
    assert!(one_line(&with(Path::new("/nonexistent/goose")), 1).contains("goose was not found"));
    assert!(one_line(&with(Path::new("goose-that-is-nowhere")), 1).contains("goose was not found"));
    let old = program(dir.path(), "old", "#!/bin/sh\necho ' 1.30.0'\n");
    let line = one_line(&with(&old), 1);
    assert!(line.contains("1.30.0") && line.contains("1.45"), "{line}");
    // A goose that is there and does not work.
    let hangs = gander(dir.path(), &["check"])
        .env("GANDER_GOOSE__ENV__FAKE_AGENT_NEW", "hang")
        .env("GANDER_GOOSE__START_TIMEOUT", "300ms")
        .output()
        .unwrap();
    assert_eq!(hangs.status.code(), Some(1));
    assert!(shown(&hangs.stdout).contains("session/new"), "{}", shown(&hangs.stdout));
}

/// A program of this text.
fn program(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_wrong_configuration_is_one_line_and_64() {
    let dir = folder();
    let file = dir.path().join("gander.toml");
    let path = file.to_str().unwrap();
    for (toml, names) in [
        ("[serve]\n", "serve"),
        ("[server]\nlisten = \"here\"", "server.listen"),
        ("[goose]\nbuiltins = [\"develper\"]", "developer"),
        ("[goose.env]\nGOOSE_PATH_ROOT = \"/x\"", "goose.home"),
        ("[auth]\nrequired = false\n[server]\nlisten = \"0.0.0.0:0\"", "auth.required"),
        ("[goose]\nstart_timeout = \"soon\"", "goose.start_timeout"),
        ("not toml", "line 1"),
    ] {
        fs::write(&file, toml).unwrap();
        let mut serve = gander(dir.path(), &["serve", "--config", path]);
        let line = one_line(&serve.env_remove("GANDER_SERVER__LISTEN").output().unwrap(), 64);
        assert!(line.contains(names), "{names}: {line}");
    }
    let missing = gander(dir.path(), &["check", "--config", "/nonexistent.toml"]).output().unwrap();
    assert!(one_line(&missing, 64).contains("/nonexistent.toml"));
    let variable = gander(dir.path(), &["serve"]).env("GANDER_SERVER__PORT", "1").output().unwrap();
    assert!(one_line(&variable, 64).contains("GANDER_SERVER__PORT"));
    let flag = gander(dir.path(), &["serve", "--listen", "here"]).output().unwrap();
    assert!(one_line(&flag, 64).contains("--listen"));
    assert!(!dir.path().join("storage").exists(), "a wrong configuration made something");
}

#[test]
fn unknown_arguments_are_64_and_help_is_0() {
    for arguments in [&["serve", "--prot", "1"][..], &["sever"], &[]] {
        let output = gander(folder().path(), arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{arguments:?}");
    }
    for arguments in [["--help"], ["--version"]] {
        let output = gander(folder().path(), &arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(shown(&output.stdout).contains("gander"));
    }
}

#[tokio::test]
async fn health_says_whether_a_gander_answers() {
    let running = Setup::fake().start().await;
    let dir = Arc::clone(&running.dir);
    let health = |address: &str| {
        gander(dir.path(), &["health"]).env("GANDER_SERVER__LISTEN", address).output().unwrap()
    };
    let address = running.address.to_string();
    let output = health(&address);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{}", shown(&output.stderr));
    // An address of all interfaces is asked on loopback.
    assert!(health(&format!("0.0.0.0:{}", running.address.port())).status.success());
    running.stop().await;
    one_line(&health(&address), 1);
}

#[tokio::test]
async fn what_keeps_it_from_starting_is_one_line() {
    let dir = folder();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = gander(dir.path(), &["serve", "--listen", &address]).output().unwrap();
    assert!(one_line(&output, 1).contains(&address));

    let running = Setup::fake().start().await;
    let session = running.session(&json!({})).await;
    let second = gander(running.dir.path(), &["serve"]).output().unwrap();
    let line = one_line(&second, 1);
    assert!(line.contains(running.storage().to_str().unwrap()), "{line}");
    // The first is not disturbed, nor is its goose.
    assert_eq!(session.turn("echo on").await["text"], "on");
    running.stop().await;

    let tokens =
        gander(dir.path(), &["serve"]).env("GANDER_AUTH__TOKENS_FILE", "/nonexistent.toml").output().unwrap();
    assert!(one_line(&tokens, 1).contains("/nonexistent.toml"));
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let storage =
        gander(dir.path(), &["serve"]).env("GANDER_STORAGE__DIR", file.join("below")).output().unwrap();
    assert!(one_line(&storage, 1).contains(file.to_str().unwrap()));
}

#[tokio::test]
async fn the_demo_says_how_to_begin_and_works_without_a_key() {
    let dir = folder();
    let mut process = gander(dir.path(), &["serve", "--demo"])
        .env("GANDER_GOOSE__COMMAND", real_goose())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut welcome = Vec::new();
    while !welcome.last().is_some_and(|line: &String| line.contains("openapi.json")) {
        welcome.push(lines.next().expect("the welcome ends early").unwrap());
    }
    let welcome = welcome.join("\n");
    let token_file = dir.path().join("storage/token");
    for word in
        ["listens on http://127.0.0.1:", "1.52.0", "demo", token_file.to_str().unwrap(), "/v1/sessions"]
    {
        assert!(welcome.contains(word), "{word}: {welcome}");
    }
    // What there is to paste is right: it is run as it stands.
    let (first, second) = welcome.split_once("When the agent asks").unwrap();
    let first = first.split_once("Try, in another terminal:").unwrap().1;
    let second = second.lines().find(|line| line.contains("curl")).unwrap();
    let bash = |script: &str| {
        let mut bash = Command::new("bash");
        bash.args(["-c", script]).stdin(Stdio::null()).stderr(Stdio::null());
        bash
    };
    let mut pasted = bash(first).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(pasted.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(told.any(|line| line == "event: permission.requested"));
    let variables = first.lines().find(|line| line.contains("GANDER=")).unwrap();
    let asked = bash(&format!("{variables}\n{second}")).output().unwrap();
    let asked: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap();
    let permission = &asked["permissions"][0];
    let path =
        format!("/v1/sessions/{}/permissions/{}", text(&permission["session_id"]), text(&permission["id"]));
    let allow = format!(
        "{variables}\ncurl -s -H \"Authorization: Bearer $TOKEN\" -H 'Content-Type: application/json' \
         -d '{{\"decision\":\"allow\"}}' $GANDER{path}"
    );
    assert!(bash(&allow).output().unwrap().status.success());
    assert!(told.any(|line| line == "event: turn.completed"));
    assert_eq!(
        told.filter(|line| line.starts_with("event:")).count(),
        0,
        "the turn's last event is the last"
    );
    assert!(pasted.wait().unwrap().success());
    assert!(!welcome.contains(fs::read_to_string(token_file).unwrap().trim()), "the token itself is shown");
    signal(process.id(), "TERM");
    let mut status = None;
    until("gander ends", || {
        status = process.try_wait().unwrap();
        status.is_some()
    })
    .await;
    assert_eq!(status.unwrap().code(), Some(0));
}

#[tokio::test]
async fn without_a_provider_the_welcome_says_so() {
    let gander = Setup::fake().env("GOOSE_PROVIDER", "").start().await;
    until("the welcome is complete", || gander.welcome().contains("openapi.json")).await;
    assert!(gander.welcome().contains("no provider is set up"), "{}", gander.welcome());
    gander.stop().await;
}

#[tokio::test]
async fn a_signal_ends_an_idle_gander_at_once_and_with_0() {
    for name in ["TERM", "INT"] {
        let mut gander = Setup::fake().start().await;
        let session = gander.session(&json!({})).await;
        let mut events = session.events().await;
        session.turn("echo a").await;
        events.until("turn.completed").await;
        let mut children = gander.descendants();
        assert!(!children.is_empty());
        gander.signal(name);
        // The open stream does not hold it up.
        events.rest().await;
        assert_eq!(gander.ended().await.code(), Some(0), "{name}");
        children.retain(|pid| lives(*pid));
        assert_eq!(children, Vec::<u32>::new());
    }
}

#[tokio::test]
async fn a_running_turn_gets_its_grace_and_is_then_interrupted() {
    let dir = Arc::new(folder());
    let mut gander =
        Setup::fake().dir(Arc::clone(&dir)).config("[server]\nshutdown_grace = \"500ms\"").start().await;
    let session = gander.session(&json!({})).await;
    let turn = text(&session.prompt("hang").await["id"]);
    let path = session.path(&format!("/turns/{turn}"));
    let mut children = gander.descendants();
    gander.signal("TERM");
    assert_eq!(gander.ended().await.code(), Some(0), "{}", gander.log());
    children.retain(|pid| lives(*pid));
    assert_eq!(children, Vec::<u32>::new());
    let again = Setup::fake().dir(dir).start().await;
    assert_eq!(again.get(&path).await["state"], "interrupted");
    again.stop().await;
}

#[tokio::test]
async fn a_turn_that_ends_within_the_grace_ends_well() {
    let dir = Arc::new(folder());
    let mut gander = Setup::fake().dir(Arc::clone(&dir)).start().await;
    let session = gander.session(&json!({})).await;
    let mut events = session.events().await;
    let turn = text(&session.prompt("echo begun\nsleep 500\necho done").await["id"]);
    let path = session.path(&format!("/turns/{turn}"));
    events.until("message.delta").await;
    gander.signal("TERM");
    assert_eq!(gander.ended().await.code(), Some(0), "{}", gander.log());
    let again = Setup::fake().dir(dir).start().await;
    let turn = again.get(&path).await;
    assert_eq!(
        (&turn["state"], text(&turn["text"]).ends_with("done")),
        (&json!("completed"), true),
        "{turn}"
    );
    again.stop().await;
}

#[tokio::test]
async fn while_turns_run_out_callers_are_served_but_nothing_is_begun() {
    let dir = Arc::new(folder());
    let mut gander = Setup::fake().dir(Arc::clone(&dir)).start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let idle = text(&gander.session(&json!({})).await.snapshot["id"]);
    let mut events = session.events().await;
    session.prompt("ask").await;
    let asked = events.until("permission.requested").await;
    gander.signal("TERM");
    let ready = format!("http://{}/readyz", gander.address);
    let stops = async || gander.client.get(&ready).send().await.unwrap().status() == 503;
    until_async("gander says that it stops", stops).await;

    let problem = refusal(gander.request(Method::POST, "/v1/sessions"), 503, "draining").await;
    assert!(problem["retry_after_s"].as_u64().unwrap() > 0);
    let again = |id: &str| {
        let path = format!("/v1/sessions/{id}/turns");
        gander.request(Method::POST, &path).json(&json!({"prompt": "echo a"}))
    };
    refusal(again(&session.id), 503, "draining").await;
    // A session that has been let go is not said to be gone.
    refusal(again(&idle), 503, "draining").await;
    // What runs can be looked at and answered, and whoever listens hears how it ends.
    assert_eq!(session.now().await["state"], "awaiting_permission");
    session.answer(&asked.data["permission"], "allow").await;
    let told = events.rest().await;
    assert!(kinds(&told).contains(&"turn.completed"), "{:?}", kinds(&told));
    let path = session.path("");
    assert_eq!(gander.ended().await.code(), Some(0), "{}", gander.log());
    let restarted = Setup::fake().dir(dir).start().await;
    assert_eq!(restarted.get(&path).await["pending_permissions"], json!([]));
    assert_eq!(restarted.get(&format!("/v1/sessions/{idle}")).await["id"], json!(idle));
    restarted.stop().await;
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_and_everything_with_it() {
    let mut gander = Setup::fake().config("[server]\nshutdown_grace = \"1h\"").start().await;
    let session = gander.session(&json!({})).await;
    let mut events = session.events().await;
    session.prompt("fork setsid\nhang").await;
    events.until("message.delta").await;
    let mut children = gander.descendants();
    assert!(children.len() >= 3, "{children:?}");
    gander.signal("TERM");
    let ready = format!("http://{}/readyz", gander.address);
    let stops = async || gander.client.get(&ready).send().await.unwrap().status() == 503;
    until_async("gander says that it stops", stops).await;
    gander.signal("TERM");
    assert_eq!(gander.ended().await.code(), Some(1));
    until("everything it started has ended", || {
        children.retain(|pid| lives(*pid));
        children.is_empty()
    })
    .await;
}
