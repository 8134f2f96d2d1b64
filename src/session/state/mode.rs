//! The mode that the agent decides in: no prompt reaches it while it is in another one than it has to be.

use super::{Machine, Phase, Step};
use crate::session::agent::{AgentCommand, AgentFailure, Mode, Notice, NoticeLevel};
use crate::session::event::SessionChange;
use crate::session::handle::SessionPatch;
use crate::session::permission::{DecidedBy, Decision};
use crate::session::policy::Policy;
use crate::session::turn::{TurnError, TurnState};

impl Machine {
    /// The mode that the agent has to run in. Where something is to be asked about or rejected, it has to ask for
    /// everything: by itself it runs what its mode lets it run, and asks nobody.
    pub(in crate::session) fn agent_mode(&self) -> Mode {
        self.agent_mode_under(&self.policy, self.record.snapshot.mode)
    }

    /// The mode that the agent has to run in after a change that sets the session's mode; `None` when it does not.
    pub(in crate::session) fn agent_mode_after(&self, patch: &SessionPatch) -> Option<Mode> {
        let mode = patch.mode?;
        let Some(change) = &patch.permission_policy else {
            return Some(self.agent_mode_under(&self.policy, mode));
        };
        let change = change.as_ref().map(|change| change.applied_to(&self.record.snapshot.permission_policy));
        let policy = Policy::new(&self.permissions.policy, &change.unwrap_or_default());
        Some(self.agent_mode_under(&policy, mode))
    }

    fn agent_mode_under(&self, policy: &Policy, mode: Mode) -> Mode {
        let rejects = || self.record.grants.iter().any(|kept| kept.grant.decision == Decision::Reject);
        match mode {
            Mode::Auto | Mode::SmartApprove if policy.restricts(mode) || rejects() => Mode::Approve,
            mode => mode,
        }
    }

    /// Sends what a turn begins with, once the agent is in the mode that it has to be in.
    pub(super) fn send_in_mode(&mut self, step: &mut Step, command: AgentCommand) {
        let mode = self.agent_mode();
        if self.record.snapshot.agent.as_ref().is_some_and(|agent| agent.mode == mode.as_str()) {
            step.commands.push(command);
        } else {
            self.held = Some(command);
            step.set_mode = Some(mode);
        }
    }

    /// The agent is in a mode that it was to be set to: a prompt that waited for that is sent. Only now: what the agent
    /// is asked before it has answered, it may do at once.
    pub(in crate::session) fn mode_set(&mut self, step: &mut Step, mode: Mode) {
        if self.phase != Phase::Ready {
            return;
        }
        self.agents_mode_changed(step, mode.as_str().to_owned());
        let generation = self.record.snapshot.agent.as_ref().map(|agent| agent.generation);
        if let Some((_, found)) = self.drifted.take().filter(|(drifted, _)| Some(*drifted) == generation) {
            let mode = self.agent_mode().as_str();
            let message =
                format!("the agent had gone to mode {found}, which nobody had set; it is in {mode} again");
            let code = "mode-restored".into();
            self.notice(step, Notice { level: NoticeLevel::Warning, code, message });
        }
        if let Some(command) = self.held.take() {
            self.send_in_mode(step, command);
        }
    }

    /// The agent cannot be set to the mode that it has to be in, so it must not be asked anything: its turn fails, and
    /// the session until another agent is started. Whether there was a turn that waited for it.
    pub(in crate::session) fn mode_not_set(&mut self, step: &mut Step, failure: &AgentFailure) -> bool {
        if self.phase != Phase::Ready || self.held.is_none() {
            return false;
        }
        let message = format!("the agent cannot be set to mode {}: {failure}", self.agent_mode().as_str());
        let error = TurnError { class: failure.class, message: message.clone(), retryable: true };
        self.end_turn(step, TurnState::Failed, None, Some(error), &DecidedBy::AgentExit);
        self.forget_agent();
        self.phase = Phase::Failed;
        self.record.snapshot.state_reason = Some(message);
        true
    }

    /// The agent says that it is in another mode. What nobody set is set back before the next prompt, and told then.
    pub(super) fn agent_changed_mode(&mut self, step: &mut Step, mode: String) {
        // While settings are being changed it is most likely the new one, and the change's end looks at it.
        let generation = self.record.snapshot.agent.as_ref().map(|agent| agent.generation);
        let is_nobodys = !self.patching && mode != self.agent_mode().as_str();
        self.drifted = generation.filter(|_| is_nobodys).map(|generation| (generation, mode.clone()));
        self.agents_mode_changed(step, mode);
    }

    pub(super) fn agents_mode_changed(&mut self, step: &mut Step, mode: String) {
        let Some(agent) = &mut self.record.snapshot.agent else { return };
        if agent.mode == mode {
            return;
        }
        agent.mode = mode;
        let agent = agent.clone();
        self.push_change(step, SessionChange { agent: Some(agent), ..SessionChange::default() });
    }
}
