//! Cancelling a turn while goose asks and while a tool runs, on the real goose.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use super::{answer_path, shell, until_asked};
use crate::support::{Setup, carried, kinds, lives, only, refusal, script, text, until};

#[tokio::test]
async fn cancelling_while_goose_asks_ends_the_turn_without_another_model_call() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events_with("?after=latest").await;
    let (turn, permission) = until_asked(&session, &mut events, &shell("touch made")).await;
    let cancelled = session.cancel(&turn).await;
    assert_eq!(cancelled["id"], turn["id"]);
    let told = events.through("turn.cancelled").await;
    let resolved = &only(&told, "permission.resolved").data["permission"];
    assert_eq!((&resolved["id"], &resolved["state"]), (&permission["id"], &json!("cancelled")));
    assert_eq!(resolved["outcome"]["by"], "cancel");
    assert_eq!(only(&told, "tool_call.finished").data["tool_call"]["status"], "cancelled");
    assert_eq!(gander.model.requests().len(), 1);
    let path = answer_path(&session, &permission);
    for decision in ["allow", "reject"] {
        let late = gander.request(Method::POST, &path).json(&json!({"decision": decision}));
        let problem = refusal(late, 409, "permission-already-resolved").await;
        assert_eq!(problem["permission"], *resolved);
    }

    let next = session.turn(&script(&json!([[{"text": "Here."}]]))).await;
    assert_eq!(next["text"], "Here.");
    assert_eq!(gander.model.requests().len(), 2, "the cancelled turn called the model no more");
    let log = session.log().await;
    let mut ends = kinds(&log);
    ends.retain(|kind| {
        matches!(*kind, "permission.resolved" | "tool_call.finished" | "turn.cancelled" | "turn.completed")
    });
    assert_eq!(
        ends,
        ["permission.resolved", "tool_call.finished", "turn.cancelled", "turn.completed"],
        "one end each"
    );
    assert!(!Path::new(&text(&session.snapshot["cwd"])).join("made").exists());
    gander.stop().await;
}

#[tokio::test]
async fn cancelling_while_goose_asks_for_the_first_of_two_calls_ends_both() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let call = |command| json!({"call": {"tool": "shell", "input": {"command": command}}});
    let prompt = script(&json!([[call("touch one"), call("touch two")], [{"text": "On."}]]));
    let mut events = session.events_with("?after=latest").await;
    let (turn, _) = until_asked(&session, &mut events, &prompt).await;
    session.cancel(&turn).await;
    let told = events.through("turn.cancelled").await;
    let finished = carried(&told, "tool_call.finished", "tool_call");
    assert_eq!(finished.len(), 2);
    assert!(finished.iter().all(|call| call["status"] == "cancelled"), "{finished:?}");
    only(&told, "permission.resolved");
    assert_eq!(session.turn(&script(&json!([[{"text": "Here."}]]))).await["text"], "Here.");
    assert_eq!(gander.model.requests().len(), 2);
    assert!(std::fs::read_dir(text(&session.snapshot["cwd"])).unwrap().next().is_none());
}

/// The processes below gander that run this program.
fn running(gander_descendants: &[u32], program: &str) -> Vec<u32> {
    let runs = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).next() == Some(program.as_bytes())
    };
    gander_descendants.iter().copied().filter(runs).collect()
}

#[tokio::test]
async fn cancelling_ends_what_tools_have_started_and_goose_lives_on() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let mut events = session.events_with("?after=latest").await;
    let turn = session.prompt(&shell("sleep 1001 & setsid sleep 1002 & echo running; sleep 1003")).await;
    events.until("tool_call.output").await;
    let mut sleeps = Vec::new();
    until("three sleeps run", || {
        sleeps = running(&gander.descendants(), "sleep");
        sleeps.len() == 3
    })
    .await;
    session.cancel(&turn).await;
    let told = events.through("turn.cancelled").await;
    assert!(!sleeps.iter().any(|pid| lives(*pid)), "dead when the turn's end is told");
    assert_eq!(only(&told, "tool_call.finished").data["tool_call"]["status"], "cancelled");
    let notice = &only(&told, "notice").data;
    assert_eq!(notice["code"], "processes-killed", "{notice}");
    assert_eq!(notice["turn_id"], turn["id"]);
    let states = carried(&told, "session.state", "state");
    assert_eq!(states.last().unwrap().as_str(), Some("cancelling"));
    events.until("session.state").await;
    let now = session.now().await;
    assert_eq!((&now["state"], &now["current_turn"]), (&json!("idle"), &Value::Null));
    assert_eq!(now["open_tool_calls"], json!([]));
    assert_eq!(now["agent"], session.snapshot["agent"], "the same goose");
    assert_eq!(session.turn(&script(&json!([[{"text": "Here."}]]))).await["text"], "Here.");
    gander.stop().await;
}
