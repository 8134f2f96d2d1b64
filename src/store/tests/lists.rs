//! Lists, filters and pages.

use serde_json::json;

use super::*;
use crate::session::id::PermissionId;
use crate::session::log::{Owner, Page, PermissionsOf};
use crate::session::permission::{Permission, PermissionKind, PermissionState, PermissionToolCall};

fn page<Id>(before: Option<Id>, limit: usize) -> Page<Id> {
    Page { before, limit }
}

#[tokio::test]
async fn sessions_are_listed_newest_first_by_owner_and_state() {
    let (dir, store) = fresh();
    let mut records = Vec::new();
    for (owner, state) in [
        ("alice", SessionState::Idle),
        ("bob", SessionState::Idle),
        ("alice", SessionState::Running),
        ("alice", SessionState::Idle),
    ] {
        let record = session_record(owner, state);
        store.create_session(record.clone()).await.unwrap();
        records.push(record);
    }
    let ids = async |owner: Owner, state, before: Option<usize>, limit| {
        let page = page(before.map(|index: usize| records[index].snapshot.id), limit);
        let found = store.sessions(owner, state, page).await.unwrap();
        let index = |snapshot: &Snapshot| records.iter().position(|record| record.snapshot.id == snapshot.id);
        found.iter().filter_map(index).collect::<Vec<_>>()
    };
    let alice = || Owner::Caller("alice".into());
    assert_eq!(ids(Owner::Anyone, None, None, 9).await, [3, 2, 1, 0]);
    assert_eq!(ids(Owner::Anyone, None, Some(2), 1).await, [1]);
    assert_eq!(ids(alice(), None, None, 2).await, [3, 2]);
    assert_eq!(ids(alice(), None, Some(2), 2).await, [0]);
    assert_eq!(ids(alice(), Some(SessionState::Idle), None, 9).await, [3, 0]);
    assert_eq!(ids(Owner::Anyone, Some(SessionState::Idle), Some(3), 9).await, [1, 0]);
    assert!(ids(Owner::Caller("carol".into()), None, None, 9).await.is_empty());

    let all: Vec<_> = store.all_sessions().await.unwrap().into_iter().map(|(_, record, _)| record).collect();
    assert_eq!(all, records);
    store.close().await;
    assert_eq!(open(dir.path()).all_sessions().await.unwrap().len(), 4);
}

#[tokio::test]
async fn a_session_is_listed_as_it_last_was_with_the_logs_last_event() {
    let (_dir, store) = fresh();
    let mut record = session_record("alice", SessionState::Starting);
    let number = store.create_session(record.clone()).await.unwrap();
    let mut session = Writing::go_on(&store, record.snapshot.id, number, EventId(0));
    record.snapshot.state = SessionState::Idle;
    record.snapshot.title = Some("A title".into());
    session.append(3, vec![Change::Session(Box::new(record.clone()))]).await.unwrap();
    session.append(2, Vec::new()).await.unwrap();
    session.committed().await.unwrap();

    let listed = store.sessions(Owner::Anyone, Some(SessionState::Idle), page(None, 9)).await.unwrap();
    let expected = Snapshot { last_event_id: EventId(5), ..record.snapshot.clone() };
    assert_eq!(listed, [expected]);
    assert!(
        store.sessions(Owner::Anyone, Some(SessionState::Starting), page(None, 9)).await.unwrap().is_empty()
    );
    assert_eq!(store.all_sessions().await.unwrap(), [(number, record.clone(), EventId(5))]);

    record.deleting = true;
    session.append(1, vec![Change::Session(Box::new(record.clone()))]).await.unwrap();
    session.committed().await.unwrap();
    assert!(
        store.sessions(Owner::Anyone, None, page(None, 9)).await.unwrap().is_empty(),
        "it is being deleted"
    );
    assert_eq!(store.all_sessions().await.unwrap().len(), 1, "a restart goes on with the deletion");
}

#[tokio::test]
async fn turns_are_listed_newest_first_and_belong_to_their_session() {
    let (_dir, store) = fresh();
    let (mut session, other) = (Writing::new(&store).await, Writing::new(&store).await);
    let turns: Vec<_> = (0..5).map(|_| turn_of(session.log.session(), TurnState::Completed)).collect();
    for turn in &turns {
        session.append(1, vec![Change::Turn(Box::new(turn.clone()))]).await.unwrap();
    }
    session.committed().await.unwrap();
    let number = session.log.number();
    let first = store.turns(number, page(None, 2)).await.unwrap();
    assert_eq!(first, [turns[4].clone(), turns[3].clone()]);
    let rest = store.turns(number, page(Some(first[1].id), 9)).await.unwrap();
    assert_eq!(rest, [turns[2].clone(), turns[1].clone(), turns[0].clone()]);
    assert!(store.turns(number, page(Some(turns[0].id), 9)).await.unwrap().is_empty());
    assert_eq!(store.turn(number, turns[1].id).await.unwrap().as_ref(), Some(&turns[1]));
    assert_eq!(store.turn(other.log.number(), turns[1].id).await.unwrap(), None);
    assert_eq!(store.turn(number, TurnId::new()).await.unwrap(), None);
}

fn permission_of(session: SessionId, state: PermissionState) -> Permission {
    Permission {
        id: PermissionId::new(),
        session_id: session,
        turn_id: TurnId::new(),
        kind: PermissionKind::Tool,
        state,
        tool_call: PermissionToolCall {
            id: "call_1".into(),
            tool: Some("shell".into()),
            extension: Some("developer".into()),
            title: None,
            kind: None,
            input: Some(json!({"command": "ls"})),
            cwd: "/work".into(),
        },
        options: Vec::new(),
        requested_at: moment(),
        expires_at: moment(),
        outcome: None,
    }
}

#[tokio::test]
async fn permissions_are_listed_of_one_session_and_of_all_of_an_owner() {
    let (_dir, store) = fresh();
    let mut permissions = Vec::new();
    let mut numbers = Vec::new();
    for owner in ["alice", "alice", "bob"] {
        let record = session_record(owner, SessionState::Idle);
        let number = store.create_session(record.clone()).await.unwrap();
        let mut session = Writing::go_on(&store, record.snapshot.id, number, EventId(0));
        let resolved = permission_of(record.snapshot.id, PermissionState::Pending);
        let pending = permission_of(record.snapshot.id, PermissionState::Pending);
        let decided = Permission { state: PermissionState::Resolved, ..resolved.clone() };
        for permission in [resolved, pending.clone(), decided.clone()] {
            session.append(1, vec![Change::Permission(Box::new(permission))]).await.unwrap();
        }
        session.committed().await.unwrap();
        permissions.extend([decided, pending]);
        numbers.push(number);
    }
    let ids = async |of, state, before: Option<usize>, limit| {
        let page = page(before.map(|index: usize| permissions[index].id), limit);
        let found = store.permissions(of, state, page).await.unwrap();
        let index = |found: &Permission| permissions.iter().position(|permission| permission == found);
        found.iter().filter_map(index).collect::<Vec<_>>()
    };
    let alice = || PermissionsOf::Owner(Owner::Caller("alice".into()));
    let anyone = || PermissionsOf::Owner(Owner::Anyone);
    let pending = Some(PermissionState::Pending);
    assert_eq!(ids(anyone(), None, None, 9).await, [5, 4, 3, 2, 1, 0]);
    assert_eq!(ids(anyone(), pending, Some(5), 9).await, [3, 1]);
    assert_eq!(ids(alice(), None, None, 3).await, [3, 2, 1]);
    assert_eq!(ids(alice(), None, Some(1), 3).await, [0]);
    assert_eq!(ids(alice(), Some(PermissionState::Resolved), None, 9).await, [2, 0]);
    assert_eq!(ids(PermissionsOf::Session(numbers[1]), None, None, 9).await, [3, 2]);
    assert_eq!(ids(PermissionsOf::Session(numbers[1]), pending, None, 9).await, [3]);
    assert_eq!(ids(alice(), Some(PermissionState::Expired), None, 9).await, Vec::<usize>::new());

    let found = store.permission(numbers[0], permissions[0].id).await.unwrap();
    assert_eq!(found.as_ref(), Some(&permissions[0]));
    assert_eq!(store.permission(numbers[1], permissions[0].id).await.unwrap(), None);

    store.delete_session(numbers[0], deletion()).await.unwrap();
    assert_eq!(ids(alice(), None, None, 9).await, [3, 2]);
    assert_eq!(count(&store, "SELECT count(*) FROM permissions").await, 4);
}

#[tokio::test]
async fn messages_are_made_of_their_events_only() {
    let (_dir, store) = fresh();
    let session = Writing::new(&store).await;
    let mut run = RunBuilder::new(EventId(1));
    for kind in EventKind::ALL {
        let body = EventBody::Text { message_id: MessageId::new(), text: kind.as_str().into() };
        run.push(session.log.session(), None, moment(), *kind, &body).unwrap();
    }
    let run = run.finish().unwrap().unwrap();
    let expected: Vec<_> = run
        .frames_after(EventId(0))
        .filter(|frame| ["turn.started", "message.delta", "message.user"].contains(&frame.kind.as_str()))
        .map(|frame| (frame.id, Box::from(frame.json())))
        .collect();
    let all = run.clone();
    store
        .append(Append { log: session.log.clone(), run: Some(run), changes: Vec::new(), audit: Vec::new() })
        .await
        .unwrap();
    session.log.wait_committed(all.last()).await.unwrap();

    let number = session.log.number();
    let messages = |after, until, limit| store.message_events(number, after, until, limit);
    assert_eq!(messages(EventId(0), all.last(), 9).await.unwrap(), expected);
    assert_eq!(messages(expected[0].0, all.last(), 1).await.unwrap(), expected[1..2]);
    assert_eq!(messages(EventId(0), expected[1].0, 9).await.unwrap(), expected[..2]);
    assert_eq!(session.stored(1_000_000).await, [all.into()], "every kind comes back as it was");
}
