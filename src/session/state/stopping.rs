//! How a running turn is stopped before its agent is done with it: by a caller, or because it takes too long.
//!
//! The agent is told first, then every open question is answered: the other way round it takes the answer for a
//! rejection and asks its model once more. What the turn then ends as was decided when its stop began, whatever the
//! agent still says and however it ends.

use super::{Machine, Phase, Step};
use crate::session::agent::{AgentCommand, Notice, NoticeLevel};
use crate::session::audit::By;
use crate::session::handle::Refusal;
use crate::session::id::TurnId;
use crate::session::permission::DecidedBy;
use crate::session::tool_call::ToolCallStatus;
use crate::session::turn::{Turn, TurnError, TurnErrorClass, TurnState};

/// Why the running turn is being stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// A caller cancelled it.
    Cancelled { by: By },
    /// It takes longer than a turn may.
    Deadline,
}

impl Machine {
    /// Whether a turn is being stopped: what its tools started is killed before its end is told.
    pub(in crate::session) fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// Begins to cancel a turn.
    pub(in crate::session) fn cancel(
        &mut self,
        step: &mut Step,
        by: By,
        turn: TurnId,
    ) -> Result<Turn, Refusal> {
        let Some(current) = self.record.snapshot.current_turn.clone().filter(|current| current.id == turn)
        else {
            // The caller of the machine looks whether there ever was such a turn.
            return Err(Refusal::TurnNotRunning);
        };
        match self.stop {
            None => {
                step.by = Some(by.clone());
                self.begin_stop(step, Stop::Cancelled { by });
            }
            // The agent has heard of it; the caller gets the end that was asked for.
            Some(Stop::Deadline) => self.stop = Some(Stop::Cancelled { by }),
            Some(Stop::Cancelled { .. }) => {}
        }
        Ok(current)
    }

    /// Stops a turn that has taken as long as it may. When that is, is for the caller to say: the machine has no clock.
    pub(in crate::session) fn stop_at_deadline(&mut self, step: &mut Step, turn: TurnId) {
        if self.current_turn() == Some(turn) && !self.is_stopping() {
            self.begin_stop(step, Stop::Deadline);
        }
    }

    fn begin_stop(&mut self, step: &mut Step, why: Stop) {
        self.stop = Some(why);
        if self.held.is_some() {
            // The agent has not heard of the turn, and will not.
            return self.end_stopped_turn(step);
        }
        step.commands.push(AgentCommand::Cancel);
        self.close_permissions(step, &DecidedBy::Cancel);
    }

    /// Ends the turn that is being stopped. Nothing when none is.
    pub(super) fn end_stopped_turn(&mut self, step: &mut Step) {
        let by = &DecidedBy::Cancel;
        match &self.stop {
            None => {}
            Some(Stop::Cancelled { .. }) => {
                self.end_turn(step, TurnState::Cancelled, Some("cancelled".into()), None, by);
            }
            Some(Stop::Deadline) => {
                let class = TurnErrorClass::Deadline;
                let limit = humantime::format_duration(self.bounds.turn_duration);
                let message = format!("the turn took longer than {limit}, as long as a turn may take");
                let error = TurnError { class, message, retryable: class.is_retryable() };
                self.end_turn(step, TurnState::Failed, None, Some(error), by);
            }
        }
    }

    /// The agent did not end a stopped turn in time, or did not end what it had started, and has been ended itself,
    /// with so many processes that its tools had left.
    pub(in crate::session) fn stop_overdue(&mut self, step: &mut Step, killed: usize) {
        let message = format!(
            "the agent did not stop when its turn was stopped, and was killed, with {killed} processes that its tools \
             had started"
        );
        let code = "agent-killed".into();
        self.notice(step, Notice { level: NoticeLevel::Warning, code, message });
        self.forget_agent();
        self.end_stopped_turn(step);
        self.close_tool_calls(step, ToolCallStatus::Cancelled);
        if self.phase == Phase::Ready {
            self.phase = Phase::Hibernated;
            self.record.snapshot.state_reason =
                Some("the agent did not stop when its turn was stopped".into());
        }
    }
}
