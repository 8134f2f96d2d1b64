//! The mode is a floor: whatever goose has kept, loaded or remembers, nothing is run with fewer questions than asked for.

use std::collections::BTreeSet;
use std::path::PathBuf;

use reqwest::Method;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::{Gander, Session, Setup, refusal, script, text};

/// The tools with which goose gets round a question.
const ROUND_ABOUT: [&str; 3] = ["delegate", "extensionmanager__manage_extensions", "execute_typescript"];
const ALWAYS: &str = "user:\n  always_allow: [shell]\n  ask_before: []\n  never_allow: []\n";

fn runs(command: &str) -> String {
    script(&json!([[{"call": {"tool": "shell", "input": {"command": command}}}], [{"text": "done"}]]))
}

fn home_of(session: &Session<'_>) -> PathBuf {
    session.gander.storage().join("homes").join(&session.id)
}

/// What goose remembers of permissions in the session's home.
fn memory_of(session: &Session<'_>) -> PathBuf {
    home_of(session).join("config/permission.yaml")
}

/// Changes the session in goose's own database, as whoever runs a shell as this user can: in mode `auto`, with these
/// extensions more.
fn tamper(session: &Session<'_>, extensions: &[&str]) {
    let database = Connection::open(home_of(session).join("data/sessions/sessions.db")).unwrap();
    let saved: String =
        database.query_row("SELECT extension_data FROM sessions", (), |row| row.get(0)).unwrap();
    let mut saved: Value = serde_json::from_str(&saved).unwrap();
    let list = saved["enabled_extensions.v0"]["extensions"].as_array_mut().unwrap();
    for name in extensions {
        list.push(json!({"type": "platform", "name": name, "description": name, "bundled": true}));
    }
    let changed = database
        .execute("UPDATE sessions SET goose_mode = 'auto', extension_data = ?1", (saved.to_string(),))
        .unwrap();
    assert_eq!(changed, 1);
}

/// The tools that the model was last offered.
fn offered(gander: &Gander) -> BTreeSet<String> {
    let request = gander.model.requests().pop().unwrap();
    let tools = request["tools"].as_array().unwrap();
    tools.iter().map(|tool| text(&tool["function"]["name"])).collect()
}

fn assert_no_way_round(gander: &Gander) {
    let offered = offered(gander);
    assert!(offered.contains("shell"), "{offered:?}");
    assert!(ROUND_ABOUT.iter().all(|tool| !offered.contains(*tool)), "{offered:?}");
}

/// Begins a turn that runs a shell command, and expects to be asked.
async fn is_asked(session: &Session<'_>) {
    let mut events = session.events_with("?after=latest").await;
    session.prompt(&runs("echo asked")).await;
    let permission = events.until("permission.requested").await.data["permission"].clone();
    session.answer(&permission, "reject").await;
    events.until("turn.completed").await;
}

fn notices(snapshot: &Value) -> Vec<(String, String)> {
    let notices = snapshot["notices"].as_array().unwrap();
    notices.iter().map(|notice| (text(&notice["code"]), text(&notice["message"]))).collect()
}

#[tokio::test]
async fn a_goose_that_remembers_to_allow_is_not_run() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    session.hibernate().await;
    for (written, said) in [
        (ALWAYS, r#"always_allow in config/permission.yaml in the session's goose home names "shell""#),
        ("smart_approve:\n  always_allow: [shell]\n", "always_allow"),
        ("user: [", "is not what goose writes"),
    ] {
        std::fs::write(memory_of(&session), written).unwrap();
        let turn = session.turn(&runs("echo unasked")).await;
        assert_eq!((&turn["state"], &turn["error"]["class"]), (&json!("failed"), &json!("start_failed")));
        let message = text(&turn["error"]["message"]);
        assert!(message.contains(said) && message.contains("delete the session"), "{message}");
        let now = session.now().await;
        assert_eq!((&now["state"], &now["state_reason"]), (&json!("failed"), &json!(message)));
        let patch = gander.request(Method::PATCH, &session.path("")).json(&json!({"mode": "smart_approve"}));
        refusal(patch, 502, "agent-start-failed").await;
        assert_eq!(gander.descendants(), Vec::<u32>::new());
    }
    assert!(gander.model.requests().is_empty());
    // As the message says.
    std::fs::remove_file(memory_of(&session)).unwrap();
    is_asked(&session).await;
    gander.stop().await;
}

#[tokio::test]
async fn a_goose_that_learns_to_allow_while_it_runs_runs_no_further_turn() {
    let gander = Setup::real().start().await;
    // In this mode goose reads the file again for every prompt.
    let session = gander.session(&json!({"mode": "smart_approve"})).await;
    is_asked(&session).await;
    let asked = gander.model.requests().len();
    std::fs::write(memory_of(&session), ALWAYS).unwrap();
    let turn = session.turn(&runs("echo unasked")).await;
    assert_eq!((&turn["state"], &turn["error"]["class"]), (&json!("failed"), &json!("agent_error")));
    assert!(text(&turn["error"]["message"]).contains("always_allow"), "{turn}");
    assert_eq!(session.now().await["state"], "failed");
    assert_eq!((gander.model.requests().len(), gander.descendants()), (asked, Vec::new()));
    gander.stop().await;
}

#[tokio::test]
async fn what_the_owners_goose_remembers_is_not_a_sessions() {
    let owners = tempfile::tempdir().unwrap();
    std::fs::write(owners.path().join("permission.yaml"), ALWAYS).unwrap();
    let config = format!("[goose]\nconfig_dir = {:?}", owners.path());
    let gander = Setup::real().config(&config).start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    is_asked(&session).await;
    gander.stop().await;
}

#[tokio::test]
async fn a_session_saved_in_a_looser_mode_with_more_extensions_is_set_back_before_anything_runs() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    is_asked(&session).await;
    assert_no_way_round(&gander);
    session.hibernate().await;
    tamper(&session, &["summon", "extensionmanager", "code_execution", "orchestrator", "chatrecall"]);
    is_asked(&session).await;
    assert_no_way_round(&gander);
    assert!(!offered(&gander).iter().any(|tool| tool.starts_with("chatrecall")), "it was not there before");
    let now = session.now().await;
    assert_eq!((&now["mode"], &now["agent"]["mode"]), (&json!("approve"), &json!("approve")));
    let removed: Vec<String> = notices(&now)
        .into_iter()
        .filter(|(code, _)| code == "extension-removed")
        .map(|(_, said)| said)
        .collect();
    assert_eq!(removed.len(), 5, "{removed:?}");
    for name in ["summon", "extensionmanager", "code_execution", "orchestrator", "chatrecall"] {
        assert!(removed.iter().any(|said| said.contains(name)), "{name}: {removed:?}");
        assert!(!now["extensions"].as_array().unwrap().iter().any(|extension| extension["name"] == name));
    }
    gander.stop().await;
}

#[tokio::test]
async fn from_auto_to_approve_nothing_is_left_that_gets_round_a_question() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "auto", "builtins": ["todo", "extensionmanager"]})).await;
    assert_eq!(notices(&session.snapshot), [], "where nothing is asked there is nothing to get round");
    // Unasked, the agent brings in what the session was not to have.
    let enable = |name: &str| {
        let input = json!({"action": "enable", "extension_name": name});
        json!([{"call": {"tool": "extensionmanager__manage_extensions", "input": input}}])
    };
    session.turn(&script(&json!([enable("summon"), enable("code_execution"), [{"text": "done"}]]))).await;
    session.turn(&script(&json!([[{"text": "and now"}]]))).await;
    let before = offered(&gander);
    assert!(before.contains("delegate") && before.contains("execute_typescript"), "{before:?}");

    session.patch(&json!({"mode": "approve"})).await;
    let told = notices(&session.now().await);
    let codes: Vec<&str> = told.iter().map(|(code, _)| code.as_str()).collect();
    assert_eq!(
        codes,
        ["extension-removed", "extension-removed", "extension-gets-round-questions"],
        "what was named stays, with a word about it: {told:?}"
    );
    is_asked(&session).await;
    let after = offered(&gander);
    assert!(!after.contains("delegate") && !after.contains("execute_typescript"), "{after:?}");
    session.hibernate().await;
    is_asked(&session).await;
    assert_eq!(offered(&gander), after, "nor after a wake");

    let other = gander.session(&json!({"mode": "auto"})).await;
    other.patch(&json!({"mode": "approve"})).await;
    is_asked(&other).await;
    assert_no_way_round(&gander);
    gander.stop().await;
}

#[tokio::test]
async fn what_cannot_be_removed_or_told_is_not_run() {
    for (variables, said) in [
        (&[("EXTRA", "summon"), ("REMOVE", "error")][..], "does not let go of it: summon"),
        (&[("EXTRA", "summon"), ("REMOVE", "ignore")], "does not let go of it: summon"),
        (&[("EXTRA", "summon"), ("LIST", "unknown")], "does not let go of it: summon"),
        (&[("LIST", "garbage")], "does not tell which extensions are loaded"),
    ] {
        let mut setup = Setup::fake();
        for (name, value) in variables {
            setup = setup.env(&format!("GANDER_GOOSE__ENV__FAKE_AGENT_{name}"), value);
        }
        let gander = setup.start().await;
        let problem = refusal(gander.request(Method::POST, "/v1/sessions"), 502, "agent-start-failed").await;
        assert!(text(&problem["detail"]).contains(said), "{problem}");
        assert_eq!(gander.descendants(), Vec::<u32>::new());
        gander.stop().await;
    }
    // An agent that has no way to list them is believed when it says that there is nothing else.
    let gander = Setup::fake().env("GANDER_GOOSE__ENV__FAKE_AGENT_LIST", "unknown").start().await;
    gander.session(&json!({"mode": "approve"})).await;
    gander.stop().await;
}

#[tokio::test]
async fn an_agent_that_loosens_its_mode_by_itself_is_set_back_before_the_next_prompt() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let loosened = json!({"sessionUpdate": "current_mode_update", "currentModeId": "auto"});
    session.turn(&format!("update {loosened}")).await;
    assert_eq!(session.now().await["agent"]["mode"], "auto", "what it is in is shown");

    let mut events = session.events_with("?after=latest").await;
    session.prompt("echo prompted").await;
    let told = events.through("turn.completed").await;
    let place = |fits: &dyn Fn(&Value) -> bool| told.iter().position(|event| fits(&event.data)).unwrap();
    let restored = place(&|event| event["code"] == "mode-restored");
    assert!(restored < place(&|event| event["type"] == "message.delta"), "before it hears of the prompt");
    let message = text(&told[restored].data["message"]);
    assert!(message.contains("auto") && message.contains("approve"), "{message}");
    let now = session.now().await;
    assert_eq!((&now["mode"], &now["agent"]["mode"]), (&json!("approve"), &json!("approve")));
    gander.stop().await;
}
