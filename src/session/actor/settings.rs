//! Changing a running agent's settings: provider, model, mode, in this order, all or none.

use tokio::sync::oneshot;

use super::{Finished, ModeSet, Next, SessionActor};
use crate::session::agent::{Agent, AgentCommand, AgentFailure, ConfigOption, Mode, Notice};
use crate::session::audit::By;
use crate::session::handle::{Refusal, Reply, SessionPatch};
use crate::session::id::Timestamp;
use crate::session::snapshot::Snapshot;
use crate::session::state::Step;
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
        if self.machine.has_agent() {
            // It is being started for a turn.
            return Next::GoOn;
        }
        let mut step = Step::new(Timestamp::now());
        self.machine.start(&mut step);
        self.finish_step(step).await
    }

    /// Asks the agent for new settings in a task of its own, which reports.
    pub(super) fn change_settings(&mut self, by: By, patch: SessionPatch, reply: Reply<Snapshot>) {
        let Some(agent) = self.child.agent.clone() else {
            self.machine.abandon_patch();
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
                self.machine.abandon_patch();
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
                Some(agent) => match set_option(&*agent, "mode", mode.as_str()).await {
                    Ok(()) => Ok(agent.check_extensions(mode).await),
                    Err(failure) => Err(failure),
                },
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

/// Asks the agent for the patch's settings. When it refuses one, those before it are set back to `before`.
async fn change(
    agent: &dyn Agent,
    before: (Option<String>, Option<String>),
    patch: &SessionPatch,
    agent_mode: Option<Mode>,
) -> Result<(), Refusal> {
    let (old_provider, old_model) = before;
    let result = set_all(agent, patch, agent_mode).await;
    if let Err(Refusal::SettingRefused { field, .. }) = &result {
        // A new provider brings its own model, so both go back. A refused model goes back too: the agent may have made
        // another one of it (goose 1.52 reads `gpt-5-high` as `gpt-5` with an effort).
        let provider = patch.provider.as_ref().filter(|_| *field != "provider").and(old_provider);
        let model = old_model.filter(|_| match *field {
            "provider" => false,
            "model" => true,
            _ => patch.provider.is_some() || patch.model.is_some(),
        });
        for (field, value) in [("provider", provider), ("model", model)] {
            let Some(value) = value else { continue };
            if let Err(failure) = set_option(agent, field, &value).await {
                tracing::warn!(field, %failure, "a setting could not be set back");
            }
        }
    }
    result
}

async fn set_all(agent: &dyn Agent, patch: &SessionPatch, agent_mode: Option<Mode>) -> Result<(), Refusal> {
    for (field, value) in [("provider", &patch.provider), ("model", &patch.model)] {
        let Some(value) = value else { continue };
        set_option(agent, field, value)
            .await
            .map_err(|failure| Refusal::SettingRefused { field, failure })?;
    }
    if let Some(mode) = agent_mode {
        let (done, answer) = oneshot::channel();
        let sent = agent.send(AgentCommand::SetMode { mode, done });
        let result = if sent.is_ok() { answer.await.unwrap_or_else(|_| Err(gone())) } else { Err(gone()) };
        result.map_err(|failure| Refusal::SettingRefused { field: "mode", failure })?;
    }
    Ok(())
}

/// Sets one option and looks in the reply whether it is set.
async fn set_option(agent: &dyn Agent, id: &str, value: &str) -> Result<(), AgentFailure> {
    let (done, answer) = oneshot::channel();
    agent
        .send(AgentCommand::SetConfigOption { id: id.to_owned(), value: value.to_owned(), done })
        .map_err(|_| gone())?;
    let options: Vec<ConfigOption> = answer.await.unwrap_or_else(|_| Err(gone()))?;
    let set =
        options.iter().find(|option| option.id == id).and_then(|option| option.current_value.as_deref());
    if set == Some(value) {
        return Ok(());
    }
    let message = format!("the agent made {} of it", set.unwrap_or("nothing"));
    Err(AgentFailure { class: TurnErrorClass::AgentError, code: None, message })
}

fn gone() -> AgentFailure {
    AgentFailure { class: TurnErrorClass::AgentExited, code: None, message: "the agent is gone".into() }
}
