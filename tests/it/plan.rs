//! The plan, live through the real goose's todo extension.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{Gander, Session, Setup, carried, kinds, only, script, text};

/// A call that writes goose's todo list.
fn write(list: &str) -> Value {
    json!({"call": {"tool": "todo__todo_write", "input": {"content": list}}})
}

fn entry(content: &str, status: &str, depth: u32) -> Value {
    json!({"content": content, "status": status, "priority": "medium", "depth": depth})
}

/// The plan as a call gives it; the snapshot must have the same.
async fn plan_of(session: &Session<'_>) -> Value {
    let plan = session.gander.get(&session.path("/plan")).await;
    assert_eq!(session.now().await["plan"], plan);
    plan
}

/// Which events tell of tool calls, permissions and the plan.
async fn story(session: &Session<'_>) -> Vec<String> {
    let log = session.log().await;
    let told = |kind: &&str| ["tool_call", "permission", "plan"].contains(&kind.split('.').next().unwrap());
    kinds(&log).into_iter().filter(told).map(str::to_owned).collect()
}

async fn asking_gander() -> Gander {
    Setup::real().config("[permissions]\nallow_plan_write = false").start().await
}

#[tokio::test]
async fn goose_keeps_a_plan_without_asking_and_without_tool_calls() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    assert_eq!(plan_of(&session).await, json!({"version": 0, "entries": []}));
    let replies = json!([
        [{"text": "First a plan."}, write("# Work\n\n- [x] Draft\n  - [ ] Review it\n- [ ] Send — in progress\n")],
        [write("1. [x] Draft\n2. [x] Send\n")],
        [{"text": "All done."}],
    ]);
    let turn = session.turn(&script(&replies)).await;
    assert_eq!((&turn["stop_reason"], &turn["text"]), (&json!("end_turn"), &json!("All done.")));
    assert_eq!(story(&session).await, ["plan.updated", "plan.updated"]);
    let first = json!({"version": 1, "entries": [
        entry("Draft", "completed", 0),
        entry("Review it", "pending", 1),
        entry("Send", "in_progress", 0),
    ]});
    let second =
        json!({"version": 2, "entries": [entry("Draft", "completed", 0), entry("Send", "completed", 0)]});
    let log = session.log().await;
    assert_eq!(carried(&log, "plan.updated", "plan"), [&first, &second]);
    assert_eq!(plan_of(&session).await, second);

    let turn = session.turn(&script(&json!([[write("")], [{"text": "Cleared."}]]))).await;
    assert_eq!(turn["text"], "Cleared.");
    assert_eq!(plan_of(&session).await, json!({"version": 3, "entries": []}));
    assert_eq!(story(&session).await, ["plan.updated"; 3]);
    gander.stop().await;
}

#[tokio::test]
async fn a_write_without_a_list_is_an_ordinary_tool_call() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    session.turn(&script(&json!([[write("- [ ] Keep me")], [{"text": "Planned."}]]))).await;
    let mut events = session.events_with("?after=latest").await;
    session.prompt(&script(&json!([[write("Just some words.")], [{"text": "Noted."}]]))).await;
    let permission = events.until("permission.requested").await.data["permission"].clone();
    assert_eq!(permission["tool_call"]["tool"], "todo__todo_write");
    assert_eq!(permission["tool_call"]["extension"], "todo");
    assert_eq!(permission["tool_call"]["input"]["content"], "Just some words.");
    session.answer(&permission, "allow").await;
    events.until("turn.completed").await;
    assert_eq!(
        story(&session).await,
        [
            "plan.updated",
            "tool_call.started",
            "permission.requested",
            "permission.resolved",
            "tool_call.finished"
        ]
    );
    assert_eq!(plan_of(&session).await, json!({"version": 1, "entries": [entry("Keep me", "pending", 0)]}));
}

#[tokio::test]
async fn a_plan_write_can_be_asked_for_and_counts_only_when_allowed() {
    let gander = asking_gander().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events_with("?after=latest").await;
    let prompt = script(&json!([[write("- [ ] Draft")], [{"text": "On."}]]));
    for (decision, plan) in [
        ("reject", json!({"version": 0, "entries": []})),
        ("allow", json!({"version": 1, "entries": [entry("Draft", "pending", 0)]})),
        ("reject", json!({"version": 1, "entries": [entry("Draft", "pending", 0)]})),
    ] {
        session.prompt(&prompt).await;
        let permission = events.until("permission.requested").await.data["permission"].clone();
        let call = &permission["tool_call"];
        assert_eq!((&call["tool"], &call["extension"]), (&json!("todo__todo_write"), &json!("todo")));
        assert_eq!(call["input"]["content"], "- [ ] Draft");
        session.answer(&permission, decision).await;
        let ended = events.until("turn.completed").await;
        assert_eq!(ended.data["turn"]["text"], "On.", "{decision}");
        assert_eq!(plan_of(&session).await, plan, "{decision}");
    }
    // In the end nothing was told but the questions and the one plan.
    let asked = ["permission.requested", "permission.resolved"];
    let expected: Vec<&str> = [&asked[..], &asked[..], &["plan.updated"], &asked[..]].concat();
    assert_eq!(story(&session).await, expected);
    gander.stop().await;
}

#[tokio::test]
async fn a_skipped_write_changes_nothing() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let prompt = |list: &str| script(&json!([[write(list)], [{"text": "On."}]]));
    session.turn(&prompt("- [ ] Draft")).await;
    session.patch(&json!({"mode": "chat"})).await;
    let turn = session.turn(&prompt("- [x] Draft")).await;
    assert_eq!(turn["text"], "On.");
    assert_eq!(plan_of(&session).await, json!({"version": 1, "entries": [entry("Draft", "pending", 0)]}));
    assert_eq!(story(&session).await, ["plan.updated"]);

    // A write that fails is none either: goose calls a tool only with what it was asked to have.
    session.patch(&json!({"mode": "auto"})).await;
    let failing = json!([[{"call": {"tool": "todo__todo_write", "input": {"list": "- [x] Draft"}}}], [{"text": "On."}]]);
    session.turn(&script(&failing)).await;
    assert_eq!(plan_of(&session).await["version"], 1);
    let log = session.log().await;
    assert_eq!(only(&log, "tool_call.finished").data["tool_call"]["status"], "failed");

    let created = gander.post("/v1/sessions", &json!({}), StatusCode::CREATED).await;
    assert_eq!(gander.get(&format!("/v1/sessions/{}/plan", text(&created["id"]))).await["version"], 0);
}
