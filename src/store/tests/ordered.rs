//! The order of all sessions' events.

use std::collections::HashSet;

use super::*;
use crate::session::log::Owner;
use crate::session::order::{OrderFilter, OrderHead, Position};

fn of(owner: Owner) -> OrderFilter {
    OrderFilter { owner, sessions: None }
}

/// A session of `owner`.
async fn session_of(store: &Arc<SqliteStore>, owner: &str) -> Writing {
    let record = session_record(owner, SessionState::Idle);
    let id = record.snapshot.id;
    let number = store.create_session(record).await.unwrap();
    Writing::go_on(store, id, number, EventId(0))
}

/// The last event of a session.
fn end_of(session: &mut Writing) -> Append {
    let mut run = RunBuilder::new(session.next);
    let body = EventBody::Session { session: Box::default() };
    run.push(session.log.session(), None, moment(), EventKind::SessionDeleted, &body).unwrap();
    session.next = run.next_id();
    Append { log: session.log.clone(), run: run.finish().unwrap(), changes: Vec::new(), audit: Vec::new() }
}

/// Ends and deletes a session.
async fn delete(mut session: Writing) {
    let end = end_of(&mut session);
    session.store.append(end).await.unwrap();
    session.store.delete_session(session.log.number(), deletion()).await.unwrap();
}

type Found = Vec<(u64, u32, u64)>;

/// Everything behind `after` with position, session and id; from the tables, so much at a time.
async fn stored(store: &SqliteStore, filter: &OrderFilter, after: u64, max_bytes: usize) -> Found {
    let (mut after, until) = (Position(after), store.order().head().committed);
    let mut found = Vec::new();
    while after < until {
        let read = store.ordered_events(filter.clone(), after, until, max_bytes).await.unwrap();
        assert!(read.through > after, "a read that leads nowhere");
        add(&mut found, &read.runs, after);
        after = read.through;
    }
    found
}

/// The same by way of the order, so from memory where it is there.
async fn read(store: &SqliteStore, filter: &OrderFilter, after: u64) -> Found {
    let mut after = Position(after);
    let mut found = Vec::new();
    while let Some(read) = store.order().read(store, filter, after).await.unwrap() {
        add(&mut found, &read.runs, after);
        after = read.through;
    }
    found
}

fn add(found: &mut Found, runs: &[crate::session::order::PlacedRun], after: Position) {
    for placed in runs {
        for frame in placed.run.frames_after(placed.id_behind(after)) {
            let position = placed.position.0 + frame.id.0 - placed.run.first().0;
            found.push((position, placed.session.0, frame.id.0));
        }
    }
}

#[tokio::test]
async fn the_order_is_the_same_from_memory_and_from_the_tables_from_every_position() {
    let (dir, store) = fresh();
    let mut sessions = [
        session_of(&store, "alice").await,
        session_of(&store, "bob").await,
        session_of(&store, "alice").await,
    ];
    for round in 0..20 {
        for session in &mut sessions {
            session.append(1 + round % 3, Vec::new()).await.unwrap();
        }
    }
    for session in &sessions {
        session.committed().await.unwrap();
    }
    let numbers: Vec<u32> = sessions.iter().map(|session| session.log.number().0).collect();
    let one =
        OrderFilter { owner: Owner::Anyone, sessions: Some(HashSet::from([SessionNumber(numbers[2])])) };
    let alice = of(Owner::Caller("alice".into()));
    let everything = read(&store, &of(Owner::Anyone), 0).await;
    assert_eq!(everything.iter().map(|found| found.0).collect::<Vec<_>>(), (1..=117).collect::<Vec<_>>());
    for (filter, expected) in [
        (of(Owner::Anyone), &numbers[..]),
        (alice.clone(), &[numbers[0], numbers[2]][..]),
        (one, &numbers[2..]),
        (of(Owner::Caller("carol".into())), &[][..]),
    ] {
        for after in 0..=117 {
            let behind: Found = everything
                .iter()
                .filter(|(position, session, _)| *position > after && expected.contains(session))
                .copied()
                .collect();
            assert_eq!(read(&store, &filter, after).await, behind, "behind {after} from memory");
            if after % 13 == 0 {
                for max_bytes in [1, 1000, 1_000_000] {
                    assert_eq!(stored(&store, &filter, after, max_bytes).await, behind, "behind {after}");
                }
            }
        }
    }
    let tag = store.order().tag();
    store.close().await;
    let store = open(dir.path());
    assert_eq!(store.order().tag(), tag);
    assert_eq!(read(&store, &of(Owner::Anyone), 0).await, everything, "after a restart");
}

#[tokio::test]
async fn every_database_has_a_tag_of_its_own() {
    let ((_one, first), (_other, second)) = (fresh(), fresh());
    assert_ne!(first.order().tag(), second.order().tag());
}

#[tokio::test]
async fn a_deleted_session_leaves_its_end_at_its_place_and_nothing_else() {
    let (dir, store) = fresh();
    let (mut kept, mut deleted) = (session_of(&store, "alice").await, session_of(&store, "alice").await);
    let other = session_of(&store, "bob").await;
    deleted.append(3, Vec::new()).await.unwrap();
    deleted.committed().await.unwrap();
    kept.append(2, Vec::new()).await.unwrap();
    kept.committed().await.unwrap();
    let (kept_number, deleted_number) = (kept.log.number().0, deleted.log.number().0);
    delete(deleted).await;
    delete(other).await;
    kept.append(1, Vec::new()).await.unwrap();
    kept.committed().await.unwrap();

    let alice = of(Owner::Caller("alice".into()));
    let expected = [(4, kept_number, 1), (5, kept_number, 2), (6, deleted_number, 4), (8, kept_number, 3)];
    for max_bytes in [1, 1_000_000] {
        assert_eq!(stored(&store, &alice, 0, max_bytes).await, expected);
        assert_eq!(stored(&store, &alice, 5, max_bytes).await, expected[2..]);
        assert_eq!(stored(&store, &alice, 6, max_bytes).await, expected[3..]);
    }
    assert_eq!(count(&store, "SELECT count(*) FROM events").await, 3, "the rest is gone");
    assert_eq!(count(&store, "SELECT count(*) FROM ended_sessions").await, 2);
    let end = store.ordered_events(alice.clone(), Position(5), Position(6), 1000).await.unwrap();
    let frame = end.runs[0].run.frames_after(EventId(0)).next().unwrap();
    assert_eq!(frame.kind, EventKind::SessionDeleted);
    assert!(frame.json().starts_with(br#"{"id":4,"type":"session.deleted""#));
    // Who reads along gets it from memory.
    assert_eq!(read(&store, &alice, 5).await, expected[2..]);
    store.close().await;
    assert_eq!(read(&open(dir.path()), &alice, 0).await, expected, "after a restart");
}

#[tokio::test]
async fn the_ends_of_long_deleted_sessions_are_forgotten_and_that_is_known() {
    let (dir, store) = fresh();
    let deleted = session_of(&store, "alice").await;
    let fill = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 10000)
         INSERT INTO ended_sessions SELECT n, 99, 1, 'alice', CAST('{}' AS BLOB) FROM n";
    let positions = "UPDATE next_position SET position = 10001";
    store
        .call(move |connection| {
            connection.execute(fill, ())?;
            Ok(connection.execute(positions, ())?)
        })
        .await
        .unwrap();
    drop(deleted);
    store.close().await;
    drop(store);

    let store = open(dir.path());
    assert_eq!(store.order().head(), OrderHead { committed: Position(10_000), forgotten: Position(0) });
    let alice = of(Owner::Caller("alice".into()));
    assert_eq!(stored(&store, &alice, 0, 1_000_000).await.len(), 10_000, "many reads");
    delete(session_of(&store, "alice").await).await;
    assert_eq!(store.order().head(), OrderHead { committed: Position(10_001), forgotten: Position(1) });
    let found = stored(&store, &alice, 0, 1_000_000).await;
    assert_eq!((found.len(), found[0].0), (10_000, 2));
}

#[tokio::test]
async fn a_commit_that_failed_leaves_no_hole_in_the_order() {
    let (_dir, store) = fresh();
    let (mut one, mut other) = (session_of(&store, "alice").await, session_of(&store, "alice").await);
    one.append(2, Vec::new()).await.unwrap();
    one.committed().await.unwrap();
    // It is in the database, and nobody was told: as after an error that comes behind the commit.
    let number = other.log.number().0;
    let unheard = format!(
        "INSERT INTO runs VALUES (3, {number}, 1, 1);
         INSERT INTO events VALUES (({number} << 40) + 1, {}, NULL, CAST('{{}}' AS BLOB));",
        EventKind::Notice.code()
    );
    store.call(move |connection| Ok(connection.execute_batch(&unheard)?)).await.unwrap();
    // The next commit fails, since the position is taken; the writer then looks where the order really is.
    other.next = EventId(2);
    one.append(1, Vec::new()).await.unwrap();
    one.committed().await.unwrap_err();
    let mut third = session_of(&store, "alice").await;
    third.append(1, Vec::new()).await.unwrap();
    third.committed().await.unwrap();
    let expected = [(1, one.log.number().0, 1), (2, one.log.number().0, 2), (3, number, 1)];
    let found = read(&store, &of(Owner::Anyone), 0).await;
    assert_eq!(found[..3], expected);
    assert_eq!(found[3], (4, third.log.number().0, 1));
}

#[tokio::test]
async fn a_database_of_the_first_version_gets_an_order() {
    let dir = tempfile::tempdir().unwrap();
    let connection = rusqlite::Connection::open(dir.path().join("gander.db")).unwrap();
    connection.execute_batch(include_str!("../schema/1.sql")).unwrap();
    connection
        .execute_batch(
            "PRAGMA application_id = 1735287922; PRAGMA user_version = 1;
             INSERT INTO runs VALUES (1, 1, 1, 1);
             INSERT INTO events VALUES ((1 << 40) + 1, 22, NULL, CAST('{}' AS BLOB));",
        )
        .unwrap();
    let record = serde_json::to_string(&session_record("alice", SessionState::Idle)).unwrap();
    let insert = "INSERT INTO sessions VALUES (1, zeroblob(16), 'alice', 'idle', ?1)";
    connection.execute(insert, (record,)).unwrap();
    drop(connection);
    let store = open(dir.path());
    assert_eq!(read(&store, &of(Owner::Anyone), 0).await, [(1, 1, 1)]);
    assert_eq!(count(&store, "PRAGMA user_version").await, 6);
}
