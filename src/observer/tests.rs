use std::sync::Mutex;

use super::*;
use crate::session::audit::AuditEntry;
use crate::session::id::{EventId, PermissionId, SessionId};
use crate::session::log::{Append, Page, PermissionsOf, SessionRecord, StoreError, StoreFuture};
use crate::session::order::{OrderedRuns, StoreTag};
use crate::session::permission::{Permission, PermissionState};
use crate::session::run::{Run, RunBuilder};
use crate::session::snapshot::{SessionState, Snapshot};
use crate::session::turn::Turn;

/// A store that reads nothing.
struct Broken(EventOrder);

fn broken<T: Send + 'static>() -> StoreFuture<T> {
    Box::pin(std::future::ready(Err(StoreError::Failed("broken".into()))))
}

impl Store for Broken {
    fn create_session(&self, _: SessionRecord) -> StoreFuture<SessionNumber> {
        broken()
    }
    fn append(&self, _: Append) -> StoreFuture<()> {
        broken()
    }
    fn delete_session(&self, _: SessionNumber, _: AuditEntry) -> StoreFuture<()> {
        broken()
    }
    fn note(&self, _: AuditEntry) -> StoreFuture<()> {
        broken()
    }
    fn events(&self, _: SessionNumber, _: EventId, _: usize) -> StoreFuture<Option<Arc<Run>>> {
        broken()
    }
    fn order(&self) -> EventOrder {
        self.0.clone()
    }
    fn ordered_events(&self, _: OrderFilter, _: Position, _: Position, _: usize) -> StoreFuture<OrderedRuns> {
        broken()
    }
    fn message_events(
        &self,
        _: SessionNumber,
        _: EventId,
        _: EventId,
        _: usize,
    ) -> StoreFuture<Vec<(EventId, Box<[u8]>)>> {
        broken()
    }
    fn all_sessions(&self) -> StoreFuture<Vec<(SessionNumber, SessionRecord, EventId)>> {
        broken()
    }
    fn sessions(&self, _: Owner, _: Option<SessionState>, _: Page<SessionId>) -> StoreFuture<Vec<Snapshot>> {
        broken()
    }
    fn turns(&self, _: SessionNumber, _: Page<TurnId>) -> StoreFuture<Vec<Turn>> {
        broken()
    }
    fn turn(&self, _: SessionNumber, _: TurnId) -> StoreFuture<Option<Turn>> {
        broken()
    }
    fn permissions(
        &self,
        _: PermissionsOf,
        _: Option<PermissionState>,
        _: Page<PermissionId>,
    ) -> StoreFuture<Vec<Permission>> {
        broken()
    }
    fn permission(&self, _: SessionNumber, _: PermissionId) -> StoreFuture<Option<Permission>> {
        broken()
    }
    fn session(&self, _: SessionNumber) -> StoreFuture<Option<Snapshot>> {
        broken()
    }
    fn trouble(&self) -> watch::Receiver<Option<StoreError>> {
        watch::Sender::default().subscribe()
    }
}

#[derive(Clone, Default)]
struct Recording(Arc<Mutex<Vec<&'static str>>>);

impl Observer for Recording {
    fn event(&mut self, event: &Observed<'_>) {
        self.0.lock().unwrap().push(event.kind.as_str());
    }
    fn events_lost(&mut self) {
        self.0.lock().unwrap().push("lost");
    }
}

#[tokio::test]
async fn observers_are_told_that_events_are_lost_before_they_are_told_of_others() {
    let order = EventOrder::new(StoreTag(1), OrderHead::default(), 1 << 20);
    let follower = Follower::from_now_on(Arc::new(Broken(order.clone())));
    let commit = |position| {
        let mut run = RunBuilder::new(EventId(position));
        run.push_json(EventKind::MessageDelta, None, b"{}");
        let run = Arc::new(run.finish().unwrap().unwrap());
        let (position, session) = (Position(position), SessionNumber(1));
        order.committed(vec![PlacedRun { position, owner: "alice".into(), session, run }], Position(0));
    };
    let told = Recording::default();
    let stop = CancellationToken::new();
    // What is before it is not in memory, and the store does not read it.
    commit(5);
    let commits_more = async {
        // The follower never waits for the store, so it is told of what is there before this goes on.
        tokio::task::yield_now().await;
        commit(6);
        stop.cancel();
    };
    tokio::join!(follower.run(vec![Box::new(told.clone())], stop.clone()), commits_more);
    assert_eq!(*told.0.lock().unwrap(), ["lost", "message.delta"]);
}
