use std::sync::atomic::AtomicBool;

use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;
use tokio::sync::mpsc;

use super::*;
use crate::metrics::Metrics;
use crate::observer::fake_events::{observe, started, turn};
use crate::traces::Sampling;

fn spans(content: bool) -> (TurnSpans, mpsc::Receiver<Span>) {
    let (queue, made) = mpsc::channel(16);
    let sampling = Sampling { ratio: 1.0, caller_decides: true };
    let warned = AtomicBool::new(false);
    (TurnSpans::new(Arc::new(Shared { queue, sampling, content, metrics: Metrics::new(), warned })), made)
}

fn call(spans: &mut TurnSpans, turn: TurnId) {
    for (kind, status) in
        [(EventKind::ToolCallStarted, "pending"), (EventKind::ToolCallFinished, "completed")]
    {
        observe(spans, 1, kind, Some(turn), &json!({"tool_call": {"id": "call-1", "status": status}}));
    }
}

#[test]
fn what_is_said_is_cut_as_soon_as_it_is_remembered() {
    let (mut spans, mut made) = spans(true);
    let long = "a".repeat(100_000);
    let id = TurnId::new();
    let mut queued = turn(id, "queued");
    queued["turn"]["prompt"] = json!(long);
    observe(&mut spans, 1, EventKind::TurnQueued, Some(id), &queued);
    observe(&mut spans, 1, EventKind::TurnStarted, Some(id), &turn(id, "running"));
    let begun = json!({"tool_call": {"id": "call-1", "input": {"text": long}}});
    observe(&mut spans, 1, EventKind::ToolCallStarted, Some(id), &begun);
    let open = spans.open.get(id).unwrap();
    assert_eq!(open.prompt.as_ref().map(String::len), Some(16 * 1024));
    assert!(open.prompt.as_ref().unwrap().capacity() < 20_000);
    assert_eq!(open.calls["call-1"].input.as_ref().map(String::len), Some(16 * 1024));
    let mut ended = turn(id, "completed");
    ended["turn"]["text"] = json!(long);
    observe(&mut spans, 1, EventKind::TurnCompleted, Some(id), &ended);
    let said: Vec<_> = made.try_recv().unwrap().attributes;
    let said = said.into_iter().filter(|attribute| attribute.key.ends_with("put.messages"));
    let lengths: Vec<_> = said.map(|attribute| format!("{:?}", attribute.value).len() / 1024).collect();
    assert_eq!(lengths, [16, 16]);
}

#[test]
fn a_turn_is_forgotten_when_its_end_cannot_be_told() {
    for is_lost in [false, true] {
        let (mut spans, mut made) = spans(false);
        let [deleted, other] = [started(&mut spans, 1), started(&mut spans, 2)];
        if is_lost {
            spans.events_lost();
        } else {
            observe(&mut spans, 1, EventKind::SessionDeleted, None, &json!({}));
        }
        call(&mut spans, deleted);
        assert!(made.try_recv().is_err());
        call(&mut spans, other);
        assert_eq!(made.try_recv().is_err(), is_lost);
    }
}

#[test]
fn the_newest_turns_have_spans_however_many_have_not_ended() {
    let (mut spans, mut made) = spans(false);
    let turns: Vec<_> = (0..5000).map(|session| started(&mut spans, session)).collect();
    call(&mut spans, turns[0]);
    assert!(made.try_recv().is_err());
    call(&mut spans, turns[4999]);
    assert_eq!(made.try_recv().unwrap().name, "execute_tool");
}
