//! How turns and tool calls end: each exactly once, whatever dies.

use super::stopping::Stop;
use super::{Machine, Phase, Step};
use crate::session::agent::Unfit;
use crate::session::audit::By;
use crate::session::event::{EventBody, EventKind};
use crate::session::permission::DecidedBy;
use crate::session::tool_call::{ToolCall, ToolCallStatus};
use crate::session::turn::{Turn, TurnError, TurnErrorClass, TurnState};

impl Machine {
    /// Ends whatever is open, since there is no agent any more.
    pub(super) fn agent_lost(&mut self, step: &mut Step, error: &TurnError, by: &DecidedBy) {
        self.end_turn(step, TurnState::Interrupted, None, Some(error.clone()), by);
        // Calls that began outside any turn.
        self.close_tool_calls(step, ToolCallStatus::Cancelled);
        if self.record.snapshot.agent.as_ref().is_some_and(|agent| agent.pid.is_some()) {
            step.session_changed = true;
        }
        self.forget_agent();
        if matches!(self.phase, Phase::Starting | Phase::Ready) {
            self.phase = Phase::Hibernated;
            self.record.snapshot.state_reason = Some(error.message.clone());
        }
    }

    /// The agent was ended, since it would have done things unasked.
    pub(in crate::session) fn agent_unfit(&mut self, step: &mut Step, unfit: &Unfit) {
        let error = TurnError {
            class: TurnErrorClass::AgentError,
            message: unfit.to_string(),
            retryable: TurnErrorClass::AgentError.is_retryable(),
        };
        self.end_turn(step, TurnState::Failed, None, Some(error), &DecidedBy::AgentExit);
        self.close_tool_calls(step, ToolCallStatus::Cancelled);
        self.forget_agent();
        if self.phase == Phase::Ready {
            self.phase = Phase::Failed;
            self.record.snapshot.state_reason = Some(unfit.to_string());
        }
    }

    /// The only way out of a turn: closes what is open in it, then tells its end as its last event.
    pub(super) fn end_turn(
        &mut self,
        step: &mut Step,
        state: TurnState,
        stop_reason: Option<String>,
        error: Option<TurnError>,
        by: &DecidedBy,
    ) {
        self.close_permissions(step, by);
        let Some(mut turn) = self.record.snapshot.current_turn.clone() else { return };
        self.close_tool_calls(step, ToolCallStatus::Cancelled);
        turn.state = state;
        turn.stop_reason = stop_reason;
        turn.error = error;
        turn.text = (!self.turn_text.is_empty()).then(|| std::mem::take(&mut self.turn_text));
        turn.usage = std::mem::take(&mut self.turn_meter).end(&self.record.snapshot.usage);
        self.tell_unused_steers(step);
        self.tell_left_out_notices(step);
        let by = match self.stop.take() {
            Some(Stop::Cancelled { by }) => Some(by),
            Some(Stop::Deadline) | None => None,
        };
        self.tell_end(step, turn, by);
        self.record.snapshot.current_turn = None;
        self.held = None;
        self.message = None;
        self.turn_text.clear();
        self.ended_calls.clear();
    }

    /// A turn's last event, and its record.
    pub(super) fn tell_end(&mut self, step: &mut Step, mut turn: Turn, by: Option<By>) -> Turn {
        turn.ended_at = Some(step.now);
        turn.last_event_id = Some(self.record.snapshot.last_event_id.next());
        let kind = match turn.state {
            TurnState::Queued | TurnState::Running | TurnState::Completed => EventKind::TurnCompleted,
            TurnState::Failed => EventKind::TurnFailed,
            TurnState::Cancelled => EventKind::TurnCancelled,
            TurnState::Interrupted => EventKind::TurnInterrupted,
        };
        let told = Turn { prompt: None, ..turn.clone() };
        self.push_in(step, kind, Some(turn.id), EventBody::Turn { turn: Box::new(told), by });
        step.put_turn(turn.clone());
        step.session_changed = true;
        turn
    }

    pub(super) fn close_tool_calls(&mut self, step: &mut Step, status: ToolCallStatus) {
        for call in std::mem::take(&mut self.record.snapshot.open_tool_calls) {
            let notes = self.tool_notes.remove(&call.id).unwrap_or_default();
            let status = if notes.rejected { ToolCallStatus::Rejected } else { status };
            let finished = ToolCall { status: Some(status), input: None, ..call };
            self.push_in(
                step,
                EventKind::ToolCallFinished,
                notes.turn,
                EventBody::ToolCall { tool_call: Box::new(finished) },
            );
            step.session_changed = true;
        }
        self.tool_notes.clear();
    }
}
