//! What the policy says of a tool call: the same for one that the agent asks about and for one that a caller does.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::Machine;
use super::permissions::OfferedGrants;
use crate::session::agent::{AgentPermissionRequest, Mode};
use crate::session::handle::AskedCall;
use crate::session::permission::{Decision, Explanation};
use crate::session::policy::{
    Action, Grant, OnNoSubscriber, Policy, ResolvedPaths, ToolFacts, ToolRequest, Verdict,
};
use crate::session::tool_call::ToolCall;

/// A tool call as the policy is asked about it.
#[derive(Clone, Debug)]
pub(in crate::session) struct JudgedCall {
    pub(super) tool: Option<String>,
    pub(super) extension: Option<String>,
    pub(super) title: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) input: Option<Value>,
    cwd: PathBuf,
    writes_plan: bool,
    facts: ToolFacts,
    /// Where the paths of [`Machine::paths_of`] lead; whoever does not look leaves them unknown, which allows nothing.
    pub(in crate::session) resolved: ResolvedPaths,
}

impl JudgedCall {
    fn request(&self, mode: Mode) -> ToolRequest<'_> {
        ToolRequest {
            tool: self.tool.as_deref(),
            extension: self.extension.as_deref(),
            kind: self.kind.as_deref(),
            mode,
            input: self.input.as_ref().unwrap_or(&Value::Null),
            cwd: &self.cwd,
            facts: &self.facts,
            resolved: &self.resolved,
        }
    }
}

impl Machine {
    /// What the agent asks about.
    ///
    /// The request names neither tool nor extension: the call that was told under the same id does. A model makes those
    /// ids, so the call has to have been told once, with the same input: else the tool counts as unknown, and no rule
    /// that allows another tool lets this one run.
    pub(in crate::session) fn judged(&self, request: &AgentPermissionRequest) -> JudgedCall {
        let asked = &request.tool_call;
        let told = self.record.snapshot.open_tool_calls.iter().find(|open| open.id == asked.id);
        let is_the_same = |told: &&ToolCall| {
            asked.input.as_ref().is_none_or(|input| told.input.as_ref() == Some(input))
                && self.tool_notes.get(&told.id).is_some_and(|notes| !notes.told_twice)
        };
        let mut call = told.filter(is_the_same).cloned().unwrap_or_default();
        let told_kind = call.kind.clone();
        call.merge(asked.clone());
        if call.kind.as_deref() == Some("other") {
            // An agent may ask before it says of which kind the call is.
            call.kind = told_kind.or(call.kind);
        }
        self.judge(call.tool, call.extension, call.title, call.kind, call.input, Some(request.plan_write))
    }

    /// What a caller asks about.
    pub(in crate::session) fn supposed(&self, call: AskedCall) -> JudgedCall {
        let AskedCall { tool, extension, input } = call;
        self.judge(Some(tool), extension, None, None, Some(input), None)
    }

    fn judge(
        &self,
        tool: Option<String>,
        extension: Option<String>,
        title: Option<String>,
        kind: Option<String>,
        input: Option<Value>,
        writes_plan: Option<bool>,
    ) -> JudgedCall {
        let given = input.as_ref().unwrap_or(&Value::Null);
        let facts = self.permissions.tools.facts(tool.as_deref(), extension.as_deref(), given);
        let cwd = PathBuf::from(self.record.snapshot.cwd.as_deref().unwrap_or_default());
        let writes_plan = writes_plan.unwrap_or(facts.writes_plan);
        let resolved = ResolvedPaths::default();
        JudgedCall { tool, extension, title, kind, input, cwd, writes_plan, facts, resolved }
    }

    /// The paths that have to be looked up before the call can be decided.
    pub(in crate::session) fn paths_of(&self, call: &JudgedCall) -> BTreeSet<PathBuf> {
        self.policy.paths(&call.request(self.record.snapshot.mode))
    }

    /// What the policy says of a call.
    pub(super) fn verdict(&self, call: &JudgedCall) -> Verdict {
        let verdict = self.verdict_with(call, &self.remembered());
        let is_rules_reject = verdict.action == Action::Reject && verdict.is_by_rule();
        if call.writes_plan && self.permissions.allow_plan_write && !is_rules_reject {
            let reason = "Writing the plan is allowed without asking (permissions.allow_plan_write).".into();
            return Verdict { action: Action::Allow, rule: None, grant: None, reason };
        }
        verdict
    }

    fn verdict_with(&self, call: &JudgedCall, grants: &[Grant]) -> Verdict {
        self.policy.decide(&call.request(self.record.snapshot.mode), grants)
    }

    fn remembered(&self) -> Vec<Grant> {
        self.record.grants.iter().map(|kept| kept.grant.clone()).collect()
    }

    /// The rule or the remembered answer that decided, as callers see it.
    pub(super) fn rule_of(&self, verdict: &Verdict) -> Option<String> {
        let grant = verdict.grant.and_then(|place| self.record.grants.get(place));
        verdict.rule.clone().or_else(|| grant.map(|grant| format!("grant:{}", grant.id)))
    }

    /// What a caller who asks is told.
    pub(in crate::session) fn explain(&self, call: &JudgedCall) -> Explanation {
        let verdict = self.verdict(call);
        let mut reason = verdict.reason.clone();
        if verdict.action == Action::Ask && self.agent_mode() == Mode::SmartApprove {
            reason.push_str(
                " While no rule asks or rejects, the agent decides that itself: it may hold the call for harmless, by \
                 the tool's own word or by asking its model, and then nobody is asked.",
            );
        }
        Explanation { decision: verdict.action, rule: self.rule_of(&verdict), reason }
    }

    /// What "always" would remember, where that would spare the next such question: not where a rule asks.
    pub(super) fn offered(&self, call: &JudgedCall) -> OfferedGrants {
        if self.record.grants.len() >= self.permissions.grants {
            return OfferedGrants::default();
        }
        let request = call.request(self.record.snapshot.mode);
        let offered = |decision, action| {
            let grant = Grant::of(&request, decision)?;
            let grants: Vec<Grant> = self.remembered().into_iter().chain([grant.clone()]).collect();
            (self.verdict_with(call, &grants).action == action).then_some(grant)
        };
        OfferedGrants {
            allow: offered(Decision::Allow, Action::Allow),
            reject: offered(Decision::Reject, Action::Reject),
        }
    }

    /// How long a request waits for an answer.
    pub(super) fn permission_timeout(&self) -> Duration {
        let own = self.record.snapshot.permission_policy.timeout_s.map(Duration::from_secs);
        own.unwrap_or(self.permissions.timeout)
    }

    pub(super) fn on_no_subscriber(&self) -> OnNoSubscriber {
        let own = self.record.snapshot.permission_policy.on_no_subscriber;
        own.unwrap_or(self.permissions.on_no_subscriber)
    }

    /// Makes the policy of what the gateway and the session say now.
    pub(super) fn renew_policy(&mut self) {
        self.policy = Policy::new(&self.permissions.policy, &self.record.snapshot.permission_policy);
    }
}
