//! Hibernation and waking, and what a restart of gander leaves of a session.

mod races;

use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    Session, Setup, answer, assert_at_rest, kinds, lives, refusal, script, signal, text, until, until_async,
};

/// A prompt whose model answers with one text.
fn says(words: &str) -> String {
    script(&json!([[{"text": words}]]))
}

/// A prompt whose model calls the shell and then says that it is done.
fn runs(command: &str) -> String {
    script(&json!([[{"call": {"tool": "shell", "input": {"command": command}}}], [{"text": "done"}]]))
}

async fn until_state(session: &Session<'_>, state: &str) {
    until_async(state, || async { session.now().await["state"] == state }).await;
}

/// Every message of the session, as `role: text`.
async fn messages(session: &Session<'_>) -> Vec<String> {
    let list = session.gander.get(&session.path("/messages")).await;
    let list = list["messages"].as_array().unwrap();
    list.iter().map(|message| format!("{}: {}", text(&message["role"]), text(&message["text"]))).collect()
}

#[tokio::test]
async fn a_woken_session_goes_on_where_it_was() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    session.turn(&says("the word is heron")).await;
    let pid = u32::try_from(session.now().await["agent"]["pid"].as_u64().unwrap()).unwrap();

    let asleep = session.hibernate().await;
    assert_eq!(asleep["state"], "hibernated");
    assert_eq!(asleep["agent"]["pid"], Value::Null);
    assert!(!lives(pid), "goose was let go");
    assert_eq!(gander.descendants(), Vec::<u32>::new());
    assert_eq!(session.hibernate().await["state"], "hibernated", "once more changes nothing");

    // Waking is a part of the turn: it is told as running from the start.
    let mut events = session.events_with("?after=latest").await;
    let turn = session.prompt(&runs("echo woken")).await;
    assert_eq!(turn["state"], "running");
    let asked = events.through("permission.requested").await;
    assert_eq!(kinds(&asked)[..2], ["turn.started", "session.state"]);
    let permission = asked.last().unwrap().data["permission"].clone();
    session.answer(&permission, "allow").await;
    let told = events.through("turn.completed").await;
    assert_eq!(told.last().unwrap().data["turn"]["text"], "done");

    let now = session.now().await;
    assert_eq!((&now["mode"], &now["agent"]["mode"]), (&json!("approve"), &json!("approve")));
    assert_eq!(now["agent"]["generation"], 2);
    // The model was told what was said before, and subscribers were not told it again.
    let last = gander.model.requests().pop().unwrap().to_string();
    assert!(last.contains("the word is heron"), "{last}");
    let said: Vec<String> =
        messages(&session).await.into_iter().filter(|line| line.contains("heron")).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    gander.stop().await;
}

#[tokio::test]
async fn an_agent_is_let_go_when_idle_but_not_in_a_turn_nor_while_something_runs_in_the_background() {
    let gander = Setup::real().config("[sessions]\nidle_hibernate = \"300ms\"").start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    until_state(&session, "hibernated").await;

    // A turn that waits for an answer for longer than that keeps it awake.
    let mut events = session.events_with("?after=latest").await;
    session.prompt(&runs("sleep 300 > /dev/null 2>&1 & echo $! > background")).await;
    refusal(gander.request(Method::POST, &session.path("/hibernate")), 409, "turn-in-progress").await;
    let permission = events.until("permission.requested").await.data["permission"].clone();
    session.answer(&permission, "allow").await;
    events.until("turn.completed").await;
    let file = std::path::Path::new(&text(&session.now().await["cwd"])).join("background");
    let background: u32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    assert!(lives(background), "a job of a turn that ended well lives on");

    // By its own wish a caller can end it, and is told.
    session.hibernate().await;
    assert!(!lives(background));
    let notice = events.until("notice").await.data;
    assert_eq!(notice["code"], "processes-killed", "{notice}");
    gander.stop().await;
}

#[tokio::test]
async fn over_the_limit_the_longest_idle_agent_is_let_go() {
    let gander = Setup::real().config("[sessions]\nmax_running = 1").start().await;
    let first = gander.session(&json!({"mode": "auto"})).await;
    first.turn(&says("first")).await;
    let second = gander.session(&json!({"mode": "auto"})).await;
    assert_eq!(first.now().await["state"], "hibernated");
    assert_eq!(second.turn(&says("second")).await["text"], "second");
    // And the other way round.
    assert_eq!(first.turn(&says("first again")).await["text"], "first again");
    assert_eq!(second.now().await["state"], "hibernated");

    // One that works is not let go, and nothing has begun for the one that must wait.
    let mut events = first.events_with("?after=latest").await;
    first.prompt(&script(&json!([[{"text": "working"}, "hang"]]))).await;
    let turn = text(&events.until("message.delta").await.data["turn_id"]);
    let prompt = gander.request(Method::POST, &second.path("/turns")).json(&json!({"prompt": "hello"}));
    let problem = refusal(prompt, 503, "at-capacity").await;
    assert!(problem["retry_after_s"].is_u64(), "{problem}");
    refusal(gander.request(Method::POST, "/v1/sessions"), 503, "at-capacity").await;
    assert_eq!(second.now().await["state"], "hibernated");
    gander.post(&first.path(&format!("/turns/{turn}/cancel")), &json!({}), StatusCode::ACCEPTED).await;
    events.until("turn.cancelled").await;
    until_state(&first, "idle").await;
    assert_eq!(second.turn(&says("at last")).await["text"], "at last");
    gander.stop().await;
}

#[tokio::test]
async fn a_change_of_settings_wakes_and_is_kept_a_change_of_title_does_neither() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    session.hibernate().await;
    let patch =
        |body: Value| answer(gander.request(Method::PATCH, &session.path("")).json(&body), StatusCode::OK);
    assert_eq!(patch(json!({"title": "Mine"})).await["state"], "hibernated");
    let now = patch(json!({"mode": "approve"})).await;
    assert_eq!(
        (&now["state"], &now["mode"], &now["agent"]["mode"]),
        (&json!("idle"), &json!("approve"), &json!("approve"))
    );
    // goose keeps the mode a session was made in, `auto`; the one asked for since holds after the next wake too.
    session.hibernate().await;
    let mut events = session.events_with("?after=latest").await;
    session.prompt(&runs("true")).await;
    let permission = events.until("permission.requested").await.data["permission"].clone();
    session.answer(&permission, "reject").await;
    events.until("turn.completed").await;
    assert_eq!(session.now().await["agent"]["mode"], "approve");
    gander.stop().await;
}

#[tokio::test]
async fn a_goose_that_is_killed_is_replaced_by_the_next_turn() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    session.turn(&says("before")).await;
    let mut events = session.events_with("?after=latest").await;
    session.prompt(&script(&json!([[{"text": "working"}, "hang"]]))).await;
    events.until("message.delta").await;
    let pid = session.now().await["agent"]["pid"].as_u64().unwrap();
    signal(u32::try_from(pid).unwrap(), "KILL");
    let ended = events.until("turn.interrupted").await.data["turn"].clone();
    assert_eq!(ended["error"]["class"], "agent_exited");
    until_state(&session, "hibernated").await;
    assert_eq!(session.turn(&says("after")).await["text"], "after");
    let last = gander.model.requests().pop().unwrap().to_string();
    assert!(last.contains("before"), "{last}");
    gander.stop().await;
}

#[tokio::test]
async fn a_goose_that_hears_no_cancel_is_replaced_by_the_next_turn() {
    let gander = Setup::real().config("[cancel]\ngrace = \"300ms\"").start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    session.turn(&says("the word is heron")).await;
    // goose waits for its model's first word; then it is stopped altogether.
    for stopped in [false, true] {
        let mut events = session.events_with("?after=latest").await;
        let pid = session.now().await["agent"]["pid"].as_u64();
        let asked = gander.model.requests().len();
        let turn = text(&session.prompt(&script(&json!([["hang"]]))).await["id"]);
        // Before that goose does hear it.
        until("goose waits for its model", || gander.model.requests().len() > asked).await;
        if let (true, Some(pid)) = (stopped, pid) {
            signal(u32::try_from(pid).unwrap(), "STOP");
        }
        gander.post(&session.path(&format!("/turns/{turn}/cancel")), &json!({}), StatusCode::ACCEPTED).await;
        events.until("turn.cancelled").await;
        let turn = session.turn(&says("again")).await;
        assert_eq!(turn["text"], "again", "{turn}");
        let last = gander.model.requests().pop().unwrap().to_string();
        assert!(last.contains("the word is heron"), "{last}");
    }
    assert_eq!(session.now().await["agent"]["generation"], 3);
    gander.stop().await;
}

#[tokio::test]
async fn after_a_crash_of_gander_nothing_is_open_and_the_next_turn_asks_as_before() {
    let mut gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve", "title": "Kept"})).await;
    session.turn(&says("the word is heron")).await;
    let mut events = session.events_with("?after=latest").await;
    let turn = text(&session.prompt(&runs("echo never")).await["id"]);
    let permission = text(&events.until("permission.requested").await.data["permission"]["id"]);
    until_state(&session, "awaiting_permission").await;
    let working = gander.session(&json!({"mode": "auto"})).await;
    working.prompt(&runs("touch begun; sleep 600")).await;
    let begun = std::path::Path::new(&text(&working.now().await["cwd"])).join("begun");
    until("a tool runs", || begun.exists()).await;
    let before = session.log().await;
    let id = session.id.clone();
    gander.signal("KILL");
    gander.ended().await;
    let dir = Arc::clone(&gander.dir);
    drop(gander);

    let gander = Setup::real().dir(dir).start().await;
    let session = Session { gander: &gander, snapshot: Value::Null, id };
    until_state(&session, "hibernated").await;
    let now = session.now().await;
    assert_eq!((&now["title"], &now["current_turn"]), (&json!("Kept"), &Value::Null));
    assert_eq!((&now["pending_permissions"], &now["open_tool_calls"]), (&json!([]), &json!([])));
    assert_at_rest(&gander).await;
    let ended = gander.get(&session.path(&format!("/turns/{turn}"))).await;
    assert_eq!(
        (&ended["state"], &ended["error"]["class"]),
        (&json!("interrupted"), &json!("gateway_restarted"))
    );
    let decided = gander.get(&session.path(&format!("/permissions/{permission}"))).await;
    assert_eq!((&decided["state"], &decided["outcome"]["by"]), (&json!("cancelled"), &json!("restart")));

    let after = session.log().await;
    assert_eq!(after[..before.len()], before[..], "what was told stays as it was told");
    assert_eq!(
        kinds(&after[before.len()..]),
        ["permission.resolved", "tool_call.finished", "turn.interrupted", "session.state"]
    );
    let mut events = session.events_with("?after=latest").await;
    session.prompt(&runs("echo again")).await;
    let permission = events.until("permission.requested").await.data["permission"].clone();
    session.answer(&permission, "allow").await;
    events.until("turn.completed").await;
    let last = gander.model.requests().pop().unwrap().to_string();
    assert!(last.contains("the word is heron"), "{last}");
    gander.stop().await;
}

#[tokio::test]
async fn a_wake_that_fails_fails_the_turn_and_the_next_tries_again() {
    // The agent loads nothing: its word for every failure of a real one.
    let gander = Setup::fake().config("[goose.env]\nFAKE_AGENT_LOAD = \"error\"").start().await;
    let session = gander.session(&json!({})).await;
    session.hibernate().await;
    for generation in 0..2 {
        let turn = session.turn("echo hello").await;
        assert_eq!(
            (&turn["state"], &turn["error"]["class"]),
            (&json!("failed"), &json!("start_failed")),
            "{generation}"
        );
        let now = session.now().await;
        assert_eq!(now["state"], "failed");
        assert!(now["state_reason"].is_string(), "{now}");
    }
    assert_eq!(gander.descendants(), Vec::<u32>::new(), "a failed start leaves nothing");
    gander.stop().await;
}

#[tokio::test]
async fn a_wake_into_another_mode_than_asked_is_no_wake() {
    let gander = Setup::fake().config("[goose.env]\nFAKE_AGENT_LOAD = \"wrong-mode\"").start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    session.hibernate().await;
    let turn = session.turn("echo hello").await;
    // The fake agent takes the mode when it is set again after the load, as goose does.
    assert_eq!(turn["state"], "completed", "{turn}");
    assert_eq!(session.now().await["agent"]["mode"], "approve");
    gander.stop().await;
}

#[tokio::test]
async fn a_session_can_be_deleted_while_it_wakes() {
    let gander = Setup::fake().config("[goose.env]\nFAKE_AGENT_LOAD = \"hang\"").start().await;
    let session = gander.session(&json!({})).await;
    session.hibernate().await;
    session.prompt("echo hello").await;
    until("the agent is being started", || !gander.descendants().is_empty()).await;
    // One start for all who wake it: the second finds the first one's turn.
    let again = gander.request(Method::POST, &session.path("/turns")).json(&json!({"prompt": "echo twice"}));
    refusal(again, 409, "turn-in-progress").await;
    let mut events = session.events().await;
    session.delete().await;
    let told = events.rest().await;
    assert_eq!(kinds(&told)[told.len() - 2..], ["turn.cancelled", "session.deleted"]);
    assert_eq!(gander.descendants(), Vec::<u32>::new());
    gander.stop().await;
}
