//! What a stream or a page reads: the log of one session, or the order of all sessions' events.

use std::future::{Future, pending};
use std::sync::Arc;

use tokio::sync::watch;

use super::notes::Cursor;
use crate::session::id::EventId;
use crate::session::log::{Head, SessionLog, Store, StoreError};
use crate::session::order::{EventOrder, OrderCursor, OrderFilter, OrderHead, Position};
use crate::session::run::{Frame, Run};

/// Events with places that grow: an event's id, or its position. 0 is before the first one.
pub(in crate::http) trait Source: Send + 'static {
    /// Whether the frames' own ids are the cursors.
    const IDS_ARE_CURSORS: bool;

    /// The last place there is.
    fn head(&self) -> u64;

    /// A cursor before this place may have missed something that is gone now.
    fn forgotten(&self) -> u64 {
        0
    }

    /// Waits until there is something behind `after`; false when there never will be.
    fn wait(&mut self, after: u64) -> impl Future<Output = bool> + Send;

    /// What there is behind `after`, as much as is read at once. `None` at the head, and when it is gone.
    fn read(&self, after: u64) -> impl Future<Output = Result<Option<Batch>, StoreError>> + Send;

    /// A place as subscribers carry it around.
    fn cursor(&self, place: u64) -> Cursor;
}

/// What one read brings.
#[derive(Debug)]
pub(in crate::http) struct Batch {
    /// In order.
    pub(in crate::http) pieces: Vec<Piece>,
    /// Everything up to here is in it.
    pub(in crate::http) through: u64,
}

/// Consecutive events of one session.
#[derive(Debug)]
pub(in crate::http) struct Piece {
    run: Arc<Run>,
    /// The run's events up to this one have been read before.
    behind: EventId,
    /// The place of the run's first event.
    first: u64,
}

impl Piece {
    /// The events' memory, as it is.
    pub(in crate::http) fn bytes(&self) -> bytes::Bytes {
        self.run.bytes_after(self.behind)
    }

    /// How many bytes its run takes.
    pub(in crate::http) fn size(&self) -> usize {
        self.run.size()
    }

    /// The events with their places.
    pub(in crate::http) fn frames(&self) -> impl Iterator<Item = (u64, Frame<'_>)> {
        self.run.frames_after(self.behind).map(|frame| (self.first + frame.id.0 - self.run.first().0, frame))
    }
}

/// One session's log.
pub(in crate::http) struct SessionEvents {
    log: SessionLog,
    head: watch::Receiver<Head>,
}

impl SessionEvents {
    /// A reader of `log`.
    pub(in crate::http) fn new(log: SessionLog) -> Self {
        let head = log.watch();
        Self { log, head }
    }
}

impl Source for SessionEvents {
    const IDS_ARE_CURSORS: bool = true;

    fn head(&self) -> u64 {
        self.head.borrow().committed.0
    }

    async fn wait(&mut self, after: u64) -> bool {
        let moved = |head: &Head| head.committed.0 > after || head.closed || head.failed;
        // At the head of a log that gets no further there is nothing to wait for.
        self.head.wait_for(moved).await.is_ok_and(|head| head.committed.0 > after)
    }

    async fn read(&self, after: u64) -> Result<Option<Batch>, StoreError> {
        let run = self.log.read(EventId(after)).await?;
        Ok(run.map(|run| {
            let through = run.last().0;
            let piece = Piece { behind: EventId(after), first: run.first().0, run };
            Batch { pieces: vec![piece], through }
        }))
    }

    fn cursor(&self, place: u64) -> Cursor {
        Cursor::Event(EventId(place))
    }
}

/// The events of all sessions that a caller may see, or of some of them.
pub(in crate::http) struct OrderedEvents {
    order: EventOrder,
    head: watch::Receiver<OrderHead>,
    store: Arc<dyn Store>,
    filter: OrderFilter,
    /// The logs of the sessions that the filter names; when all are closed nothing follows. Empty: it names none.
    named: Vec<watch::Receiver<Head>>,
}

impl OrderedEvents {
    /// A reader of a store's order. `named`: the logs of the sessions that the filter names, if it names any.
    pub(in crate::http) fn new(store: Arc<dyn Store>, filter: OrderFilter, named: &[SessionLog]) -> Self {
        let order = store.order();
        let head = order.watch();
        let named = named.iter().map(SessionLog::watch).collect();
        Self { order, head, store, filter, named }
    }
}

/// Completes when all logs are closed; never without one.
async fn all_closed(logs: &mut [watch::Receiver<Head>]) {
    if logs.is_empty() {
        return pending().await;
    }
    for log in logs {
        // An error means that the log is gone altogether.
        let _ = log.wait_for(|head| head.closed).await;
    }
}

impl Source for OrderedEvents {
    const IDS_ARE_CURSORS: bool = false;

    fn head(&self) -> u64 {
        self.head.borrow().committed.0
    }

    fn forgotten(&self) -> u64 {
        self.head.borrow().forgotten.0
    }

    async fn wait(&mut self, after: u64) -> bool {
        // Biased: a log is closed behind its last event, which is in the order by then.
        tokio::select! {
            biased;
            moved = self.head.wait_for(|head| head.committed.0 > after) => moved.is_ok(),
            () = all_closed(&mut self.named) => false,
        }
    }

    async fn read(&self, after: u64) -> Result<Option<Batch>, StoreError> {
        let after = Position(after);
        let found = self.order.read(self.store.as_ref(), &self.filter, after).await?;
        Ok(found.map(|found| {
            let pieces = found.runs.into_iter().map(|placed| Piece {
                behind: placed.id_behind(after),
                first: placed.position.0,
                run: placed.run,
            });
            Batch { pieces: pieces.collect(), through: found.through.0 }
        }))
    }

    fn cursor(&self, place: u64) -> Cursor {
        Cursor::Order(OrderCursor { store: self.order.tag(), position: Position(place) })
    }
}
