//! The inbox: what all of a caller's sessions ask, waited for over HTTP.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::callers::{gander_of, token, write_tokens};
use crate::support::{
    Chance, EventStream, Gander, PATIENCE, Session, Setup, answer, kinds, refusal, text, until_async,
};

fn inbox(gander: &Gander, caller: &str, query: &str) -> RequestBuilder {
    gander.request_as(&token(caller), Method::GET, &format!("/v1/permissions?state=pending{query}"))
}

async fn found(request: RequestBuilder) -> Vec<Value> {
    answer(request, StatusCode::OK).await["permissions"].as_array().unwrap().clone()
}

async fn session_of<'a>(gander: &'a Gander, caller: &str) -> Session<'a> {
    let request = gander.request_as(&token(caller), Method::POST, "/v1/sessions");
    let snapshot = answer(request.json(&json!({"mode": "approve"})), StatusCode::CREATED).await;
    Session { gander, id: text(&snapshot["id"]), snapshot }
}

/// Lets the session ask.
async fn ask(session: &Session<'_>, caller: &str) {
    let request = session.gander.request_as(&token(caller), Method::POST, &session.path("/turns"));
    answer(request.json(&json!({"prompt": "ask"})), StatusCode::ACCEPTED).await;
}

async fn reject(gander: &Gander, caller: &str, permission: &Value) {
    let path =
        format!("/v1/sessions/{}/permissions/{}", text(&permission["session_id"]), text(&permission["id"]));
    let request = gander.request_as(&token(caller), Method::POST, &path);
    answer(request.json(&json!({"decision": "reject"})), StatusCode::OK).await;
}

#[tokio::test]
async fn no_question_is_missed_whenever_it_is_asked() {
    let gander = gander_of(&[("alice", &[])]).await;
    let mut chance = Chance::new("inbox");
    let sessions = [session_of(&gander, "alice").await, session_of(&gander, "alice").await];
    for round in 0..20 {
        let session = &sessions[round % 2];
        // Before, during and after the look into the list.
        let (early, late) = (chance.span(Duration::from_millis(6)), chance.span(Duration::from_millis(6)));
        let waiting = async {
            tokio::time::sleep(early).await;
            found(inbox(&gander, "alice", "&wait_s=300&limit=1")).await
        };
        let asking = async {
            tokio::time::sleep(late).await;
            ask(session, "alice").await;
        };
        let (found, ()) = tokio::time::timeout(PATIENCE, async { tokio::join!(waiting, asking) })
            .await
            .expect("a question was missed");
        assert_eq!(found[0]["session_id"], json!(session.id));
        reject(&gander, "alice", &found[0]).await;
        until_idle(session).await;
    }
    gander.stop().await;
}

async fn until_idle(session: &Session<'_>) {
    until_async("the turn is over", || async { session.now().await["state"] == "idle" }).await;
}

#[tokio::test]
async fn everybody_waits_for_their_own_questions_and_an_admin_for_all() {
    let gander = gander_of(&[("alice", &[]), ("bob", &[]), ("root", &["admin"])]).await;
    let bobs = session_of(&gander, "bob").await;
    let (of_bob, of_root) = (inbox(&gander, "bob", "&wait_s=300"), inbox(&gander, "root", "&wait_s=300"));
    let of_alice = inbox(&gander, "alice", "&wait_s=1");
    let (of_bob, of_root, of_alice, ()) =
        tokio::join!(found(of_bob), found(of_root), found(of_alice), ask(&bobs, "bob"));
    assert_eq!(of_alice, Vec::<Value>::new(), "it does not exist for her");
    assert_eq!((of_bob.len(), &of_bob), (1, &of_root));
    assert_eq!(of_bob[0]["session_id"], json!(bobs.id));

    // Told as events too, also by the family of their types.
    let path = "/v1/events?types=permission.*&follow=false";
    for (caller, expected) in
        [("bob", vec!["permission.requested"]), ("root", vec!["permission.requested"]), ("alice", vec![])]
    {
        let events =
            EventStream::open(gander.request_as(&token(caller), Method::GET, path)).await.rest().await;
        assert_eq!(kinds(&events), expected, "{caller}");
    }
    // What is decided is waited for no more.
    reject(&gander, "bob", &of_bob[0]).await;
    assert_eq!(found(inbox(&gander, "root", "&wait_s=1")).await, Vec::<Value>::new());
    gander.stop().await;
}

#[tokio::test]
async fn who_waits_sees_what_is_asked() {
    let gander = Setup::fake().config("[permissions]\non_no_subscriber = \"reject\"").start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let unseen = session.turn("ask").await;
    assert_eq!(unseen["text"], "reject_once", "{unseen}");
    let path = "/v1/permissions?state=pending&wait_s=300";
    let (seen, _) = tokio::join!(found(gander.request(Method::GET, path)), async {
        // So that it waits by then: before that nobody sees the question.
        tokio::time::sleep(Duration::from_millis(300)).await;
        session.prompt("ask").await
    });
    assert_eq!(session.answer(&seen[0], "allow").await["outcome"]["decision"], "allow");
    gander.stop().await;
}

#[tokio::test]
async fn the_list_has_pages_and_only_the_first_one_is_waited_for() {
    let gander = gander_of(&[("alice", &[])]).await;
    let sessions = join_all((0..3).map(|_| session_of(&gander, "alice"))).await;
    for session in &sessions {
        ask(session, "alice").await;
        // Newest first: one after the other.
        let mut events = EventStream::open(gander.request(Method::GET, &session.path("/events"))).await;
        events.until("permission.requested").await;
    }
    let first = answer(inbox(&gander, "alice", "&wait_s=300&limit=2"), StatusCode::OK).await;
    let cursor = text(&first["next_cursor"]);
    let second = answer(inbox(&gander, "alice", &format!("&limit=2&cursor={cursor}")), StatusCode::OK).await;
    assert_eq!(second["next_cursor"], Value::Null);
    let all =
        first["permissions"].as_array().unwrap().iter().chain(second["permissions"].as_array().unwrap());
    let of: Vec<&Value> = all.map(|permission| &permission["session_id"]).collect();
    assert_eq!(of, [&json!(sessions[2].id), &json!(sessions[1].id), &json!(sessions[0].id)]);
    for query in [
        format!("?state=pending&wait_s=1&cursor={cursor}"),
        "?wait_s=1".into(),
        "?state=resolved&wait_s=1".into(),
    ] {
        let request = gander.request(Method::GET, &format!("/v1/permissions{query}"));
        let problem = refusal(request, 400, "malformed-request").await;
        assert!(text(&problem["detail"]).contains("wait_s"), "{problem}");
    }
    gander.stop().await;
}

#[tokio::test]
async fn those_who_wait_are_counted_and_let_go_at_the_end() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    write_tokens(dir.path(), &[("alice", &[]), ("bob", &[])]);
    let file = dir.path().join("tokens.toml").to_str().unwrap().to_owned();
    let mut gander = Setup::fake()
        .dir(Arc::clone(&dir))
        .config("[limits]\nstreams_per_caller = 2")
        .env("GANDER_AUTH__TOKENS_FILE", &file)
        .start()
        .await;
    let mut waiting = JoinSet::new();
    for caller in ["alice", "alice", "bob"] {
        let request = inbox(&gander, caller, "&wait_s=300");
        waiting.spawn(async move {
            // The attempts below take a place now and then.
            loop {
                let answer = request.try_clone().unwrap().send().await.unwrap();
                if answer.status() != StatusCode::SERVICE_UNAVAILABLE {
                    return answer.json::<Value>().await.unwrap()["permissions"].clone();
                }
            }
        });
    }
    // A third one is one too many, as soon as the first two wait.
    until_async("both are counted", || async {
        let status = inbox(&gander, "alice", "&wait_s=1").send().await.unwrap().status();
        status == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    refusal(inbox(&gander, "alice", "&wait_s=1"), 503, "at-capacity").await;
    assert_eq!(found(inbox(&gander, "alice", "")).await, Vec::<Value>::new(), "a look is no wait");
    write_tokens(dir.path(), &[("alice", &[])]);
    let of_bob = tokio::time::timeout(PATIENCE, waiting.join_next()).await.expect("bob still waits");
    assert_eq!(of_bob.unwrap().unwrap(), json!([]));
    gander.signal("TERM");
    while let Some(answer) =
        tokio::time::timeout(PATIENCE, waiting.join_next()).await.expect("one still waits")
    {
        assert_eq!(answer.unwrap(), json!([]));
    }
    assert!(gander.ended().await.success());
}
