//! `Idempotency-Key`: the same request again gets the answer of the first and does nothing.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{EventStream, Gander, Setup, answer, kinds, refusal, text, until_async};

/// A POST with a key.
fn post(gander: &Gander, path: &str, key: &str, body: &Value) -> RequestBuilder {
    gander.request(Method::POST, path).header("idempotency-key", key).json(body)
}

/// What an answer says, but for the headers that every answer has of its own.
async fn told(response: Response) -> (StatusCode, Vec<(String, String)>, String) {
    let status = response.status();
    let own = ["date", "x-request-id"];
    let headers = response.headers().iter().filter(|(name, _)| !own.contains(&name.as_str()));
    let mut headers: Vec<(String, String)> =
        headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    headers.sort();
    (status, headers, response.text().await.unwrap())
}

async fn session_count(gander: &Gander) -> usize {
    gander.get("/v1/sessions").await["sessions"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_session_is_made_once_also_over_a_restart() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let gander = Setup::fake().dir(Arc::clone(&dir)).start().await;
    let body = json!({"title": "Once", "metadata": {"a": "b"}});
    let first = told(post(&gander, "/v1/sessions", "key 1", &body).send().await.unwrap()).await;
    assert_eq!(first.0, StatusCode::CREATED);
    assert!(first.1.iter().any(|(name, _)| name == "location"), "{:?}", first.1);
    let again = told(post(&gander, "/v1/sessions", "key 1", &body).send().await.unwrap()).await;
    assert_eq!(again, first);
    assert_eq!(session_count(&gander).await, 1);
    // The key belongs to this body, this path and no other.
    let other = json!({"title": "Twice", "metadata": {"a": "b"}});
    refusal(post(&gander, "/v1/sessions", "key 1", &other), 409, "idempotency-key-reused").await;
    assert_eq!(session_count(&gander).await, 1);
    let id = text(&serde_json::from_str::<Value>(&first.2).unwrap()["id"]);
    let turns = format!("/v1/sessions/{id}/turns");
    answer(post(&gander, &turns, "key 1", &json!({"prompt": "echo a"})), StatusCode::ACCEPTED).await;
    let second = told(post(&gander, "/v1/sessions", "key 2", &body).send().await.unwrap()).await;
    assert_ne!(second.2, first.2);
    assert_eq!(session_count(&gander).await, 2);
    gander.stop().await;

    let gander = Setup::fake().dir(dir).start().await;
    let before = session_count(&gander).await;
    let again = told(post(&gander, "/v1/sessions", "key 1", &body).send().await.unwrap()).await;
    assert_eq!(again, first);
    refusal(post(&gander, "/v1/sessions", "key 1", &other), 409, "idempotency-key-reused").await;
    assert_eq!(session_count(&gander).await, before);
    gander.stop().await;
}

/// Whether a file of the storage folder holds the text.
fn is_on_disk(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return is_on_disk(&path, text);
        }
        // One that goes at this moment holds nothing.
        fs::read(path).unwrap_or_default().windows(text.len()).any(|part| part == text.as_bytes())
    })
}

#[tokio::test]
async fn a_deleted_session_is_not_told_of_again_nor_made_again() {
    let gander = Setup::fake().start().await;
    let body = json!({"title": "embarrassing title"});
    let made = answer(post(&gander, "/v1/sessions", "k", &body), StatusCode::CREATED).await;
    let path = format!("/v1/sessions/{}", text(&made["id"]));
    let turns = format!("{path}/turns");
    let prompt = json!({"prompt": "echo embarrassing prompt"});
    let waiting = || post(&gander, &turns, "k", &prompt).header("prefer", "wait=30");
    let turn = answer(waiting(), StatusCode::OK).await;
    assert_eq!(answer(waiting(), StatusCode::OK).await, turn);
    assert!(is_on_disk(&gander.storage(), "embarrassing"));
    answer(gander.request(Method::DELETE, &path), StatusCode::NO_CONTENT).await;

    refusal(waiting(), 404, "session-not-found").await;
    refusal(post(&gander, "/v1/sessions", "k", &body), 404, "session-not-found").await;
    refusal(post(&gander, "/v1/sessions", "k", &json!({})), 409, "idempotency-key-reused").await;
    assert_eq!(session_count(&gander).await, 0);
    until_async("nothing of it is on disk", async || !is_on_disk(&gander.storage(), "embarrassing")).await;
    gander.stop().await;
}

#[tokio::test]
async fn what_made_nothing_may_be_tried_again() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events().await;
    let turn = session.prompt("ask").await;
    events.until("permission.requested").await;
    let turns = session.path("/turns");
    let body = json!({"prompt": "echo b"});
    refusal(post(&gander, &turns, "k", &body), 409, "turn-in-progress").await;
    let cancel = session.path(&format!("/turns/{}/cancel", text(&turn["id"])));
    let cancelled = answer(post(&gander, &cancel, "k", &json!({})), StatusCode::ACCEPTED).await;
    events.until("turn.cancelled").await;
    // Without the key this would be 409: the turn is over.
    assert_eq!(answer(post(&gander, &cancel, "k", &json!({})), StatusCode::ACCEPTED).await, cancelled);
    refusal(gander.request(Method::POST, &cancel), 409, "turn-not-running").await;
    let begun = answer(post(&gander, &turns, "k", &body), StatusCode::ACCEPTED).await;
    assert_eq!(answer(post(&gander, &turns, "k", &body), StatusCode::ACCEPTED).await, begun);
    for key in ["", &"k".repeat(256)] {
        refusal(post(&gander, &turns, key, &body), 400, "malformed-request").await;
    }
    gander.stop().await;
}

#[tokio::test]
async fn a_long_prompt_is_prompted_once_too() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({})).await;
    let turns = session.path("/turns");
    let body = json!({"prompt": format!("echo {}", "long ".repeat(1 << 20))});
    let prompt = || post(&gander, &turns, "k", &body).header("prefer", "wait=60");
    let first = answer(prompt(), StatusCode::OK).await;
    assert_eq!(answer(prompt(), StatusCode::OK).await["id"], first["id"]);
    assert_eq!(gander.get(&turns).await["turns"].as_array().unwrap().len(), 1);
    gander.stop().await;
}

#[tokio::test]
async fn two_at_once_are_one() {
    let gander = Setup::fake().start().await;
    let body = json!({"title": "One"});
    let calls = (0..8)
        .map(|_| async { told(post(&gander, "/v1/sessions", "same", &body).send().await.unwrap()).await });
    let answers = futures_util::future::join_all(calls).await;
    assert!(answers.iter().all(|one| *one == answers[0] && one.0 == StatusCode::CREATED), "{answers:?}");
    assert_eq!(session_count(&gander).await, 1);
    gander.stop().await;
}

#[tokio::test]
async fn a_turns_stream_comes_again_and_the_turn_does_not() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let gander = Setup::fake().dir(Arc::clone(&dir)).start().await;
    let session = gander.session(&json!({})).await;
    let turns = session.path("/turns");
    let body = json!({"prompt": "echo one\necho two"});
    let first = EventStream::open(post(&gander, &turns, "k", &body)).await.rest().await;
    assert_eq!(kinds(&first).first(), Some(&"turn.started"));
    assert_eq!(kinds(&first).last(), Some(&"turn.completed"));
    let again = EventStream::open(post(&gander, &turns, "k", &body)).await.rest().await;
    assert_eq!(again, first);
    refusal(post(&gander, &turns, "k", &json!({"prompt": "echo x"})), 409, "idempotency-key-reused").await;
    assert_eq!(gander.get(&turns).await["turns"].as_array().unwrap().len(), 1);
    let (path, id) = (turns.clone(), session.id.clone());
    gander.stop().await;

    let gander = Setup::fake().dir(dir).start().await;
    let again = EventStream::open(post(&gander, &path, "k", &body)).await.rest().await;
    assert_eq!(again, first, "session {id}");
    gander.stop().await;
}

#[tokio::test]
async fn a_caller_that_leaves_in_the_middle_still_gets_it_done() {
    let gander = Setup::fake().start().await;
    let body = json!({"title": "Left alone"});
    // By hand, so that the connection is gone before the answer.
    let text_body = body.to_string();
    let request = format!(
        "POST /v1/sessions HTTP/1.1\r\nHost: {0}\r\nAuthorization: Bearer {1}\r\nIdempotency-Key: left\r\n\
         Content-Type: application/json\r\nContent-Length: {2}\r\n\r\n{text_body}",
        gander.address,
        gander.token,
        text_body.len()
    );
    let mut connection = TcpStream::connect(gander.address).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    until_async("the request has come in", async || session_count(&gander).await == 1).await;
    drop(connection);
    let session = answer(post(&gander, "/v1/sessions", "left", &body), StatusCode::CREATED).await;
    assert_eq!(session["state"], "idle");
    assert_eq!(session_count(&gander).await, 1);

    // A caller that waits for a turn and leaves.
    let id = text(&session["id"]);
    let turns = format!("/v1/sessions/{id}/turns");
    let body = json!({"prompt": "ask\necho after"});
    let waiting = post(&gander, &turns, "turn", &body).header("prefer", "wait=60");
    let mut events =
        EventStream::open(gander.request(Method::GET, &format!("/v1/sessions/{id}/events?after=latest")))
            .await;
    let asked = {
        let waiting = waiting.send();
        tokio::pin!(waiting);
        tokio::select! {
            early = &mut waiting => panic!("{early:?}"),
            asked = events.until("permission.requested") => asked,
        }
    };
    let permission = text(&asked.data["permission"]["id"]);
    let path = format!("/v1/sessions/{id}/permissions/{permission}");
    gander.post(&path, &json!({"decision": "allow"}), StatusCode::OK).await;
    events.until("turn.completed").await;
    let again =
        answer(post(&gander, &turns, "turn", &body).header("prefer", "wait=60"), StatusCode::OK).await;
    assert_eq!(again["state"], "completed");
    assert_eq!(gander.get(&turns).await["turns"].as_array().unwrap().len(), 1);
    gander.stop().await;
}
