//! Words that callers put into the running turn.
//!
//! The agent takes them at once and uses them with its next model call, which it tells by an echo. What it has taken and
//! not used when its turn ends is lost, and that is told. Measured with goose 1.52: it makes another model call for words
//! that come during its last answer, so they are lost only when the turn is cancelled, fails or dies.

use super::{Machine, Phase, Step};
use crate::session::agent::{Notice, NoticeLevel};
use crate::session::audit::By;
use crate::session::event::{EventBody, EventKind};
use crate::session::handle::Refusal;
use crate::session::id::{MessageId, TurnId};
use crate::session::log::TakenSteer;
use crate::session::turn::{Prompt, Turn};

/// How many prompts put into a turn may wait for the agent, to be taken or to be used.
const WAITING_STEERS: usize = 64;

/// Words that the agent is asked to take.
#[derive(Debug)]
pub(super) struct Asked {
    message: MessageId,
    turn: TurnId,
    by: By,
    prompt: Prompt,
}

impl Machine {
    /// Words are to be put into the running turn; or why not. [`Machine::steer_answered`] follows.
    pub(in crate::session) fn steer(
        &mut self,
        turn: TurnId,
        message: MessageId,
        by: By,
        prompt: Prompt,
    ) -> Result<(), Refusal> {
        if self.current_turn() != Some(turn) || self.is_stopping() {
            // The caller of the machine looks whether there ever was such a turn.
            return Err(Refusal::TurnNotRunning);
        }
        if self.held.is_some() {
            return Err(Refusal::Busy("its agent is not ready for the turn yet"));
        }
        if self.asked_steers.len() + self.record.taken_steers.len() >= WAITING_STEERS {
            return Err(Refusal::TooManySteers);
        }
        self.asked_steers.push(Asked { message, turn, by, prompt });
        Ok(())
    }

    /// The agent has answered, or never will. Whether it has taken the words and that was told.
    pub(in crate::session) fn steer_answered(&mut self, message: MessageId) -> bool {
        let before = self.asked_steers.len();
        self.asked_steers.retain(|asked| asked.message != message);
        self.asked_steers.len() == before
    }

    /// The agent has taken the words.
    pub(super) fn steered(&mut self, step: &mut Step, message: MessageId, agents_id: Option<String>) {
        let Some(current) = &self.record.snapshot.current_turn else { return };
        let turn = Turn { prompt: None, ..current.clone() };
        let is_this = |asked: &Asked| (asked.message, asked.turn) == (message, turn.id);
        let Some(index) = self.asked_steers.iter().position(is_this) else { return };
        let Asked { by, prompt, .. } = self.asked_steers.remove(index);
        if let Some(agents_id) = agents_id {
            self.record.taken_steers.push(TakenSteer { message, agents_id });
            step.session_changed = true;
        }
        let body = EventBody::Steered { turn: Box::new(turn), message_id: message, prompt, by };
        self.push(step, EventKind::TurnSteered, body);
    }

    /// gander's id of the message that the agent echoes, when it is words it has taken: it uses them now.
    pub(super) fn steer_used(&mut self, step: &mut Step, agents_id: Option<&str>) -> Option<MessageId> {
        let taken = &mut self.record.taken_steers;
        let index = taken.iter().position(|taken| Some(taken.agents_id.as_str()) == agents_id)?;
        step.session_changed = true;
        Some(taken.remove(index).message)
    }

    /// The turn ends: tells of what the agent has taken in vain.
    pub(super) fn tell_unused_steers(&mut self, step: &mut Step) {
        let unused = std::mem::take(&mut self.record.taken_steers).len();
        if unused == 0 || self.phase == Phase::Deleting {
            return;
        }
        let message =
            format!("{unused} of the prompts put into the turn came too late: it ended without them");
        self.notice(step, Notice { level: NoticeLevel::Warning, code: "steer-unused".into(), message });
    }
}
