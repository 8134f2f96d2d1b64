//! What the agent asks before it does something: decided by the policy, or pending until somebody or something decides.
//!
//! Every request ends through [`Machine::resolve`] or is decided as it comes, and the agent hears one answer. Only ever
//! one for this very call: what "always" means is kept here, and never by the agent.

use super::judging::JudgedCall;
use super::{Machine, Step};
use crate::session::agent::{
    AgentCommand, AgentOption, AgentPermissionRequest, Notice, NoticeLevel, PermissionReply, ReplyToken,
};
use crate::session::audit::By;
use crate::session::event::{EventBody, EventKind, SessionChange};
use crate::session::handle::Refusal;
use crate::session::id::{GrantId, PermissionId};
use crate::session::permission::{
    Answer, DecidedBy, Decision, Outcome, Permission, PermissionGrant, PermissionKind, PermissionOption,
    PermissionState, PermissionToolCall, Scope,
};
use crate::session::policy::{Action, Grant, OnNoSubscriber};
use crate::session::tool_call::ToolCall;

/// What it takes to answer a pending permission.
#[derive(Debug)]
pub(super) struct PendingReply {
    pub(super) reply: ReplyToken,
    pub(super) options: Vec<AgentOption>,
    /// What "always" would remember.
    pub(super) offered: OfferedGrants,
    /// As it was when the agent asked.
    pub(super) on_no_subscriber: OnNoSubscriber,
}

/// What "always" would remember of a call; `None` where it is not offered.
#[derive(Debug, Default)]
pub(super) struct OfferedGrants {
    pub(super) allow: Option<Grant>,
    pub(super) reject: Option<Grant>,
}

impl OfferedGrants {
    pub(super) fn of(&self, decision: Decision) -> Option<&Grant> {
        match decision {
            Decision::Allow => self.allow.as_ref(),
            Decision::Reject => self.reject.as_ref(),
        }
    }
}

impl Machine {
    /// The agent asks whether a tool may run. `call` is what [`Machine::judged`] made of the request.
    pub(in crate::session) fn permission_requested(
        &mut self,
        step: &mut Step,
        request: AgentPermissionRequest,
        call: &JudgedCall,
    ) {
        let AgentPermissionRequest { reply, tool_call, options, plan_write } = request;
        let refuse = |step: &mut Step, reply| {
            let answer = PermissionReply::Cancelled;
            step.commands.push(AgentCommand::AnswerPermission { reply, answer });
        };
        let Some(turn_id) = self.current_turn().filter(|_| !self.is_stopping()) else {
            // Nobody can want what it asks for any more.
            return refuse(step, reply);
        };
        let verdict = self.verdict(call);
        if plan_write && self.permissions.allow_plan_write && verdict.action == Action::Allow {
            let answer = choose_option(&options, Decision::Allow);
            step.commands.push(AgentCommand::AnswerPermission { reply, answer });
            return;
        }
        let is_asked = verdict.action == Action::Ask;
        if is_asked && self.record.snapshot.pending_permissions.len() >= self.bounds.pending_permissions {
            refuse(step, reply);
            let message =
                format!("a permission request for {:?} was refused: too many are pending", tool_call.title);
            let code = "permission-limit".into();
            return self.agent_notice(step, Notice { level: NoticeLevel::Warning, code, message });
        }
        // A plan's call was not told; any other that is not open begins now.
        let is_known = self.record.snapshot.open_tool_calls.iter().any(|open| open.id == tool_call.id);
        if !is_known && !plan_write {
            self.start_tool_call(step, ToolCall { status: None, ..tool_call.clone() });
        }
        let offered = if is_asked { self.offered(call) } else { OfferedGrants::default() };
        let timeout = self.permission_timeout();
        let permission = Permission {
            id: PermissionId::new(),
            session_id: self.record.snapshot.id,
            turn_id,
            kind: PermissionKind::Tool,
            state: PermissionState::Pending,
            tool_call: PermissionToolCall {
                id: tool_call.id,
                tool: call.tool.clone(),
                extension: call.extension.clone(),
                title: call.title.clone(),
                kind: call.kind.clone(),
                input: call.input.clone(),
                cwd: self.record.snapshot.cwd.clone().unwrap_or_default(),
            },
            options: options_of(&offered),
            requested_at: step.now,
            expires_at: step.now.plus(timeout),
            outcome: None,
        };
        let id = permission.id;
        let on_no_subscriber = self.on_no_subscriber();
        self.replies.insert(id, PendingReply { reply, options, offered, on_no_subscriber });
        self.record.snapshot.pending_permissions.push(permission.clone());
        step.put_permission(permission.clone());
        step.session_changed = true;
        self.push(
            step,
            EventKind::PermissionRequested,
            EventBody::Permission { permission: Box::new(permission), by: None },
        );
        let decision = match verdict.action {
            Action::Ask => return,
            Action::Allow => Decision::Allow,
            Action::Reject => Decision::Reject,
        };
        let scope = if verdict.grant.is_some() { Scope::Session } else { Scope::Once };
        let rule = self.rule_of(&verdict);
        let reason = Some(verdict.reason);
        let outcome = Outcome { decision, scope, by: DecidedBy::Policy, rule, reason, at: step.now };
        self.resolve(step, id, PermissionState::Resolved, outcome);
    }

    /// The agent no longer needs an answer.
    pub(super) fn permission_withdrawn(&mut self, step: &mut Step, reply: &ReplyToken) {
        let Some((&id, _)) = self.replies.iter().find(|(_, pending)| pending.reply == *reply) else { return };
        // The agent has its answer already: its own withdrawal.
        self.replies.remove(&id);
        let outcome = rejected(step, DecidedBy::Cancel, Some("the agent withdrew its question"));
        self.resolve(step, id, PermissionState::Cancelled, outcome);
    }

    /// Decides a pending permission.
    pub(in crate::session) fn answer(
        &mut self,
        step: &mut Step,
        by: By,
        id: PermissionId,
        answer: Answer,
    ) -> Result<Permission, Refusal> {
        let Answer { decision, scope, reason } = answer;
        let mut grant = None;
        if scope == Scope::Session {
            // The caller of the machine looks whether it was decided before.
            let pending = self.replies.get(&id).ok_or(Refusal::PermissionNotFound)?;
            grant = pending.offered.of(decision).cloned();
            if grant.is_none() {
                return Err(Refusal::OptionNotOffered);
            }
        }
        let outcome = Outcome {
            decision,
            scope,
            by: DecidedBy::Caller(by.name().to_owned()),
            rule: None,
            reason,
            at: step.now,
        };
        let resolved = self.resolve_by(step, id, PermissionState::Resolved, outcome, Some(&by));
        let resolved = resolved.ok_or(Refusal::PermissionNotFound)?;
        if let Some(grant) = grant {
            self.record.grants.push(PermissionGrant {
                id: GrantId::new(),
                name: grant.words(),
                grant,
                permission_id: id,
                by: by.name().to_owned(),
                granted_at: step.now,
            });
            self.tell_grants(step, by);
        }
        Ok(resolved)
    }

    /// What "always" has remembered, oldest first.
    pub(in crate::session) fn grants(&self) -> &[PermissionGrant] {
        &self.record.grants
    }

    /// Takes remembered answers back: one, or all.
    pub(in crate::session) fn revoke(
        &mut self,
        step: &mut Step,
        by: By,
        grant: Option<GrantId>,
    ) -> Result<(), Refusal> {
        let before = self.record.grants.len();
        self.record.grants.retain(|kept| grant.is_some_and(|id| kept.id != id));
        if self.record.grants.len() < before {
            self.tell_grants(step, by);
        } else if grant.is_some() {
            return Err(Refusal::GrantNotFound);
        }
        Ok(())
    }

    fn tell_grants(&mut self, step: &mut Step, by: By) {
        let grants = Some(self.record.grants.clone());
        self.push_change(
            step,
            SessionChange { permission_grants: grants, by: Some(by), ..SessionChange::default() },
        );
    }

    /// Decides whatever is pending, since there is nothing any more that it could be for.
    pub(super) fn close_permissions(&mut self, step: &mut Step, by: &DecidedBy) {
        let pending: Vec<PermissionId> =
            self.record.snapshot.pending_permissions.iter().map(|permission| permission.id).collect();
        for id in pending {
            let outcome = rejected(step, by.clone(), None);
            self.resolve(step, id, PermissionState::Cancelled, outcome);
        }
    }

    /// Rejects what nobody answered in time. Whose time is up is for the caller to say: the machine has no clock.
    pub(in crate::session) fn expire(&mut self, step: &mut Step, expired: &[PermissionId]) {
        for &id in expired {
            let outcome = rejected(step, DecidedBy::Timeout, Some("nobody answered in time"));
            self.resolve(step, id, PermissionState::Expired, outcome);
        }
    }

    /// Whether a question is pending that is not to wait when nobody would see it.
    pub(in crate::session) fn wants_subscribers(&self) -> bool {
        self.replies.values().any(|pending| pending.on_no_subscriber == OnNoSubscriber::Reject)
    }

    /// Rejects what is not to wait, since nobody would see it.
    pub(in crate::session) fn nobody_subscribes(&mut self, step: &mut Step) {
        let unseen: Vec<PermissionId> = self
            .replies
            .iter()
            .filter(|(_, pending)| pending.on_no_subscriber == OnNoSubscriber::Reject)
            .map(|(id, _)| *id)
            .collect();
        for id in unseen {
            let reason = "nobody who may answer reads the session's events (on_no_subscriber)";
            let outcome = rejected(step, DecidedBy::Policy, Some(reason));
            self.resolve(step, id, PermissionState::Resolved, outcome);
        }
    }

    /// Decides a pending permission, which nobody has answered.
    fn resolve(&mut self, step: &mut Step, id: PermissionId, state: PermissionState, outcome: Outcome) {
        self.resolve_by(step, id, state, outcome, None);
    }

    /// Decides a pending permission: told, written, and the agent answered. `None` when it is not pending.
    fn resolve_by(
        &mut self,
        step: &mut Step,
        id: PermissionId,
        state: PermissionState,
        outcome: Outcome,
        by: Option<&By>,
    ) -> Option<Permission> {
        let pending = &mut self.record.snapshot.pending_permissions;
        let index = pending.iter().position(|permission| permission.id == id)?;
        let mut permission = pending.remove(index);
        permission.state = state;
        if let Some(PendingReply { reply, options, .. }) = self.replies.remove(&id) {
            let answer = match (state, outcome.decision) {
                (PermissionState::Cancelled, _) => PermissionReply::Cancelled,
                (_, decision) => choose_option(&options, decision),
            };
            step.commands.push(AgentCommand::AnswerPermission { reply, answer });
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
            EventBody::Permission { permission: Box::new(permission.clone()), by: by.cloned() },
        );
        step.put_permission(permission.clone());
        step.session_changed = true;
        Some(permission)
    }
}

fn rejected(step: &Step, by: DecidedBy, reason: Option<&str>) -> Outcome {
    let reason = reason.map(str::to_owned);
    Outcome { decision: Decision::Reject, scope: Scope::Once, by, rule: None, reason, at: step.now }
}

/// The ways to answer that callers have: in the order of ACP's own list.
fn options_of(offered: &OfferedGrants) -> Vec<PermissionOption> {
    let always =
        |kind, decision| offered.of(decision).map(|grant| PermissionOption::new(kind, grant.words()));
    [
        always("allow_always", Decision::Allow),
        Some(PermissionOption::new("allow_once", "Allow once")),
        Some(PermissionOption::new("reject_once", "Reject once")),
        always("reject_always", Decision::Reject),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The agent's option for a decision, for this call only. Where it offers none: "cancelled", which runs nothing.
fn choose_option(options: &[AgentOption], decision: Decision) -> PermissionReply {
    let kind = match decision {
        Decision::Allow => "allow_once",
        Decision::Reject => "reject_once",
    };
    match options.iter().find(|option| option.kind == kind) {
        Some(option) => PermissionReply::Selected(option.id.clone()),
        None => PermissionReply::Cancelled,
    }
}
