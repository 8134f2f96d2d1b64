//! Counts what happens in sessions, from their committed events.

use std::collections::HashMap;

use super::{Metrics, PermissionLabels, StartLabels, ToolCallLabels, TurnLabels};
use crate::observer::told::ToldAgent;
use crate::observer::{Observed, Observer, OpenTurns};
use crate::session::event::EventKind;
use crate::session::id::{SessionNumber, Timestamp};

/// Counts for figures.
pub(super) struct Counting {
    metrics: Metrics,
    /// When each running turn began whose agent has not said anything yet.
    waiting: OpenTurns<Timestamp>,
    /// The last agent seen of each session that has had one.
    generations: HashMap<SessionNumber, u32>,
}

impl Counting {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { metrics, waiting: OpenTurns::default(), generations: HashMap::new() }
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
                let began = event.turn.and_then(|turn| self.waiting.remove(turn));
                if let Some((began, said)) = began.zip(event.time()) {
                    figures.first_event_seconds.observe(seconds(began, said));
                }
            }
            (EventKind::SessionDeleted, _) => {
                self.generations.remove(&event.session);
                self.waiting.remove_session(event.session);
            }
            (EventKind::TurnStarted, Some(told)) => {
                if let Some(turn) = event.turn {
                    self.waiting.remember(event.session, turn, || told.time);
                }
            }
            (kind, Some(told)) if kind.ends_turn() => {
                let Some(turn) = &told.turn else { return };
                self.waiting.remove(turn.id);
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

    fn events_lost(&mut self) {
        self.waiting.clear();
        // Sessions may be gone. Of those that are not, an agent that runs may be counted twice.
        self.generations.clear();
    }

    fn run_seen(&mut self, newest: Timestamp, now: Timestamp) {
        self.metrics.0.visible_seconds.observe(seconds(newest, now));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::observer::fake_events::{observe, started};

    fn counting() -> (Metrics, Counting) {
        let metrics = Metrics::new();
        (metrics.clone(), Counting::new(metrics))
    }

    fn first_words(metrics: &Metrics) -> u64 {
        let text = metrics.text(&crate::metrics::Moment::default());
        let figure = text.lines().find_map(|line| line.strip_prefix("gander_first_event_seconds_count "));
        figure.unwrap().parse().unwrap()
    }

    #[test]
    fn a_turn_is_no_longer_waited_for_when_its_end_cannot_be_told() {
        for is_lost in [false, true] {
            let (metrics, mut counting) = counting();
            let [deleted, other] = [started(&mut counting, 1), started(&mut counting, 2)];
            if is_lost {
                counting.events_lost();
            } else {
                observe(&mut counting, 1, EventKind::SessionDeleted, None, &json!({}));
            }
            observe(&mut counting, 1, EventKind::MessageDelta, Some(deleted), &json!({}));
            assert_eq!(first_words(&metrics), 0);
            observe(&mut counting, 2, EventKind::MessageDelta, Some(other), &json!({}));
            assert_eq!(first_words(&metrics), u64::from(!is_lost));
        }
    }

    #[test]
    fn the_newest_turns_are_counted_however_many_have_not_ended() {
        let (metrics, mut counting) = counting();
        let turns: Vec<_> = (0..5000).map(|session| started(&mut counting, session)).collect();
        for (turn, counted) in [(turns[0], 0), (turns[4999], 1)] {
            observe(&mut counting, 0, EventKind::MessageDelta, Some(turn), &json!({}));
            assert_eq!(first_words(&metrics), counted);
        }
    }
}
