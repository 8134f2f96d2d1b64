//! Who did what, and when: written with the change, kept behind the session's end, forgotten when it is old.

use super::*;
use crate::session::audit::AuditFilter;
use crate::store::audit::{AuditLog, STEP_ROWS, forget};
use crate::store::{OpenError, Synchronous, schema};

fn entry(session: Option<SessionId>, name: &str, millis: i64) -> AuditEntry {
    let entry = AuditEntry::of_gateway(&By::caller(name), "turn.started");
    AuditEntry { at: Timestamp::from_millis(millis).unwrap(), session, ..entry }
}

fn all(dir: &Path, filter: AuditFilter) -> Vec<AuditEntry> {
    let mut log = AuditLog::open(dir, filter).unwrap();
    let mut entries = Vec::new();
    loop {
        let page = log.next_page().unwrap();
        if page.is_empty() {
            return entries;
        }
        entries.extend(page);
    }
}

#[tokio::test]
async fn entries_are_committed_with_their_change_and_outlive_the_session() {
    let (dir, store) = fresh();
    let mut session = Writing::new(&store).await;
    let written = entry(Some(session.log.session()), "alice", 1_000);
    let append = Append { audit: vec![written.clone()], ..session.appending(1, Vec::new()) };
    store.append(append).await.unwrap();
    session.committed().await.unwrap();
    assert_eq!(
        all(dir.path(), AuditFilter::default())[..],
        *std::slice::from_ref(&written),
        "beside the store"
    );
    let gone = AuditEntry::session_deleted(session.log.session(), &By::caller("bob"));
    let gone = AuditEntry { at: Timestamp::from_millis(2_000).unwrap(), ..gone };
    store.delete_session(session.log.number(), gone.clone()).await.unwrap();
    store.close().await;
    let store = open(dir.path());
    assert_eq!(all(dir.path(), AuditFilter::default()), [written, gone]);
    store.close().await;
    assert_eq!(all(dir.path(), AuditFilter::default()).len(), 2, "and when none runs");
}

#[tokio::test]
async fn entries_are_found_by_session_caller_and_time_in_their_order() {
    let (dir, store) = fresh();
    let (one, other) = (SessionId::new(), SessionId::new());
    for at in 0..1_200 {
        let (session, name) = if at % 2 == 0 { (Some(one), "alice") } else { (Some(other), "bob") };
        store.note(entry(session, name, at)).await.unwrap();
    }
    let filter = AuditFilter::default;
    let times =
        |entries: Vec<AuditEntry>| -> Vec<i64> { entries.iter().map(|entry| entry.at.as_millis()).collect() };
    assert_eq!(times(all(dir.path(), filter())), (0..1_200).collect::<Vec<_>>());
    let of_one = all(dir.path(), AuditFilter { session: Some(one), ..filter() });
    assert_eq!(times(of_one), (0..1_200).step_by(2).collect::<Vec<_>>());
    let since = Timestamp::from_millis(1_190);
    let of_bob = AuditFilter { since, who: Some("caller:bob".into()), ..filter() };
    assert_eq!(times(all(dir.path(), of_bob)), [1_191, 1_193, 1_195, 1_197, 1_199]);
    let none = AuditFilter { session: Some(one), who: Some("caller:bob".into()), ..filter() };
    assert_eq!(all(dir.path(), none), []);
    store.close().await;
}

#[tokio::test]
async fn what_is_old_goes_in_small_steps_and_the_rest_stays() {
    let (dir, store) = fresh();
    let (steps, rest) = (2, 7);
    for at in 0..i64::try_from(steps * STEP_ROWS + rest).unwrap() {
        store.note(entry(None, "alice", at)).await.unwrap();
    }
    store.close().await;
    let connection = schema::open(dir.path(), Synchronous::Normal).unwrap();
    let before = i64::try_from(steps * STEP_ROWS + 2).unwrap();
    let forgotten: Vec<usize> = (0..4).map(|_| forget(&connection, before).unwrap()).collect();
    assert_eq!(forgotten, [STEP_ROWS, STEP_ROWS, 2, 0]);
    drop(connection);
    let left = all(dir.path(), AuditFilter::default());
    assert_eq!((left.len(), left[0].at.as_millis()), (rest - 2, before));
}

#[test]
fn only_gander_s_own_database_of_this_version_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let opened = || AuditLog::open(dir.path(), AuditFilter::default()).map(drop);
    assert!(matches!(opened(), Err(OpenError::File { .. })));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is made");
    let path = dir.path().join("gander.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE other (a)").unwrap();
    assert!(matches!(opened(), Err(OpenError::Foreign { .. })));
    std::fs::remove_file(&path).unwrap();
    let connection = schema::open(dir.path(), Synchronous::Normal).unwrap();
    assert!(opened().is_ok());
    let known: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    for (version, expected) in [(known - 1, "an older gander"), (known + 1, "a newer gander")] {
        connection.pragma_update(None, "user_version", version).unwrap();
        let error = opened().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
