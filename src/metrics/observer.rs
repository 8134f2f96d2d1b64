//! Counts what happens in sessions, from their committed events.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{Metrics, PermissionLabels, StartLabels, ToolCallLabels, TurnLabels};
use crate::session::event::EventKind;
use crate::session::id::{SessionNumber, Timestamp, TurnId};
use crate::session::log::{Owner, Store};
use crate::session::order::{OrderFilter, Position};
use crate::session::run::Frame;

/// Turns whose first event has not come yet. There are fewer than agents that may run; what is over this bound is not
/// timed.
const WAITING_TURNS: usize = 4096;

/// The parts of events that are counted. What an event does not have is `None`.
#[derive(Deserialize)]
struct Told {
    turn: Option<ToldTurn>,
    tool_call: Option<ToldCall>,
    permission: Option<ToldPermission>,
    session: Option<ToldSession>,
}

#[derive(Deserialize)]
struct ToldTurn {
    state: String,
    error: Option<ToldError>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct ToldError {
    class: String,
}

#[derive(Deserialize)]
struct ToldCall {
    status: Option<String>,
}

#[derive(Deserialize)]
struct ToldPermission {
    requested_at: Timestamp,
    outcome: Option<ToldOutcome>,
}

#[derive(Deserialize)]
struct ToldOutcome {
    decision: String,
    by: String,
    at: Timestamp,
}

#[derive(Deserialize)]
struct ToldSession {
    agent: Option<ToldAgent>,
}

#[derive(Deserialize)]
struct ToldAgent {
    generation: u32,
    pid: Option<u32>,
}

/// What is remembered between events.
#[derive(Default)]
struct Counting {
    /// When each running turn began whose agent has not said anything yet.
    waiting: HashMap<TurnId, Timestamp>,
    /// The last agent seen of each session that has had one.
    generations: HashMap<SessionNumber, u32>,
}

/// Follows all sessions' events from now on, until `stop`.
pub async fn observe(metrics: Metrics, store: Arc<dyn Store>, stop: CancellationToken) {
    let order = store.order();
    let mut head = order.watch();
    let mut at = head.borrow().committed;
    let everything = OrderFilter { owner: Owner::Anyone, sessions: None };
    let mut counting = Counting::default();
    loop {
        let moved = stop.run_until_cancelled(head.wait_for(|head| head.committed > at)).await;
        // What it gives holds a lock.
        if !moved.is_some_and(|moved| moved.is_ok()) {
            return;
        }
        let found = match order.read(store.as_ref(), &everything, at).await {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!(%error, "some events are not counted");
                at = order.head().committed;
                continue;
            }
        };
        let now = Timestamp::now();
        for placed in &found.runs {
            let mut newest = None;
            for frame in placed.run.frames_after(placed.id_behind(at)) {
                metrics.0.events.inc();
                counting.count(&metrics, placed.session, &frame);
                newest = Some(frame);
            }
            // The events of a run came together: one of them tells how long all took.
            if let Some(told) = newest.and_then(|frame| time_of(&frame)) {
                metrics.0.visible_seconds.observe(seconds(told, now));
            }
        }
        at = Position(found.through.0.max(at.0));
    }
}

/// The time of an event, without reading its body: it stands in front of it.
fn time_of(frame: &Frame<'_>) -> Option<Timestamp> {
    const MARK: &[u8] = br#""time":""#;
    let head = &frame.json()[..frame.json().len().min(512)];
    let start = head.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let end = start + head[start..].iter().position(|byte| *byte == b'"')?;
    serde_json::from_slice(&head[start - 1..=end]).ok()
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.remaining(from).as_secs_f64()
}

impl Counting {
    fn count(&mut self, metrics: &Metrics, session: SessionNumber, frame: &Frame<'_>) {
        let figures = &metrics.0;
        match frame.kind {
            EventKind::MessageDelta | EventKind::ThoughtDelta | EventKind::ToolCallStarted => {
                let began = frame.turn.and_then(|turn| self.waiting.remove(&turn));
                if let Some((began, said)) = began.zip(time_of(frame)) {
                    figures.first_event_seconds.observe(seconds(began, said));
                }
            }
            EventKind::TurnStarted => {
                if let Some((turn, told)) = frame.turn.zip(time_of(frame))
                    && self.waiting.len() < WAITING_TURNS
                {
                    self.waiting.insert(turn, told);
                }
            }
            kind if kind.ends_turn() => {
                if let Some(turn) = frame.turn {
                    self.waiting.remove(&turn);
                }
                let Some(turn) = read(frame).and_then(|told| told.turn) else { return };
                let class = turn.error.map_or_else(String::new, |error| error.class);
                figures.turns.get_or_create(&TurnLabels { state: turn.state, class }).inc();
                if let Some((began, ended)) = turn.started_at.zip(turn.ended_at) {
                    figures.turn_seconds.observe(seconds(began, ended));
                }
            }
            EventKind::ToolCallFinished => {
                let status = read(frame).and_then(|told| told.tool_call).and_then(|call| call.status);
                if let Some(status) = status {
                    figures.tool_calls.get_or_create(&ToolCallLabels { status }).inc();
                }
            }
            EventKind::PermissionResolved => {
                let Some(permission) = read(frame).and_then(|told| told.permission) else { return };
                let Some(outcome) = permission.outcome else { return };
                // Who it was is the log's business; here it is that it was a person.
                let by = outcome.by.split(':').next().unwrap_or_default().to_owned();
                if by == "caller" {
                    figures.permission_wait_seconds.observe(seconds(permission.requested_at, outcome.at));
                }
                let labels = PermissionLabels { by, decision: outcome.decision };
                figures.permissions.get_or_create(&labels).inc();
            }
            EventKind::SessionUpdated => {
                let agent = read(frame).and_then(|told| told.session).and_then(|session| session.agent);
                let Some(ToldAgent { generation, pid: Some(_) }) = agent else { return };
                if self.generations.insert(session, generation) != Some(generation) {
                    let kind = if generation == 1 { "new" } else { "wake" };
                    figures.agent_starts.get_or_create(&StartLabels { kind }).inc();
                }
            }
            EventKind::SessionDeleted => {
                self.generations.remove(&session);
            }
            _ => {}
        }
    }
}

fn read(frame: &Frame<'_>) -> Option<Told> {
    serde_json::from_slice(frame.json())
        .inspect_err(|error| tracing::warn!(%error, kind = frame.kind.as_str(), "an event is not counted"))
        .ok()
}
