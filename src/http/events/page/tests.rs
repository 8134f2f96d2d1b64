use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::http::fake_log::{FakeLog, FakeStore};
use crate::http::stream::{EventKinds, OrderedEvents, SessionEvents};
use crate::session::event::EventKind;
use crate::session::log::{Owner, SessionLog, Store};
use crate::session::order::OrderFilter;

const NOW: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_hours(1);

fn never() -> Ended {
    Box::pin(std::future::pending())
}

fn notices() -> Selection {
    let mut kinds = EventKinds::default();
    kinds.insert(EventKind::Notice);
    Selection { kinds: Some(kinds), turn: None }
}

async fn read(log: &FakeLog, after: u64, selection: Selection, limit: usize, wait: Duration) -> Value {
    let source = SessionEvents::new(log.log.clone());
    let page = page(source, Start::After(after), selection, limit, wait, never()).await.unwrap();
    serde_json::from_slice(&page).unwrap()
}

/// The numbers of a page's events.
fn numbers(page: &Value) -> Vec<u64> {
    page["events"].as_array().unwrap().iter().map(|event| event["number"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn pages_walk_over_the_whole_log_with_and_without_a_filter() {
    for tail_bytes in [1, 1_000_000] {
        let log = FakeLog::new(tail_bytes);
        for kind in [EventKind::Notice, EventKind::MessageDelta, EventKind::Notice, EventKind::PlanUpdated] {
            log.commit_plain(kind, None, 5);
        }
        for (selection, expected) in [
            (Selection::default(), (1..=20).collect::<Vec<_>>()),
            (notices(), (1..=5).chain(11..=15).collect()),
        ] {
            for limit in [1, 3, 5, 7, 100] {
                let (mut after, mut found) = (0, Vec::new());
                loop {
                    let page = read(&log, after, selection, limit, NOW).await;
                    let next = page["next_after"].as_u64().unwrap();
                    let events = numbers(&page);
                    assert!(events.len() <= limit && next >= after);
                    assert!(events.iter().all(|number| *number > after && *number <= next));
                    assert_eq!(page["last_event_id"], 20);
                    found.extend(events);
                    if next == 20 {
                        break;
                    }
                    assert!(next > after, "a page that leads nowhere");
                    after = next;
                }
                assert_eq!(found, expected, "{limit}");
            }
        }
    }
}

#[tokio::test]
async fn a_page_at_the_head_is_empty_and_stays_there() {
    let log = FakeLog::new(1);
    let empty = serde_json::json!({"events": [], "next_after": 0, "last_event_id": 0});
    assert_eq!(read(&log, 0, Selection::default(), 5, NOW).await, empty);
    log.commit_plain(EventKind::MessageDelta, None, 3);
    // Over what is not selected, to the head.
    let skipped = serde_json::json!({"events": [], "next_after": 3, "last_event_id": 3});
    assert_eq!(read(&log, 1, notices(), 5, NOW).await, skipped);
}

#[tokio::test]
async fn a_page_ends_behind_the_event_that_makes_it_large() {
    let log = FakeLog::new(1);
    let json = serde_json::json!({"number": 1, "text": "x".repeat(PAGE_BYTES / 2)}).to_string();
    let event =
        crate::http::fake_log::Stored { kind: EventKind::Notice, turn: None, json: json.into_bytes() };
    log.commit(&vec![event; 5]);
    let page = read(&log, 0, Selection::default(), 100, NOW).await;
    assert_eq!((numbers(&page).len(), page["next_after"].as_u64()), (2, Some(2)));
}

#[tokio::test]
async fn a_cursor_that_cannot_be_honoured_is_answered_at_once_by_a_reset() {
    let log = FakeLog::new(1);
    log.commit_plain(EventKind::MessageDelta, None, 3);
    let page = read(&log, 4, notices(), 1, LONG).await;
    assert_eq!(page["events"].as_array().unwrap().len(), 1);
    assert_eq!(page["events"][0]["type"], "stream.reset");
    let page = read(&log, 4, Selection::default(), 1, LONG).await;
    assert_eq!(page["events"].as_array().unwrap().len(), 2, "the reset is not counted");
    assert_eq!(page["next_after"], 1);
}

#[tokio::test]
async fn a_wait_ends_with_the_first_event_that_is_selected() {
    let log = FakeLog::new(1_000);
    let source = SessionEvents::new(log.log.clone());
    let mut waiting = Box::pin(page(source, Start::After(0), notices(), 5, LONG, never()));
    assert!(waiting.as_mut().now_or_never().is_none());
    log.commit_plain(EventKind::MessageDelta, None, 4);
    assert!(waiting.as_mut().now_or_never().is_none(), "nothing of that is selected");
    log.commit_plain(EventKind::Notice, None, 1);
    let page: Value = serde_json::from_slice(&waiting.await.unwrap()).unwrap();
    assert_eq!((numbers(&page), page["next_after"].as_u64()), (vec![5], Some(5)));
}

#[tokio::test]
async fn a_wait_ends_empty_when_the_time_is_up_or_nothing_can_follow() {
    let log = FakeLog::new(1_000);
    log.commit_plain(EventKind::MessageDelta, None, 2);
    let page_of_nothing = serde_json::json!({"events": [], "next_after": 2, "last_event_id": 2});
    assert_eq!(read(&log, 0, notices(), 5, Duration::from_millis(1)).await, page_of_nothing);

    let stop = CancellationToken::new();
    let ended: Ended = Box::pin(stop.clone().cancelled_owned());
    let source = SessionEvents::new(log.log.clone());
    let waiting = page(source, Start::Latest, notices(), 5, LONG, ended);
    let (page_read, ()) = tokio::join!(waiting, async { stop.cancel() });
    assert_eq!(serde_json::from_slice::<Value>(&page_read.unwrap()).unwrap(), page_of_nothing);

    for end in [SessionLog::close, SessionLog::failed] {
        let (page, ()) = tokio::join!(read(&log, 2, notices(), 5, LONG), async { end(&log.log) });
        assert_eq!(page, page_of_nothing);
    }
}

#[tokio::test]
async fn a_store_that_fails_is_told() {
    let log = FakeLog::new(1);
    log.commit_plain(EventKind::MessageDelta, None, 2);
    log.commit_plain(EventKind::MessageDelta, None, 2);
    log.store.break_reads();
    let source = SessionEvents::new(log.log.clone());
    let page = page(source, Start::After(0), notices(), 5, NOW, never()).await;
    assert!(matches!(page, Err(StoreError::Failed(_))));
}

#[tokio::test]
async fn a_page_over_all_sessions_has_opaque_cursors() {
    let store = FakeStore::default();
    store.commit_ordered("alice", 1, EventKind::Notice, 1);
    store.commit_ordered("bob", 2, EventKind::Notice, 4);
    let port: Arc<dyn Store> = Arc::new(store);
    let filter = OrderFilter { owner: Owner::Caller("alice".into()), sessions: None };
    let source = OrderedEvents::new(port, filter, &[]);
    let page = page(source, Start::After(0), Selection::default(), 5, NOW, never()).await.unwrap();
    let cursor = r#""00000abc0000000000000005""#;
    let expected =
        format!(r#"{{"events":[{{"id":1,"session":1}}],"next_after":{cursor},"last_event_id":{cursor}}}"#);
    assert_eq!(page, expected);
}
