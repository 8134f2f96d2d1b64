//! A store in memory and a log on it, for tests.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::json;

use crate::session::audit::AuditEntry;
use crate::session::event::EventKind;
use crate::session::id::{EventId, PermissionId, SessionId, SessionNumber, TurnId};
use crate::session::log::{
    Append, Owner, Page, PermissionsOf, SessionLog, SessionRecord, Store, StoreError, StoreFuture,
};
use crate::session::order::{EventOrder, OrderFilter, OrderHead, OrderedRuns, PlacedRun, Position, StoreTag};
use crate::session::permission::{Permission, PermissionState};
use crate::session::run::{Run, RunBuilder};
use crate::session::snapshot::{SessionState, Snapshot};
use crate::session::turn::Turn;

/// One event as the store keeps it.
#[derive(Clone)]
pub(super) struct Stored {
    pub(super) kind: EventKind,
    pub(super) turn: Option<TurnId>,
    pub(super) json: Vec<u8>,
}

/// The events of one session, or the order of several. Lists of records are empty; turns are found one by one.
#[derive(Clone)]
pub(super) struct FakeStore {
    events: Arc<Mutex<Vec<Stored>>>,
    /// What the order has, each run as long as it was committed.
    placed: Arc<Mutex<Vec<PlacedRun>>>,
    order: EventOrder,
    turns: Arc<Mutex<Vec<Turn>>>,
    /// Whether reads fail.
    broken: Arc<Mutex<bool>>,
}

impl Default for FakeStore {
    fn default() -> Self {
        Self::with_order(OrderHead::default(), 1024 * 1024)
    }
}

impl FakeStore {
    /// A store whose order keeps `tail_bytes` in memory.
    pub(super) fn with_order(head: OrderHead, tail_bytes: usize) -> Self {
        Self {
            events: Arc::default(),
            placed: Arc::default(),
            turns: Arc::default(),
            order: EventOrder::new(StoreTag(0xabc), head, tail_bytes),
            broken: Arc::default(),
        }
    }

    /// Keeps a turn's record.
    pub(super) fn keep_turn(&self, turn: Turn) {
        self.turns.lock().unwrap().push(turn);
    }

    /// Commits the next `count` events of a session to the order.
    pub(super) fn commit_ordered(&self, owner: &str, session: u32, kind: EventKind, count: usize) {
        let mut placed = self.placed.lock().unwrap();
        let before = placed.iter().rev().find(|run| run.session.0 == session);
        let mut builder = RunBuilder::new(before.map_or(EventId(1), |before| before.run.last().next()));
        for _ in 0..count {
            let json = format!(r#"{{"id":{},"session":{session}}}"#, builder.next_id());
            builder.push_json(kind, None, json.as_bytes());
        }
        let position = Position(self.order.head().committed.0 + 1);
        let run = Arc::new(builder.finish().unwrap().unwrap());
        let run = PlacedRun { position, owner: owner.into(), session: SessionNumber(session), run };
        placed.push(run.clone());
        drop(placed);
        self.order.committed(vec![run], self.order.head().forgotten);
    }

    fn read(&self, after: EventId, max_bytes: usize) -> Option<Run> {
        let events = self.events.lock().unwrap();
        let mut builder = RunBuilder::new(after.next());
        for event in events.iter().skip(usize::try_from(after.0).unwrap()) {
            if builder.size() > 0 && builder.size() >= max_bytes {
                break;
            }
            builder.push_json(event.kind, event.turn, &event.json);
        }
        builder.finish().unwrap()
    }

    pub(super) fn break_reads(&self) {
        *self.broken.lock().unwrap() = true;
    }

    pub(super) fn delete_events(&self) {
        self.events.lock().unwrap().clear();
    }
}

fn ready<T: Send + 'static>(value: T) -> StoreFuture<T> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Store for FakeStore {
    fn create_session(&self, _: SessionRecord) -> StoreFuture<SessionNumber> {
        ready(SessionNumber(1))
    }

    fn append(&self, _: Append) -> StoreFuture<()> {
        ready(())
    }

    fn delete_session(&self, _: SessionNumber, _: AuditEntry) -> StoreFuture<()> {
        ready(())
    }

    fn note(&self, _: AuditEntry) -> StoreFuture<()> {
        ready(())
    }

    fn events(&self, _: SessionNumber, after: EventId, max_bytes: usize) -> StoreFuture<Option<Arc<Run>>> {
        let store = self.clone();
        Box::pin(async move {
            // Others run while a real store reads.
            tokio::task::yield_now().await;
            if *store.broken.lock().unwrap() {
                return Err(StoreError::Failed("broken".into()));
            }
            Ok(store.read(after, max_bytes).map(Arc::new))
        })
    }

    fn order(&self) -> EventOrder {
        self.order.clone()
    }

    fn ordered_events(
        &self,
        filter: OrderFilter,
        after: Position,
        until: Position,
        _: usize,
    ) -> StoreFuture<OrderedRuns> {
        let store = self.clone();
        Box::pin(async move {
            // Others run while a real store reads.
            tokio::task::yield_now().await;
            let placed = store.placed.lock().unwrap();
            let behind = placed.iter().filter(|run| run.last() > after && run.position <= until);
            // A few at a time, whoever owns them.
            let looked_at: Vec<_> = behind.take(3).collect();
            let through = looked_at.last().map_or(until, |run| run.last());
            let runs = looked_at.into_iter().filter(|run| filter.takes(&run.owner, run.session));
            Ok(OrderedRuns { runs: runs.cloned().collect(), through })
        })
    }

    fn message_events(
        &self,
        _: SessionNumber,
        after: EventId,
        until: EventId,
        limit: usize,
    ) -> StoreFuture<Vec<(EventId, Box<[u8]>)>> {
        assert!(after <= until, "the store is asked for ids that do not exist");
        let events = self.events.lock().unwrap();
        let found = (1..)
            .map(EventId)
            .zip(events.iter())
            .filter(|(id, event)| {
                let kinds = [EventKind::TurnStarted, EventKind::MessageDelta, EventKind::MessageUser];
                *id > after && *id <= until && kinds.contains(&event.kind)
            })
            .map(|(id, event)| (id, event.json.clone().into_boxed_slice()))
            .take(limit)
            .collect();
        ready(found)
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
        ready(self.turns.lock().unwrap().iter().find(|turn| turn.id == id).cloned())
    }

    fn permissions(
        &self,
        _: PermissionsOf,
        _: Option<PermissionState>,
        _: Page<PermissionId>,
    ) -> StoreFuture<Vec<Permission>> {
        ready(Vec::new())
    }

    fn permission(&self, _: SessionNumber, _: PermissionId) -> StoreFuture<Option<Permission>> {
        ready(None)
    }

    fn session(&self, _: SessionNumber) -> StoreFuture<Option<Snapshot>> {
        ready(None)
    }

    fn trouble(&self) -> tokio::sync::watch::Receiver<Option<StoreError>> {
        tokio::sync::watch::Sender::default().subscribe()
    }
}

/// A log and the store behind it.
#[derive(Clone)]
pub(super) struct FakeLog {
    pub(super) store: FakeStore,
    pub(super) log: SessionLog,
}

impl FakeLog {
    /// An empty log that keeps `tail_bytes` in memory.
    pub(super) fn new(tail_bytes: usize) -> Self {
        let store = FakeStore::default();
        let log = SessionLog::new(
            SessionId::new(),
            SessionNumber(1),
            Arc::new(store.clone()),
            EventId(0),
            tail_bytes,
        );
        Self { store, log }
    }

    /// Commits events in one run.
    pub(super) fn commit(&self, events: &[Stored]) {
        let mut kept = self.store.events.lock().unwrap();
        let mut builder = RunBuilder::new(EventId(kept.len() as u64 + 1));
        for event in events {
            builder.push_json(event.kind, event.turn, &event.json);
        }
        kept.extend_from_slice(events);
        drop(kept);
        if let Some(run) = builder.finish().unwrap() {
            self.log.committed(run);
        }
    }

    /// Commits events of one kind that differ in their text.
    pub(super) fn commit_plain(&self, kind: EventKind, turn: Option<TurnId>, count: usize) {
        let first = self.log.head().committed.0;
        let events: Vec<_> = (1..=count as u64)
            .map(|number| Stored {
                kind,
                turn,
                json: json!({"number": first + number}).to_string().into_bytes(),
            })
            .collect();
        self.commit(&events);
    }

    /// The events behind `after` and up to `until` as lines of JSON.
    pub(super) fn lines(&self, after: u64, until: u64) -> Bytes {
        let run = self.store.read(EventId(after), usize::MAX);
        run.map_or(Bytes::new(), |run| {
            let frames = run.frames_after(EventId(after)).take_while(|frame| frame.id <= EventId(until));
            frames.flat_map(|frame| [frame.json(), b"\n"].concat()).collect()
        })
    }

    /// The frames behind `after` and up to `until`, as a subscriber to everything gets them.
    pub(super) fn bytes(&self, after: u64, until: u64) -> Bytes {
        let run = self.store.read(EventId(after), usize::MAX);
        run.map_or(Bytes::new(), |run| {
            let frames = run.frames_after(EventId(after)).take_while(|frame| frame.id <= EventId(until));
            frames.flat_map(|frame| frame.bytes()).collect()
        })
    }
}
