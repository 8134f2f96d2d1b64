//! Figures about the running gateway.

use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::callers::{gander_of, token};
use crate::support::{Setup, figure, refusal, script, until_async};

#[tokio::test]
async fn what_happens_in_sessions_is_counted_as_callers_were_told() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let calls = json!([[{"call": {"tool": "shell", "input": {"command": "true"}}}], [{"text": "done"}]]);
    for (decision, end) in [("allow", "turn.completed"), ("reject", "turn.completed")] {
        let mut events = session.events_with("?after=latest").await;
        session.prompt(&script(&calls)).await;
        let permission = events.until("permission.requested").await.data["permission"].clone();
        session.answer(&permission, decision).await;
        events.until(end).await;
    }
    let mut events = session.events_with("?after=latest").await;
    session.prompt(&script(&json!([[{"error": {"status": 400, "body": "no"}}]]))).await;
    events.until("turn.failed").await;

    // The observer reads behind the subscribers.
    let counted = || async {
        let text = gander.figures().await;
        text.contains(r#"gander_turns_total{state="failed",class="provider_rejected"} 1"#)
    };
    until_async("everything is counted", counted).await;
    let text = gander.figures().await;
    for (name, expected) in [
        (r#"gander_turns_total{state="completed",class=""}"#, 2.0),
        (r#"gander_permissions_total{by="caller",decision="allow"}"#, 1.0),
        (r#"gander_permissions_total{by="caller",decision="reject"}"#, 1.0),
        ("gander_permission_wait_seconds_count", 2.0),
        (r#"gander_tool_calls_total{status="completed"}"#, 1.0),
        (r#"gander_tool_calls_total{status="rejected"}"#, 1.0),
        (r#"gander_agent_starts_total{kind="new"}"#, 1.0),
        (r#"gander_sessions{state="idle"}"#, 1.0),
        ("gander_turn_seconds_count", 3.0),
        ("gander_first_event_seconds_count", 2.0),
        ("gander_agents", 1.0),
        ("gander_storage_writable", 1.0),
        (r#"gander_limit{key="sessions.max_running"}"#, 64.0),
        (r#"gander_spans_total{fate="dropped"}"#, 0.0),
        ("gander_queued_bytes", 0.0),
        (r#"gander_http_requests_total{method="POST",route="/v1/sessions",status="201"}"#, 1.0),
    ] {
        assert!((figure(&text, name) - expected).abs() < f64::EPSILON, "{name} {expected}\n{text}");
    }
    for name in [
        "gander_events_total",
        "gander_event_visible_seconds_count",
        "gander_commit_seconds_count",
        "gander_resident_bytes",
        "gander_streams",
        "gander_storage_bytes",
        "gander_streamed_bytes_total",
    ] {
        assert!(figure(&text, name) > 0.0, "{name}");
    }
    assert!(!text.contains(&session.id), "no label comes from a caller");
}

#[tokio::test]
async fn figures_are_for_admins_and_for_the_listener_of_their_own() {
    let gander = gander_of(&[("alice", &[])]).await;
    refusal(gander.request_as(&token("alice"), Method::GET, "/metrics"), 403, "role-missing").await;
    let nobody = gander.client.get(format!("http://{}/metrics", gander.address));
    refusal(nobody, 401, "unauthenticated").await;

    let gander = Setup::fake().config("[server]\nmetrics_listen = \"127.0.0.1:0\"").start().await;
    let log = gander.log();
    let (_, address) = log.split_once("figures are served without a token").unwrap();
    let (_, address) = address.split_once("127.0.0.1:").unwrap();
    let port: u16 = address.split(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap();
    let own = |path: &str| gander.client.get(format!("http://127.0.0.1:{port}{path}")).send();
    assert!(own("/metrics").await.unwrap().text().await.unwrap().contains("gander_build"));
    assert_eq!(own("/v1/sessions").await.unwrap().status(), StatusCode::NOT_FOUND);
    gander.stop().await;
}
