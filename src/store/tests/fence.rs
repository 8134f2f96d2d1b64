//! After a loss of power no id is given that may have been given before.

use super::super::Synchronous;
use super::super::fence::JUMP;
use super::*;

fn boot(dir: &Path, boot: &str, synchronous: Synchronous) -> Arc<SqliteStore> {
    let config = StoreConfig { boot: boot.into(), synchronous, ..StoreConfig::new(dir.to_owned()) };
    SqliteStore::open(config).unwrap()
}

/// The database as it is when the machine stops: without what ending well writes. Gives the folder.
async fn power_lost(dir: &TempDir, store: &SqliteStore) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in ["gander.db", "gander.db-wal"] {
        std::fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
    }
    store.close().await;
    copy
}

async fn with_events(store: &Arc<SqliteStore>, count: usize) -> Writing {
    let mut session = Writing::new(store).await;
    session.append(count, Vec::new()).await.unwrap();
    session.committed().await.unwrap();
    session
}

async fn only_session(store: &Arc<SqliteStore>) -> Writing {
    let (number, record, last) = store.all_sessions().await.unwrap().pop().unwrap();
    Writing::go_on(store, record.snapshot.id, number, last)
}

#[tokio::test]
async fn ids_go_on_far_behind_what_may_have_been_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = boot(dir.path(), "first", Synchronous::Normal);
    with_events(&store, 5).await;
    let dir = power_lost(&dir, &store).await;

    let store = boot(dir.path(), "second", Synchronous::Normal);
    let mut session = only_session(&store).await;
    let notice = EventId(5 + JUMP);
    assert_eq!(session.next, notice.next());
    session.append(2, Vec::new()).await.unwrap();
    session.committed().await.unwrap();
    let first_position = 6 + JUMP.cast_signed();
    let rows: Vec<_> = positions(&store).await.iter().map(|row| row.0).collect();
    assert_eq!(rows, [1, first_position, first_position + 1]);

    // Whoever has read all that is left reads on; what follows begins with the notice.
    let log = &session.log;
    assert_eq!(log.read(EventId(0)).await.unwrap().unwrap().last(), EventId(5));
    let behind = log.read(EventId(5)).await.unwrap().unwrap();
    assert_eq!((behind.first(), behind.last()), (notice, EventId(notice.0 + 2)));
    let first = behind.frames_after(EventId(5)).next().unwrap();
    assert_eq!((first.id, first.kind), (notice, EventKind::Notice));
    // Whoever has read what is lost is told so.
    for lost in [EventId(6), EventId(1000), EventId(notice.0 - 2)] {
        assert!(matches!(log.read(lost).await, Err(StoreError::CursorLost)), "{lost}");
    }
    assert_eq!(session.stored(1_000_000).await.len(), 2);

    // Nothing of it is left when the session is deleted.
    store.delete_session(session.log.number(), deletion()).await.unwrap();
    assert_eq!(count(&store, "SELECT count(*) FROM lost ").await, 0);
}

#[tokio::test]
async fn ids_go_on_as_usual_when_nothing_can_be_lost() {
    let next_after = async |synchronous, second: &str, well: bool| {
        let mut dir = tempfile::tempdir().unwrap();
        let store = boot(dir.path(), "first", synchronous);
        with_events(&store, 5).await;
        if well {
            store.close().await;
        } else {
            dir = power_lost(&dir, &store).await;
        }
        let store = boot(dir.path(), second, Synchronous::Normal);
        let next = only_session(&store).await.next;
        store.close().await;
        next
    };
    let usual = EventId(6);
    assert_eq!(next_after(Synchronous::Normal, "first", false).await, usual, "the process was killed");
    assert_eq!(next_after(Synchronous::Normal, "second", true).await, usual, "it ended well");
    assert_eq!(next_after(Synchronous::Full, "second", false).await, usual, "every commit was on the disk");
    let jumped = EventId(6 + JUMP);
    assert_eq!(next_after(Synchronous::Normal, "second", false).await, jumped);
    assert_eq!(next_after(Synchronous::Normal, "", false).await, jumped, "nobody knows");
}

#[tokio::test]
async fn a_run_notes_what_it_risks_and_keeps_its_setting() {
    let dir = tempfile::tempdir().unwrap();
    for (synchronous, at_risk, level) in [(Synchronous::Normal, 1, 1), (Synchronous::Full, 0, 2)] {
        let store = boot(dir.path(), "first", synchronous);
        assert_eq!(count(&store, "SELECT at_risk FROM last_run").await, at_risk);
        let found = store.call(|connection| {
            Ok(connection.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0))?)
        });
        assert_eq!(found.await.unwrap(), level);
        store.close().await;
    }
}
