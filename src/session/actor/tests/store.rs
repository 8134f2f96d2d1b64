//! A store in memory that can be slow or broken.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::session::audit::AuditEntry;
use crate::session::event::EventKind;
use crate::session::id::{EventId, PermissionId, SessionId, SessionNumber, TurnId};
use crate::session::log::{
    Append, Change, Owner, Page, PermissionsOf, SessionRecord, Store, StoreError, StoreFuture,
};
use crate::session::order::{EventOrder, OrderFilter, OrderHead, OrderedRuns, Position, StoreTag};
use crate::session::permission::{Permission, PermissionState};
use crate::session::run::Run;
use crate::session::snapshot::{SessionState, Snapshot};
use crate::session::turn::Turn;

/// What the store does with what it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Commits {
    #[default]
    AtOnce,
    /// Keeps it until [`MemoryStore::commit`].
    OnDemand,
    /// Takes it and fails then.
    Fail,
    /// Does not take it.
    Refused,
}

#[derive(Default)]
struct Kept {
    trouble: watch::Sender<Option<StoreError>>,
    commits: Commits,
    waiting: Vec<Append>,
    turns: HashMap<TurnId, Turn>,
    permissions: HashMap<PermissionId, Permission>,
    kinds: Vec<EventKind>,
    sessions: u32,
    deleted: usize,
}

/// A store in memory that can be slow or broken.
#[derive(Clone, Default)]
pub(super) struct MemoryStore {
    kept: Arc<Mutex<Kept>>,
}

impl MemoryStore {
    pub(super) fn set(&self, commits: Commits) {
        self.kept.lock().unwrap().commits = commits;
    }

    /// Says what keeps it from writing.
    pub(super) fn trouble_is(&self, error: Option<StoreError>) {
        self.kept.lock().unwrap().trouble.send_replace(error);
    }

    /// Commits what waits, and from now on everything at once.
    pub(super) fn commit(&self) {
        let waiting = {
            let mut kept = self.kept.lock().unwrap();
            kept.commits = Commits::AtOnce;
            std::mem::take(&mut kept.waiting)
        };
        for append in waiting {
            self.keep(append);
        }
    }

    /// Waits until there is something to commit.
    pub(super) async fn something_waits(&self) {
        while self.kept.lock().unwrap().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// The kinds of all committed events, in order.
    pub(super) fn kinds(&self) -> Vec<EventKind> {
        self.kept.lock().unwrap().kinds.clone()
    }

    /// A turn as it was last committed.
    pub(super) fn kept_turn(&self, id: TurnId) -> Turn {
        self.kept.lock().unwrap().turns[&id].clone()
    }

    /// How many sessions were deleted.
    pub(super) fn deleted(&self) -> usize {
        self.kept.lock().unwrap().deleted
    }

    fn keep(&self, append: Append) {
        let mut kept = self.kept.lock().unwrap();
        for change in append.changes {
            match change {
                Change::Turn(turn) => drop(kept.turns.insert(turn.id, *turn)),
                Change::Permission(permission) => {
                    kept.permissions.insert(permission.id, *permission);
                }
                Change::Session(_) => {}
            }
        }
        if let Some(run) = append.run {
            kept.kinds.extend(run.frames_after(EventId(0)).map(|frame| frame.kind));
            append.log.committed(run);
        }
    }
}

fn ready<T: Send + 'static>(value: T) -> StoreFuture<T> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Store for MemoryStore {
    fn create_session(&self, _: SessionRecord) -> StoreFuture<SessionNumber> {
        let mut kept = self.kept.lock().unwrap();
        kept.sessions += 1;
        ready(SessionNumber(kept.sessions))
    }

    fn append(&self, append: Append) -> StoreFuture<()> {
        let commits = self.kept.lock().unwrap().commits;
        match commits {
            Commits::AtOnce => self.keep(append),
            Commits::OnDemand => self.kept.lock().unwrap().waiting.push(append),
            Commits::Fail => append.log.failed(),
            Commits::Refused => return Box::pin(std::future::ready(Err(StoreError::failed("full")))),
        }
        ready(())
    }

    fn delete_session(&self, _: SessionNumber, _: AuditEntry) -> StoreFuture<()> {
        self.kept.lock().unwrap().deleted += 1;
        ready(())
    }

    fn note(&self, _: AuditEntry) -> StoreFuture<()> {
        ready(())
    }

    fn events(&self, _: SessionNumber, _: EventId, _: usize) -> StoreFuture<Option<Arc<Run>>> {
        ready(None)
    }

    fn order(&self) -> EventOrder {
        EventOrder::new(StoreTag(0), OrderHead::default(), 0)
    }

    fn ordered_events(
        &self,
        _: OrderFilter,
        _: Position,
        through: Position,
        _: usize,
    ) -> StoreFuture<OrderedRuns> {
        ready(OrderedRuns { runs: Vec::new(), through })
    }

    fn message_events(
        &self,
        _: SessionNumber,
        _: EventId,
        _: EventId,
        _: usize,
    ) -> StoreFuture<Vec<(EventId, Box<[u8]>)>> {
        ready(Vec::new())
    }

    fn all_sessions(&self) -> StoreFuture<Vec<(SessionNumber, SessionRecord, EventId)>> {
        ready(Vec::new())
    }

    fn sessions(&self, _: Owner, _: Option<SessionState>, _: Page<SessionId>) -> StoreFuture<Vec<Snapshot>> {
        ready(Vec::new())
    }

    fn turns(&self, _: SessionNumber, _: Page<TurnId>) -> StoreFuture<Vec<Turn>> {
        ready(Vec::new())
    }

    fn turn(&self, _: SessionNumber, id: TurnId) -> StoreFuture<Option<Turn>> {
        ready(self.kept.lock().unwrap().turns.get(&id).cloned())
    }

    fn permissions(
        &self,
        _: PermissionsOf,
        _: Option<PermissionState>,
        _: Page<PermissionId>,
    ) -> StoreFuture<Vec<Permission>> {
        ready(Vec::new())
    }

    fn permission(&self, _: SessionNumber, id: PermissionId) -> StoreFuture<Option<Permission>> {
        ready(self.kept.lock().unwrap().permissions.get(&id).cloned())
    }

    fn session(&self, _: SessionNumber) -> StoreFuture<Option<Snapshot>> {
        ready(None)
    }

    fn trouble(&self) -> watch::Receiver<Option<StoreError>> {
        self.kept.lock().unwrap().trouble.subscribe()
    }
}
