//! Streams over all sessions.

use std::collections::HashSet;
use std::sync::Arc;

use super::*;
use crate::session::id::SessionNumber;
use crate::session::log::{Owner, Store};
use crate::session::order::{OrderCursor, OrderFilter, OrderHead, Position, StoreTag};

fn of(owner: &str) -> OrderFilter {
    OrderFilter { owner: Owner::Caller(owner.into()), sessions: None }
}

fn source(store: &FakeStore, filter: OrderFilter) -> OrderedEvents {
    let store: Arc<dyn Store> = Arc::new(store.clone());
    OrderedEvents::new(store, filter, &[])
}

fn follow_order(store: &FakeStore, start: Start, until: Until) -> Subscription<OrderedEvents> {
    subscribe_to(source(store, of("alice")), start, until, Form::Named, Selection::default())
}

fn cursor(position: u64) -> String {
    OrderCursor { store: StoreTag(0xabc), position: Position(position) }.to_string()
}

/// The session and the id of each event in a piece of a stream, with its cursor.
fn events(text: &str) -> Vec<(u64, u64, u64)> {
    let mut events = Vec::new();
    for block in text.split_terminator("\n\n") {
        let field = |name| block.lines().find_map(|line| line.strip_prefix(name));
        if let Some(data) = field("data: ") {
            let data: serde_json::Value = serde_json::from_str(data).unwrap();
            let cursor: OrderCursor = field("id: ").unwrap().parse().unwrap();
            let number = |name: &str| data[name].as_u64().unwrap();
            events.push((number("session"), number("id"), cursor.position.0));
        }
    }
    events
}

#[tokio::test]
async fn all_sessions_of_the_owner_are_in_order_and_only_the_ids_differ() {
    for tail_bytes in [1, BIG_TAIL] {
        let store = FakeStore::with_order(OrderHead::default(), tail_bytes);
        store.commit_ordered("alice", 1, EventKind::Notice, 2);
        store.commit_ordered("bob", 2, EventKind::Notice, 3);
        store.commit_ordered("alice", 3, EventKind::PlanUpdated, 1);
        store.commit_ordered("alice", 1, EventKind::Notice, 1);
        let mut subscription = follow_order(&store, Start::After(0), Until::Now);
        let all = rest(&mut subscription).await;
        assert_eq!(events(&all), [(1, 1, 1), (1, 2, 2), (3, 1, 6), (1, 3, 7)]);
        let first = format!("id: {}\nevent: notice\ndata: {{\"id\":1,\"session\":1}}\n\n", cursor(1));
        assert!(all.starts_with(&first), "{all}");
        // From within a run, too.
        let mut subscription = follow_order(&store, Start::After(1), Until::Now);
        assert_eq!(events(&rest(&mut subscription).await), [(1, 2, 2), (3, 1, 6), (1, 3, 7)]);
    }
}

#[tokio::test]
async fn the_end_of_now_may_lie_within_a_run() {
    let store = FakeStore::with_order(OrderHead::default(), BIG_TAIL);
    store.commit_ordered("alice", 1, EventKind::Notice, 2);
    let mut subscription = follow_order(&store, Start::After(0), Until::Now);
    store.commit_ordered("bob", 2, EventKind::Notice, 3);
    store.commit_ordered("alice", 1, EventKind::Notice, 3);
    assert_eq!(events(&rest(&mut subscription).await), [(1, 1, 1), (1, 2, 2)]);
}

#[tokio::test]
async fn lines_have_the_cursor_behind_the_events_it_stands_for() {
    let store = FakeStore::default();
    store.commit_ordered("alice", 1, EventKind::Notice, 1);
    store.commit_ordered("bob", 2, EventKind::Notice, 3);
    let (source, selection) = (source(&store, of("alice")), Selection::default());
    let mut subscription = subscribe_to(source, Start::After(0), Until::Now, Form::Lines, selection);
    let told = format!("{{\"type\":\"stream.cursor\",\"next_after\":\"{}\"}}\n", cursor(4));
    assert_eq!(rest(&mut subscription).await, format!("{{\"id\":1,\"session\":1}}\n{told}"));
}

#[tokio::test]
async fn who_begins_with_the_newest_is_told_the_cursor_at_once() {
    let store = FakeStore::default();
    store.commit_ordered("bob", 1, EventKind::Notice, 3);
    let mut subscription = follow_order(&store, Start::Latest, Until::LogEnds);
    let opening = text(subscription.next_chunk().await.unwrap());
    assert_eq!(opening, format!("{OPENING}id: {}\n\n", cursor(3)));
}

#[tokio::test]
async fn a_cursor_that_cannot_be_honoured_is_told_and_everything_follows() {
    let head = OrderHead { committed: Position(0), forgotten: Position(2) };
    let store = FakeStore::with_order(head, BIG_TAIL);
    store.commit_ordered("alice", 1, EventKind::Notice, 3);
    for (start, reason) in [
        (Start::Unknown, "cursor_unknown"),
        (Start::After(4), "cursor_beyond_head"),
        (Start::After(u64::MAX), "cursor_beyond_head"),
        (Start::After(1), "cursor_expired"),
    ] {
        let mut subscription = follow_order(&store, start, Until::Now);
        let opening = text(subscription.next_chunk().await.unwrap());
        let data =
            format!(r#"{{"type":"stream.reset","reason":"{reason}","last_event_id":"{}"}}"#, cursor(3));
        assert_eq!(opening, format!("{OPENING}event: stream.reset\ndata: {data}\n\n"));
        assert_eq!(events(&rest(&mut subscription).await).len(), 3);
    }
    for good in [0, 2, 3] {
        let mut subscription = follow_order(&store, Start::After(good), Until::Now);
        assert_eq!(events(&rest(&mut subscription).await).len() as u64, 3 - good);
    }
}

#[tokio::test]
async fn a_stream_of_named_sessions_ends_when_all_of_them_are_gone() {
    let (one, two) = (FakeLog::new(1), FakeLog::new(1));
    let store = FakeStore::default();
    let named = HashSet::from([SessionNumber(1), SessionNumber(2)]);
    let filter = OrderFilter { sessions: Some(named), ..of("alice") };
    let port: Arc<dyn Store> = Arc::new(store.clone());
    let source = OrderedEvents::new(port, filter, &[one.log.clone(), two.log.clone()]);
    let selection = Selection::default();
    let mut subscription = subscribe_to(source, Start::After(0), Until::LogEnds, Form::Named, selection);
    subscription.next_chunk().await;
    one.log.close();
    assert!(subscription.next_chunk().now_or_never().is_none(), "one is left");
    store.commit_ordered("alice", 3, EventKind::Notice, 1);
    store.commit_ordered("alice", 2, EventKind::SessionDeleted, 1);
    two.log.close();
    assert_eq!(events(&rest(&mut subscription).await), [(2, 1, 2)]);
}

/// What happens to the order and to one reader of it.
#[derive(Clone, Debug)]
enum OrderStep {
    Commit { session: u32, count: usize, selected: bool },
    Read,
    DropAndResume,
}

fn order_steps() -> impl Strategy<Value = Vec<OrderStep>> {
    let step = prop_oneof![
        5 => (1..6_u32, 1..6_usize, any::<bool>())
            .prop_map(|(session, count, selected)| OrderStep::Commit { session, count, selected }),
        6 => Just(OrderStep::Read),
        2 => Just(OrderStep::DropAndResume),
    ];
    proptest::collection::vec(step, 1..80)
}

/// Does the steps with one reader that resumes with the last cursor it was told; gives all it got and should get.
async fn follow_steps(
    steps: &[OrderStep],
    tail_bytes: usize,
    selection: Selection,
) -> (Vec<(u64, u64, u64)>, Vec<(u64, u64)>) {
    let store = FakeStore::with_order(OrderHead::default(), tail_bytes);
    let open = |after, until| {
        subscribe_to(source(&store, of("alice")), Start::After(after), until, Form::Named, selection)
    };
    let (mut got, mut expected, mut told) = (Vec::new(), Vec::new(), 0);
    let mut next = [1_u64; 6];
    let mut subscription = open(0, Until::LogEnds);
    let mut read = |chunk: &str, told: &mut u64| {
        for line in chunk.lines().filter_map(|line| line.strip_prefix("id: ")) {
            *told = line.parse::<OrderCursor>().unwrap().position.0;
        }
        got.extend(events(chunk));
    };
    for step in steps {
        match *step {
            OrderStep::Commit { session, count, selected } => {
                let owner = if session < 4 { "alice" } else { "bob" };
                let kind = if selected { EventKind::Notice } else { EventKind::MessageDelta };
                store.commit_ordered(owner, session, kind, count);
                let next = &mut next[session as usize];
                for _ in 0..count {
                    if owner == "alice" && (selected || selection.kinds.is_none()) {
                        expected.push((u64::from(session), *next));
                    }
                    *next += 1;
                }
            }
            OrderStep::Read => {
                if let Some(Some(chunk)) = subscription.next_chunk().now_or_never() {
                    read(&text(chunk), &mut told);
                }
            }
            OrderStep::DropAndResume => subscription = open(told, Until::LogEnds),
        }
    }
    let mut last = open(told, Until::Now);
    read(&rest(&mut last).await, &mut told);
    assert_eq!(told, store.order().head().committed.0, "the cursor is at the head in the end");
    (got, expected)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn nobody_misses_or_doubles_an_event_of_several_sessions(
        steps in order_steps(),
        tail_bytes in prop_oneof![Just(1_usize), 100..2_000_usize, Just(BIG_TAIL)],
        filtered: bool,
    ) {
        let selection = if filtered { only(&[EventKind::Notice]) } else { Selection::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (got, expected) = runtime.block_on(follow_steps(&steps, tail_bytes, selection));
        let cursors: Vec<u64> = got.iter().map(|(.., cursor)| *cursor).collect();
        prop_assert!(cursors.is_sorted_by(|a, b| a < b));
        let got: Vec<_> = got.into_iter().map(|(session, id, _)| (session, id)).collect();
        prop_assert_eq!(got, expected);
    }
}
