//! Counts what happens in sessions, from their committed events.

use std::collections::HashMap;

use super::{Metrics, PermissionLabels, StartLabels, ToolCallLabels, TurnLabels};
use crate::observer::told::ToldAgent;
use crate::observer::{Observed, Observer, TURNS_REMEMBERED};
use crate::session::event::EventKind;
use crate::session::id::{SessionNumber, Timestamp, TurnId};

/// Counts for figures.
pub(super) struct Counting {
    metrics: Metrics,
    /// When each running turn began whose agent has not said anything yet.
    waiting: HashMap<TurnId, Timestamp>,
    /// The last agent seen of each session that has had one.
    generations: HashMap<SessionNumber, u32>,
}

impl Counting {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { metrics, waiting: HashMap::new(), generations: HashMap::new() }
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.remaining(from).as_secs_f64()
}

impl Observer for Counting {
    fn event(&mut self, event: &Observed<'_>) {
        let figures = &self.metrics.0;
        figures.events.inc();
        match (event.kind, &event.told) {
            (EventKind::MessageDelta | EventKind::ThoughtDelta | EventKind::ToolCallStarted, _) => {
                let began = event.turn.and_then(|turn| self.waiting.remove(&turn));
                if let Some((began, said)) = began.zip(event.time()) {
                    figures.first_event_seconds.observe(seconds(began, said));
                }
            }
            (EventKind::SessionDeleted, _) => {
                self.generations.remove(&event.session);
            }
            (EventKind::TurnStarted, Some(told)) => {
                if let Some(turn) = event.turn
                    && self.waiting.len() < TURNS_REMEMBERED
                {
                    self.waiting.insert(turn, told.time);
                }
            }
            (kind, Some(told)) if kind.ends_turn() => {
                let Some(turn) = &told.turn else { return };
                self.waiting.remove(&turn.id);
                let class = turn.class().unwrap_or_default().to_owned();
                figures.turns.get_or_create(&TurnLabels { state: turn.state.as_str(), class }).inc();
                if turn.started_at.is_some() {
                    figures.turn_seconds.observe(turn.took().as_secs_f64());
                }
            }
            (EventKind::ToolCallFinished, Some(told)) => {
                if let Some(status) = told.tool_call.as_ref().and_then(|call| call.status.as_deref()) {
                    let status = status.to_owned();
                    figures.tool_calls.get_or_create(&ToolCallLabels { status }).inc();
                }
            }
            (EventKind::PermissionResolved, Some(told)) => {
                let Some(permission) = &told.permission else { return };
                let Some(outcome) = &permission.outcome else { return };
                if outcome.by() == "caller" {
                    figures.permission_wait_seconds.observe(seconds(permission.requested_at, outcome.at));
                }
                let (by, decision) = (outcome.by().to_owned(), outcome.decision.clone().into_owned());
                figures.permissions.get_or_create(&PermissionLabels { by, decision }).inc();
            }
            (EventKind::SessionUpdated, Some(told)) => {
                let agent = told.session.as_ref().and_then(|session| session.agent.as_ref());
                let Some(&ToldAgent { generation, pid: Some(_) }) = agent else { return };
                if self.generations.insert(event.session, generation) != Some(generation) {
                    let kind = if generation == 1 { "new" } else { "wake" };
                    figures.agent_starts.get_or_create(&StartLabels { kind }).inc();
                }
            }
            _ => {}
        }
    }

    fn run_seen(&mut self, newest: Timestamp, now: Timestamp) {
        self.metrics.0.visible_seconds.observe(seconds(newest, now));
    }
}
