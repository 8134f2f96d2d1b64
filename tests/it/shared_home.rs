//! Sessions in the home that goose shares with its user: what they have in common there, and that nothing else of it is
//! touched.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use reqwest::{Method, StatusCode};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::callers::{gander_with, token, write_tokens};
use crate::extensions::loaded;
use crate::support::{
    Gander, RealToolServer, Session, Setup, command, offered_tools, output, real_goose, refusal, script,
    text, until,
};

const SHARED: &str = "[goose]\nhome = \"shared\"";
/// A configuration as its user has written it.
const CONFIGURATION: &str = "# Mine.\nextensions:\n  developer: {enabled: true, type: platform, name: developer, \
                             description: Shell, bundled: true}\n  memory: {enabled: true, type: builtin, name: memory, \
                             bundled: true, timeout: 300, display_name: Memory, description: Memories}\n";

fn runs(command: &str) -> String {
    script(&json!([[{"call": {"tool": "shell", "input": {"command": command}}}], [{"text": "done"}]]))
}

/// Where the user's goose keeps its configuration.
fn configuration(dir: &Path) -> PathBuf {
    dir.join("home/.config/goose")
}

/// The files below a folder.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.clone(), std::fs::read(path).unwrap());
            }
        }
    }
    files
}

fn database(dir: &Path) -> Connection {
    Connection::open(dir.join("home/.local/share/goose/sessions/sessions.db")).unwrap()
}

/// goose's names of the sessions in the shared home.
fn kept(dir: &Path) -> Vec<String> {
    let database = database(dir);
    let mut query = database.prepare("SELECT id FROM sessions ORDER BY id").unwrap();
    query.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// A session of a gander that was started again.
fn again<'gander>(gander: &'gander Gander, id: &str) -> Session<'gander> {
    Session { gander, id: id.to_owned(), snapshot: Value::Null }
}

#[tokio::test]
async fn sessions_share_gooses_own_home_and_leave_all_else_in_it_as_it_is() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let users = configuration(dir.path());
    std::fs::create_dir_all(users.join("memory")).unwrap();
    std::fs::write(users.join("config.yaml"), CONFIGURATION).unwrap();
    std::fs::write(users.join("memory/words.txt"), "heliotrope\n").unwrap();
    std::fs::write(
        users.join("permission.yaml"),
        "user:\n  always_allow: []\n  ask_before: []\n  never_allow: [analyze]\n",
    )
    .unwrap();
    let before = contents(&users);
    let gander = Setup::real().config(SHARED).dir(Arc::clone(&dir)).start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let without =
        gander.session(&json!({"mode": "approve", "disabled_extensions": ["developer", "memory"]})).await;
    assert_eq!(session.snapshot["notices"], json!([]), "memory is at home here");
    assert!(loaded(&session.snapshot).contains(&"memory".to_owned()), "{}", session.snapshot);
    assert_eq!(kept(dir.path()).len(), 2);

    // "Always" stays with gander here too.
    let mut events = session.events_with("?after=latest").await;
    session.prompt(&runs("pwd")).await;
    let permission = events.until("permission.requested").await.data["permission"].clone();
    let path = session.path(&format!("/permissions/{}", text(&permission["id"])));
    gander.post(&path, &json!({"option_id": "allow_always"}), StatusCode::OK).await;
    events.until("turn.completed").await;
    let told = gander.model.requests().pop().unwrap().to_string();
    assert!(told.contains("heliotrope"), "what the user's goose remembers is told");
    without.turn(&script(&json!([[{"text": "hello"}]]))).await;
    let call = gander.model.requests().pop().unwrap();
    assert!(!offered_tools(&call).iter().any(|tool| tool == "shell" || tool.contains("memor")), "{call}");

    // A session goes on in it, over a restart too.
    session.hibernate().await;
    let id = session.id.clone();
    assert_eq!(session.turn(&runs("pwd")).await["state"], "completed");
    without.delete().await;
    assert_eq!(kept(dir.path()).len(), 1);
    gander.stop().await;
    let gander = Setup::real().config(SHARED).dir(Arc::clone(&dir)).start().await;
    let session = again(&gander, &id);
    assert_eq!(session.turn(&runs("pwd")).await["state"], "completed");
    let call = gander.model.requests().pop().unwrap();
    let said = call["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "user");
    assert_eq!(said.count(), 3, "{call}");
    session.delete().await;
    assert_eq!(kept(dir.path()), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(gander.storage().join("homes")).unwrap().count(), 0);
    assert_eq!(contents(&users), before);
    gander.stop().await;
}

#[tokio::test]
async fn a_session_that_is_no_longer_ganders_is_neither_gone_on_with_nor_deleted() {
    let gander = Setup::real().config(SHARED).start().await;
    let dir = gander.dir.path();
    let session = gander.session(&json!({})).await;
    session.hibernate().await;
    // Its user has deleted it, and goose has given its name to the next one.
    let changed =
        database(dir).execute("UPDATE sessions SET created_at = '2020-01-01 00:00:00'", ()).unwrap();
    assert_eq!(changed, 1);
    let turn = session.turn(&script(&json!([[{"text": "hello"}]]))).await;
    assert_eq!((&turn["state"], &turn["error"]["class"]), (&json!("failed"), &json!("start_failed")));
    assert!(text(&turn["error"]["message"]).contains("is gone"), "{turn}");
    assert!(gander.model.requests().is_empty());
    session.delete().await;
    assert_eq!(kept(dir).len(), 1);
    gander.stop().await;
}

#[tokio::test]
async fn a_user_whose_goose_remembers_to_allow_is_told_and_keeps_it() {
    let gander = Setup::real().config(SHARED).start().await;
    let memory = configuration(gander.dir.path()).join("permission.yaml");
    let session = gander.session(&json!({"mode": "smart_approve"})).await;
    std::fs::create_dir_all(memory.parent().unwrap()).unwrap();
    let always = "user:\n  always_allow: [shell]\n";
    std::fs::write(&memory, always).unwrap();
    let says = r#"always_allow in permission.yaml in the home that goose shares with its user names "shell""#;
    let turn = session.turn(&runs("touch unasked")).await;
    assert!(text(&turn["error"]["message"]).contains(says), "{turn}");
    let create = gander.request(Method::POST, "/v1/sessions").json(&json!({"mode": "approve"}));
    let problem = refusal(create, 502, "agent-start-failed").await;
    assert!(text(&problem["detail"]).contains(says), "{problem}");
    assert!(gander.model.requests().is_empty());
    assert_eq!(std::fs::read_to_string(&memory).unwrap(), always);
    std::fs::remove_file(&memory).unwrap();
    let mut events = session.events_with("?after=latest").await;
    session.prompt(&runs("echo asked")).await;
    let permission = events.until("permission.requested").await.data["permission"].clone();
    session.answer(&permission, "reject").await;
    events.until("turn.completed").await;
    // goose would skip such a file, and have on what its user has switched off.
    std::fs::write(configuration(gander.dir.path()).join("config.yaml"), "extensions: [").unwrap();
    let create = gander.request(Method::POST, "/v1/sessions").json(&json!({}));
    let problem = refusal(create, 502, "agent-start-failed").await;
    assert!(text(&problem["detail"]).contains("config.yaml is malformed"), "{problem}");
    gander.stop().await;
}

#[tokio::test]
async fn a_session_stays_in_the_home_it_was_made_in() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let start = |home: &str| Setup::real().env("GANDER_GOOSE__HOME", home).dir(Arc::clone(&dir)).start();
    let hello = script(&json!([[{"text": "hello"}]]));
    let gander = start("session").await;
    let own = gander.session(&json!({})).await.id;
    gander.stop().await;

    let gander = start("shared").await;
    let (shared, left) = (gander.session(&json!({})).await.id, gander.session(&json!({})).await.id);
    assert_eq!(again(&gander, &own).turn(&hello).await["state"], "completed");
    assert_eq!(kept(dir.path()).len(), 2);
    gander.stop().await;

    // There may be several callers now, so nobody gets at what is shared; but it can be deleted.
    let gander = start("session").await;
    let turn = again(&gander, &shared).turn(&hello).await;
    assert_eq!((&turn["state"], &turn["error"]["class"]), (&json!("failed"), &json!("start_failed")));
    assert!(text(&turn["error"]["message"]).contains("goose.home = \"shared\""), "{turn}");
    again(&gander, &shared).delete().await;
    assert_eq!(kept(dir.path()).len(), 1);
    gander.stop().await;

    // What is left of a session that gander does not know any more goes at the next start.
    for file in ["gander.db", "gander.db-wal", "gander.db-shm"] {
        let _ = std::fs::remove_file(dir.path().join("storage").join(file));
    }
    let gander = start("shared").await;
    refusal(gander.request(Method::GET, &again(&gander, &left).path("")), 404, "session-not-found").await;
    until("it is deleted", || kept(dir.path()).is_empty()).await;
    until("its folder too", || std::fs::read_dir(gander.storage().join("homes")).unwrap().count() == 0).await;
    gander.stop().await;
}

#[tokio::test]
async fn there_is_one_caller_and_another_one_is_not_let_in() {
    type Callers<'a> = &'a [(&'a str, &'a [&'a str])];
    let (one, both): (Callers<'_>, Callers<'_>) = (&[("ada", &[])], &[("ada", &[]), ("bob", &[])]);
    let gander = gander_with(one, SHARED).await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events().await;
    let turn = session.prompt("ask then echo done").await;
    events.until("permission.requested").await;
    write_tokens(gander.dir.path(), both);
    let list = |name: &str| gander.request_as(&token(name), Method::GET, "/v1/sessions");
    refusal(list("bob"), 401, "unauthenticated").await;
    assert_eq!(list("ada").send().await.unwrap().status(), StatusCode::OK);
    until("it is in the log", || {
        gander.log().lines().any(|line| line.contains("ERROR") && line.contains("there are 2 callers"))
    })
    .await;
    // What runs is not disturbed.
    assert_eq!(gander.get(&session.path(&format!("/turns/{}", text(&turn["id"])))).await["state"], "running");
    session.cancel(&turn).await;
    events.until("turn.cancelled").await;
    write_tokens(gander.dir.path(), one);
    assert_eq!(list("ada").send().await.unwrap().status(), StatusCode::OK);
    gander.stop().await;
}

#[tokio::test]
async fn with_several_callers_gander_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    write_tokens(dir.path(), &[("ada", &[]), ("bob", &[])]);
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["check"]] {
        let mut command = gander(dir.path(), arguments);
        command.env("GANDER_AUTH__TOKENS_FILE", dir.path().join("tokens.toml"));
        let output = output(command).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("there are 2 callers, and with goose.home = \"shared\" there may be one"),
            "{said}"
        );
    }
}

#[test]
fn check_says_which_home_it_is_and_leaves_nothing_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let output = gander(dir.path(), &["check"])
        .envs([("GOOSE_PROVIDER", "openai"), ("GOOSE_MODEL", "gpt-4o"), ("OPENAI_API_KEY", "sk-x")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let line =
        format!("home       shared by all sessions, configured in {}\n", configuration(dir.path()).display());
    assert!(said.contains(&line), "{said}");
    assert_eq!(kept(dir.path()), Vec::<String>::new());
}

#[tokio::test]
async fn a_session_whose_goose_cannot_delete_it_is_deleted_all_the_same_and_there_later() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let program = dir.path().join("goose");
    symlink(real_goose(), &program).unwrap();
    let gander = Setup::with_agent(program.clone()).config(SHARED).dir(Arc::clone(&dir)).start().await;
    let session = gander.session(&json!({})).await;
    session.hibernate().await;
    std::fs::remove_file(&program).unwrap();
    symlink("/bin/false", &program).unwrap();
    session.delete().await;
    refusal(gander.request(Method::GET, &session.path("")), 404, "session-not-found").await;
    refusal(gander.request(Method::DELETE, &session.path("")), 404, "session-not-found").await;
    assert!(gander.log().contains("is left in goose's shared home"), "{}", gander.log());
    assert_eq!(kept(dir.path()).len(), 1);
    gander.stop().await;
    let gander = Setup::real().config(SHARED).dir(Arc::clone(&dir)).start().await;
    until("the next start deletes it", || kept(dir.path()).is_empty()).await;
    gander.stop().await;
}

#[tokio::test]
async fn a_goose_that_does_not_tell_whose_a_session_is_does_not_go_on_with_it() {
    let gander = Setup::fake().config(SHARED).start().await;
    let session = gander.session(&json!({})).await;
    assert_eq!(session.turn("echo first").await["text"], "first");
    session.hibernate().await;
    let turn = session.turn("echo second").await;
    assert_eq!((&turn["state"], &turn["error"]["class"]), (&json!("failed"), &json!("start_failed")));
    assert!(text(&turn["error"]["message"]).contains("does not tell when it made a session"), "{turn}");
    session.delete().await;
    gander.stop().await;
}

#[tokio::test]
async fn what_is_set_for_a_session_is_not_written_into_its_users_configuration() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let users = configuration(dir.path());
    std::fs::create_dir_all(&users).unwrap();
    std::fs::write(users.join("config.yaml"), CONFIGURATION).unwrap();
    let web = RealToolServer::start();
    let servers = format!("{SHARED}\n[[mcp.servers]]\nname = \"web\"\nurl = {:?}", web.url);
    let gander = Setup::real().config(&servers).dir(Arc::clone(&dir)).start().await;
    let session = gander.session(&json!({"mode": "auto", "mcp_servers": ["web"]})).await;
    let echo = json!({"call": {"tool": "web__echo", "input": {"message": "over the wire"}}});
    assert_eq!(session.turn(&script(&json!([[echo], [{"text": "done"}]]))).await["state"], "completed");
    assert!(gander.model.requests().pop().unwrap().to_string().contains("Echo: over the wire"));
    for change in [
        json!({"provider": "openai", "model": "gpt-4o"}),
        json!({"model": "claude-sonnet-4-5"}),
        json!({"thinking_effort": "high"}),
    ] {
        session.patch(&change).await;
    }
    assert_eq!(session.now().await["model"], "claude-sonnet-4-5");
    assert_eq!(std::fs::read(users.join("config.yaml")).unwrap(), CONFIGURATION.as_bytes());
    session.turn(&script(&json!([[{"text": "hello"}]]))).await;
    assert_eq!(gander.model.requests().pop().unwrap()["model"], "claude-sonnet-4-5");
    assert_eq!(std::fs::read(users.join("config.yaml")).unwrap(), CONFIGURATION.as_bytes());
    gander.stop().await;
}

/// A gander on the shared home of this folder.
fn gander(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = command(dir, &real_goose(), arguments);
    command.env("GANDER_GOOSE__HOME", "shared");
    command
}
