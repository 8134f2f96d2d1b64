//! Stream tickets: what an `EventSource` shows, which can send no header.

use std::sync::Arc;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::json;

use crate::callers::{gander_of, token, write_tokens};
use crate::support::{EventStream, Gander, Setup, answer, refusal, text};

async fn ticket(gander: &Gander) -> String {
    let made = gander.post("/v1/stream-tickets", &json!({}), StatusCode::CREATED).await;
    assert_eq!(made["valid_unused_s"], 600);
    text(&made["ticket"])
}

/// A request as an `EventSource` sends it.
fn without_token(gander: &Gander, method: Method, path: &str) -> RequestBuilder {
    gander.client.request(method, format!("http://{}{path}", gander.address))
}

#[tokio::test]
async fn a_ticket_reads_its_callers_events_and_nothing_else() {
    let gander = gander_of(&[("alice", &[]), ("bob", &[])]).await;
    let session = gander.session(&json!({})).await;
    let bobs = gander.request_as(&token("bob"), Method::POST, "/v1/sessions").json(&json!({}));
    let bobs = text(&answer(bobs, StatusCode::CREATED).await["id"]);
    let ticket = ticket(&gander).await;

    let path = session.path(&format!("/events?ticket={ticket}&named=false"));
    let mut one = EventStream::open(without_token(&gander, Method::GET, &path)).await;
    let all = format!("/v1/events?session={}&ticket={ticket}", session.id);
    let mut all = EventStream::open(without_token(&gander, Method::GET, &all)).await;
    session.turn("say hello").await;
    let ended = one.until("turn.completed").await;
    assert_eq!(ended.name, None);
    all.until("turn.completed").await;
    let page = without_token(&gander, Method::GET, &path.replace("&named=false", ""));
    let page = answer(page.header("accept", "application/json"), StatusCode::OK).await;
    assert!(!page["events"].as_array().unwrap().is_empty(), "{page}");

    for (method, path, status, code) in [
        (Method::GET, format!("/v1/sessions/{bobs}/events?ticket={ticket}"), 404, "session-not-found"),
        (Method::GET, format!("/v1/sessions/{}?ticket={ticket}", session.id), 401, "unauthenticated"),
        (Method::GET, format!("/v1/sessions?ticket={ticket}"), 401, "unauthenticated"),
        (Method::POST, format!("/v1/sessions/{}/turns?ticket={ticket}", session.id), 401, "unauthenticated"),
        (Method::POST, format!("/v1/stream-tickets?ticket={ticket}"), 401, "unauthenticated"),
        (Method::GET, session.path("/events?ticket=gander_ticket_00"), 401, "unauthenticated"),
        (Method::GET, session.path("/events?ticket="), 401, "unauthenticated"),
        // A proxy may hide another one in its log than the one that counts.
        (Method::GET, session.path(&format!("/events?ticket=a&ticket={ticket}")), 400, "malformed-request"),
    ] {
        refusal(without_token(&gander, method, &path), status, code).await;
    }
    // Who shows a token is who the token says, whatever the ticket.
    let with_both = gander.request_as(&token("bob"), Method::GET, &path);
    refusal(with_both, 404, "session-not-found").await;
    assert!(!gander.log().contains(&ticket));
}

#[tokio::test]
async fn a_ticket_outlives_a_restart_and_ends_with_its_token() {
    let callers: &[(&str, &[&str])] = &[("alice", &[]), ("bob", &[])];
    let mut gander = gander_of(callers).await;
    let ticket = ticket(&gander).await;
    let path = format!("/v1/events?ticket={ticket}");
    let _in_use = EventStream::open(without_token(&gander, Method::GET, &path)).await;
    gander.signal("KILL");
    gander.ended().await;

    let dir = Arc::clone(&gander.dir);
    let file = dir.path().join("tokens.toml").to_str().unwrap().to_owned();
    let gander = Setup::fake().dir(Arc::clone(&dir)).env("GANDER_AUTH__TOKENS_FILE", &file).start().await;
    let mut stream = EventStream::open(without_token(&gander, Method::GET, &path)).await;
    write_tokens(dir.path(), &callers[1..]);
    while stream.next().await.is_some() {}
    refusal(without_token(&gander, Method::GET, &path), 401, "unauthenticated").await;
}

#[tokio::test]
async fn a_caller_has_so_many_tickets() {
    let gander = Setup::fake().config("[limits]\nstream_tickets_per_caller = 1").start().await;
    let ticket = ticket(&gander).await;
    refusal(gander.request(Method::POST, "/v1/stream-tickets"), 503, "at-capacity").await;
    let path = format!("/v1/events?follow=false&ticket={ticket}");
    EventStream::open(without_token(&gander, Method::GET, &path)).await.rest().await;
}
