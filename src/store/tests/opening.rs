//! What `open` makes, and what it refuses.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rusqlite::Connection;

use super::super::OpenError;
use super::*;
use crate::session::id::{GrantId, PermissionId};
use crate::session::log::{Page, PermissionsOf};
use crate::session::permission::{Decision, PermissionGrant, PermissionState};
use crate::session::policy::{Grant, GrantedCalls};

fn try_open(dir: &Path) -> Result<Arc<SqliteStore>, OpenError> {
    SqliteStore::open(StoreConfig::new(dir.to_owned()))
}

#[tokio::test]
async fn only_its_owner_can_read_it() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("state/gander");
    let store = open(&dir);
    Writing::new(&store).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let names: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(names.len() >= 3, "{names:?}");
    for file in names {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn the_file_is_set_up_as_measured() {
    let (dir, store) = fresh();
    let pragma = |name: &'static str| {
        store.call(move |connection| {
            Ok(connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0))?)
        })
    };
    for (name, value) in [
        ("page_size", 4096),
        ("auto_vacuum", 2),
        ("user_version", 6),
        ("wal_autocheckpoint", 0),
        ("synchronous", 1),
    ] {
        assert_eq!(pragma(name).await.unwrap(), value, "{name}");
    }
    store.close().await;
    let config = StoreConfig {
        synchronous: super::super::Synchronous::Full,
        ..StoreConfig::new(dir.path().to_owned())
    };
    let store = SqliteStore::open(config).unwrap();
    let level =
        store.call(|connection| Ok(connection.pragma_query_value(None, "synchronous", |row| row.get(0))?));
    let level: i64 = level.await.unwrap();
    assert_eq!(level, 2);
}

#[tokio::test]
async fn two_gateways_cannot_share_a_folder() {
    let (dir, store) = fresh();
    let error = try_open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }));
    assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
    store.close().await;
    try_open(dir.path()).unwrap().close().await;
}

#[test]
fn another_programs_database_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gander.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE recipes (name TEXT)").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let before = fs::read(&path).unwrap();
    let error = try_open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gander.db");
    let garbage = "no database. ".repeat(1000);
    fs::write(&path, &garbage).unwrap();
    let error = try_open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("gander.db"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), garbage);
}

#[tokio::test]
async fn a_damaged_database_is_refused() {
    for damage in [truncate as fn(&Path), overwrite] {
        let (dir, store) = fresh();
        for _ in 0..50 {
            Writing::new(&store).await.append(20, Vec::new()).await.unwrap();
        }
        store.close().await;
        damage(&dir.path().join("gander.db"));
        let error = try_open(dir.path()).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    }
}

fn truncate(path: &Path) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(8 * 4096).unwrap();
}

/// Everything behind the page with the tables' names.
fn overwrite(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[4096..].fill(0x5a);
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_newer_ganders_database_is_refused() {
    let (dir, store) = fresh();
    store.close().await;
    let connection = Connection::open(dir.path().join("gander.db")).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let error = try_open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 99, known: 6, .. }), "{error}");
}

#[tokio::test]
async fn session_numbers_stay_within_their_bits() {
    let (_dir, store) = fresh();
    Writing::new(&store).await;
    let last = "UPDATE sqlite_sequence SET seq = (1 << 23) - 2 WHERE name = 'sessions'";
    store.call(move |connection| Ok(connection.execute(last, ())?)).await.unwrap();
    let mut session = Writing::new(&store).await;
    assert_eq!(session.log.number(), SessionNumber((1 << 23) - 1));
    session.append(2, Vec::new()).await.unwrap();
    session.committed().await.unwrap();
    assert_eq!(session.stored(1_000_000).await[0].len(), 2);
    let refused = store.create_session(session_record("alice", SessionState::Idle)).await;
    assert!(matches!(refused, Err(StoreError::Failed(_))));
    assert_eq!(count(&store, "SELECT count(*) FROM sessions").await, 2);
}

#[tokio::test]
async fn a_database_of_the_first_version_opens_with_all_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gander.db");
    Connection::open(&path).unwrap().execute_batch(include_str!("version_1.sql")).unwrap();
    let store = open(dir.path());
    assert_eq!(count(&store, "SELECT user_version FROM pragma_user_version").await, 6);
    let (number, record, last) = store.all_sessions().await.unwrap().pop().unwrap();
    assert_eq!((record.snapshot.title.as_deref(), last), (Some("kept"), EventId(19)));
    assert_eq!(record.snapshot.state, SessionState::AwaitingPermission);
    let turns = store.turns(number, Page { before: None, limit: 9 }).await.unwrap();
    let states: Vec<_> = turns.iter().map(|turn| turn.state).collect();
    assert_eq!(states, [TurnState::Running, TurnState::Completed]);
    let of = PermissionsOf::Session(number);
    let pending = Some(PermissionState::Pending);
    let permissions = store.permissions(of, pending, Page { before: None, limit: 9 }).await.unwrap();
    assert_eq!(permissions.len(), 1);

    let mut session = Writing::go_on(&store, record.snapshot.id, number, last);
    session.append(2, Vec::new()).await.unwrap();
    session.committed().await.unwrap();
    assert_eq!(session.stored(1_000_000).await[0].len(), 21);
    assert_eq!(positions(&store).await.last().unwrap().0, 20);
}

#[tokio::test]
async fn remembered_answers_of_the_fifth_version_are_read_again() {
    let (dir, store) = fresh();
    let mut record = session_record("alice", SessionState::Idle);
    let commands = vec![vec!["uname".to_owned(), "-sr".to_owned()]];
    let covers = [
        GrantedCalls::Tool,
        GrantedCalls::Commands { commands },
        GrantedCalls::Files { files: vec!["/work/\"by\":\"files\",\"files\":".into()] },
    ];
    record.grants = covers.into_iter().map(grant).collect();
    store.create_session(record.clone()).await.unwrap();
    store.close().await;
    let connection = Connection::open(dir.path().join("gander.db")).unwrap();
    let old =
        "UPDATE sessions SET record = replace(record, '\"calls\":', '\"by\":'); PRAGMA user_version = 5";
    connection.execute_batch(old).unwrap();
    drop(connection);
    let store = open(dir.path());
    let kept = store.all_sessions().await.unwrap().pop().unwrap().1;
    assert_eq!(kept.grants, record.grants);
}

fn grant(calls: GrantedCalls) -> PermissionGrant {
    let grant = Grant { decision: Decision::Allow, tool: "shell".into(), extension: None, calls };
    PermissionGrant {
        id: GrantId::new(),
        name: grant.words(),
        grant,
        permission_id: PermissionId::new(),
        by: "alice".into(),
        granted_at: moment(),
    }
}
