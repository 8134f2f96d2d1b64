//! How turns end whose model fails, on the real goose: it ends most of them as a success, with a text.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    Event, Gander, Session, Setup, answer, assert_all_ended_once, carried, kinds, of_turn, only, refusal,
    script, text,
};

/// The provider's key, and the body of its errors. Neither may reach callers.
const KEY: &str = "sk-outcomes-4711";
const BODY: &str = "the upstream said no";

fn setup() -> Setup {
    Setup::real().env("OPENAI_API_KEY", KEY).env("OPENAI_TIMEOUT", "1")
}

/// A script of one reply that is an HTTP error.
fn http(status: u16, headers: &Value) -> String {
    let body = json!({"error": {"message": format!("{BODY}: see http://upstream.invalid:8080/{KEY}")}});
    script(&json!([[{"error": {"status": status, "headers": headers, "body": body}}]]))
}

/// Fails if anything of the provider's is in the events, but for what was asked and what the model said.
fn assert_clean(gander: &Gander, events: &[Event]) {
    let host = gander.model.address().to_string();
    let port = format!(":{}", gander.model.address().port());
    let leaks = [KEY, BODY, "http://", "127.0.0.1", "upstream.invalid", "oops", "<html>", &host, &port];
    for event in events.iter().filter(|event| event.kind() != "turn.started") {
        let text = event.data.to_string();
        for leak in leaks {
            assert!(!text.contains(leak), "{leak} in {text}");
        }
    }
}

/// The events of a turn that failed must say so, in this order and nowhere else.
async fn assert_failed(session: &Session<'_>, turn: &Value, class: &str, retryable: bool) -> Vec<Event> {
    assert_eq!(turn["state"], "failed", "{turn}");
    assert_eq!(turn["error"]["class"], class, "{turn}");
    assert_eq!(turn["error"]["retryable"], retryable, "{turn}");
    assert_eq!(turn["stop_reason"], Value::Null, "{turn}");
    let log = session.log().await;
    assert_all_ended_once(&log);
    let told = of_turn(&log, turn);
    assert_eq!(told.last().unwrap().kind(), "turn.failed");
    assert_clean(session.gander, &log);
    told
}

async fn assert_goes_on(session: &Session<'_>) {
    let turn = session.turn(&script(&json!([[{"text": "Here again."}]]))).await;
    assert_eq!((&turn["state"], &turn["text"]), (&json!("completed"), &json!("Here again.")));
    assert_eq!(turn["error"], Value::Null);
}

#[tokio::test]
async fn an_http_error_fails_the_turn_with_its_class() {
    let gander = setup().start().await;
    let session = gander.session(&json!({})).await;
    for (status, headers, class, retryable, says) in [
        (400, json!({}), "provider_rejected", false, "HTTP 400"),
        (401, json!({}), "provider_auth", false, "refused the key"),
        (402, json!({}), "provider_rejected", false, "no credit"),
        (403, json!({}), "provider_auth", false, "refused the key"),
        (404, json!({}), "provider_rejected", false, "HTTP 404"),
        (413, json!({}), "provider_rejected", false, "too long"),
        (422, json!({}), "provider_rejected", false, "HTTP 422"),
        (429, json!({}), "provider_rate_limit", true, "no more requests"),
        (429, json!({"retry-after": "1"}), "provider_rate_limit", true, "no more requests"),
        (500, json!({}), "provider_unavailable", true, "HTTP 500"),
        (503, json!({}), "provider_unavailable", true, "HTTP 503"),
    ] {
        let turn = session.turn(&http(status, &headers)).await;
        let told = assert_failed(&session, &turn, class, retryable).await;
        let message = text(&turn["error"]["message"]);
        assert!(message.contains(says), "{status}: {message}");
        assert!(!kinds(&told).contains(&"message.delta"), "{status}: goose's words are not the model's");
        assert_eq!(turn["text"], Value::Null, "{status}");
        // The other errors are no words but JSON-RPC errors.
        if ![401, 402, 403].contains(&status) {
            let codes = carried(&told, "notice", "code");
            let failures = codes.iter().filter(|code| ***code == "model-call-failed").count();
            assert_eq!((failures, codes.last()), (1, Some(&&json!("model-call-failed"))), "{status}");
        }
        assert_goes_on(&session).await;
    }
    gander.stop().await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_fails_the_turn_and_keeps_its_words() {
    let gander = setup().start().await;
    let session = gander.session(&json!({})).await;
    for break_off in [json!("drop"), json!({"malformed": "{oops"}), json!("hang")] {
        for start in
            [json!([{"text": "So far"}, {"text": " so good"}]), json!(["no_id", {"text": "So far so good"}])]
        {
            let mut steps = start.as_array().unwrap().clone();
            steps.push(break_off.clone());
            let turn = session.turn(&script(&json!([steps]))).await;
            let told = assert_failed(&session, &turn, "provider_unavailable", true).await;
            let words: Vec<String> = carried(&told, "message.delta", "text").into_iter().map(text).collect();
            assert_eq!(words.concat(), "So far so good", "{break_off}");
            assert_eq!(turn["text"], "So far so good", "{break_off}");
            only(&told, "notice");
            assert_goes_on(&session).await;
        }
    }
    gander.stop().await;
}

#[tokio::test]
async fn an_answer_without_content_fails_the_turn() {
    let gander = setup().start().await;
    let session = gander.session(&json!({})).await;
    let no_stream = json!({"error": {"status": 200, "body": format!("<html>{BODY}</html>")}});
    for reply in [json!([]), json!([no_stream]), json!([{"text": ""}]), json!(["no_id"])] {
        let turn = session.turn(&script(&json!([reply]))).await;
        let told = assert_failed(&session, &turn, "provider_empty", true).await;
        assert!(!kinds(&told).contains(&"message.delta"), "{reply}");
        assert_goes_on(&session).await;
    }
    gander.stop().await;
}

#[tokio::test]
async fn a_provider_that_does_not_answer_is_unavailable() {
    let gander = setup().start().await;
    let session = gander.session(&json!({})).await;
    let turn = session.turn(&script(&json!([["hang"]]))).await;
    assert_failed(&session, &turn, "provider_unavailable", true).await;
    assert_goes_on(&session).await;
    gander.stop().await;
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_unavailable() {
    for host in ["http://127.0.0.1:9", "http://no-such-host.invalid:9"] {
        let gander = setup().env("OPENAI_HOST", host).start().await;
        let session = gander.session(&json!({})).await;
        let turn = session.turn("Hello?").await;
        let told = assert_failed(&session, &turn, "provider_unavailable", true).await;
        assert!(text(&turn["error"]["message"]).contains("cannot be reached"), "{turn}");
        only(&told, "notice");
        for event in session.log().await {
            let event = event.data.to_string();
            assert!(!event.contains("no-such-host"), "{event}");
        }
        gander.stop().await;
    }
}

#[tokio::test]
async fn an_unknown_provider_and_one_without_its_key_make_no_session_and_one_that_lost_it_fails_the_turn() {
    for (provider, says) in [("no_such_provider", "no_such_provider"), ("anthropic", "ANTHROPIC_API_KEY")] {
        let gander = setup().env("GOOSE_PROVIDER", provider).start().await;
        let request = gander.request(Method::POST, "/v1/sessions").json(&json!({}));
        let problem = refusal(request, 502, "provider-not-configured").await;
        assert!(text(&problem["detail"]).contains(says), "{problem}");
        gander.stop().await;
    }

    let gander = setup().env("GOOSE_PROVIDER", "anthropic").env("ANTHROPIC_API_KEY", KEY).start().await;
    let id = gander.session(&json!({})).await.id;
    let dir = gander.dir.clone();
    gander.stop().await;
    let gander = setup().env("GOOSE_PROVIDER", "anthropic").dir(dir).start().await;
    let session = Session { gander: &gander, id, snapshot: Value::Null };
    let turn = session.turn("Hello?").await;
    assert_failed(&session, &turn, "provider_not_configured", false).await;
    gander.stop().await;
}

#[tokio::test]
async fn a_model_that_quotes_goose_completes_its_turn() {
    const ERROR: &str = "Ran into this error: Server error: Server error (500 Internal Server Error) at a host.\n\n\
        Please retry if you think this is a transient or recoverable error.";
    let gander = setup().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    for quote in [
        ERROR,
        "Network error: that is what it said.",
        "The model returned an empty response. Please resend your message to continue.",
        "I've reached the maximum number of actions I can do without user input. Would you like me to continue?",
        "Response stopped because the model reached its output-token limit.",
    ] {
        for steps in [
            json!([{"text": quote}]),
            json!(["no_id", {"text": quote}]),
            json!(["no_id", {"text": quote}, {"text": " Odd."}]),
            json!(["no_id", {"text": "It said: "}, {"text": quote}]),
        ] {
            let turn = session.turn(&script(&json!([steps]))).await;
            assert_eq!(
                (&turn["state"], &turn["stop_reason"]),
                (&json!("completed"), &json!("end_turn")),
                "{steps}"
            );
            let said: String =
                steps.as_array().unwrap().iter().filter_map(|step| step["text"].as_str()).collect();
            assert_eq!(turn["text"], said, "{steps}");
            let told = of_turn(&session.log().await, &turn);
            assert!(!kinds(&told).contains(&"notice"), "{steps}");
        }
    }
    let call = json!({"call": {"tool": "tree", "input": {"path": "."}}});
    let replies = json!([["no_id", {"text": ERROR}, call], ["no_id", {"text": "Done."}]]);
    let turn = session.turn(&script(&replies)).await;
    assert_eq!((&turn["state"], &turn["text"]), (&json!("completed"), &json!("Done.")));
    let told = of_turn(&session.log().await, &turn);
    assert_eq!(carried(&told, "message.delta", "text"), [ERROR, "Done."]);
    gander.stop().await;
}

#[tokio::test]
async fn a_model_call_that_fails_after_a_tool_fails_the_turn() {
    let gander = setup().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let body = json!({"error": {"message": BODY}});
    let turn = session
        .turn(&script(&json!([
            [{"text": "I look."}, {"call": {"tool": "tree", "input": {"path": "."}}}],
            [{"error": {"status": 500, "body": body}}],
        ])))
        .await;
    let told = assert_failed(&session, &turn, "provider_unavailable", true).await;
    assert_eq!(turn["text"], "I look.");
    only(&told, "tool_call.finished");
    assert_goes_on(&session).await;
    gander.stop().await;
}

#[tokio::test]
async fn limits_are_told_by_the_stop_reason() {
    let gander = setup().env("GOOSE_MAX_TURNS", "1").start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let call = json!({"call": {"tool": "tree", "input": {"path": "."}}});
    for (steps, stop_reason, notice) in [
        (json!([{"text": "Long"}, {"finish": "length"}]), "max_tokens", Some("max-tokens")),
        (json!(["no_id", {"text": "Long"}, {"finish": "length"}]), "max_tokens", Some("max-tokens")),
        (json!([{"text": "Long"}, call]), "max_turn_requests", Some("max-turn-requests")),
        (json!(["no_id", {"text": "Long"}, call]), "max_turn_requests", Some("max-turn-requests")),
        (json!([{"text": "Long"}]), "end_turn", None),
    ] {
        let turn = session.turn(&script(&json!([steps, [{"text": "More"}]]))).await;
        assert_eq!(
            (&turn["state"], &turn["stop_reason"]),
            (&json!("completed"), &json!(stop_reason)),
            "{steps}"
        );
        assert_eq!((&turn["text"], &turn["error"]), (&json!("Long"), &Value::Null), "{steps}");
        let told = of_turn(&session.log().await, &turn);
        let codes: Vec<&Value> = carried(&told, "notice", "code");
        assert_eq!(codes, notice.iter().collect::<Vec<_>>(), "{steps}");
    }
    gander.stop().await;
}

#[tokio::test]
async fn a_failed_turn_reads_the_same_everywhere() {
    let gander = setup().start().await;
    let session = gander.session(&json!({})).await;
    let turn = session.turn(&http(500, &json!({}))).await;
    let path = session.path(&format!("/turns/{}", text(&turn["id"])));
    let request = gander.request(Method::GET, &path);
    assert_eq!(answer(request, StatusCode::OK).await, turn);
    let log = session.log().await;
    let told = only(&log, "turn.failed");
    for field in ["state", "error", "text", "stop_reason", "last_event_id"] {
        assert_eq!(told.data["turn"][field], turn[field], "{field}");
    }
    let messages = gander.get(&session.path("/messages")).await;
    let roles: Vec<&Value> =
        messages["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user"], "goose's words are no message: {messages}");
    assert!(!gander.log().contains(KEY) && !gander.log().contains(BODY), "{}", gander.log());
}
