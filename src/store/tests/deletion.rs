//! Deleted sessions: gone at once for readers, then from the file, and never mistaken for another.

use std::fs;

use super::super::call::Call;
use super::super::writer::Job;
use super::*;
use crate::session::log::{Owner, Page};

/// What is left of a session in any table.
const ROWS: &str = "SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM runs)
    + (SELECT count(*) FROM turns) + (SELECT count(*) FROM sessions) + (SELECT count(*) FROM deletions)";

async fn with_turns(store: &Arc<SqliteStore>, appends: usize) -> Writing {
    let mut session = Writing::new(store).await;
    for _ in 0..appends {
        let turn = turn_of(session.log.session(), TurnState::Completed);
        session.append(1000, vec![Change::Turn(Box::new(turn))]).await.unwrap();
    }
    session
}

#[tokio::test]
async fn everything_of_a_deleted_session_goes_and_the_file_gets_smaller() {
    let (dir, store) = fresh();
    let mut kept = with_turns(&store, 1).await;
    let session = with_turns(&store, 10).await;
    // The deletion waits for what is queued before it.
    store.delete_session(session.log.number(), deletion()).await.unwrap();
    assert_eq!(session.log.head().committed, EventId(10_000));

    assert!(session.stored(1000).await.is_empty());
    kept.append(1, Vec::new()).await.unwrap();
    kept.committed().await.unwrap();
    let runs = count(&store, "SELECT count(*) FROM runs").await;
    assert_eq!(count(&store, ROWS).await, 1001 + runs + 1 + 1);
    assert_eq!(store.all_sessions().await.unwrap().len(), 1);

    commit_until_zero(&mut kept, "PRAGMA freelist_count").await;
    store.close().await;
    let size = fs::metadata(dir.path().join("gander.db")).unwrap().len();
    assert!(size < 1_000_000, "{size} bytes for 1,000 events");
}

/// Notes in every commit how many of a session's events are left, until there are none.
struct Observer {
    session: SessionNumber,
    jobs: tokio::sync::mpsc::Sender<Job>,
    seen: std::sync::mpsc::Sender<i64>,
}

impl Call for Observer {
    fn run(&mut self, connection: &rusqlite::Connection) {
        let sql = "SELECT count(*) FROM events WHERE k >> 40 = ?1";
        let left = connection.query_row(sql, (self.session.0,), |row| row.get(0)).unwrap();
        self.seen.send(left).unwrap();
        if left > 0 {
            let next = Self { session: self.session, jobs: self.jobs.clone(), seen: self.seen.clone() };
            assert!(self.jobs.try_send(Job::Call(Box::new(next))).is_ok());
        }
    }

    fn conclude(self: Box<Self>, committed: Result<(), StoreError>) {
        committed.unwrap();
    }
}

#[tokio::test]
async fn a_removal_goes_in_steps_with_other_commits_in_between() {
    let (_dir, store) = fresh();
    let session = with_turns(&store, 10).await;
    session.committed().await.unwrap();
    let number = session.log.number();
    let writer = hold_writer(&store).await;
    let mut deleting = store.delete_session(number, deletion());
    assert!(queue_now(&mut deleting).is_none());
    let (seen, lefts) = std::sync::mpsc::channel();
    let observer = Observer { session: number, jobs: store.jobs.clone(), seen };
    store.jobs.send(Job::Call(Box::new(observer))).await.ok().unwrap();
    drop(writer);
    deleting.await.unwrap();
    assert_eq!(lefts.iter().collect::<Vec<_>>(), [10_000, 8_000, 6_000, 4_000, 2_000, 0]);
}

#[tokio::test]
async fn a_session_is_gone_for_readers_before_its_rows_are() {
    let (_dir, store) = fresh();
    let mut session = with_turns(&store, 1).await;
    let turn = turn_of(session.log.session(), TurnState::Completed);
    session.append(1, vec![Change::Turn(Box::new(turn.clone()))]).await.unwrap();
    session.committed().await.unwrap();
    let number = session.log.number();
    store.call(|connection| Ok(connection.execute("DELETE FROM sessions", ())?)).await.unwrap();
    assert!(session.stored(1000).await.is_empty());
    assert!(store.message_events(number, EventId(0), EventId(9), 9).await.unwrap().is_empty());
    assert!(store.turns(number, Page { before: None, limit: 9 }).await.unwrap().is_empty());
    assert_eq!(store.turn(number, turn.id).await.unwrap(), None);
}

#[tokio::test]
async fn what_a_deleted_session_said_is_not_left_in_the_file() {
    let (dir, store) = fresh();
    let (mut kept, mut session) = (Writing::new(&store).await, Writing::new(&store).await);
    for _ in 0..20 {
        for (writing, text) in [(&mut kept, "harmless"), (&mut session, "embarrassing")] {
            let turn = turn_of(writing.log.session(), TurnState::Completed);
            let turn = Turn { prompt: Some(Prompt::Text(text.into())), ..turn };
            let run = Some(writing.run(3, text));
            let changes = vec![Change::Turn(Box::new(turn))];
            store.append(Append { log: writing.log.clone(), run, changes, audit: Vec::new() }).await.unwrap();
            writing.committed().await.unwrap();
        }
    }
    store.delete_session(session.log.number(), deletion()).await.unwrap();
    // Also from the write-ahead log, without waiting for others to write over it.
    let has = |text: &[u8]| {
        let holds =
            |name| fs::read(dir.path().join(name)).unwrap().windows(text.len()).any(|part| part == text);
        holds("gander.db") || holds("gander.db-wal")
    };
    tokio::time::timeout(Duration::from_secs(30), async {
        while has(b"embarrassing") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it is gone from the files");
    assert!(has(b"harmless"));
}

#[tokio::test]
async fn nothing_is_written_for_a_deleted_session() {
    let (_dir, store) = fresh();
    let mut session = with_turns(&store, 1).await;
    let number = session.log.number();
    let turn = turn_of(session.log.session(), TurnState::Running);
    let deleting = store.delete_session(number, deletion());
    deleting.await.unwrap();
    session.append(1, vec![Change::Turn(Box::new(turn.clone()))]).await.unwrap();
    session.log.watch().wait_for(|head| head.failed).await.unwrap();
    assert_eq!(count(&store, ROWS).await, 0);
    assert_eq!(store.turn(number, turn.id).await.unwrap(), None);
    store.delete_session(number, deletion()).await.unwrap();
}

#[tokio::test]
async fn numbers_and_positions_are_never_given_twice() {
    let (dir, store) = fresh();
    let first = with_turns(&store, 1).await;
    let last = with_turns(&store, 2).await;
    last.committed().await.unwrap();
    let before = positions(&store).await.iter().map(|row| row.0 + row.3).max().unwrap();
    assert_eq!(before, 3001);
    for number in [last.log.number(), first.log.number()] {
        store.delete_session(number, deletion()).await.unwrap();
    }
    assert_eq!(count(&store, ROWS).await, 0);
    store.close().await;

    let store = open(dir.path());
    let mut next = Writing::new(&store).await;
    next.append(1, Vec::new()).await.unwrap();
    next.committed().await.unwrap();
    assert!(next.log.number() > last.log.number());
    assert_eq!(positions(&store).await, [(3001, next.log.number().0, 1, 1)]);
}

#[tokio::test]
async fn the_next_start_goes_on_with_a_removal() {
    let (dir, store) = fresh();
    let session = with_turns(&store, 10).await;
    session.committed().await.unwrap();
    let number = session.log.number().0;
    // As a process leaves it that dies after the first step.
    let half = move |connection: &rusqlite::Connection| {
        connection.execute("DELETE FROM sessions", ())?;
        connection.execute("INSERT INTO deletions VALUES (?1)", (number,))?;
        connection.execute("DELETE FROM events WHERE k & 1 = 0", ())?;
        Ok(())
    };
    store.call(half).await.unwrap();
    store.close().await;

    let store = open(dir.path());
    assert!(store.sessions(Owner::Anyone, None, Page { before: None, limit: 9 }).await.unwrap().is_empty());
    let mut next = Writing::new(&store).await;
    commit_until_zero(&mut next, "SELECT count(*) FROM deletions").await;
    let rest = "SELECT count(*) FROM events WHERE k >> 40 = 1";
    assert_eq!(count(&store, rest).await, 0);
    assert_eq!(count(&store, "SELECT count(*) FROM turns").await, 0);
}
