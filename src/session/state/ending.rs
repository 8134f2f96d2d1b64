//! How turns, tool calls and permissions end: each exactly once, whatever dies.

use super::stopping::Stop;
use super::{Machine, Phase, Step};
use crate::session::agent::{AgentCommand, AgentOption, PermissionReply, Unfit};
use crate::session::event::{EventBody, EventKind};
use crate::session::id::PermissionId;
use crate::session::permission::{DecidedBy, Decision, Outcome, Permission, PermissionState, Scope};
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
        turn.usage = self.turn_usage.take();
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
    pub(super) fn tell_end(&mut self, step: &mut Step, mut turn: Turn, by: Option<String>) -> Turn {
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

    pub(super) fn close_permissions(&mut self, step: &mut Step, by: &DecidedBy) {
        let pending: Vec<PermissionId> =
            self.record.snapshot.pending_permissions.iter().map(|permission| permission.id).collect();
        for id in pending {
            let outcome = Outcome {
                decision: Decision::Reject,
                scope: Scope::Once,
                by: by.clone(),
                reason: None,
                at: step.now,
            };
            self.resolve(step, id, PermissionState::Cancelled, outcome);
        }
    }

    /// Decides a pending permission: told, written, and the agent answered. `None` when it is not pending.
    pub(super) fn resolve(
        &mut self,
        step: &mut Step,
        id: PermissionId,
        state: PermissionState,
        outcome: Outcome,
    ) -> Option<Permission> {
        let pending = &mut self.record.snapshot.pending_permissions;
        let index = pending.iter().position(|permission| permission.id == id)?;
        let mut permission = pending.remove(index);
        permission.state = state;
        if let Some(reply) = self.replies.remove(&id) {
            let answer = match (state, outcome.decision) {
                (PermissionState::Cancelled, _) => PermissionReply::Cancelled,
                (_, decision) => choose_option(&reply.options, decision),
            };
            step.commands.push(AgentCommand::AnswerPermission { reply: reply.reply, answer });
        }
        if state != PermissionState::Cancelled
            && outcome.decision == Decision::Reject
            && let Some(notes) = self.tool_notes.get_mut(&permission.tool_call.id)
        {
            notes.rejected = true;
        }
        permission.outcome = Some(outcome);
        self.push_in(
            step,
            EventKind::PermissionResolved,
            Some(permission.turn_id),
            EventBody::Permission { permission: Box::new(permission.clone()) },
        );
        step.put_permission(permission.clone());
        step.session_changed = true;
        Some(permission)
    }

    /// Rejects what nobody answered in time. Whose time is up is for the caller to say: the machine has no clock.
    pub(in crate::session) fn expire(&mut self, step: &mut Step, expired: &[PermissionId]) {
        for &id in expired {
            let outcome = Outcome {
                decision: Decision::Reject,
                scope: Scope::Once,
                by: DecidedBy::Timeout,
                reason: Some("nobody answered in time".into()),
                at: step.now,
            };
            self.resolve(step, id, PermissionState::Expired, outcome);
        }
    }
}

/// The agent's option for a decision, for this call only. Where it offers none: "cancelled", which runs nothing.
pub(super) fn choose_option(options: &[AgentOption], decision: Decision) -> PermissionReply {
    let kind = match decision {
        Decision::Allow => "allow_once",
        Decision::Reject => "reject_once",
    };
    match options.iter().find(|option| option.kind == kind) {
        Some(option) => PermissionReply::Selected(option.id.clone()),
        None => PermissionReply::Cancelled,
    }
}
