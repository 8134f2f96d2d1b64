//! What callers ask of a session.

use std::sync::Arc;

use super::stopping::Stop;
use super::usage::TurnMeter;
use super::{Machine, Phase, Step};
use crate::session::agent::{AgentCommand, ConfigOption};
use crate::session::audit::By;
use crate::session::event::{EventBody, EventKind, SessionChange};
use crate::session::handle::{Choices, Refusal, SessionPatch};
use crate::session::id::{Timestamp, TurnId};
use crate::session::permission::DecidedBy;
use crate::session::snapshot::Snapshot;
use crate::session::tool_call::ToolCallStatus;
use crate::session::turn::{Prompt, Turn, TurnError, TurnErrorClass, TurnState};

/// An agent's settings before they are changed.
#[derive(Debug)]
pub(in crate::session) struct Settings {
    /// As the agent told them.
    pub(in crate::session) options: Vec<ConfigOption>,
    /// The thinking effort that it had by itself.
    pub(in crate::session) default_effort: Option<String>,
}

impl Machine {
    /// Begins a turn, or says why not.
    pub(in crate::session) fn prompt(
        &mut self,
        step: &mut Step,
        id: TurnId,
        by: By,
        prompt: Prompt,
    ) -> Result<Turn, Refusal> {
        self.refuse_prompt(step.now)?;
        let turn = Turn {
            state: TurnState::Running,
            started_at: Some(step.now),
            ..self.asked(step, id, &by, prompt)
        };
        self.begin(step, turn.clone(), turn.clone(), Some(by));
        Ok(turn)
    }

    /// Why no turn can begin now.
    pub(in crate::session) fn refuse_prompt(&self, now: Timestamp) -> Result<(), Refusal> {
        self.refuse_work(now)?;
        self.open_turn().map_or(Ok(()), |turn| Err(Refusal::TurnInProgress(turn)))
    }

    /// A turn as it was asked for.
    pub(super) fn asked(&self, step: &Step, id: TurnId, by: &By, prompt: Prompt) -> Turn {
        let request = by.asked_by();
        let text = |text: &Arc<str>| text.as_ref().to_owned();
        Turn {
            id,
            session_id: self.record.snapshot.id,
            state: TurnState::Queued,
            prompt: Some(prompt),
            text: None,
            stop_reason: None,
            error: None,
            usage: None,
            created_at: step.now,
            started_at: None,
            ended_at: None,
            first_event_id: self.record.snapshot.last_event_id.next(),
            last_event_id: None,
            request_id: request.map(|request| text(&request.id)),
            traceparent: request.and_then(|request| request.traceparent.as_ref()).map(text),
        }
    }

    /// Begins a turn, `told` in its event: the agent gets the prompt now, or when there is one.
    pub(super) fn begin(&mut self, step: &mut Step, turn: Turn, told: Turn, by: Option<By>) {
        let content = turn.prompt.clone().map(Prompt::into_blocks).unwrap_or_default();
        let command = AgentCommand::Prompt { turn: turn.id, content };
        step.put_turn(turn.clone());
        self.record.snapshot.current_turn = Some(turn);
        self.message = None;
        self.turn_meter = TurnMeter::begin(self.record.snapshot.usage.clone());
        self.count_notices_anew();
        step.session_changed = true;
        self.push(step, EventKind::TurnStarted, EventBody::Turn { turn: Box::new(told), by });
        if self.phase == Phase::Ready {
            self.send_in_mode(step, command);
        } else {
            self.held = Some(command);
            self.start(step);
        }
    }

    /// The running turn, when what it begins with waits for the agent or its mode.
    pub(in crate::session) fn waiting_turn(&self) -> Option<Turn> {
        self.record.snapshot.current_turn.clone().filter(|_| self.held.is_some())
    }

    /// Ends the running turn, whose prompt has waited and must not be sent any more.
    pub(in crate::session) fn refuse_waiting(&mut self, step: &mut Step, error: TurnError) {
        if self.held.is_some() {
            self.end_turn(step, TurnState::Failed, None, Some(error), &DecidedBy::Cancel);
        }
    }

    /// Ends a turn that was begun or queued and could not be written down in time: the agent never hears of it.
    pub(in crate::session) fn not_begun(&mut self, step: &mut Step, turn: Turn) {
        let error = TurnError {
            class: TurnErrorClass::StorageUnavailable,
            message: "nothing could be written when the turn was begun".into(),
            retryable: true,
        };
        if self.is_queued(turn.id) {
            self.end_queued(step, Turn { state: TurnState::Failed, error: Some(error), ..turn }, None);
            return;
        }
        self.end_turn(step, TurnState::Failed, None, Some(error), &DecidedBy::Cancel);
        if self.phase == Phase::Starting {
            // No agent was started for it either.
            self.phase = Phase::Hibernated;
        }
    }

    /// Begins a change that takes the agent, or says why not. Never in a turn: goose 1.52 takes another mode then and goes
    /// on in the old one (measured), so that a caller who has just tightened it would rely on questions that never come.
    pub(in crate::session) fn begin_patch(&mut self, now: Timestamp) -> Result<(), Refusal> {
        self.refuse_work(now)?;
        if let Some(turn) = self.current_turn() {
            return Err(Refusal::TurnInProgress(turn));
        }
        self.patching = true;
        Ok(())
    }

    /// Ends what [`Machine::begin_patch`] began, however the agent took it.
    pub(in crate::session) fn end_patch(&mut self) {
        self.patching = false;
    }

    /// Writes down a change; what takes the agent has been done by it.
    pub(in crate::session) fn apply_patch(
        &mut self,
        step: &mut Step,
        by: By,
        patch: &SessionPatch,
    ) -> Result<(), Refusal> {
        if self.phase == Phase::Deleting {
            return Err(Refusal::Busy("it is being deleted"));
        }
        let snapshot = &mut self.record.snapshot;
        let mut change = SessionChange { by: Some(by), ..SessionChange::default() };
        if let Some(title) = &patch.title {
            self.record.title_is_callers = title.is_some();
            if snapshot.title != *title {
                snapshot.title.clone_from(title);
                change.title = Some(title.clone());
            }
        }
        if !patch.metadata.is_empty() {
            let before = snapshot.metadata.clone();
            for (key, value) in &patch.metadata {
                match value {
                    Some(value) => snapshot.metadata.insert(key.clone(), value.clone()),
                    None => snapshot.metadata.remove(key),
                };
            }
            change.metadata = (snapshot.metadata != before).then(|| snapshot.metadata.clone());
        }
        if let Some(mode) = patch.mode {
            change.mode = Self::differing(&mut snapshot.mode, mode);
            self.record.launch.mode = mode;
        }
        if let Some(policy) = &patch.permission_policy {
            let policy = policy.as_ref().map(|policy| policy.applied_to(&snapshot.permission_policy));
            change.permission_policy =
                Self::differing(&mut snapshot.permission_policy, policy.unwrap_or_default());
        }
        if let Some(provider) = &patch.provider {
            change.provider = Self::differing(&mut snapshot.provider, Some(provider.clone())).flatten();
            self.record.launch.provider = Some(provider.clone());
            // A model asked for before was the old provider's.
            self.record.launch.model = None;
        }
        if let Some(model) = &patch.model {
            change.model = Self::differing(&mut snapshot.model, Some(model.clone())).flatten();
            self.record.launch.model = Some(model.clone());
        }
        match &patch.thinking_effort {
            Some(effort) => self.record.launch.thinking_effort.clone_from(effort),
            // One that was asked for before stays as long as the model has it.
            None if patch.needs_agent() && snapshot.thinking_effort != self.record.launch.thinking_effort => {
                self.record.launch.thinking_effort = None;
            }
            None => {}
        }
        if change.permission_policy.is_some() {
            self.renew_policy();
        }
        step.session_changed = true;
        if change != (SessionChange { by: change.by.clone(), ..SessionChange::default() }) {
            self.push_change(step, change);
        }
        Ok(())
    }

    /// Sets a field; gives the value if it is another than before.
    fn differing<T: PartialEq + Clone>(field: &mut T, value: T) -> Option<T> {
        if *field == value {
            return None;
        }
        field.clone_from(&value);
        Some(value)
    }

    /// The snapshot for a caller.
    pub(in crate::session) fn snapshot_with(&self, choices: Choices) -> Snapshot {
        let mut snapshot = self.record.snapshot.clone();
        if choices == Choices::All && !self.all_options.is_empty() {
            snapshot.config_options.clone_from(&self.all_options);
        }
        snapshot
    }

    /// The agent's settings as they are: what a failed change goes back to.
    pub(in crate::session) fn settings(&self) -> Settings {
        Settings {
            options: self.record.snapshot.config_options.clone(),
            default_effort: self.record.default_effort.clone(),
        }
    }

    /// Begins to delete the session: closes what is open. Nothing but [`Machine::deleted`] follows.
    pub(in crate::session) fn begin_delete(&mut self, step: &mut Step, by: &By) -> Result<(), Refusal> {
        if self.phase == Phase::Deleting {
            return Err(Refusal::Busy("it is being deleted"));
        }
        self.phase = Phase::Deleting;
        self.record.deleting = true;
        self.record.deleted_by = Some(by.who());
        self.stop = self.current_turn().map(|_| Stop::Cancelled { by: by.clone() });
        self.end_stopped_turn(step);
        self.close_tool_calls(step, ToolCallStatus::Cancelled);
        self.cancel_all_queued(step, by);
        step.session_changed = true;
        Ok(())
    }

    /// Who began to delete it; of a deletion that an earlier version began, its owner.
    pub(in crate::session) fn deleted_by(&self) -> By {
        let owner = || By::caller(&self.record.snapshot.owner);
        self.record.deleted_by.as_deref().map_or_else(owner, By::of_who)
    }

    /// The agent is gone and the data is about to be: the last event.
    pub(in crate::session) fn deleted(&mut self, step: &mut Step, by: &By) {
        let session = SessionChange {
            id: Some(self.record.snapshot.id),
            by: Some(by.clone()),
            ..SessionChange::default()
        };
        self.push(step, EventKind::SessionDeleted, EventBody::Session { session: Box::new(session) });
    }
}
