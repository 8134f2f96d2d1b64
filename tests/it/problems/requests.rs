//! Requests that cannot be taken.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::{no_session, pointers};
use crate::support::{Event, Gander, Session, Setup, refusal, text, until_async};

#[tokio::test]
async fn extensions_that_cannot_be_had_are_refused_before_anything_starts() {
    let gander = Setup::fake()
        .config("[goose]\nbuiltins = [\"todo\"]\ndisabled_extensions = [\"developer\", \"memory\"]")
        .start()
        .await;
    let body = json!({"builtins": ["todo", "develper", "memory"], "disabled_extensions": "apps,summarise,kubernetes"});
    let problem = no_session(&gander, &body, 422, "invalid-request").await;
    assert_eq!(
        pointers(&problem),
        ["/builtins/1", "/builtins/2", "/disabled_extensions/1", "/disabled_extensions/2"]
    );
    let details: Vec<String> =
        problem["errors"].as_array().unwrap().iter().map(|error| text(&error["detail"])).collect();
    assert!(details[0].contains("did you mean developer?"), "{details:?}");
    assert!(details[1].contains("switched this extension off"), "{details:?}");
    assert!(details[2].contains("did you mean summarize?"), "{details:?}");
    assert!(!details[3].contains("did you mean"), "{details:?}");
    // Without the shell nobody gets what could bring it back; goose's own ways to write a name count.
    for name in ["extensionmanager", "Extension_Manager"] {
        no_session(&gander, &json!({"builtins": [name]}), 422, "invalid-request").await;
    }
    gander
        .session(&json!({"builtins": ["todo", "Code_Execution"], "disabled_extensions": ["developer"]}))
        .await;
    gander.stop().await;
}

/// A session with everything that its agent tells by itself, and what can be seen of it.
async fn settled_session(gander: &Gander) -> (Session<'_>, (Value, Vec<Event>)) {
    let session = gander.session(&json!({"metadata": {"a": "b"}})).await;
    session.events().await.until("commands.updated").await;
    let before = (session.now().await, session.log().await);
    (session, before)
}

/// The session must be as it was, be the only one, and work.
async fn nothing_has_changed(session: &Session<'_>, before: (Value, Vec<Event>)) {
    let now = (session.now().await, session.log().await);
    assert!(now == before, "something has changed: {}", now.0);
    assert_eq!(session.gander.get("/v1/sessions").await["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(session.turn("echo still here").await["text"], "still here");
}

#[tokio::test]
async fn bodies_that_cannot_be_taken_are_refused_and_change_nothing() {
    let gander = Setup::fake().env("GANDER_LIMITS__BODY_BYTES", "4096").start().await;
    let (session, before) = settled_session(&gander).await;
    let at = |method: Method, rest: &str| gander.request(method, &session.path(rest));
    let sessions = || gander.request(Method::POST, "/v1/sessions");

    // Unknown fields and wrong types, at the top and deeper.
    for (request, pointer) in [
        (sessions().json(&json!({"permision_policy": {}})), "/permision_policy"),
        (sessions().json(&json!({"title": 7})), "/title"),
        (sessions().json(&json!({"mode": "yolo"})), "/mode"),
        (sessions().json(&json!({"metadata": {"a": 7}})), "/metadata/a"),
        (sessions().json(&json!({"metadata": {"a/b~": {}}})), "/metadata/a~1b~0"),
        (sessions().json(&json!({"builtins": ["todo", 7]})), "/builtins/1"),
        (sessions().json(&json!({"env": {"OPENAI_HOST": "http://evil.example"}})), "/env/OPENAI_HOST"),
        (sessions().json(&json!({"env": {"LD_PRELOAD": "/x"}})), "/env/LD_PRELOAD"),
        (sessions().json(&json!([])), ""),
        (at(Method::PATCH, "").json(&json!({"cwd": "/"})), "/cwd"),
        (at(Method::PATCH, "").json(&json!({"mode": null})), "/mode"),
        (at(Method::PATCH, "").json(&json!({"metadata": {"c": 7}})), "/metadata/c"),
        (at(Method::POST, "/turns").json(&json!({"prompt": "a", "when": "busy"})), "/when"),
        (at(Method::POST, "/turns").json(&json!({})), ""),
        (at(Method::POST, "/turns").json(&json!({"prompt": " \n"})), "/prompt"),
        (at(Method::POST, "/turns").json(&json!({"prompt": []})), "/prompt"),
        (at(Method::POST, "/turns").json(&json!({"prompt": 7})), "/prompt"),
        (prompt(&at, &json!({"type": "text", "txt": "a"})), "/prompt/0/text"),
        (prompt(&at, &json!({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"})), "/prompt/0/type"),
        (
            prompt(&at, &json!({"type": "resource_link", "uri": "file:///etc/passwd", "name": "x"})),
            "/prompt/0/uri",
        ),
        (prompt(&at, &json!({"type": "image", "mimeType": "image/png", "data": "?"})), "/prompt/0/data"),
        (
            prompt(&at, &json!({"type": "resource", "resource": {"uri": "x", "blob": "AAAA"}})),
            "/prompt/0/resource/blob",
        ),
    ] {
        let problem = refusal(request, 422, "invalid-request").await;
        assert_eq!(pointers(&problem)[0], pointer, "{problem}");
    }

    // What is no JSON, no JSON by its name, and too much of it.
    let raw = |body: &'static str, kind: &str| {
        gander.request(Method::POST, "/v1/sessions").header("content-type", kind).body(body)
    };
    for body in ["{", "{\"title\": }", "{}{}", "null x", "\u{feff}{}"] {
        refusal(raw(body, "application/json"), 400, "malformed-request").await;
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
        refusal(raw("{}", kind), 415, "unsupported-media-type").await;
    }
    let large = || json!({"title": "x".repeat(5000)});
    for request in [sessions(), at(Method::PATCH, ""), at(Method::POST, "/turns")] {
        refusal(request.json(&large()), 413, "body-too-large").await;
    }
    refusal(sessions().json(&large()).header("idempotency-key", "k"), 413, "body-too-large").await;
    // In one piece: a client that still writes when the answer is there may find the connection closed.
    let parts = futures_util::stream::iter([Ok::<_, std::io::Error>("{\"title\": \"".repeat(600))]);
    let unannounced = sessions().header("content-type", "application/json");
    let refused = unannounced.body(reqwest::Body::wrap_stream(parts)).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    // The rest is not read, so nothing more can be sent on this connection.
    assert_eq!(refused.headers()["connection"], "close");
    assert_eq!(refused.json::<Value>().await.unwrap()["code"], "body-too-large");

    nothing_has_changed(&session, before).await;
    gander.stop().await;
}

#[tokio::test]
async fn queries_headers_ids_and_paths_that_mean_nothing_are_refused() {
    let gander = Setup::fake().start().await;
    let (session, before) = settled_session(&gander).await;
    let at = |method: Method, rest: &str| gander.request(method, &session.path(rest));
    for query in [
        "?limit=0",
        "?limit=201",
        "?limit=x",
        "?cursor=x",
        "?state=asleep",
        "?sort=title",
        "?limit=1&limit=2",
    ] {
        refusal(gander.request(Method::GET, &format!("/v1/sessions{query}")), 400, "malformed-request").await;
    }
    for query in
        ["?after=x", "?after=-1", "?after=", "?follow=maybe", "?types=turn.startd", "?named=1", "?since=1"]
    {
        refusal(at(Method::GET, &format!("/events{query}")), 400, "malformed-request").await;
    }
    for id in ["x", "-1", "1.5", "99999999999999999999999"] {
        refusal(at(Method::GET, "/events").header("last-event-id", id), 400, "malformed-request").await;
    }
    let waits = at(Method::POST, "/turns").json(&json!({"prompt": "echo a"})).header("prefer", "wait=long");
    refusal(waits, 400, "malformed-request").await;

    // Ids and paths that name nothing.
    let nothing = "01890000-0000-7000-8000-000000000000";
    for id in ["x", nothing, "%00", "..%2f"] {
        refusal(gander.request(Method::GET, &format!("/v1/sessions/{id}")), 404, "session-not-found").await;
        refusal(gander.request(Method::DELETE, &format!("/v1/sessions/{id}")), 404, "session-not-found")
            .await;
        refusal(at(Method::GET, &format!("/turns/{id}")), 404, "turn-not-found").await;
        refusal(at(Method::POST, &format!("/turns/{id}/cancel")), 404, "turn-not-found").await;
        refusal(at(Method::GET, &format!("/permissions/{id}")), 404, "permission-not-found").await;
        let decide = at(Method::POST, &format!("/permissions/{id}")).json(&json!({"decision": "allow"}));
        refusal(decide, 404, "permission-not-found").await;
    }
    for path in ["/", "/v1", "/v1/", "/v1/session", "/v2/sessions", "/v1/sessions/", "/healthz/x"] {
        refusal(gander.request(Method::GET, path), 404, "not-found").await;
    }
    for (method, path, allowed) in [
        (Method::PUT, "/v1/sessions", "GET,HEAD,POST"),
        (Method::POST, "/v1/info", "GET,HEAD"),
        (Method::DELETE, "/healthz", "GET,HEAD"),
    ] {
        refusal(gander.request(method.clone(), path), 405, "method-not-allowed").await;
        let response = gander.request(method, path).send().await.unwrap();
        let mut allow: Vec<&str> = response.headers()["allow"].to_str().unwrap().split(',').collect();
        allow.sort_unstable();
        assert_eq!(allow.join(","), allowed);
    }

    // The caller's own request id comes back in the answer and in the problem.
    let named = gander.request(Method::GET, "/v1/nothing").header("x-request-id", "my-id-7");
    assert_eq!(refusal(named, 404, "not-found").await["request_id"], "my-id-7");

    nothing_has_changed(&session, before).await;
    gander.stop().await;
}

/// A prompt of one content block.
fn prompt(at: &impl Fn(Method, &str) -> RequestBuilder, block: &Value) -> RequestBuilder {
    at(Method::POST, "/turns").json(&json!({"prompt": [block]}))
}

#[tokio::test]
async fn over_capacity_callers_are_told_when_to_come_again() {
    for (limit, says) in
        [("GANDER_SESSIONS__MAX", "sessions.max"), ("GANDER_SESSIONS__MAX_RUNNING", "max_running")]
    {
        let gander = Setup::fake().env(limit, "2").start().await;
        let first = gander.session(&json!({})).await;
        let second = gander.session(&json!({})).await;
        // An agent with nothing to do would be let go for another.
        let mut hanging = Vec::new();
        for session in [&first, &second] {
            hanging.push(text(&session.prompt("hang").await["id"]));
        }
        let problem = refusal(gander.request(Method::POST, "/v1/sessions"), 503, "at-capacity").await;
        assert!(text(&problem["detail"]).contains(says), "{problem}");
        assert!(problem["retry_after_s"].as_u64().unwrap() > 0);
        let response = gander.request(Method::POST, "/v1/sessions").send().await.unwrap();
        assert_eq!(response.headers()["retry-after"], problem["retry_after_s"].to_string().as_str());
        assert_eq!(gander.get("/v1/sessions").await["sessions"].as_array().unwrap().len(), 2);
        second.cancel(&json!({"id": hanging[1]})).await;
        until_async("the turn is over", || async { second.now().await["current_turn"].is_null() }).await;
        assert_eq!(second.turn("echo on").await["text"], "on");
        // A place that is free again is given out again.
        first.delete().await;
        gander.session(&json!({})).await;
        gander.stop().await;
    }
    // Failed starts take no place.
    let gander = Setup::fake()
        .env("GANDER_SESSIONS__MAX_RUNNING", "1")
        .env("GANDER_SESSIONS__MAX", "1")
        .env("GANDER_GOOSE__ENV__FAKE_AGENT_NEW", "error")
        .start()
        .await;
    for _ in 0..3 {
        no_session(&gander, &json!({}), 502, "agent-start-failed").await;
    }
    gander.stop().await;
}
