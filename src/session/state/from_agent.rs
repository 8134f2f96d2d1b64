//! What the agent tells a session.

use super::{Machine, MessageKind, OpenMessage, Phase, Step, TURN_TEXT_BYTES, push_bounded};
use crate::session::agent::settings::thinking_effort;
use crate::session::agent::{
    AgentEvent, AgentExit, AgentFacts, AgentFailure, ConfigOption, ExtensionStatus, Notice, NoticeLevel,
    ResumeToken, Setting,
};
use crate::session::event::{EventBody, EventKind, SessionChange};
use crate::session::id::{MessageId, TurnId};
use crate::session::permission::DecidedBy;
use crate::session::snapshot::AgentSummary;
use crate::session::turn::{TurnError, TurnState};

/// How much of the agent's standard error a turn's error carries, in bytes; the notice has all that was kept.
const TURN_STDERR_BYTES: usize = 2048;

impl Machine {
    /// The agent is ready for prompts.
    pub(in crate::session) fn started(
        &mut self,
        step: &mut Step,
        facts: AgentFacts,
        resume: ResumeToken,
        notices: Vec<Notice>,
    ) {
        if self.phase != Phase::Starting {
            return;
        }
        self.phase = Phase::Ready;
        self.record.resume = Some(resume);
        let snapshot = &mut self.record.snapshot;
        let cwd = facts.cwd.to_string_lossy().into_owned();
        let generation = snapshot.agent.as_ref().map_or(0, |agent| agent.generation) + 1;
        let agent = AgentSummary {
            name: facts.name,
            version: facts.version,
            transport: facts.transport.to_owned(),
            mode: facts.mode.as_str().to_owned(),
            pid: facts.pid,
            generation,
        };
        snapshot.cwd = Some(cwd.clone());
        snapshot.agent = Some(agent.clone());
        snapshot.extensions.clone_from(&facts.extensions);
        snapshot.state_reason = None;
        let mut change = SessionChange {
            cwd: Some(cwd),
            extensions: Some(facts.extensions),
            agent: Some(agent),
            ..SessionChange::default()
        };
        self.record.default_effort = self.record.default_effort.take().or(facts.default_effort);
        self.take_config_options(facts.config_options, &mut change);
        self.push_change(step, change);
        for notice in notices {
            self.notice(step, notice);
        }
        // A turn that waited for the agent goes on with it.
        if let Some(command) = self.held.take() {
            self.send_in_mode(step, command);
        }
    }

    /// Takes one event of the agent.
    pub(in crate::session) fn agent_event(&mut self, step: &mut Step, event: AgentEvent) {
        match event {
            AgentEvent::MessageChunk { message_id, text } => {
                self.text(step, MessageKind::Agent, message_id, text);
            }
            AgentEvent::ThoughtChunk { message_id, text } => {
                self.text(step, MessageKind::Thought, message_id, text);
            }
            AgentEvent::UserMessage { message_id, text } => {
                self.text(step, MessageKind::User, message_id, text);
            }
            AgentEvent::Steered { message, agents_id } => self.steered(step, message, agents_id),
            AgentEvent::ToolCallStarted(call) => {
                // Models repeat ids: a call that begins again is another call.
                self.ended_calls.remove(&call.id);
                self.told_again(&call.id);
                self.tool_call(step, call);
            }
            AgentEvent::ToolCallUpdated(call) => self.tool_call(step, call),
            AgentEvent::ToolOutput { tool_call_id, stream, text, truncated } => {
                self.tool_output(step, tool_call_id, stream, &text, truncated);
            }
            // The actor looks first where the call's paths lead; here they are unknown.
            AgentEvent::PermissionRequested(request) => {
                let call = self.judged(&request);
                self.permission_requested(step, request, &call);
            }
            AgentEvent::PermissionWithdrawn(reply) => self.permission_withdrawn(step, &reply),
            AgentEvent::PlanUpdated(entries) => {
                let plan = &mut self.record.snapshot.plan;
                plan.version += 1;
                plan.entries = entries;
                let plan = plan.clone();
                step.session_changed = true;
                self.push(step, EventKind::PlanUpdated, EventBody::Plan { plan });
            }
            AgentEvent::ModelCallUsed(usage) => self.model_call_used(&usage),
            AgentEvent::UsageUpdated(usage) => self.usage_updated(step, usage),
            AgentEvent::CommandsUpdated { commands, skills } => {
                let snapshot = &mut self.record.snapshot;
                if snapshot.commands != commands || snapshot.skills != skills {
                    snapshot.commands.clone_from(&commands);
                    snapshot.skills.clone_from(&skills);
                    step.session_changed = true;
                    self.push(step, EventKind::CommandsUpdated, EventBody::Commands { commands, skills });
                }
            }
            AgentEvent::TitleChanged(title) => {
                let snapshot = &mut self.record.snapshot;
                if !self.record.title_is_callers && snapshot.title.as_ref() != Some(&title) {
                    snapshot.title = Some(title.clone());
                    self.push_change(
                        step,
                        SessionChange { title: Some(Some(title)), ..SessionChange::default() },
                    );
                }
            }
            // What an agent is set to while it starts, it tells when it has started.
            AgentEvent::ModeChanged(_) | AgentEvent::ConfigOptionsUpdated(_)
                if self.phase == Phase::Starting => {}
            AgentEvent::ModeChanged(mode) => self.agent_changed_mode(step, mode),
            AgentEvent::ConfigOptionsUpdated(options) => {
                let mut change = SessionChange::default();
                self.take_config_options(options, &mut change);
                if change != SessionChange::default() {
                    self.push_change(step, change);
                }
            }
            AgentEvent::ExtensionChanged(extension) => self.extension_changed(step, extension),
            AgentEvent::Notice(notice) => self.agent_notice(step, notice),
            AgentEvent::SessionMeta(_) => {}
            AgentEvent::Unknown(raw) => {
                self.push(step, EventKind::AgentUpdate, EventBody::Raw { raw });
            }
            AgentEvent::PromptFinished { turn, result } => self.prompt_finished(step, turn, result),
            AgentEvent::Exited(exit) => self.agent_exited(step, &exit),
        }
    }

    fn text(&mut self, step: &mut Step, kind: MessageKind, agents_id: Option<String>, text: String) {
        let message_id = match &self.message {
            Some(open) if open.kind == kind && open.agents_id == agents_id => open.id,
            _ => {
                let known = if kind == MessageKind::User {
                    self.steer_used(step, agents_id.as_deref())
                } else {
                    None
                };
                let id = known.unwrap_or_else(MessageId::new);
                self.message = Some(OpenMessage { kind, agents_id, id });
                if kind == MessageKind::Agent {
                    self.turn_text.clear();
                }
                id
            }
        };
        let event = match kind {
            MessageKind::Agent => {
                if self.record.snapshot.current_turn.is_some() {
                    push_bounded(&mut self.turn_text, &text, TURN_TEXT_BYTES);
                }
                EventKind::MessageDelta
            }
            MessageKind::Thought => EventKind::ThoughtDelta,
            MessageKind::User => EventKind::MessageUser,
        };
        self.push(step, event, EventBody::Text { message_id, text });
    }

    fn extension_changed(&mut self, step: &mut Step, changed: ExtensionStatus) {
        let extensions = &mut self.record.snapshot.extensions;
        match extensions.iter_mut().find(|extension| extension.name == changed.name) {
            Some(extension) if *extension == changed => return,
            Some(extension) => *extension = changed,
            None => extensions.push(changed),
        }
        let extensions = Some(extensions.clone());
        self.push_change(step, SessionChange { extensions, ..SessionChange::default() });
    }

    fn take_config_options(&mut self, options: Vec<ConfigOption>, change: &mut SessionChange) {
        let snapshot = &mut self.record.snapshot;
        for (field, told, setting) in [
            (&mut snapshot.provider, &mut change.provider, Setting::Provider),
            (&mut snapshot.model, &mut change.model, Setting::Model),
        ] {
            let value = setting.current(&options).map(ToOwned::to_owned);
            if value.is_some() && *field != value {
                field.clone_from(&value);
                *told = value;
            }
        }
        let effort = thinking_effort(&options).map(ToOwned::to_owned);
        if snapshot.thinking_effort != effort {
            snapshot.thinking_effort.clone_from(&effort);
            change.thinking_effort = Some(effort);
        }
        if let (Some(agent), Some(mode)) = (&mut snapshot.agent, Setting::Mode.current(&options))
            && agent.mode != mode
        {
            mode.clone_into(&mut agent.mode);
            change.agent = Some(agent.clone());
        }
        let shown: Vec<ConfigOption> = options.iter().map(ConfigOption::shortened).collect();
        if snapshot.config_options != shown {
            snapshot.config_options.clone_from(&shown);
            change.config_options = Some(shown);
        }
        self.all_options = options;
    }

    fn prompt_finished(&mut self, step: &mut Step, turn: TurnId, result: Result<String, AgentFailure>) {
        if self.current_turn() != Some(turn) {
            return;
        }
        self.forget_deaths();
        if self.is_stopping() {
            // Also when the agent was done at that moment.
            return self.end_stopped_turn(step);
        }
        match result {
            Ok(reason) if reason == "cancelled" => {
                self.end_turn(step, TurnState::Cancelled, Some(reason), None, &DecidedBy::Cancel);
            }
            Ok(reason) => self.end_turn(step, TurnState::Completed, Some(reason), None, &DecidedBy::Cancel),
            Err(AgentFailure { class, message, .. }) => {
                let error = TurnError { class, message, retryable: class.is_retryable() };
                self.end_turn(step, TurnState::Failed, None, Some(error), &DecidedBy::Cancel);
            }
        }
    }

    fn agent_exited(&mut self, step: &mut Step, exit: &AgentExit) {
        let message = format!("the agent ended: {}", exit.how);
        if self.phase != Phase::Deleting {
            let mut text = message.clone();
            if !exit.stderr_tail.is_empty() {
                text.push('\n');
                text.push_str(&exit.stderr_tail);
            }
            let code = "agent-exited".into();
            self.notice(step, Notice { level: NoticeLevel::Error, code, message: text });
        }
        // There is nobody left to answer.
        self.replies.clear();
        // A turn that was being stopped ends as it was to.
        self.end_stopped_turn(step);
        let had_agent = matches!(self.phase, Phase::Starting | Phase::Ready);
        let error =
            TurnError { class: exit.class, message: with_tail(&message, &exit.stderr_tail), retryable: true };
        self.agent_lost(step, &error, &DecidedBy::AgentExit);
        if had_agent {
            self.record.snapshot.state_reason = Some(message);
            if let Some(reason) = self.count_death(step.now, &exit.how) {
                self.phase = Phase::Failed;
                self.record.snapshot.state_reason = Some(reason);
            }
        }
    }
}

/// The message with the end of what the agent wrote to its standard error, as much as a turn may carry.
fn with_tail(message: &str, stderr_tail: &str) -> String {
    let tail = stderr_tail.trim_end();
    let tail = &tail[tail.ceil_char_boundary(tail.len().saturating_sub(TURN_STDERR_BYTES))..];
    if tail.is_empty() { message.to_owned() } else { format!("{message}\n{tail}") }
}
