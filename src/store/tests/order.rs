//! Order, visibility, fairness and bounds.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::thread;

use futures_util::future::join_all;

use super::super::queue::SHARE_EVENTS;
use super::*;
use crate::session::log::Page;

#[tokio::test]
async fn what_is_stored_is_what_subscribers_got() {
    let (_dir, store) = fresh();
    let mut session = Writing::new(&store).await;
    for count in [1, 7, 40] {
        session.append(count, Vec::new()).await.unwrap();
    }
    session.committed().await.unwrap();

    let mut live = Vec::new();
    let mut after = EventId(0);
    while let Some(run) = session.log.read(after).await.unwrap() {
        live.extend_from_slice(&run.bytes_after(EventId(0)));
        after = run.last();
    }
    assert_eq!(after, EventId(48));
    for max_bytes in [1, 1000, 1_000_000] {
        let runs = session.stored(max_bytes).await;
        let stored: Vec<u8> = runs.iter().flat_map(|run| run.bytes_after(EventId(0))).collect();
        assert_eq!(stored, live, "in pieces of {max_bytes} bytes");
        assert!(runs.iter().all(|run| run.len() == 1 || run.size() < 2 * max_bytes));
    }
    let behind = store.events(session.log.number(), EventId(5), 1_000_000).await.unwrap().unwrap();
    assert_eq!((behind.first(), behind.last()), (EventId(6), EventId(48)));
    for end in [48, 49, u64::MAX] {
        assert_eq!(store.events(session.log.number(), EventId(end), 1_000_000).await.unwrap(), None);
    }
    let turns: Vec<_> = behind.frames_after(EventId(5)).map(|frame| frame.turn).collect();
    let live = session.log.read(EventId(8)).await.unwrap().unwrap();
    assert_eq!(turns[3..], live.frames_after(EventId(8)).map(|frame| frame.turn).collect::<Vec<_>>());
}

#[tokio::test]
async fn nothing_is_seen_before_it_is_committed() {
    let (_dir, store) = fresh();
    let mut session = Writing::new(&store).await;
    let writer = hold_writer(&store).await;
    session.append(3, Vec::new()).await.unwrap();
    assert_eq!(session.log.head().committed, EventId(0));
    assert!(session.log.read(EventId(0)).await.unwrap().is_none());
    drop(writer);
    session.committed().await.unwrap();
    assert_eq!(session.stored(1_000_000).await[0].last(), EventId(3));
}

#[tokio::test]
async fn a_released_tail_is_read_from_the_store() {
    let (_dir, store) = fresh();
    let mut session = Writing::new(&store).await;
    session.append(3, Vec::new()).await.unwrap();
    session.committed().await.unwrap();
    let read = async || session.log.read(EventId(0)).await.unwrap().unwrap();
    let in_memory = read().await;
    assert!(Arc::ptr_eq(&in_memory, &read().await));
    session.log.release_tail();
    let stored = read().await;
    assert!(!Arc::ptr_eq(&in_memory, &stored), "it is in memory still");
    assert_eq!(in_memory, stored);
}

#[tokio::test]
async fn a_flood_delays_no_other_session() {
    let (_dir, store) = fresh();
    let (mut flooding, mut quiet) = (Writing::new(&store).await, Writing::new(&store).await);
    let writer = hold_writer(&store).await;
    for _ in 0..60 {
        flooding.append(100, Vec::new()).await.unwrap();
    }
    quiet.append(1, Vec::new()).await.unwrap();
    drop(writer);
    flooding.committed().await.unwrap();
    quiet.committed().await.unwrap();

    let rows = positions(&store).await;
    let (flood, quiet) = (flooding.log.number().0, quiet.log.number().0);
    let share = i64::try_from(SHARE_EVENTS).unwrap();
    assert_eq!(rows[0], (1, flood, 1, share), "the flood's share of the first commit");
    assert_eq!(rows[1], (share + 1, quiet, 1, 1), "the other session is in the same commit");
    assert_eq!(rows[2..], [(2002, flood, 2001, share), (4002, flood, 4001, share)]);
}

#[tokio::test]
async fn a_session_that_has_filled_its_queue_waits_and_the_others_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { session_queue_bytes: 64 * 1024, ..StoreConfig::new(dir.path().to_owned()) };
    let store = SqliteStore::open(config).unwrap();
    let (mut flooding, mut quiet) = (Writing::new(&store).await, Writing::new(&store).await);
    let writer = hold_writer(&store).await;

    let mut queued = 0;
    let mut waiting = loop {
        let append = flooding.appending(20, Vec::new());
        let mut append = store.append(append);
        match queue_now(&mut append) {
            Some(result) => result.unwrap(),
            None => break append,
        }
        queued += 1;
        assert!(queued < 100, "the queue takes everything");
    };
    assert!(queued > 2);
    let append = quiet.appending(1, Vec::new());
    queue_now(store.append(append)).expect("another session's queue is full").unwrap();
    assert!(queue_now(&mut waiting).is_none());
    drop(writer);
    waiting.await.unwrap();
    flooding.committed().await.unwrap();
}

#[tokio::test]
async fn an_append_larger_than_the_queue_passes() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        session_queue_bytes: 1024,
        queue_bytes: 2048,
        ..StoreConfig::new(dir.path().to_owned())
    };
    let store = SqliteStore::open(config).unwrap();
    let mut session = Writing::new(&store).await;
    session.append(100, Vec::new()).await.unwrap();
    session.append(SHARE_EVENTS * 2, Vec::new()).await.unwrap();
    session.committed().await.unwrap();
}

#[tokio::test]
async fn records_without_events_keep_their_place() {
    let (dir, store) = fresh();
    let mut session = Writing::new(&store).await;
    let mut turn = turn_of(session.log.session(), TurnState::Running);
    let writer = hold_writer(&store).await;
    for (events, state) in
        [(1, TurnState::Running), (0, TurnState::Failed), (1, TurnState::Running), (0, TurnState::Completed)]
    {
        turn.state = state;
        session.append(events, vec![Change::Turn(Box::new(turn.clone()))]).await.unwrap();
    }
    drop(writer);
    session.committed().await.unwrap();
    store.close().await;
    let store = open(dir.path());
    let number = session.log.number();
    assert_eq!(store.turn(number, turn.id).await.unwrap().as_ref(), Some(&turn));
    assert_eq!(store.turns(number, Page { before: None, limit: 10 }).await.unwrap(), [turn]);
}

#[tokio::test]
async fn closing_commits_what_is_queued_and_refuses_the_rest() {
    let (dir, store) = fresh();
    let mut session = Writing::new(&store).await;
    let writer = hold_writer(&store).await;
    for _ in 0..50 {
        session.append(100, Vec::new()).await.unwrap();
    }
    let mut closing = Box::pin(store.close());
    assert!(queue_now(&mut closing).is_none());
    drop(writer);
    closing.await;
    assert_eq!(session.log.head().committed, EventId(5000));
    assert!(matches!(session.append(1, Vec::new()).await, Err(StoreError::Closed)));
    assert!(matches!(store.all_sessions().await, Err(StoreError::Closed)));
    store.close().await;
    assert!(!dir.path().join("gander.db-wal").exists(), "the write-ahead log is left");
    assert_eq!(open(dir.path()).all_sessions().await.unwrap()[0].2, EventId(5000));
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_use_a_fixed_number_of_threads_and_files() {
    let (dir, store) = fresh();
    let files = || {
        let links = fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        links.filter(|target| target.starts_with(dir.path())).count()
    };
    let before = files();
    let reads = (0..500).map(|_| store.read(|_| Ok(thread::current().id())));
    let threads: HashSet<_> = join_all(reads).await.into_iter().map(Result::unwrap).collect();
    assert!(threads.len() <= 4);
    assert_eq!(files(), before);
}

#[tokio::test]
async fn the_write_ahead_log_starts_again_while_the_writer_writes() {
    let (dir, store) = fresh();
    let mut session = Writing::new(&store).await;
    // Bytes 12 to 15 of its header count how often it has started again.
    let starts = || {
        let log = fs::File::open(dir.path().join("gander.db-wal")).unwrap();
        let mut count = [0; 4];
        log.read_exact_at(&mut count, 12).unwrap();
        u32::from_be_bytes(count)
    };
    let before = starts();
    let text = "x".repeat(64 * 1024);
    let mut written = 0;
    while starts() == before {
        let run = session.run(16, &text);
        written += run.size();
        assert!(written < 256 * 1024 * 1024, "it only grows");
        // Not waited for: the queue stays full, and the writer always ahead of the checkpoints.
        store
            .append(Append {
                log: session.log.clone(),
                run: Some(run),
                changes: Vec::new(),
                audit: Vec::new(),
            })
            .await
            .unwrap();
    }
}
