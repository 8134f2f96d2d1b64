mod order;
mod silence;

use futures_util::FutureExt;
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::super::fake_log::{FakeLog, FakeStore, Stored};
use super::*;
use crate::session::event::EventKind;
use crate::session::id::EventId;
use crate::session::log::SessionLog;

const HOUR: Duration = Duration::from_hours(1);
const OPENING: &str = ": gander\nretry: 2000\n\n";
const BIG_TAIL: usize = 1024 * 1024;

const QUIET: Heartbeat = Heartbeat { every: HOUR, padding: 0 };

/// A subscription in a form that nothing ends from outside.
fn subscribe_to<S: Source>(
    source: S,
    start: Start,
    until: Until,
    form: Form,
    selection: Selection,
) -> Subscription<S> {
    Subscription::new(source, start, until, (form, selection), QUIET, Box::pin(std::future::pending()))
}

/// Likewise, to a log and with names.
fn subscribe(log: &FakeLog, start: Start, until: Until, selection: Selection) -> Subscription<SessionEvents> {
    subscribe_to(SessionEvents::new(log.log.clone()), start, until, Form::Named, selection)
}

fn subscribe_in(log: &FakeLog, start: Start, until: Until, form: Form) -> Subscription<SessionEvents> {
    subscribe_to(SessionEvents::new(log.log.clone()), start, until, form, Selection::default())
}

fn from_first() -> Start {
    Start::After(0)
}

fn only(kinds: &[EventKind]) -> Selection {
    let mut set = EventKinds::default();
    for kind in kinds {
        set.insert(*kind);
    }
    Selection { kinds: Some(set), ..Selection::default() }
}

/// Everything up to the end, without the opening.
async fn rest(subscription: &mut Subscription<impl Source>) -> String {
    let mut all = Vec::new();
    while let Some(chunk) = subscription.next_chunk().await {
        all.extend_from_slice(&chunk);
    }
    let text = String::from_utf8(all).unwrap();
    text.strip_prefix(OPENING).unwrap_or(&text).to_owned()
}

fn text(bytes: impl AsRef<[u8]>) -> String {
    String::from_utf8(bytes.as_ref().to_vec()).unwrap()
}

/// The ids of the frames in a piece of a stream.
fn ids(text: &str) -> Vec<u64> {
    text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect()
}

#[tokio::test]
async fn the_first_bytes_come_at_once_also_from_an_empty_log() {
    let log = FakeLog::new(BIG_TAIL);
    let mut subscription = subscribe(&log, from_first(), Until::LogEnds, Selection::default());
    assert_eq!(text(subscription.next_chunk().now_or_never().unwrap().unwrap()), OPENING);
    assert!(subscription.next_chunk().now_or_never().is_none(), "there is nothing more yet");
}

#[tokio::test]
async fn a_stream_can_begin_behind_every_id_from_memory_and_from_the_store() {
    for tail_bytes in [BIG_TAIL, 1] {
        let log = FakeLog::new(tail_bytes);
        for count in [3, 1, 5, 2] {
            log.commit_plain(EventKind::MessageDelta, None, count);
        }
        for after in 0..=11 {
            let start = Start::After(after);
            let mut subscription = subscribe(&log, start, Until::Now, Selection::default());
            assert_eq!(rest(&mut subscription).await, text(log.bytes(after, 11)));
        }
    }
}

#[tokio::test]
async fn an_unfiltered_stream_shares_the_logs_memory() {
    let log = FakeLog::new(BIG_TAIL);
    log.commit_plain(EventKind::MessageDelta, None, 3);
    let mut subscription = subscribe(&log, from_first(), Until::LogEnds, Selection::default());
    subscription.next_chunk().await.unwrap();
    let chunk = subscription.next_chunk().await.unwrap();
    let run = log.log.read(EventId(0)).await.unwrap().unwrap();
    assert_eq!(chunk.as_ptr(), run.bytes_after(EventId(0)).as_ptr());
}

#[tokio::test]
async fn latest_gives_only_what_is_committed_later() {
    let log = FakeLog::new(BIG_TAIL);
    log.commit_plain(EventKind::MessageDelta, None, 3);
    let mut subscription = subscribe(&log, Start::Latest, Until::LogEnds, Selection::default());
    log.commit_plain(EventKind::MessageDelta, None, 2);
    log.log.close();
    // The cursor comes first: a cut before the first event must not lose it.
    assert_eq!(rest(&mut subscription).await, format!("id: 3\n\n{}", text(log.bytes(3, 5))));
}

#[tokio::test]
async fn without_following_a_stream_ends_at_the_head_of_its_beginning() {
    let log = FakeLog::new(BIG_TAIL);
    log.commit_plain(EventKind::MessageDelta, None, 3);
    let mut subscription = subscribe(&log, from_first(), Until::Now, Selection::default());
    log.commit_plain(EventKind::MessageDelta, None, 3);
    assert_eq!(rest(&mut subscription).await, text(log.bytes(0, 3)));

    // The head lies within a run that the store reads.
    let log = FakeLog::new(1);
    log.commit_plain(EventKind::MessageDelta, None, 3);
    let mut subscription = subscribe(&log, from_first(), Until::Now, Selection::default());
    log.commit_plain(EventKind::MessageDelta, None, 3);
    assert_eq!(rest(&mut subscription).await, text(log.bytes(0, 3)));
    assert_eq!(subscription.next_chunk().await, None, "the end stays the end");
}

#[tokio::test]
async fn a_filtered_stream_that_does_not_follow_ends_with_the_cursor_at_the_head() {
    let log = FakeLog::new(BIG_TAIL);
    log.commit_plain(EventKind::Notice, None, 1);
    log.commit_plain(EventKind::MessageDelta, None, 3);
    let mut subscription = subscribe(&log, from_first(), Until::Now, only(&[EventKind::Notice]));
    assert_eq!(rest(&mut subscription).await, format!("{}id: 4\n\n", text(log.bytes(0, 1))));
}

#[tokio::test]
async fn a_filter_passes_the_frames_of_its_kinds_unchanged() {
    let log = FakeLog::new(BIG_TAIL);
    log.commit_plain(EventKind::MessageDelta, None, 2);
    log.commit_plain(EventKind::Notice, None, 1);
    log.commit_plain(EventKind::PlanUpdated, None, 1);
    log.commit_plain(EventKind::MessageDelta, None, 1);
    log.log.close();
    let selection = only(&[EventKind::Notice, EventKind::PlanUpdated]);
    let mut subscription = subscribe(&log, from_first(), Until::LogEnds, selection);
    assert_eq!(rest(&mut subscription).await, text(log.bytes(2, 4)));
}

#[tokio::test]
async fn unnamed_frames_lack_their_event_field_and_nothing_else() {
    let log = FakeLog::new(BIG_TAIL);
    log.commit_plain(EventKind::MessageDelta, None, 2);
    let mut subscription = subscribe_in(&log, from_first(), Until::Now, Form::Unnamed);
    let expected = "id: 1\ndata: {\"number\":1}\n\nid: 2\ndata: {\"number\":2}\n\n";
    assert_eq!(rest(&mut subscription).await, expected);
}

#[tokio::test]
async fn a_cursor_beyond_the_head_is_told_and_the_stream_begins_with_the_oldest_event() {
    let log = FakeLog::new(BIG_TAIL);
    log.commit_plain(EventKind::MessageDelta, None, 2);
    let data = r#"{"type":"stream.reset","reason":"cursor_beyond_head","last_event_id":2}"#;
    for (form, expected) in [
        (Form::Named, format!("{OPENING}event: stream.reset\ndata: {data}\n\n")),
        (Form::Unnamed, format!("{OPENING}data: {data}\n\n")),
        (Form::Lines, format!("{data}\n")),
    ] {
        // The reset goes through every filter.
        let source = SessionEvents::new(log.log.clone());
        let selection = only(&[EventKind::Notice]);
        let mut subscription = subscribe_to(source, Start::After(3), Until::Now, form, selection);
        assert_eq!(text(subscription.next_chunk().await.unwrap()), expected);
    }
    for far in [3, u64::MAX] {
        let mut subscription = subscribe(&log, Start::After(far), Until::Now, Selection::default());
        assert_eq!(ids(&rest(&mut subscription).await), [1, 2]);
    }
    let mut subscription = subscribe(&log, Start::After(2), Until::Now, Selection::default());
    assert_eq!(rest(&mut subscription).await, "", "the head itself is a good cursor");
}

#[tokio::test]
async fn a_turn_stream_has_the_turns_events_and_ends_behind_its_last() {
    let log = FakeLog::new(BIG_TAIL);
    let (mine, other) = (TurnId::new(), TurnId::new());
    log.commit_plain(EventKind::TurnCompleted, Some(other), 1);
    log.commit_plain(EventKind::TurnStarted, Some(mine), 1);
    log.commit_plain(EventKind::SessionState, None, 1);
    log.commit_plain(EventKind::MessageDelta, Some(mine), 2);
    log.commit_plain(EventKind::TurnFailed, Some(mine), 1);
    log.commit_plain(EventKind::SessionState, None, 1);
    log.commit_plain(EventKind::TurnStarted, Some(other), 1);
    let selection = Selection { turn: Some(mine), ..Selection::default() };
    let mut subscription = subscribe(&log, from_first(), Until::TurnEnds(mine), selection);
    assert_eq!(ids(&rest(&mut subscription).await), [2, 4, 5, 6]);
    assert_eq!(subscription.next_chunk().await, None);
}

#[tokio::test]
async fn a_closed_log_ends_the_stream_behind_its_last_event() {
    let log = FakeLog::new(1);
    log.commit_plain(EventKind::MessageDelta, None, 2);
    let mut subscription = subscribe(&log, from_first(), Until::LogEnds, Selection::default());
    log.commit_plain(EventKind::SessionDeleted, None, 1);
    log.log.close();
    assert_eq!(rest(&mut subscription).await, text(log.bytes(0, 3)));
}

#[tokio::test]
async fn a_waiting_stream_ends_when_the_log_closes_or_a_commit_fails() {
    for end in [SessionLog::close, SessionLog::failed] {
        let log = FakeLog::new(BIG_TAIL);
        let mut subscription = subscribe(&log, from_first(), Until::LogEnds, Selection::default());
        subscription.next_chunk().await;
        let (chunk, ()) = tokio::join!(subscription.next_chunk(), async { end(&log.log) });
        assert_eq!(chunk, None);
    }
}

#[tokio::test]
async fn a_stream_ends_when_the_store_fails_or_has_lost_the_events() {
    for harm in [FakeStore::break_reads, FakeStore::delete_events] {
        let log = FakeLog::new(1);
        log.commit_plain(EventKind::MessageDelta, None, 2);
        log.commit_plain(EventKind::MessageDelta, None, 2);
        let mut subscription = subscribe(&log, from_first(), Until::LogEnds, Selection::default());
        harm(&log.store);
        assert_eq!(rest(&mut subscription).await, "");
        assert_eq!(subscription.next_chunk().await, None);
    }
}

#[tokio::test]
async fn an_end_from_outside_comes_before_what_there_is_to_read() {
    let log = FakeLog::new(BIG_TAIL);
    log.commit_plain(EventKind::MessageDelta, None, 2);
    let revoked = CancellationToken::new();
    let ended = Box::pin(revoked.clone().cancelled_owned());
    let source = SessionEvents::new(log.log.clone());
    let everything = (Form::Named, Selection::default());
    let mut subscription = Subscription::new(source, from_first(), Until::LogEnds, everything, QUIET, ended);
    subscription.next_chunk().await;
    assert!(subscription.next_chunk().await.is_some());
    let (chunk, ()) = tokio::join!(subscription.next_chunk(), async {
        revoked.cancel();
        log.commit_plain(EventKind::MessageDelta, None, 2);
    });
    assert_eq!(chunk, None);
    assert_eq!(subscription.next_chunk().await, None, "the end stays the end");
}

/// What happens to a log and to one reader of it.
#[derive(Clone, Debug)]
enum Step {
    Commit { selected: Vec<bool> },
    Read,
    DropAndResume,
    CloseLog,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => proptest::collection::vec(any::<bool>(), 1..6).prop_map(|selected| Step::Commit { selected }),
        6 => Just(Step::Read),
        2 => Just(Step::DropAndResume),
    ];
    proptest::collection::vec(step, 1..60).prop_map(|mut steps| {
        steps.push(Step::CloseLog);
        steps
    })
}

/// Does the steps with one reader that resumes with the last id it was told; gives all it got and all it should get.
async fn follow(steps: &[Step], tail_bytes: usize, form: Form, selection: Selection) -> (Vec<u64>, Vec<u64>) {
    let log = FakeLog::new(tail_bytes);
    let mut expected = Vec::new();
    let mut got = Vec::new();
    let mut told = 0;
    let source = || SessionEvents::new(log.log.clone());
    let mut subscription = subscribe_to(source(), from_first(), Until::LogEnds, form, selection);
    let mut read = |chunk: Bytes, told: &mut u64| {
        for block in text(chunk).split_terminator("\n\n") {
            if let Some(id) = ids(block).first() {
                *told = *id;
                if block.contains("data: ") {
                    got.push(*id);
                }
            }
        }
    };
    for step in steps {
        match step {
            Step::Commit { selected } => {
                let first = log.log.head().committed.0 + 1;
                let events: Vec<_> = selected
                    .iter()
                    .map(|selected| Stored {
                        kind: if *selected { EventKind::Notice } else { EventKind::MessageDelta },
                        turn: None,
                        json: b"{}".to_vec(),
                    })
                    .collect();
                for (id, selected) in (first..).zip(selected) {
                    if *selected || selection.kinds.is_none() {
                        expected.push(id);
                    }
                }
                log.commit(&events);
            }
            // The store's reads take two polls: what is dropped in between must not be lost.
            Step::Read => {
                if let Some(Some(chunk)) = subscription.next_chunk().now_or_never() {
                    read(chunk, &mut told);
                }
            }
            Step::DropAndResume => {
                let start = Start::After(told);
                subscription = subscribe_to(source(), start, Until::LogEnds, form, selection);
            }
            Step::CloseLog => {
                log.log.close();
                while let Some(chunk) = subscription.next_chunk().await {
                    read(chunk, &mut told);
                }
            }
        }
    }
    (got, expected)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_event_is_missed_or_doubled(
        steps in steps(),
        tail_bytes in prop_oneof![Just(1_usize), 100..2_000_usize, Just(BIG_TAIL)],
        filtered: bool,
        unnamed: bool,
    ) {
        let form = if unnamed { Form::Unnamed } else { Form::Named };
        let selection = if filtered { only(&[EventKind::Notice]) } else { Selection::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (got, expected) = runtime.block_on(follow(&steps, tail_bytes, form, selection));
        prop_assert_eq!(got, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_readers_see_the_same_bytes_as_the_writer_commits_them() {
    const RUNS: usize = 500;
    let log = FakeLog::new(2_000);
    let mut readers = tokio::task::JoinSet::new();
    for late in [0, 0, 700] {
        let log = log.clone();
        readers.spawn(async move {
            log.log.wait_committed(EventId(late)).await.unwrap();
            let mut subscription = subscribe(&log, from_first(), Until::LogEnds, Selection::default());
            rest(&mut subscription).await
        });
    }
    for run in 0..RUNS {
        log.commit_plain(EventKind::MessageDelta, None, 1 + run % 4);
        tokio::task::yield_now().await;
    }
    log.log.close();
    let whole = text(log.bytes(0, u64::MAX));
    while let Some(read) = readers.join_next().await {
        assert!(read.unwrap() == whole, "a reader saw other bytes than the log has");
    }
}
