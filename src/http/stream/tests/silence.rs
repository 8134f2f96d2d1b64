//! Comments, cursors and lines while there is nothing to tell.

use super::*;

/// A subscription with heartbeats as often as can be.
fn subscribe_with_heartbeats(
    log: &FakeLog,
    form: Form,
    selection: Selection,
    padding: usize,
) -> Subscription<SessionEvents> {
    let never = Box::pin(std::future::pending());
    let beat = Heartbeat { every: Duration::from_millis(1), padding };
    let source = SessionEvents::new(log.log.clone());
    Subscription::new(source, from_first(), Until::LogEnds, (form, selection), beat, never)
}

#[tokio::test]
async fn a_heartbeat_moves_the_cursor_over_events_that_are_not_selected() {
    let log = FakeLog::new(BIG_TAIL);
    let mut subscription = subscribe_with_heartbeats(&log, Form::Named, only(&[EventKind::Notice]), 0);
    assert_eq!(text(subscription.next_chunk().await.unwrap()), OPENING);
    assert_eq!(text(subscription.next_chunk().await.unwrap()), ":\n\n", "nothing has passed by");
    log.commit_plain(EventKind::MessageDelta, None, 7);
    // One may be due before the events are looked at.
    let mut chunk = text(subscription.next_chunk().await.unwrap());
    while chunk == ":\n\n" {
        chunk = text(subscription.next_chunk().await.unwrap());
    }
    assert_eq!(chunk, ":\nid: 7\n\n");
    assert_eq!(text(subscription.next_chunk().await.unwrap()), ":\n\n", "the cursor was told already");
}

#[tokio::test]
async fn comments_are_padded_for_proxies_that_hold_back_what_is_small() {
    let log = FakeLog::new(BIG_TAIL);
    let mut subscription = subscribe_with_heartbeats(&log, Form::Named, Selection::default(), 3);
    assert_eq!(text(subscription.next_chunk().await.unwrap()), ": gander   \nretry: 2000\n\n");
    assert_eq!(text(subscription.next_chunk().await.unwrap()), ":   \n\n");
}

#[tokio::test]
async fn lines_are_the_events_json_and_nothing_else_while_there_are_events() {
    let log = FakeLog::new(BIG_TAIL);
    log.commit_plain(EventKind::MessageDelta, None, 3);
    let mut subscription = subscribe_in(&log, from_first(), Until::Now, Form::Lines);
    assert_eq!(rest(&mut subscription).await, text(log.lines(0, 3)));
    let mut subscription = subscribe_in(&log, Start::Latest, Until::Now, Form::Lines);
    assert_eq!(rest(&mut subscription).await, "{\"type\":\"stream.cursor\",\"next_after\":3}\n");
}

#[tokio::test]
async fn a_silent_stream_of_lines_is_kept_alive_by_the_cursor() {
    let log = FakeLog::new(BIG_TAIL);
    log.commit_plain(EventKind::MessageDelta, None, 2);
    let selection = only(&[EventKind::Notice]);
    let mut subscription = subscribe_with_heartbeats(&log, Form::Lines, selection, 0);
    let mut line = text(subscription.next_chunk().await.unwrap());
    // One may be due before the events are looked at.
    while line == "{\"type\":\"stream.cursor\",\"next_after\":0}\n" {
        line = text(subscription.next_chunk().await.unwrap());
    }
    for _ in 0..2 {
        assert_eq!(line, "{\"type\":\"stream.cursor\",\"next_after\":2}\n");
        line = text(subscription.next_chunk().await.unwrap());
    }
}

#[tokio::test]
async fn heartbeats_are_not_put_off_by_events_that_are_not_selected() {
    let log = FakeLog::new(1_000);
    let mut subscription = subscribe_with_heartbeats(&log, Form::Named, only(&[EventKind::Notice]), 0);
    subscription.next_chunk().await;
    let flood = async {
        for _ in 0..100_000 {
            log.commit_plain(EventKind::MessageDelta, None, 1);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        chunk = subscription.next_chunk() => assert!(text(chunk.unwrap()).starts_with(":\n")),
        () = flood => panic!("no heartbeat in the whole flood"),
    }
}
