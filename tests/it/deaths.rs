//! How the death of an agent is told: at once, whoever still holds its pipes, and not again and again.

use std::fs::{File, OpenOptions};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Session, Setup, refusal, script, signal, text, until_async};

/// Begins a turn whose shell call goes on, and kills goose when it does; gives the notice and the turn's end.
async fn killed_in_a_turn(session: &Session<'_>, before: impl FnOnce(u32)) -> (Value, Value) {
    let mut events = session.events_with("?after=latest").await;
    let call = json!({"call": {"tool": "shell", "input": {"command": "echo runs; sleep 9999999"}}});
    session.prompt(&script(&json!([[call]]))).await;
    events.until("tool_call.output").await;
    let pid = session.now().await["agent"]["pid"].as_u64().unwrap().try_into().unwrap();
    before(pid);
    signal(pid, "KILL");
    let told = events.through("turn.interrupted").await;
    let notice = told.iter().find(|event| event.data["code"] == "agent-exited");
    let notice = notice.expect("a notice").data.clone();
    (notice, told.last().unwrap().data["turn"].clone())
}

#[tokio::test]
async fn a_death_is_told_while_somebody_still_holds_the_agents_pipes() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let mut held: Vec<File> = Vec::new();
    let (notice, turn) = killed_in_a_turn(&session, |pid| {
        // As whatever goose has started might: the reader sees no end of these pipes before this test ends.
        for descriptor in [1, 2] {
            let pipe = OpenOptions::new().write(true).open(format!("/proc/{pid}/fd/{descriptor}"));
            held.push(pipe.unwrap());
        }
    })
    .await;
    assert!(text(&notice["message"]).contains("signal 9"), "{notice}");
    assert_eq!(turn["error"]["class"], "agent_exited");
    assert_eq!(session.now().await["open_tool_calls"], json!([]));
    // The next turn has another goose, also while the old one's pipes are held.
    assert_eq!(session.turn(&script(&json!([[{"text": "alive"}]]))).await["text"], "alive");
    drop(held);
    gander.stop().await;
}

#[tokio::test]
async fn an_agent_that_dies_again_and_again_is_let_rest() {
    let gander = Setup::real().config("[crash]\ncooldown = \"2s\"").start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    for _ in 0..3 {
        assert_ne!(session.now().await["state"], "failed");
        killed_in_a_turn(&session, |_| {}).await;
    }
    let now = session.now().await;
    assert_eq!(now["state"], "failed", "{now}");
    let prompt = json!({"prompt": script(&json!([[{"text": "rested"}]]))});
    let again = || gander.request(Method::POST, &session.path("/turns")).json(&prompt);
    let refused = refusal(again(), 502, "agent-start-failed").await;
    assert!(refused["retry_after_s"].as_u64().is_some_and(|seconds| seconds <= 2), "{refused}");

    let mut events = session.events_with("?after=latest").await;
    until_async("the next turn is taken", || async {
        again().send().await.unwrap().status() == StatusCode::ACCEPTED
    })
    .await;
    let ended = events.until("turn.completed").await;
    assert_eq!(ended.data["turn"]["text"], "rested");
    gander.stop().await;
}
