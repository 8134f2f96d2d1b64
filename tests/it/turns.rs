//! Prompt turns on the real goose.

use serde_json::json;

use crate::support::{Setup, kinds, script, text};

#[tokio::test]
async fn a_text_turn_is_one_delta_per_chunk_and_one_end() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({})).await;
    let mut events = session.events_with("?after=latest").await;
    let reply = json!([[{"text": "Hello"}, {"text": " from"}, {"text": " here."}, {"usage": {"input": 10, "output": 6}}]]);
    let turn = session.turn(&script(&reply)).await;
    assert_eq!(turn["state"], "completed");
    assert_eq!(turn["stop_reason"], "end_turn");
    assert_eq!(turn["text"], "Hello from here.");
    assert_eq!(turn["usage"]["total_tokens"], 16);
    let mut told = events.through("turn.completed").await;
    // goose also tells its usage outside of turns, at moments of its own.
    told.retain(|event| event.data["turn_id"] == turn["id"]);
    let deltas: Vec<String> = told
        .iter()
        .filter(|event| event.kind() == "message.delta")
        .map(|event| text(&event.data["text"]))
        .collect();
    assert_eq!(deltas, ["Hello", " from", " here."]);
    assert_eq!(kinds(&told)[0], "turn.started");
    drop(events);
    gander.stop().await;
}
