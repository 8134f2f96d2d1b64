//! A store without room: what was queued waits, and is written when there is some.

use super::*;

const MAX_BYTES: u64 = 2_000_000;

fn bounded(dir: &Path) -> Arc<SqliteStore> {
    let config = StoreConfig { max_bytes: MAX_BYTES, ..StoreConfig::new(dir.to_owned()) };
    SqliteStore::open(config).unwrap()
}

/// Appends until nothing can be written.
async fn fill(store: &SqliteStore, session: &mut Writing) {
    let mut trouble = store.trouble();
    for _ in 0..100 {
        session.append(500, Vec::new()).await.unwrap();
        let last = EventId(session.next.0 - 1);
        tokio::select! {
            result = session.log.wait_committed(last) => result.unwrap(),
            error = trouble.wait_for(Option::is_some) => return drop(error.unwrap()),
        }
    }
    panic!("a bounded database takes everything");
}

#[tokio::test]
async fn what_finds_no_room_waits_until_a_deletion_makes_some() {
    let dir = tempfile::tempdir().unwrap();
    let store = bounded(dir.path());
    let (mut large, mut other) = (Writing::new(&store).await, Writing::new(&store).await);
    other.append(3, Vec::new()).await.unwrap();
    other.committed().await.unwrap();
    fill(&store, &mut large).await;

    // Nothing new is begun, reading goes on, and what is on its way is kept.
    assert!(matches!(store.check_writable().await, Err(StoreError::Unavailable(_))));
    let record = session_record("alice", SessionState::Idle);
    assert!(matches!(store.create_session(record).await, Err(StoreError::Unavailable(_))));
    assert_eq!(other.stored(1000).await.last().unwrap().last(), EventId(3));
    let turn = turn_of(other.log.session(), TurnState::Completed);
    other.append(2, vec![Change::Turn(Box::new(turn.clone()))]).await.unwrap();
    let answer = super::super::StoredAnswer { status: 201, headers: Vec::new(), body: b"{}".to_vec() };
    let mut finishing = Box::pin(store.finish_answer([1; 32], None, answer));
    assert!(queue_now(&mut finishing).is_none());
    assert_eq!(other.log.head().committed, EventId(3));
    assert!(!other.log.head().failed);

    store.delete_session(large.log.number(), deletion()).await.unwrap();
    assert!(large.log.head().failed, "it was deleted with what waited for room");
    other.committed().await.unwrap();
    finishing.await.unwrap();
    store.trouble().wait_for(Option::is_none).await.unwrap();
    assert_eq!(store.turn(other.log.number(), turn.id).await.unwrap(), Some(turn));
    assert_eq!(other.stored(1000).await.last().unwrap().last(), EventId(5));
    store.check_writable().await.unwrap();
    let mut next = Writing::new(&store).await;
    next.append(1, Vec::new()).await.unwrap();
    next.committed().await.unwrap();
    let rows = positions(&store).await;
    assert!(rows.windows(2).all(|pair| pair[0].0 + pair[0].3 <= pair[1].0), "{rows:?}");
}

#[tokio::test]
async fn what_still_waits_at_the_end_was_never_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = bounded(dir.path());
    let mut session = Writing::new(&store).await;
    fill(&store, &mut session).await;
    let told = session.log.head().committed;
    store.close().await;
    assert!(session.log.head().failed);
    assert!(session.committed().await.is_err());

    let store = open(dir.path());
    let (number, record, last) = store.all_sessions().await.unwrap().pop().unwrap();
    assert_eq!(last, told);
    let mut again = Writing::go_on(&store, record.snapshot.id, number, last);
    again.append(1, Vec::new()).await.unwrap();
    again.committed().await.unwrap();
}

#[tokio::test]
async fn a_deletion_among_what_waits_goes_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = bounded(dir.path());
    let mut large = Writing::new(&store).await;
    let writer = hold_writer(&store).await;
    // More than fits, and its deletion behind it.
    for _ in 0..5 {
        large.append(1900, Vec::new()).await.unwrap();
    }
    let mut deleting = store.delete_session(large.log.number(), deletion());
    assert!(queue_now(&mut deleting).is_none());
    drop(writer);
    deleting.await.unwrap();
    store.trouble().wait_for(Option::is_none).await.unwrap();
    assert_eq!(count(&store, "SELECT count(*) FROM events").await, 0);
}
