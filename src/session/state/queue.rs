//! Turns that wait for those before them.
//!
//! The snapshot has them without their prompts, which can be megabytes each: a turn's own record has its prompt. So
//! whoever begins or ends a queued turn gives it back whole, as it is in the store.

use super::{Machine, Phase, Step};
use crate::session::audit::By;
use crate::session::event::{EventBody, EventKind};
use crate::session::handle::Refusal;
use crate::session::id::TurnId;
use crate::session::turn::{Prompt, Turn, TurnError, TurnState};

impl Machine {
    /// Puts a turn behind all that are open, or says why not.
    pub(in crate::session) fn queue(
        &mut self,
        step: &mut Step,
        id: TurnId,
        by: By,
        prompt: Prompt,
    ) -> Result<Turn, Refusal> {
        if self.phase == Phase::Deleting {
            return Err(Refusal::Busy("it is being deleted"));
        }
        if self.record.snapshot.queued_turns.len() >= self.bounds.queued_turns {
            return Err(Refusal::QueueFull);
        }
        let turn = self.asked(step, id, &by, prompt);
        self.record.snapshot.queued_turns.push(Turn { prompt: None, ..turn.clone() });
        step.session_changed = true;
        let body = EventBody::Turn { turn: Box::new(turn.clone()), by: Some(by) };
        self.push_in(step, EventKind::TurnQueued, Some(id), body);
        step.put_turn(turn.clone());
        Ok(turn)
    }

    /// The turn that nothing in the session keeps from beginning.
    pub(in crate::session) fn next_queued(&self) -> Option<TurnId> {
        let is_free = match self.phase {
            Phase::Ready | Phase::Hibernated | Phase::Failed => !self.patching,
            Phase::Starting | Phase::Deleting => false,
        };
        self.open_turn().filter(|turn| is_free && self.current_turn() != Some(*turn))
    }

    /// Begins the next queued turn, which is given whole; one that is not the next is left alone.
    pub(in crate::session) fn begin_queued(&mut self, step: &mut Step, turn: Turn) {
        if self.next_queued() != Some(turn.id) {
            return;
        }
        self.record.snapshot.queued_turns.remove(0);
        let turn = Turn { state: TurnState::Running, started_at: Some(step.now), ..turn };
        // Its first event has told the prompt and who asked.
        let told = Turn { prompt: None, ..turn.clone() };
        self.begin(step, turn, told, None);
    }

    /// The running turn, else the next one.
    pub(in crate::session) fn open_turn(&self) -> Option<TurnId> {
        self.open_turns().next()
    }

    /// The running turn and those behind it.
    pub(in crate::session) fn open_turns(&self) -> impl Iterator<Item = TurnId> {
        let snapshot = &self.record.snapshot;
        snapshot.current_turn.iter().chain(&snapshot.queued_turns).map(|turn| turn.id)
    }

    /// Whether a turn waits.
    pub(in crate::session) fn is_queued(&self, id: TurnId) -> bool {
        self.record.snapshot.queued_turns.iter().any(|turn| turn.id == id)
    }

    /// Cancels a queued turn, which is given whole: it ends at once.
    pub(in crate::session) fn cancel_queued(&mut self, step: &mut Step, by: By, turn: Turn) -> Turn {
        self.end_queued(step, cancelled(turn), Some(by))
    }

    /// Cancels all of them, since their session goes, and their records with it.
    pub(super) fn cancel_all_queued(&mut self, step: &mut Step, by: &By) {
        for turn in self.record.snapshot.queued_turns.clone() {
            self.cancel_queued(step, by.clone(), turn);
        }
    }

    /// Ends a queued turn, which is given whole, since it cannot begin any more.
    pub(in crate::session) fn refuse_queued(&mut self, step: &mut Step, turn: Turn, error: TurnError) {
        if !self.is_queued(turn.id) {
            return;
        }
        self.end_queued(step, Turn { state: TurnState::Failed, error: Some(error), ..turn }, None);
    }

    /// The only way out of the queue but to begin.
    pub(in crate::session) fn end_queued(&mut self, step: &mut Step, turn: Turn, by: Option<By>) -> Turn {
        self.record.snapshot.queued_turns.retain(|queued| queued.id != turn.id);
        self.tell_end(step, turn, by)
    }
}

fn cancelled(turn: Turn) -> Turn {
    Turn { state: TurnState::Cancelled, stop_reason: Some("cancelled".into()), ..turn }
}
