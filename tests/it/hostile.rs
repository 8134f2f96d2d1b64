//! Agents that misbehave. Whatever one does, its own session ends well and another one does not notice.

mod table;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    Event, Gander, Session, Setup, assert_all_ended_once, kinds, lives, refusal, signal, text,
};

/// A gander whose callers choose how their agents misbehave.
async fn gander() -> Gander {
    let names = ["FAKE_AGENT_CANCEL", "FAKE_AGENT_EOF", "FAKE_AGENT_TERM", "FAKE_AGENT_NEW"];
    let config = format!("[cancel]\ngrace = \"1h\"\n[goose]\nend_grace = \"100ms\"\ncaller_env = {names:?}");
    Setup::fake().config(&config).start().await
}

fn agent_pid(session: &Session<'_>) -> u32 {
    session.snapshot["agent"]["pid"].as_u64().unwrap().try_into().unwrap()
}

/// The texts of the agent's messages.
fn said(events: &[Event]) -> Vec<String> {
    let deltas = events.iter().filter(|event| event.kind() == "message.delta");
    deltas.map(|event| text(&event.data["text"])).collect()
}

/// A line as the agent would write it: a permission request of the fake agent's first session.
fn permission_request(id: &Value, call: &str) -> String {
    let options = json!([
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ]);
    let tool_call = json!({"toolCallId": call, "title": "shell · ls", "rawInput": {"command": "ls"}});
    let params = json!({"sessionId": "20261130_1", "toolCall": tool_call, "options": options});
    json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params}).to_string()
}

async fn cancel(session: &Session<'_>, turn: &Value) {
    let path = session.path(&format!("/turns/{}/cancel", text(&turn["id"])));
    session.gander.post(&path, &json!({}), StatusCode::ACCEPTED).await;
}

/// The session has lost its agent, says why, goes on with another at its next turn, and can be deleted.
async fn assert_goes_on_with_another_agent(session: Session<'_>) {
    let now = session.now().await;
    assert_eq!(now["state"], "hibernated");
    assert!(now["state_reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{now}");
    assert!(now["current_turn"].is_null() && now["agent"]["pid"].is_null(), "{now}");
    assert_eq!((&now["pending_permissions"], &now["open_tool_calls"]), (&json!([]), &json!([])));
    assert_eq!(session.turn("echo again").await["text"], "again");
    session.delete().await;
    refusal(session.gander.request(Method::GET, &session.path("")), 404, "session-not-found").await;
}

#[tokio::test]
async fn noise_between_the_messages_is_survived() {
    let gander = gander().await;
    let session = gander.session(&json!({})).await;
    let healthy = gander.session(&json!({})).await;
    let odd = [
        r#"{"jsonrpc":"2.0","id":null,"method":"no/such"}"#,
        r#"{"jsonrpc":"2.0","id":1.5,"method":"no/such"}"#,
        r#"{"jsonrpc":"2.0","id":{"a":[1]},"method":"no/such","params":7}"#,
        r#"{"jsonrpc":"2.0","id":1e400,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"1","result":{"stopReason":"end_turn"}}"#,
        r#"{"jsonrpc":"2.0","id":-1,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":[],"error":{"code":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":99999999999999999999999,"error":null}"#,
        r#"{"jsonrpc":"2.0","method":"session/update"}"#,
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"20261130_1","update":[]}}"#,
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"another","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"not ours"}}}}"#,
        r#"{"jsonrpc":"1.0"}"#,
        "[]",
        "7",
        "null",
        "\"\u{fffd}\\ud800\"",
    ];
    let odd = odd.map(|line| format!("raw {line}")).join("\n");
    let prompt = format!(
        "echo before\ngarbage\nraw\nraw   \ninvalid-utf8\n{odd}\nunknown-update\nstderr 3000000\necho after"
    );
    let mut events = session.events_with("?after=latest").await;
    let turn = session.turn(&prompt).await;
    assert_eq!(turn["state"], "completed");
    let told = events.through("turn.completed").await;
    assert_eq!(said(&told), ["before", "after"]);
    let unknown: Vec<&Value> =
        told.iter().filter(|event| event.kind() == "agent.update").map(|event| &event.data["raw"]).collect();
    assert!(
        unknown.contains(&&json!({"sessionUpdate": "brand_new_update", "detail": {"depth": [1, 2]}})),
        "{unknown:?}"
    );
    assert_eq!(session.turn("echo again").await["text"], "again");
    assert_eq!(healthy.turn("echo fine").await["text"], "fine");
    assert_all_ended_once(&session.log().await);
}

#[tokio::test]
async fn an_update_that_is_too_long_is_left_out_and_told() {
    let gander = gander().await;
    let session = gander.session(&json!({})).await;
    let healthy = gander.session(&json!({})).await;
    let turn = session.prompt("long-line 50000000\necho after").await;
    assert_eq!(healthy.turn("echo fine").await["text"], "fine");
    let told = session.events().await.through("turn.completed").await;
    assert_eq!(said(&told), ["after"]);
    let notice = told.iter().find(|event| event.kind() == "notice").unwrap();
    assert_eq!((&notice.data["code"], &notice.data["turn_id"]), (&json!("update-dropped"), &turn["id"]));
}

#[tokio::test]
async fn a_prompt_that_is_answered_twice_ends_once() {
    let gander = gander().await;
    let session = gander.session(&json!({})).await;
    let mut events = session.events().await;
    for round in ["one", "two"] {
        let turn = session.turn(&format!("duplicate-answer\necho {round}\nlate afterwards")).await;
        assert_eq!((&turn["state"], &turn["text"]), (&json!("completed"), &json!(round)));
        while events.until("message.delta").await.data["text"] != "afterwards" {}
    }
    assert_eq!(session.turn("echo three").await["state"], "completed");
    let log = session.log().await;
    assert_all_ended_once(&log);
    assert_eq!(kinds(&log).into_iter().filter(|kind| *kind == "turn.completed").count(), 3);
    let late: Vec<&Event> = log.iter().filter(|event| event.data["text"] == "afterwards").collect();
    assert_eq!(late.len(), 2);
}

#[tokio::test]
async fn permission_requests_under_odd_ids_are_told_apart_and_answered() {
    let gander = gander().await;
    let session = gander.session(&json!({})).await;
    // The same id twice, and ids of types that nobody should use.
    let ids = [json!("a"), json!("a"), json!(null), json!(1.5), json!({"deep": [1]})];
    let mut prompt: Vec<String> = Vec::new();
    for (index, id) in ids.iter().enumerate() {
        prompt.push(format!("raw {}", permission_request(id, &format!("c{index}"))));
    }
    prompt.push("wait".into());
    let mut events = session.events_with("?after=latest").await;
    let turn = session.prompt(&prompt.join("\n")).await;
    let mut permissions = Vec::new();
    for _ in 0..2 {
        permissions.push(events.until("permission.requested").await.data["permission"].clone());
    }
    assert_ne!(permissions[0]["id"], permissions[1]["id"]);
    let first = session.answer(&permissions[0], "allow").await;
    let second = session.answer(&permissions[1], "reject").await;
    assert_eq!(first["outcome"]["decision"], "allow");
    assert_eq!(second["outcome"]["decision"], "reject");
    cancel(&session, &turn).await;
    events.until("turn.cancelled").await;
    assert_all_ended_once(&session.log().await);
    assert_eq!(session.turn("echo fine").await["text"], "fine");
}

#[tokio::test]
async fn whatever_ends_an_agent_in_a_turn_closes_what_was_open() {
    let gander = gander().await;
    let healthy = gander.session(&json!({})).await;
    let open = format!("open-call\nraw {}\nthink …", permission_request(&json!("p"), "asked"));
    let ends = [
        ("crash 3", "agent_exited"),
        ("crash 0", "agent_exited"),
        ("abort", "agent_exited"),
        ("close-stdout\nhang", "agent_unresponsive"),
        // More than a line may have, and never an end of it.
        ("no-newline 20000000", "agent_unresponsive"),
    ];
    for (end, class) in ends {
        let session = gander.session(&json!({})).await;
        let pid = agent_pid(&session);
        let mut events = session.events().await;
        let turn = session.prompt(&format!("{open}\n{end}")).await;
        let told = events.through("turn.interrupted").await;
        assert_all_ended_once(&told);
        let ended = &told.last().unwrap().data["turn"];
        assert_eq!((&ended["id"], &ended["error"]["class"]), (&turn["id"], &json!(class)), "{end}");
        let of_kind = |kind: &str| told.iter().filter(|event| event.kind() == kind).collect::<Vec<_>>();
        let finished = of_kind("tool_call.finished");
        assert_eq!(finished.len(), 2, "{end}");
        assert!(finished.iter().all(|event| event.data["tool_call"]["status"] == "cancelled"), "{end}");
        let resolved = of_kind("permission.resolved");
        assert_eq!(resolved[0].data["permission"]["state"], "cancelled", "{end}");
        assert_eq!(resolved[0].data["permission"]["outcome"]["by"], "agent_exit", "{end}");
        let state = events.until("session.state").await;
        assert_eq!(state.data["state"], "hibernated");
        assert!(state.data["reason"].is_string());
        assert!(!lives(pid), "{end}");
        assert_eq!(healthy.turn("echo fine").await["text"], "fine");
        assert_goes_on_with_another_agent(session).await;
    }
    // Killed from outside, between turns.
    let session = gander.session(&json!({})).await;
    let mut events = session.events_with("?after=latest").await;
    signal(agent_pid(&session), "KILL");
    assert_eq!(events.until("session.state").await.data["state"], "hibernated");
    assert_goes_on_with_another_agent(session).await;
}

#[tokio::test]
async fn what_is_asked_while_cancelling_is_answered_at_once() {
    let gander = gander().await;
    let session = gander.session(&json!({"env": {"FAKE_AGENT_CANCEL": "ignore"}})).await;
    let mut events = session.events().await;
    // The agent does not hear of the cancel, so its second question comes after it.
    let turn = session.prompt("ask\nask\necho the end").await;
    let asked = events.until("permission.requested").await;
    cancel(&session, &turn).await;
    let told = events.through("turn.cancelled").await;
    assert_eq!(told.last().unwrap().data["turn"]["state"], "cancelled");
    assert_eq!(said(&told), ["cancelled", "cancelled", "the end"]);
    let log = session.log().await;
    assert_all_ended_once(&log);
    assert_eq!(kinds(&log).into_iter().filter(|kind| *kind == "permission.requested").count(), 1);
    let path = session.path(&format!("/permissions/{}", text(&asked.data["permission"]["id"])));
    let answer = gander.request(Method::POST, &path).json(&json!({"decision": "allow"}));
    refusal(answer, 409, "permission-already-resolved").await;
    assert_eq!(session.turn("echo next").await["text"], "next");
}

#[tokio::test]
async fn an_agent_that_obeys_nothing_is_deleted_all_the_same() {
    let gander = gander().await;
    let healthy = gander.session(&json!({})).await;
    let deaf =
        json!({"FAKE_AGENT_CANCEL": "ignore", "FAKE_AGENT_EOF": "ignore", "FAKE_AGENT_TERM": "ignore"});
    // One that runs an endless turn, one in a flood, one that is cancelled in vain, and one that reads nothing.
    for prompt in ["wait", "flood 100000000", "open-call\nhang", "no-newline 100"] {
        let session = gander.session(&json!({"env": deaf})).await;
        let pid = agent_pid(&session);
        let mut events =
            session.events_with("?types=turn.cancelled,session.deleted,tool_call.finished").await;
        let turn = session.prompt(prompt).await;
        cancel(&session, &turn).await;
        assert_eq!(session.now().await["state"], "cancelling");
        assert_eq!(healthy.turn("echo fine").await["text"], "fine");
        session.delete().await;
        assert!(!lives(pid), "{prompt}");
        let told = events.rest().await;
        assert_eq!(kinds(&told[told.len() - 2..]), ["turn.cancelled", "session.deleted"], "{prompt}");
    }
    let stopped = gander.session(&json!({"env": deaf})).await;
    signal(agent_pid(&stopped), "STOP");
    stopped.prompt("echo unheard").await;
    stopped.delete().await;
    assert!(!lives(agent_pid(&stopped)));
    assert_eq!(healthy.turn("echo fine").await["text"], "fine");
    assert_eq!(gander.descendants().len(), 2, "the healthy agent and its shim");
}
