//! What keeps the sessions of one goose apart: their processes, its secret, and what it remembers of permissions.

use std::fs;
use std::path::Path;

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{long_turn, pid, says, shared, shell};
use crate::process::machine::{Tag, environment, eventually};
use crate::support::{Gander, Setup, descendants, only, refusal, script, signal, text};

/// goose runs the commands by itself.
fn without_client_tools() -> Setup {
    shared().env("GANDER_GOOSE__FILESYSTEM", "false").env("GANDER_GOOSE__TERMINAL", "false")
}

fn memory_of_all(gander: &Gander) -> String {
    gander.storage().join("homes/serve/config/permission.yaml").display().to_string()
}

/// A tool server of the gateway's that does this when it is started, and then says nothing more.
fn server_that(does: &str) -> String {
    format!("[[mcp.servers]]\nname = \"own\"\ncommand = \"/bin/sh\"\nargs = [\"-c\", {does:?}]\n")
}

#[tokio::test]
async fn what_gooses_own_shell_leaves_ends_with_its_turn_or_session_alone() {
    let gander = without_client_tools().start().await;
    let (one, two) =
        (gander.session(&json!({"mode": "auto"})).await, gander.session(&json!({"mode": "auto"})).await);
    let other = Tag::new();
    long_turn(&two, &other).await;
    let (tool, left) = (Tag::new(), Tag::new());
    let mut events = one.events().await;
    let turn = one.prompt(&shell(&format!("(setsid sleep {left} &) >/dev/null 2>&1; sleep {tool}"))).await;
    eventually("its tools run", || tool.sleeping() == 1 && left.sleeping() == 1).await;
    one.cancel(&turn).await;
    let told = events.through("turn.cancelled").await;
    assert_eq!((tool.running(), left.running(), other.sleeping()), (vec![], vec![], 1));
    assert_eq!(only(&told, "notice").data["code"], "processes-killed");

    let job = Tag::new();
    one.turn(&shell(&format!("(setsid sleep {job} &) >/dev/null 2>&1"))).await;
    eventually("the job runs", || job.sleeping() == 1).await;
    one.delete().await;
    assert_eq!((job.running(), other.sleeping()), (vec![], 1));
    gander.stop().await;
}

#[tokio::test]
async fn a_job_that_gooses_own_shell_has_left_is_counted_and_ends_with_its_sleeping_session() {
    let gander = without_client_tools().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let job = Tag::new();
    session.turn(&shell(&format!("(setsid sleep {job} &) >/dev/null 2>&1"))).await;
    eventually("the job runs", || job.sleeping() == 1).await;
    let mut events = session.events_with("?after=latest").await;
    gander.post(&session.path("/hibernate"), &json!({}), StatusCode::OK).await;
    assert_eq!(job.running(), Vec::<u32>::new());
    let notice = events.until("notice").await.data;
    assert_eq!(notice["code"], "processes-killed", "{notice}");
    gander.stop().await;
}

#[tokio::test]
async fn a_session_that_goose_never_named_leaves_no_tool_server() {
    let server = Tag::new();
    let config = format!("[goose]\nstart_timeout = \"3s\"\n{}", server_that(&format!("sleep {server}")));
    let gander = shared().config(&config).start().await;
    let asked = gander.request(Method::POST, "/v1/sessions").json(&json!({}));
    refusal(asked, 504, "agent-start-timeout").await;
    assert_eq!(server.running(), Vec::<u32>::new());
    gander.stop().await;
}

#[tokio::test]
async fn tool_servers_are_not_told_the_secret() {
    let dir = tempfile::tempdir().unwrap();
    let seen = dir.path().join("seen");
    let config = server_that(&format!("env >> '{}'; exit 1", seen.display()));
    let gander = shared().config(&config).start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    gander.post(&session.path("/hibernate"), &json!({}), StatusCode::OK).await;
    session.turn(&says("Awake.")).await;
    let goose = pid(&session.snapshot);
    let secret = environment(goose)["GOOSE_SERVER__SECRET_KEY"].clone();
    assert_eq!(secret.len(), 64);
    let seen = fs::read_to_string(seen).unwrap();
    let told: Vec<&str> =
        seen.lines().filter_map(|line| line.strip_prefix("GOOSE_SERVER__SECRET_KEY=")).collect();
    assert!(told.len() >= 2 && told.iter().all(|told| told.is_empty()), "new and loaded: {told:?}");
    assert!(!seen.contains(&secret));
    for process in descendants(gander.pid()).into_iter().filter(|process| *process != goose) {
        assert!(!environment(process).values().any(|value| *value == secret), "the shim, among others");
    }
    gander.stop().await;
}

#[tokio::test]
async fn a_lost_connection_is_told_as_what_it_is() {
    let config =
        "[goose.serve]\nping_interval = \"200ms\"\nping_timeout = \"300ms\"\nhealth_interval = \"1m\"";
    let gander = shared().config(config).start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let mut events = session.events().await;
    long_turn(&session, &Tag::new()).await;
    signal(pid(&session.snapshot), "STOP");
    let told = events.through("turn.interrupted").await;
    signal(pid(&session.snapshot), "CONT");
    let error = &told.last().unwrap().data["turn"]["error"];
    assert_eq!(error["class"], "agent_exited", "{error}");
    let notice = told.iter().find(|event| event.data["code"] == "agent-exited").unwrap();
    assert!(text(&notice.data["message"]).contains("connection to goose serve was lost"), "{notice:?}");
    gander.stop().await;
}

/// A line for goose's memory of permissions that comes and goes while goose makes a session, as another session's shell
/// could write it.
fn toggles(memory: &str, how: &str) -> String {
    format!("echo 'user: {{always_allow: [shell]}}' > '{memory}'; rm '{memory}'; {how}")
}

async fn with_toggles(how: impl Fn(&Path) -> String) -> (Gander, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    // The storage's path is known only then.
    let program = dir.path().join("program");
    let gander = shared().config(&server_that(&format!(". '{}'; exit 1", program.display()))).start().await;
    fs::write(program, toggles(&memory_of_all(&gander), &how(dir.path()))).unwrap();
    (gander, dir)
}

#[tokio::test]
async fn a_session_that_goose_made_while_its_memory_was_touched_is_loaded_again() {
    // The first time alone.
    let (gander, dir) =
        with_toggles(|dir| format!("echo >> '{0}/starts'; echo : > '{0}/program'", dir.display())).await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    assert!(gander.log().contains("is being changed while goose opens a session"), "{}", gander.log());
    assert_eq!(fs::read_to_string(dir.path().join("starts")).unwrap().lines().count(), 1);
    let mut events = session.events().await;
    session
        .prompt(&script(&json!([
            [{"call": {"tool": "shell", "input": {"command": "touch made"}}}], [{"text": "done"}]
        ])))
        .await;
    let permission = events.until("permission.requested").await.data["permission"].clone();
    session.answer(&permission, "reject").await;
    events.until("turn.completed").await;
    gander.post(&session.path("/hibernate"), &json!({}), StatusCode::OK).await;
    assert_eq!(session.turn(&says("Awake.")).await["text"], "Awake.");
    assert_eq!(gander.log().matches("is being changed").count(), 1, "{}", gander.log());
    gander.stop().await;
}

#[tokio::test]
async fn no_session_starts_while_gooses_memory_is_touched_each_time() {
    let (gander, _dir) = with_toggles(|_| String::new()).await;
    let asked = gander.request(Method::POST, "/v1/sessions").json(&json!({"mode": "approve"}));
    let refused = refusal(asked, 502, "agent-start-failed").await;
    assert!(text(&refused["detail"]).contains("permission.yaml"), "{refused}");
    gander.stop().await;
}
