//! One line of the log for every turn that has ended.

use std::time::Duration;

use serde_json::value::RawValue;

use super::told::ToldTurn;
use super::{Observed, Observer, OpenTurns};
use crate::session::event::EventKind;
use crate::session::turn::TurnState;

/// How much of a prompt and of an answer is logged, in bytes of JSON.
const CONTENT_BYTES: usize = 4096;

/// Logs turns: nothing of what was said in them, unless that is asked for.
#[derive(Debug)]
pub struct TurnLog {
    content: bool,
    /// What is known of turns that have not ended.
    open: OpenTurns<OpenTurn>,
}

#[derive(Debug, Default)]
struct OpenTurn {
    prompt: Option<String>,
    tool_calls: u64,
}

impl TurnLog {
    /// With `content` the prompt and the agent's last message are logged too, up to 4 KiB of each.
    #[must_use]
    pub fn new(content: bool) -> Self {
        Self { content, open: OpenTurns::default() }
    }

    fn excerpt(&self, said: Option<&RawValue>) -> Option<String> {
        let said = said.filter(|_| self.content)?.get();
        Some(said[..said.floor_char_boundary(CONTENT_BYTES)].to_owned())
    }

    fn ended(&mut self, event: &Observed<'_>, turn: &ToldTurn<'_>, session: &str) {
        let open = self.open.remove(turn.id);
        let tool_calls = open.as_ref().map_or(0, |open| open.tool_calls);
        let prompt = open.and_then(|open| open.prompt);
        let text = self.excerpt(turn.text);
        let usage = turn.usage.as_ref();
        // Twice, since a line's level is fixed where it stands.
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    session,
                    turn = %turn.id,
                    owner = event.owner,
                    state = turn.state.as_str(),
                    stop_reason = turn.stop_reason.as_deref(),
                    class = turn.class(),
                    ms = millis(turn.took()),
                    waited_ms = millis(turn.waited()),
                    tool_calls,
                    input_tokens = usage.and_then(|usage| usage.input_tokens),
                    output_tokens = usage.and_then(|usage| usage.output_tokens),
                    request_id = turn.request_id.as_deref(),
                    trace_id = turn.traceparent.as_deref().and_then(|parent| parent.split('-').nth(1)),
                    prompt,
                    text,
                    "turn ended"
                )
            };
        }
        if matches!(turn.state, TurnState::Failed | TurnState::Interrupted) {
            line!(warn);
        } else {
            line!(info);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Observer for TurnLog {
    fn event(&mut self, event: &Observed<'_>) {
        if event.kind == EventKind::SessionDeleted {
            self.open.remove_session(event.session);
        }
        let Some(told) = &event.told else { return };
        match event.kind {
            EventKind::TurnQueued | EventKind::TurnStarted => {
                let Some(turn) = &told.turn else { return };
                let prompt = self.excerpt(turn.prompt);
                let open = self.open.remember(event.session, turn.id, OpenTurn::default);
                open.prompt = prompt.or_else(|| open.prompt.take());
            }
            EventKind::ToolCallFinished => {
                if let Some(open) = event.turn.and_then(|turn| self.open.get_mut(turn)) {
                    open.tool_calls += 1;
                }
            }
            kind if kind.ends_turn() => {
                if let Some(turn) = &told.turn {
                    self.ended(event, turn, &told.session_id.to_string());
                }
            }
            _ => {}
        }
    }

    fn events_lost(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::observer::fake_events::{observe, started};

    #[test]
    fn a_turn_is_forgotten_when_its_end_cannot_be_told() {
        let mut log = TurnLog::new(false);
        let [deleted, other] = [started(&mut log, 1), started(&mut log, 2)];
        observe(&mut log, 1, EventKind::SessionDeleted, None, &json!({}));
        assert_eq!([deleted, other].map(|turn| log.open.get(turn).is_some()), [false, true]);
        log.events_lost();
        assert!(log.open.get(other).is_none());
    }
}
