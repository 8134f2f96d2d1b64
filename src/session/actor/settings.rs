//! Changing a running agent's settings: provider, model, thinking effort, mode, in this order, all or none.

use tokio::sync::oneshot;

use super::{Finished, ModeSet, Next, SessionActor};
use crate::session::agent::settings::{check_choice, check_set};
use crate::session::agent::{Agent, AgentCommand, AgentFailure, ConfigOption, Mode, Notice, Setting};
use crate::session::audit::By;
use crate::session::handle::{Refusal, Reply, SessionPatch};
use crate::session::id::Timestamp;
use crate::session::snapshot::Snapshot;
use crate::session::state::{Settings, Step};
use crate::session::turn::TurnErrorClass;

impl SessionActor {
    /// Begins a change that takes the agent; wakes it first when none runs.
    pub(super) async fn begin_patch(&mut self, by: By, patch: SessionPatch, reply: Reply<Snapshot>) -> Next {
        let begun = self.take_place().await.and_then(|()| self.machine.begin_patch(Timestamp::now()));
        if let Err(refusal) = begun {
            let _ = reply.send(Err(refusal));
            return Next::GoOn;
        }
        if self.child.agent.is_some() {
            self.change_settings(by, patch, reply);
            return Next::GoOn;
        }
        self.waiting_patch = Some((by, patch, reply));
        let mut step = Step::new(Timestamp::now());
        self.machine.start(&mut step);
        self.finish_step(step).await
    }

    /// Asks the agent for new settings in a task of its own, which reports.
    pub(super) fn change_settings(&mut self, by: By, patch: SessionPatch, reply: Reply<Snapshot>) {
        let Some(agent) = self.child.agent.clone() else {
            self.machine.end_patch();
            let _ = reply.send(Err(Refusal::Failed("its agent is gone".into())));
            return;
        };
        let before = self.machine.settings();
        let agent_mode = self.machine.agent_mode_after(&patch);
        let reports = self.reports.sender.clone();
        self.tasks.spawn(async move {
            let result = match (change(&*agent, before, &patch, agent_mode).await, agent_mode) {
                (Ok(()), Some(mode)) => agent.check_extensions(mode).await.map_err(Refusal::Unfit),
                (result, _) => result.map(|()| Vec::new()),
            };
            let _ = reports.send(Finished::Patch { by, patch, agent_mode, reply, result }).await;
        });
    }

    pub(super) async fn patched(
        &mut self,
        by: By,
        patch: &SessionPatch,
        agent_mode: Option<Mode>,
        reply: Reply<Snapshot>,
        result: Result<Vec<Notice>, Refusal>,
    ) -> Next {
        let mut step = Step::new(Timestamp::now());
        self.machine.end_patch();
        let result = match result {
            Ok(notices) => {
                let applied = self.machine.apply_patch(&mut step, by, patch);
                if let Some(mode) = agent_mode {
                    // The agent has said yes; its own word about it may still be under way.
                    self.machine.mode_set(&mut step, mode);
                }
                for notice in notices {
                    self.machine.notice(&mut step, notice);
                }
                applied
            }
            Err(refusal) => {
                if let Refusal::Unfit(unfit) = &refusal {
                    let next = self.give_up_agent(unfit).await;
                    self.answer_when_committed(reply, Err(refusal)).await;
                    return next;
                }
                Err(refusal)
            }
        };
        let next = self.finish_step(step).await;
        let result = result.map(|()| self.machine.snapshot().clone());
        self.answer_when_committed(reply, result).await;
        next
    }
}

impl SessionActor {
    /// Sets the agent to the mode that a turn waits for, in a task of its own, which reports.
    pub(super) fn set_mode(&self, mode: Mode) {
        let agent = self.child.agent.clone();
        let reports = self.reports.sender.clone();
        self.tasks.spawn(async move {
            let result = match agent {
                // An option's answer says what is set now; that of `SetMode` says nothing.
                Some(agent) => {
                    let mut change = Change { agent: &*agent, options: Vec::new() };
                    match change.set(Setting::Mode, mode.as_str()).await {
                        Ok(()) => Ok(agent.check_extensions(mode).await),
                        Err(failure) => Err(failure),
                    }
                }
                None => Err(gone()),
            };
            let _ = reports.send(Finished::Mode { mode, result }).await;
        });
    }

    pub(super) async fn mode_set(&mut self, mode: Mode, result: ModeSet) -> Next {
        let mut step = Step::new(Timestamp::now());
        match result {
            Ok(Ok(notices)) => {
                for notice in notices {
                    self.machine.notice(&mut step, notice);
                }
                self.refuse_waiting_links(&mut step).await;
                self.machine.mode_set(&mut step, mode);
            }
            Ok(Err(unfit)) => return self.give_up_agent(&unfit).await,
            Err(failure) => {
                if self.machine.mode_not_set(&mut step, &failure) {
                    tracing::error!(session = %self.log.session(), %failure, "the agent cannot be set to the mode it has to be in: it is ended");
                    self.end_agent(self.end_grace).await;
                }
            }
        }
        self.finish_step(step).await
    }
}

/// The agent's settings while they are changed.
struct Change<'a> {
    agent: &'a dyn Agent,
    /// As the agent last told them.
    options: Vec<ConfigOption>,
}

/// Asks the agent for the patch's settings. When it refuses one, those before it are set back.
async fn change(
    agent: &dyn Agent,
    before: Settings,
    patch: &SessionPatch,
    agent_mode: Option<Mode>,
) -> Result<(), Refusal> {
    let mut change = Change { agent, options: before.options.clone() };
    let result = change.set_all(&before, patch, agent_mode).await;
    if let Err(Refusal::SettingRefused { .. }) = &result {
        change.set_back(&before).await;
    }
    result
}

impl Change<'_> {
    async fn set_all(
        &mut self,
        before: &Settings,
        patch: &SessionPatch,
        agent_mode: Option<Mode>,
    ) -> Result<(), Refusal> {
        let refused = |setting| move |failure| Refusal::SettingRefused { setting, failure };
        for (setting, value) in [(Setting::Provider, &patch.provider), (Setting::Model, &patch.model)] {
            let Some(value) = value else { continue };
            self.set(setting, value).await.map_err(refused(setting))?;
        }
        let effort = match &patch.thinking_effort {
            None => None,
            Some(Some(effort)) => Some(effort.clone()),
            Some(None) => self.default_effort(before.default_effort.as_deref()),
        };
        if let Some(effort) = effort {
            let setting = Setting::ThinkingEffort;
            // goose takes any effort without a word, does not use it, and remembers it for the next model.
            check_choice(setting, &effort, &self.options)
                .map_err(|message| refused(setting)(not_taken(message)))?;
            self.set(setting, &effort).await.map_err(refused(setting))?;
        }
        if let Some(mode) = agent_mode {
            self.set_mode(mode).await.map_err(refused(Setting::Mode))?;
        }
        Ok(())
    }

    /// What a session has that asks for no effort; of a model that does not offer that, the first choice, which is the
    /// least. `None` when there is nothing to choose.
    fn default_effort(&self, by_itself: Option<&str>) -> Option<String> {
        let option = Setting::ThinkingEffort.of(&self.options)?;
        let default = by_itself.filter(|effort| option.offers(effort)).map(ToOwned::to_owned);
        default.or_else(|| option.choices.first().map(|choice| choice.value.clone()))
    }

    /// Sets back what is not as it was. A new provider brings its own model, and a model its own effort, so they go
    /// back in this order. What was refused may have changed something too: goose 1.52 reads the model `gpt-5-high` as
    /// `gpt-5` with an effort.
    async fn set_back(&mut self, before: &Settings) {
        for setting in [Setting::Provider, Setting::Model, Setting::ThinkingEffort, Setting::Mode] {
            let Some(value) = setting.current(&before.options) else { continue };
            if setting.current(&self.options) == Some(value) {
                continue;
            }
            if let Err(failure) = self.set(setting, value).await {
                tracing::warn!(%setting, %failure, "a setting could not be set back");
            }
        }
    }

    /// Puts the agent into a mode. Where it lists its modes among its settings its answer proves it.
    async fn set_mode(&mut self, mode: Mode) -> Result<(), AgentFailure> {
        if Setting::Mode.of(&self.options).is_some() {
            return self.set(Setting::Mode, mode.as_str()).await;
        }
        let (done, answer) = oneshot::channel();
        self.agent.send(AgentCommand::SetMode { mode, done }).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Sets one option and looks in the reply whether it is set.
    async fn set(&mut self, setting: Setting, value: &str) -> Result<(), AgentFailure> {
        let (done, answer) = oneshot::channel();
        let (id, asked) = (setting.as_str().to_owned(), value.to_owned());
        self.agent.send(AgentCommand::SetConfigOption { id, value: asked, done }).map_err(|_| gone())?;
        self.options = answer.await.unwrap_or_else(|_| Err(gone()))?;
        check_set(setting, value, &self.options).map_err(not_taken)
    }
}

fn not_taken(message: String) -> AgentFailure {
    AgentFailure { class: TurnErrorClass::AgentError, code: None, message }
}

fn gone() -> AgentFailure {
    AgentFailure { class: TurnErrorClass::AgentExited, code: None, message: "the agent is gone".into() }
}

#[cfg(test)]
mod tests;
