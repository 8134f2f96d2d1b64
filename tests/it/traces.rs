//! Traces: a real collector is told of every request, turn, tool call and permission, in one tree.

use std::sync::Arc;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    CollectedSpan, Collector, Gander, Session, Setup, Takes, WORD, answer, figure, prompt_with_word, script,
    text, until, until_async,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLERS_SPAN: &str = "00f067aa0ba902b7";

const TURN: &str = "POST /v1/sessions/{session_id}/turns";

fn traceparent(sampled: bool) -> String {
    format!("00-{TRACE}-{CALLERS_SPAN}-0{}", u8::from(sampled))
}

async fn asked(session: &Session<'_>, traceparent: &str, body: &Value) -> Value {
    let request = session.gander.request(Method::POST, &session.path("/turns"));
    let request = request.header("traceparent", traceparent).header("x-request-id", "asked-1");
    answer(request.json(body), StatusCode::ACCEPTED).await
}

fn config(collector: &Collector, more: &str) -> String {
    format!("[log]\nformat = \"json\"\n{}\n{more}", collector.config())
}

/// A turn with a tool call that is asked for and allowed.
async fn turn_with_a_question(gander: &Gander) -> (String, Value) {
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events().await;
    let turn = asked(&session, &traceparent(true), &json!({"prompt": prompt_with_word()})).await;
    let permission = events.until("permission.requested").await.data["permission"].clone();
    session.answer(&permission, "allow").await;
    events.until("turn.completed").await;
    (session.id.clone(), turn)
}

#[tokio::test]
async fn a_turn_its_tool_calls_and_its_permissions_are_below_the_request_that_is_below_the_callers_span() {
    let collector = Collector::start(Takes::Everything).await;
    let more = "service_name = \"gander-test\"\n[traces.headers]\nauthorization = \"Bearer hush-hush\"";
    let mut gander = Setup::real().config(&config(&collector, more)).start().await;
    let (session, turn) = turn_with_a_question(&gander).await;
    // What has not been sent yet is sent at the end.
    gander.signal("TERM");
    assert!(gander.ended().await.success());

    let spans = collector.spans();
    let named = |name: &str| -> CollectedSpan {
        let mut found = spans.iter().filter(|span| span.name == name);
        let span = found.next().unwrap_or_else(|| panic!("{name} is not among {spans:#?}"));
        assert!(found.next().is_none(), "{name} is there once");
        span.clone()
    };
    let request = named(TURN);
    assert_eq!((request.trace.as_str(), request.parent.as_str()), (TRACE, CALLERS_SPAN));
    assert_eq!(
        (request.kind, request.service.as_str(), request.failed),
        (SpanKind::Server, "gander-test", false)
    );
    for (key, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/v1/sessions/{session_id}/turns"),
        ("url.path", &format!("/v1/sessions/{session}/turns")),
        ("http.response.status_code", "202"),
        ("client.address", "127.0.0.1"),
        // No proxy has said.
        ("url.scheme", ""),
        ("gander.request_id", "asked-1"),
    ] {
        assert_eq!(request.attribute(key), value, "{key}");
    }
    let turn_span = named("invoke_agent goose");
    assert_eq!((&turn_span.trace, &turn_span.parent), (&request.trace, &request.id));
    for (key, value) in [
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.conversation.id", &session),
        ("gen_ai.response.finish_reasons", "end_turn"),
        ("gander.turn.id", &text(&turn["id"])),
        ("gander.turn.state", "completed"),
        ("gander.request_id", "asked-1"),
    ] {
        assert_eq!(turn_span.attribute(key), value, "{key}");
    }
    assert!(turn_span.attribute("gen_ai.usage.input_tokens").parse::<u64>().unwrap() > 0);
    let call = named("execute_tool shell");
    let permission = named("permission shell");
    for below in [&call, &permission] {
        assert_eq!((&below.trace, &below.parent), (&turn_span.trace, &turn_span.id), "{}", below.name);
        assert!(below.nanos <= turn_span.nanos, "{below:?}");
    }
    assert_eq!(
        [call.attribute("gen_ai.tool.name"), call.attribute("gander.tool_call.status")],
        ["shell", "completed"]
    );
    assert_eq!(call.attribute("gen_ai.tool.call.id"), permission.attribute("gen_ai.tool.call.id"));
    assert_eq!(
        [permission.attribute("gander.permission.decision"), permission.attribute("gander.permission.by")],
        ["allow", "caller"]
    );
    // The call that made the session is in a trace of its own.
    let create = named("POST /v1/sessions");
    assert!(create.parent.is_empty() && create.trace != TRACE, "{create:?}");

    for (headers, body) in collector.requests() {
        assert_eq!(headers["authorization"], "Bearer hush-hush");
        assert_eq!(headers["content-type"], "application/x-protobuf");
        assert!(
            !body.windows(WORD.len()).any(|window| window == WORD.as_bytes()),
            "nothing of what was said"
        );
    }
    let log = gander.log();
    assert!(!log.contains("hush-hush") && !log.contains(WORD), "{log}");
    let ended = &gander.log_lines("turn ended")[0];
    assert_eq!((&ended["trace_id"], &ended["turn"]), (&json!(TRACE), &turn["id"]));
    let answered = gander.log_lines("answered");
    assert!(answered.iter().any(|line| line["span"]["trace_id"] == TRACE), "{answered:?}");
}

#[tokio::test]
async fn what_was_said_is_in_a_trace_when_that_is_asked_for() {
    let collector = Collector::start(Takes::Everything).await;
    let gander = Setup::real().config(&config(&collector, "content = true")).start().await;
    turn_with_a_question(&gander).await;
    let turn = collector.span("invoke_agent goose").await;
    assert!(turn.attribute("gen_ai.input.messages").contains(&format!("{WORD}?")), "{turn:?}");
    assert!(turn.attribute("gen_ai.output.messages").contains("has sung"), "{turn:?}");
    let call = collector.span("execute_tool shell").await;
    assert!(call.attribute("gen_ai.tool.call.arguments").contains("echo heron sings"), "{call:?}");
    assert!(call.attribute("gen_ai.tool.call.result").contains("heron sings"), "{call:?}");
    gander.stop().await;
}

#[tokio::test]
async fn a_collector_that_is_dead_or_silent_disturbs_nothing() {
    const FULL: &str = "spans are dropped, since more of them wait to be sent than may (traces.queue_spans)";
    const FAILING: &str = "the collector does not take spans (traces.endpoint)";
    let collector = Collector::start(Takes::Silence).await;
    let silent = config(&collector, "queue_spans = 2\ntimeout = \"10m\"");
    // Nothing listens on that port once the listener is gone.
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead = silent.replace(&collector.address.to_string(), &dead.to_string());
    for (config, warnings) in [(dead, 1), (silent, 0)] {
        let mut gander = Setup::real().config(&config).start().await;
        let (_, turn) = turn_with_a_question(&gander).await;
        assert_eq!(turn["state"], "running");
        until_async("spans are dropped, counted and warned of", || async {
            gander.get("/v1/info").await;
            figure(&gander.figures().await, r#"gander_spans_total{fate="dropped"}"#) > 10.0
                && gander.log_lines(FULL).len() == 1
                && gander.log_lines(FAILING).len() == warnings
        })
        .await;
        gander.signal("TERM");
        assert!(gander.ended().await.success(), "{}", gander.log());
        let warned = [FULL, FAILING].map(|warning| gander.log_lines(warning).len());
        assert_eq!(warned, [1, warnings], "once each: {}", gander.log());
    }
}

#[tokio::test]
async fn what_a_collector_refuses_is_tried_again_only_when_that_may_help() {
    let collector = Collector::start(Takes::Nothing(StatusCode::BAD_REQUEST)).await;
    let gander = Setup::fake().config(&config(&collector, "")).start().await;
    let dropped = || async { figure(&gander.figures().await, r#"gander_spans_total{fate="dropped"}"#) };
    gander.get("/v1/info").await;
    until_async("what is wrong is dropped at once", || async { dropped().await > 0.0 }).await;
    assert_eq!(collector.asked(), 1);

    collector.takes(Takes::Nothing(StatusCode::SERVICE_UNAVAILABLE));
    gander.get("/v1/info").await;
    until("it is tried", || collector.asked() > 1).await;
    collector.takes(Takes::Everything);
    until_async("it is taken in the end", || async {
        figure(&gander.figures().await, r#"gander_spans_total{fate="sent"}"#) > 0.0
    })
    .await;
    assert!(dropped().await < 1.5);
    assert_eq!(gander.log_lines("the collector does not take spans (traces.endpoint)").len(), 1);
    assert_eq!(gander.log_lines("the collector takes spans again").len(), 1);
    gander.stop().await;
}

#[tokio::test]
async fn callers_decide_what_is_kept_of_their_traces_unless_they_may_not() {
    for (more, expected) in [
        ("sample_ratio = 0.0", ["kept"].as_slice()),
        ("", &["kept", "invalid", "none"]),
        ("sample_ratio = 0.0\ncaller_decides = false", &[]),
    ] {
        let collector = Collector::start(Takes::Everything).await;
        let mut gander = Setup::fake().config(&config(&collector, more)).start().await;
        for (id, header) in [
            ("kept", Some(traceparent(true))),
            ("left-out", Some(traceparent(false))),
            ("invalid", Some(traceparent(true).replace("00-", "0-"))),
            ("none", None),
        ] {
            let request = gander.request(Method::GET, "/v1/info").header("x-request-id", id);
            let request = match header {
                Some(header) => request.header("traceparent", header),
                None => request,
            };
            answer(request, StatusCode::OK).await;
            // Asked all day long.
            gander.get("/healthz").await;
        }
        gander.signal("TERM");
        assert!(gander.ended().await.success());
        let spans = collector.spans();
        let ids: Vec<_> = spans.iter().map(|span| span.attribute("gander.request_id")).collect();
        assert_eq!(ids, expected, "{more}");
        for span in &spans {
            assert_eq!(span.trace == TRACE, span.attribute("gander.request_id") == "kept", "{span:?}");
        }
    }
}

#[tokio::test]
async fn a_method_that_a_caller_made_up_names_no_span() {
    let collector = Collector::start(Takes::Everything).await;
    let gander = Setup::fake().config(&config(&collector, "")).start().await;
    for (method, status, name, told) in [
        ("BREW", StatusCode::METHOD_NOT_ALLOWED, "HTTP /v1/info", "_OTHER"),
        ("PUT", StatusCode::METHOD_NOT_ALLOWED, "PUT /v1/info", "PUT"),
    ] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        answer(gander.request(method, "/v1/info"), status).await;
        assert_eq!(collector.span(name).await.attribute("http.request.method"), told);
    }
    gander.stop().await;
}

#[tokio::test]
async fn a_turn_that_waited_over_a_restart_is_still_a_part_of_its_callers_trace() {
    let collector = Collector::start(Takes::Everything).await;
    let config = config(&collector, "");
    let mut gander = Setup::real().config(&config).start().await;
    let dir = Arc::clone(&gander.dir);
    let session = gander.session(&json!({"mode": "auto"})).await;
    let mut events = session.events().await;
    let hangs = json!({"prompt": script(&json!([[{"text": "Well"}, "hang"]]))});
    let cut_off = asked(&session, &traceparent(true), &hangs).await;
    events.until("message.delta").await;
    let waits = json!({"prompt": script(&json!([[{"text": "at last"}]])), "when_busy": "queue"});
    let queued = asked(&session, &traceparent(true), &waits).await;
    assert_eq!(queued["state"], "queued");
    until("the requests are told", || collector.spans().iter().filter(|span| span.name == TURN).count() == 2)
        .await;
    gander.signal("KILL");
    gander.ended().await;

    let gander = Setup::real().dir(dir).config(&config).start().await;
    let turn_span = |turn: &Value| {
        let mut spans = collector.spans().into_iter();
        spans.find(|span| {
            span.attribute("gander.turn.id") == text(&turn["id"]) && span.name.starts_with("invoke")
        })
    };
    for (turn, state) in [(cut_off, "interrupted"), (queued, "completed")] {
        until(state, || turn_span(&turn).is_some()).await;
        let span = turn_span(&turn).unwrap();
        assert_eq!((span.trace.as_str(), span.attribute("gander.turn.state")), (TRACE, state));
        let spans = collector.spans();
        let above = spans.iter().find(|above| above.id == span.parent).unwrap();
        assert_eq!((above.name.as_str(), above.parent.as_str()), (TURN, CALLERS_SPAN));
    }
    gander.stop().await;
}

#[tokio::test]
async fn without_a_collector_a_callers_trace_is_still_named() {
    let gander = Setup::fake().config("[log]\nformat = \"json\"").start().await;
    let session = gander.session(&json!({})).await;
    let turn = asked(&session, &traceparent(true), &json!({"prompt": "hello"})).await;
    assert_eq!(turn["traceparent"], traceparent(true));
    until("the turn's line", || gander.log_lines("turn ended").iter().any(|line| line["trace_id"] == TRACE))
        .await;
    gander.stop().await;
}
