//! What happens when a commit fails, or the process dies.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::*;

/// Puts an event where the session's next one belongs: what no trying again mends.
async fn poison(session: &Writing) {
    let key = (i64::from(session.log.number().0) << 40) | session.next.0.cast_signed();
    let insert = "INSERT INTO events (k, kind, data) VALUES (?1, 1, x'')";
    session.store.call(move |connection| Ok(connection.execute(insert, (key,))?)).await.unwrap();
}

#[tokio::test]
async fn a_commit_that_cannot_be_ends_its_sessions_log_and_no_other() {
    let (dir, store) = fresh();
    let (mut failing, mut other) = (Writing::new(&store).await, Writing::new(&store).await);
    failing.append(2, Vec::new()).await.unwrap();
    failing.committed().await.unwrap();
    poison(&failing).await;

    let turn = turn_of(failing.log.session(), TurnState::Running);
    let turn_id = turn.id;
    let writer = hold_writer(&store).await;
    failing.append(50, vec![Change::Turn(Box::new(turn))]).await.unwrap();
    other.append(3, Vec::new()).await.unwrap();
    let mut creating = store.create_session(session_record("alice", SessionState::Idle));
    assert!(queue_now(&mut creating).is_none());
    drop(writer);
    assert!(failing.committed().await.is_err());
    assert!(failing.log.head().failed);
    assert_eq!(failing.log.head().committed, EventId(2));
    other.committed().await.unwrap();
    assert!(matches!(creating.await, Err(StoreError::Failed(_))), "a request in the failed commit is told");
    assert!(store.trouble().borrow().is_none());
    assert!(matches!(failing.append(1, Vec::new()).await, Err(StoreError::Failed(_))));
    let number = failing.log.number();
    assert_eq!(store.turn(number, turn_id).await.unwrap(), None);

    // After a restart it goes on where the log ends.
    store
        .call(|connection| Ok(connection.execute("DELETE FROM events WHERE data = x''", ())?))
        .await
        .unwrap();
    store.close().await;
    let store = open(dir.path());
    let mut again = Writing::go_on(&store, failing.log.session(), number, EventId(2));
    again.append(1, Vec::new()).await.unwrap();
    again.committed().await.unwrap();
    assert_eq!(again.stored(1_000_000).await.last().unwrap().last(), EventId(3));
}

#[tokio::test]
async fn an_id_is_neither_given_twice_nor_left_out() {
    let (_dir, store) = fresh();
    for wrong in [EventId(2), EventId(4)] {
        let mut session = Writing::new(&store).await;
        session.append(2, Vec::new()).await.unwrap();
        session.committed().await.unwrap();
        session.next = wrong;
        session.append(1, Vec::new()).await.unwrap();
        session.log.watch().wait_for(|head| head.failed).await.unwrap();
        assert_eq!(session.stored(1_000_000).await.last().unwrap().last(), EventId(2));
    }
}

#[tokio::test]
async fn a_missing_event_is_an_error_and_no_silent_gap() {
    let (_dir, store) = fresh();
    let mut session = Writing::new(&store).await;
    session.append(5, Vec::new()).await.unwrap();
    session.committed().await.unwrap();
    let number = session.log.number();
    let damage = "DELETE FROM events WHERE k & 255 = 3";
    store.call(move |connection| Ok(connection.execute(damage, ())?)).await.unwrap();
    assert!(store.events(number, EventId(0), 1_000_000).await.is_err());
    assert!(store.events(number, EventId(3), 1_000_000).await.unwrap().is_some());
}

/// Before the folder, in the arguments of the child process of the test below. The test runner takes it for one more
/// filter, which fits no test.
const CHILD: &str = "appends-into=";

async fn append_until_killed(dir: &Path) {
    let store = open(dir);
    let (mut first, mut second) = (Writing::new(&store).await, Writing::new(&store).await);
    loop {
        for session in [&mut first, &mut second] {
            session.append(7, Vec::new()).await.unwrap();
        }
        first.committed().await.unwrap();
        second.committed().await.unwrap();
        println!("\ncommitted {}", first.log.head().committed);
    }
}

#[tokio::test]
async fn what_was_delivered_survives_kill_9() {
    if let Some(dir) = std::env::args().find_map(|argument| argument.strip_prefix(CHILD).map(str::to_owned)) {
        return append_until_killed(Path::new(&dir)).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let this = "store::tests::failure::what_was_delivered_survives_kill_9";
    let child = format!("{CHILD}{}", dir.path().display());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([this, &child, "--exact", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut delivered = 0;
    let mut reports = 0;
    // The pipe holds more than is read before the kill: the last whole line counts.
    for line in output.map_while(Result::ok) {
        if let Some(id) = line.strip_prefix("committed ").and_then(|id| id.parse::<u64>().ok()) {
            delivered = id;
            reports += 1;
            if reports == 200 {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    assert!(reports >= 200, "the child ended by itself after {reports} reports");

    let store = open(dir.path());
    let sessions = store.all_sessions().await.unwrap();
    assert_eq!(sessions.len(), 2);
    for (number, record, last) in sessions {
        assert!(last.0 >= delivered, "{delivered} were delivered, {last} are there");
        let mut session = Writing::go_on(&store, record.snapshot.id, number, last);
        assert_eq!(session.stored(100_000).await.last().unwrap().last(), last);
        session.append(1, Vec::new()).await.unwrap();
        session.committed().await.unwrap();
    }
    let mut next = 1;
    for (position, _, _, count) in positions(&store).await {
        assert_eq!(position, next);
        next += count;
    }
}
