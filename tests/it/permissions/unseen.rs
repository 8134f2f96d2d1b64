//! Questions that nobody would see, and callers who may not allow in advance.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{shell, until_asked};
use crate::support::{EventStream, Gander, Session, Setup, answer, only, refusal};

const REJECT: &str = "[permissions]\non_no_subscriber = \"reject\"";

/// The one outcome of the session's last turn.
async fn outcome(session: &Session<'_>) -> Value {
    let log = session.log().await;
    only(&log, "permission.resolved").data["permission"]["outcome"].clone()
}

async fn stream(gander: &Gander, token: &str, path: &str) -> EventStream {
    EventStream::open(gander.request_as(token, Method::GET, path)).await
}

#[tokio::test]
async fn a_question_that_nobody_would_see_is_rejected_at_once() {
    let gander = Setup::real().config(REJECT).start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    // Neither who waits for the turn nor who only wants other events sees it.
    let _deltas = session.events_with("?types=message.delta").await;
    let turn = session.turn(&shell("touch made")).await;
    assert_eq!(turn["text"], "That was it.");
    let outcome = outcome(&session).await;
    assert_eq!(
        (&outcome["decision"], &outcome["by"], &outcome["rule"]),
        (&json!("reject"), &json!("policy"), &Value::Null)
    );
    assert!(outcome["reason"].as_str().unwrap().contains("on_no_subscriber"), "{outcome}");
    let states = session.log().await;
    assert!(!states.iter().any(|event| event.data["state"] == "awaiting_permission"));

    // A session may wait all the same.
    let waits = json!({"mode": "approve", "permission_policy": {"on_no_subscriber": "wait"}});
    let waiting = gander.session(&waits).await;
    let turn = waiting.prompt(&shell("touch made")).await;
    let page = waiting.path("/events?types=permission.requested&wait_s=30");
    let request = gander.request(Method::GET, &page).header("accept", "application/json");
    let asked = answer(request, StatusCode::OK).await["events"][0]["permission"].clone();
    waiting.answer(&asked, "allow").await;
    let ended = waiting.events().await.until("turn.completed").await;
    assert_eq!(ended.data["turn_id"], turn["id"]);
    gander.stop().await;
}

#[tokio::test]
async fn whoever_reads_and_may_answer_is_waited_for() {
    let tokens = [("alice", &[][..]), ("reader", &["read", "prompt"][..]), ("root", &["admin"][..])];
    let gander = crate::callers::gander_with(&tokens, REJECT).await;
    let token = crate::callers::token;
    let body = json!({"mode": "approve"});
    let of = async |name: &str| {
        let request = gander.request_as(&token(name), Method::POST, "/v1/sessions").json(&body);
        answer(request, StatusCode::CREATED).await["id"].as_str().unwrap().to_owned()
    };
    let state_of = async |id: &str| {
        answer(gander.request_as(&token("root"), Method::GET, &format!("/v1/sessions/{id}")), StatusCode::OK)
            .await["state"]
            .clone()
    };
    let prompt = |name: &str, id: &str| {
        gander
            .request_as(&token(name), Method::POST, &format!("/v1/sessions/{id}/turns"))
            .json(&json!({"prompt": "ask\necho done"}))
    };
    // The turn's own stream, from its first event on.
    let id = of("alice").await;
    let mut turn = EventStream::open(prompt("alice", &id)).await;
    turn.until("permission.requested").await;
    turn.until("session.state").await;
    assert_eq!(state_of(&id).await, "awaiting_permission");
    // One who may not answer is no help, nor is somebody who reads other sessions.
    let id = of("reader").await;
    let mut own = stream(&gander, &token("reader"), &format!("/v1/sessions/{id}/events?after=latest")).await;
    let _all = stream(&gander, &token("alice"), "/v1/events").await;
    answer(prompt("reader", &id), StatusCode::ACCEPTED).await;
    let told = own.through("turn.completed").await;
    assert_eq!(only(&told, "permission.resolved").data["permission"]["outcome"]["by"], "policy");
    // All of the owner's sessions, or an admin everybody's, or some by name.
    for (name, which) in [("alice", ""), ("alice", "&session="), ("root", "")] {
        let id = of("alice").await;
        let which = if which.is_empty() { String::new() } else { format!("{which}{id}") };
        let mut all = stream(&gander, &token(name), &format!("/v1/events?after=latest{which}")).await;
        answer(prompt("alice", &id), StatusCode::ACCEPTED).await;
        all.until("permission.requested").await;
        all.until("session.state").await;
        assert_eq!(state_of(&id).await, "awaiting_permission", "{name}");
    }
    gander.stop().await;
}

#[tokio::test]
async fn allowing_in_advance_takes_the_role_for_answering() {
    let tokens = [("reader", &["read", "prompt"][..]), ("alice", &[][..])];
    let gander = crate::callers::gander_with(&tokens, "").await;
    let post = |name: &str, policy: &Value| {
        let request = gander.request_as(&crate::callers::token(name), Method::POST, "/v1/sessions");
        request.json(&json!({ "permission_policy": policy }))
    };
    let allows = [
        json!({"rules": [{"action": "ask"}, {"action": "allow", "tool": "tree"}]}),
        json!({"default": "allow"}),
    ];
    let tightens =
        json!({"rules": [{"action": "reject", "tool": "shell"}], "default": "ask", "timeout_s": 5});
    for policy in &allows {
        assert_eq!(refusal(post("reader", policy), 403, "role-missing").await["role"], "approve");
        answer(post("alice", policy), StatusCode::CREATED).await;
    }
    let made = answer(post("reader", &tightens), StatusCode::CREATED).await;
    let path = format!("/v1/sessions/{}", made["id"].as_str().unwrap());
    for policy in &allows {
        let request = gander.request_as(&crate::callers::token("reader"), Method::PATCH, &path);
        let problem =
            refusal(request.json(&json!({ "permission_policy": policy })), 403, "role-missing").await;
        assert_eq!(problem["role"], "approve");
    }
    let request = gander.request_as(&crate::callers::token("reader"), Method::PATCH, &path);
    let changed = answer(request.json(&json!({"permission_policy": {"timeout_s": 9}})), StatusCode::OK).await;
    assert_eq!(
        (&changed["permission_policy"]["timeout_s"], changed["permission_policy"]["rules"].is_array()),
        (&json!(9), true)
    );
    gander.stop().await;
}

#[tokio::test]
async fn a_session_has_a_timeout_of_its_own() {
    let gander = Setup::real().start().await;
    let body = json!({"mode": "approve", "permission_policy": {"timeout_s": 1}});
    let session = gander.session(&body).await;
    let mut events = session.events_with("?after=latest").await;
    let (_, permission) = until_asked(&session, &mut events, &shell("touch made")).await;
    assert_eq!(permission["outcome"], Value::Null);
    let told = events.through("turn.completed").await;
    let resolved = &only(&told, "permission.resolved").data["permission"];
    assert_eq!((&resolved["state"], &resolved["outcome"]["by"]), (&json!("expired"), &json!("timeout")));
    gander.stop().await;
}
