//! Follows what happens in sessions, for those who keep a record of the running gateway: figures, the log, traces.
//!
//! All sessions' committed events are read like any subscriber reads them, once for all observers. The core counts,
//! logs and traces nothing of this, and what is recorded is what callers were told.

#[cfg(test)]
pub(crate) mod fake_events;
mod open_turns;
pub mod told;
mod turn_log;

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::open_turns::OpenTurns;
use self::told::Told;
pub use self::turn_log::TurnLog;
use crate::session::event::EventKind;
use crate::session::id::{SessionNumber, Timestamp, TurnId};
use crate::session::log::{Owner, Store};
use crate::session::order::{EventOrder, OrderFilter, OrderHead, PlacedRun, Position};
use crate::session::run::Frame;

/// Who is told of every committed event, in order. It must not wait for anything.
pub trait Observer: Send {
    /// Something has happened.
    fn event(&mut self, event: &Observed<'_>);

    /// Some events will never be told. What was waited for may be among them.
    fn events_lost(&mut self);

    /// All events of a run were there for readers at `now`; the last of them is of `newest`.
    fn run_seen(&mut self, _newest: Timestamp, _now: Timestamp) {}
}

/// One event.
#[derive(Debug)]
pub struct Observed<'event> {
    /// In which session.
    pub session: SessionNumber,
    /// Whose session.
    pub owner: &'event str,
    /// Its type.
    pub kind: EventKind,
    /// The turn it belongs to.
    pub turn: Option<TurnId>,
    /// What it tells, if its type is one that observers read.
    pub told: Option<Told<'event>>,
    json: &'event [u8],
}

impl<'event> Observed<'event> {
    /// An event as its session's log has it.
    #[must_use]
    pub fn read(session: SessionNumber, owner: &'event str, frame: &Frame<'event>) -> Self {
        let (kind, turn, json) = (frame.kind, frame.turn, frame.json());
        let told = if Told::is_read(kind) { read(kind, json) } else { None };
        Self { session, owner, kind, turn, told, json }
    }

    /// When it happened, without reading its body: the time stands in front of it.
    #[must_use]
    pub fn time(&self) -> Option<Timestamp> {
        const MARK: &[u8] = br#""time":""#;
        let head = &self.json[..self.json.len().min(512)];
        let start = head.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
        let end = start + head[start..].iter().position(|byte| *byte == b'"')?;
        serde_json::from_slice(&head[start - 1..=end]).ok()
    }
}

fn read(kind: EventKind, json: &[u8]) -> Option<Told<'_>> {
    serde_json::from_slice(json)
        .inspect_err(|error| tracing::warn!(%error, kind = kind.as_str(), "an event is not recorded"))
        .ok()
}

/// A reader of all sessions' events.
pub struct Follower {
    store: Arc<dyn Store>,
    order: EventOrder,
    head: watch::Receiver<OrderHead>,
    at: Position,
}

impl Follower {
    /// Follows from now on: nothing that is committed after this call is missed.
    #[must_use]
    pub fn from_now_on(store: Arc<dyn Store>) -> Self {
        let order = store.order();
        let head = order.watch();
        let at = head.borrow().committed;
        Self { store, order, head, at }
    }

    /// Tells the observers until `stop`, and then what was committed before it.
    pub async fn run(mut self, mut observers: Vec<Box<dyn Observer>>, stop: CancellationToken) {
        let everything = OrderFilter { owner: Owner::Anyone, sessions: None };
        loop {
            let at = self.at;
            let moved = stop.run_until_cancelled(self.head.wait_for(|head| head.committed > at)).await;
            // What it gives holds a lock.
            let stopped = moved.is_none_or(|moved| moved.is_err());
            match self.order.read(self.store.as_ref(), &everything, at).await {
                Ok(Some(found)) => {
                    for placed in &found.runs {
                        tell(&mut observers, placed, at);
                    }
                    self.at = Position(found.through.0.max(at.0));
                }
                Ok(None) if stopped => return,
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "some events are not recorded");
                    for observer in &mut observers {
                        observer.events_lost();
                    }
                    self.at = self.order.head().committed;
                }
            }
        }
    }
}

fn tell(observers: &mut [Box<dyn Observer>], placed: &PlacedRun, after: Position) {
    let now = Timestamp::now();
    let mut newest = None;
    for frame in placed.run.frames_after(placed.id_behind(after)) {
        let event = Observed::read(placed.session, &placed.owner, &frame);
        for observer in observers.iter_mut() {
            observer.event(&event);
        }
        newest = Some(event);
    }
    // The events of a run came together: one of them tells how long all took.
    if let Some(newest) = newest.and_then(|event| event.time()) {
        for observer in observers.iter_mut() {
            observer.run_seen(newest, now);
        }
    }
}

#[cfg(test)]
mod tests;
