//! The log: a line for each request and each turn, and nothing of what was said in them.

use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Gander, Session, Setup, WORD, answer, prompt_with_word, script, text, until};

async fn turn_line(gander: &Gander, turn: &Value) -> Value {
    let find = || gander.log_lines("turn ended").into_iter().find(|line| line["turn"] == turn["id"]);
    until("the turn's line", || find().is_some()).await;
    find().unwrap()
}

async fn ended(session: &Session<'_>, request: &str) -> Value {
    let turn = session.gander.request(Method::POST, &session.path("/turns"));
    let turn = turn.header("x-request-id", request).header("prefer", "wait=60");
    answer(turn.json(&json!({"prompt": prompt_with_word()})), StatusCode::OK).await
}

#[tokio::test]
async fn every_turn_leaves_a_line_and_no_word_of_it() {
    let gander = Setup::real().config("[log]\nformat = \"json\"").start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let turn = ended(&session, "asked-1").await;
    assert!(text(&turn["text"]).contains(WORD), "{turn}");
    assert_eq!(turn["request_id"], "asked-1");
    let line = turn_line(&gander, &turn).await;
    assert_eq!(
        [&line["level"], &line["state"], &line["stop_reason"], &line["request_id"], &line["session"]],
        ["INFO", "completed", "end_turn", "asked-1", &session.id],
    );
    assert_eq!((&line["tool_calls"], &line["owner"]), (&json!(1), &turn_owner(&session)));
    assert_eq!(line["output_tokens"], turn["usage"]["output_tokens"]);
    assert!(line["input_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{line}");
    assert!(line["ms"].is_u64() && line["waited_ms"].is_u64(), "{line}");

    let fails = json!({"prompt": format!("{WORD}\n{}", script(&json!([[{"error": {"status": 401, "body": WORD}}]])))});
    let failed = gander.post(&session.path("/turns"), &fails, StatusCode::ACCEPTED).await;
    let line = turn_line(&gander, &failed).await;
    assert_eq!(
        [&line["level"], &line["state"], &line["class"]],
        ["WARN", "failed", "provider_auth"],
        "{line}"
    );
    let hangs = session.prompt(&script(&json!([[{"text": WORD}, "hang"]]))).await;
    session.cancel(&hangs).await;
    let line = turn_line(&gander, &hangs).await;
    assert_eq!([&line["level"], &line["state"]], ["INFO", "cancelled"]);
    assert!(!gander.log().contains(WORD), "{}", gander.log());
    gander.stop().await;
}

fn turn_owner(session: &Session<'_>) -> Value {
    session.snapshot["owner"].clone()
}

#[tokio::test]
async fn what_was_said_is_logged_when_that_is_asked_for() {
    let gander = Setup::real().config("[log]\ncontent = true\nformat = \"json\"").start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let turn = ended(&session, "asked-1").await;
    let line = turn_line(&gander, &turn).await;
    assert!(text(&line["prompt"]).contains(&format!("{WORD}?")), "{line}");
    assert_eq!(text(&line["text"]), turn["text"].to_string());
    assert!(!gander.log().contains(&format!("\"{WORD} sings")), "what tools give is never logged");
    gander.stop().await;
}

#[tokio::test]
async fn a_turn_that_gander_cuts_off_leaves_a_line_at_its_end_and_one_that_was_killed_after_the_start() {
    let config = "[log]\nformat = \"json\"\n[server]\nshutdown_grace = \"0s\"";
    let mut gander = Setup::real().config(config).start().await;
    let dir = Arc::clone(&gander.dir);
    let hangs = script(&json!([[{"text": "Well"}, "hang"]]));
    let session = gander.session(&json!({})).await;
    let mut events = session.events().await;
    let turn = session.prompt(&hangs).await;
    events.until("message.delta").await;
    let id = session.id.clone();
    gander.signal("TERM");
    gander.ended().await;
    let line = turn_line(&gander, &turn).await;
    assert_eq!([&line["level"], &line["state"]], ["WARN", "interrupted"]);

    let mut gander = Setup::real().dir(Arc::clone(&dir)).config(config).start().await;
    assert!(gander.log_lines("turn ended").is_empty(), "nothing is told twice: {}", gander.log());
    let session = Session { gander: &gander, id, snapshot: Value::Null };
    let mut events = session.events_with("?after=latest").await;
    let turn = session.prompt(&hangs).await;
    events.until("message.delta").await;
    gander.signal("KILL");
    gander.ended().await;

    let gander = Setup::real().dir(dir).config(config).start().await;
    let line = turn_line(&gander, &turn).await;
    assert_eq!(
        [&line["level"], &line["state"], &line["class"]],
        ["WARN", "interrupted", "gateway_restarted"],
        "{line}"
    );
    let figures = gander.figures().await;
    let counted = r#"gander_turns_total{state="interrupted",class="gateway_restarted"} 1"#;
    assert!(figures.contains(counted), "{figures}");
    gander.stop().await;
}
