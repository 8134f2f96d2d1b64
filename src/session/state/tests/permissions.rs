//! What the policy decides by itself, and what it remembers.

use serde_json::json;

use super::*;
use crate::session::handle::AskedCall;
use crate::session::permission::{Permission, PermissionSettings, PolicyPatch};
use crate::session::policy::{Action, OnNoSubscriber, PermissionPolicy, Rule};

fn rule(action: Action, tool: &str) -> Rule {
    Rule { tool: Some(tool.into()), ..Rule::new(action) }
}

fn rules(rules: Vec<Rule>) -> PermissionPolicy {
    PermissionPolicy { rules, ..PermissionPolicy::default() }
}

/// A session in this mode under the gateway's and its own policy, with a turn that runs.
fn running(mode: Mode, server: PermissionPolicy, session: PermissionPolicy) -> Walk {
    let mut record = record();
    record.snapshot.mode = mode;
    record.launch.mode = mode;
    record.snapshot.permission_policy = session;
    let settings = PermissionSettings { policy: server, ..permissions() };
    let mut walk = Walk::new();
    walk.machine = Machine::new(record, BOUNDS, Arc::new(settings));
    walk.step(|machine, step| machine.created(step, "alice".into()));
    walk.step(Machine::start);
    let facts = AgentFacts { mode: walk.machine.agent_mode(), ..facts() };
    walk.step(|machine, step| machine.started(step, facts, token(), Vec::new()));
    walk.prompt();
    walk.commands.clear();
    walk.events.clear();
    walk
}

impl Walk {
    /// The agent calls a tool and asks before it runs it; gives the permission as it is then.
    fn asks_for(&mut self, id: &str, tool: &str, input: &serde_json::Value) -> Permission {
        self.agent(AgentEvent::ToolCallStarted(ToolCall {
            id: id.into(),
            tool: Some(tool.into()),
            extension: Some("developer".into()),
            input: Some(input.clone()),
            ..ToolCall::default()
        }));
        self.asks_about(id, input)
    }

    fn asks_about(&mut self, id: &str, input: &serde_json::Value) -> Permission {
        let AgentEvent::PermissionRequested(mut request) = ask(id, &format!("reply to {id}"), false) else {
            unreachable!()
        };
        request.tool_call.input = Some(input.clone());
        self.agent(AgentEvent::PermissionRequested(request));
        self.last_permission()
    }

    fn asks_for_tool(&mut self, id: &str, tool: &str) -> Permission {
        self.asks_for(id, tool, &json!({}))
    }

    fn last_permission(&self) -> Permission {
        let body = self.events.iter().rev().find_map(|(_, _, body)| match body {
            EventBody::Permission { permission, .. } => Some((**permission).clone()),
            _ => None,
        });
        body.expect("nothing was asked")
    }

    /// The agent's option in the last answer it got.
    fn last_answer(&self) -> &str {
        match self.commands.last() {
            Some(AgentCommand::AnswerPermission { answer: PermissionReply::Selected(option), .. }) => option,
            other => panic!("{other:?}"),
        }
    }

    fn always(&mut self, permission: &Permission, decision: Decision) -> Result<Permission, Refusal> {
        let answer = Answer { scope: Scope::Session, ..answer(decision) };
        self.step(|machine, step| machine.answer(step, "bob".into(), permission.id, answer))
    }

    fn set_policy(&mut self, policy: PolicyPatch) {
        let patch = SessionPatch { permission_policy: Some(Some(policy)), ..SessionPatch::default() };
        self.step(|machine, step| machine.apply_patch(step, "alice".into(), &patch)).unwrap();
    }

    fn explained(&self, tool: &str) -> (Action, Option<String>) {
        let call = AskedCall { tool: tool.into(), extension: None, input: json!({}) };
        let said = self.machine.explain(&self.machine.supposed(call));
        (said.decision, said.rule)
    }
}

/// What of a permission decided, and how.
fn decided(permission: &Permission) -> (DecidedBy, Decision, Option<&str>) {
    let outcome = permission.outcome.as_ref().expect("it is pending");
    (outcome.by.clone(), outcome.decision, outcome.rule.as_deref())
}

fn offered(permission: &Permission) -> Vec<&str> {
    permission.options.iter().map(|option| option.id.as_str()).collect()
}

#[test]
fn a_rule_binds_in_every_mode_and_nobody_is_asked() {
    for mode in [Mode::Auto, Mode::SmartApprove, Mode::Approve] {
        let mut walk = running(mode, rules(vec![rule(Action::Reject, "rm")]), PermissionPolicy::default());
        assert_eq!(walk.machine.snapshot().agent.as_ref().unwrap().mode, "approve", "the agent asks");
        assert_eq!(walk.machine.snapshot().mode, mode);
        let permission = walk.asks_for_tool("1", "rm");
        assert_eq!(decided(&permission), (DecidedBy::Policy, Decision::Reject, Some("server.rules[0]")));
        assert_eq!(permission.state, PermissionState::Resolved);
        assert_eq!(walk.last_answer(), "agents_reject_once");
        assert_eq!(
            walk.kinds(),
            ["tool_call.started", "permission.requested", "permission.resolved"],
            "the state never says that it waits"
        );
        walk.agent(AgentEvent::ToolCallUpdated(ToolCall {
            id: "1".into(),
            status: Some(ToolCallStatus::Failed),
            ..ToolCall::default()
        }));
        assert_eq!(walk.last_call().status, Some(ToolCallStatus::Rejected));
    }
}

#[test]
fn what_no_rule_touches_is_as_in_the_callers_mode() {
    let server = || rules(vec![rule(Action::Reject, "rm")]);
    let mut auto = running(Mode::Auto, server(), PermissionPolicy::default());
    assert_eq!(decided(&auto.asks_for_tool("1", "ls")), (DecidedBy::Policy, Decision::Allow, None));
    assert_eq!(auto.last_answer(), "agents_allow_once");
    let mut smart = running(Mode::SmartApprove, server(), PermissionPolicy::default());
    let read = smart.asks_for_tool("1", "tree");
    assert_eq!(decided(&read), (DecidedBy::Policy, Decision::Allow, None), "it only reads");
    assert_eq!(smart.asks_for_tool("2", "ls").state, PermissionState::Pending);
    let mut approve = running(Mode::Approve, server(), PermissionPolicy::default());
    assert_eq!(approve.asks_for_tool("1", "tree").state, PermissionState::Pending);
    assert_eq!(approve.state(), SessionState::AwaitingPermission);
}

#[test]
fn an_allow_rule_spares_the_question() {
    let own = rules(vec![rule(Action::Allow, "ls")]);
    let mut walk = running(Mode::Approve, PermissionPolicy::default(), own);
    let permission = walk.asks_for_tool("1", "ls");
    assert_eq!(decided(&permission), (DecidedBy::Policy, Decision::Allow, Some("session.rules[0]")));
    assert_eq!(walk.asks_for_tool("2", "date").state, PermissionState::Pending);
    assert_eq!(walk.explained("ls"), (Action::Allow, Some("session.rules[0]".into())));
    assert_eq!(walk.explained("date"), (Action::Ask, None));
}

#[test]
fn the_agents_own_mode_is_enough_without_rules_that_ask_or_reject() {
    for mode in Mode::ALL {
        let walk = Walk::new();
        assert_eq!(
            walk.machine.agent_mode_after(&SessionPatch { mode: Some(mode), ..SessionPatch::default() }),
            Some(mode)
        );
    }
    let mut walk = running(Mode::Auto, PermissionPolicy::default(), rules(vec![rule(Action::Allow, "ls")]));
    assert_eq!(walk.machine.agent_mode(), Mode::Auto);
    walk.set_policy(PolicyPatch {
        rules: Some(Some(vec![rule(Action::Ask, "rm")])),
        ..PolicyPatch::default()
    });
    assert_eq!(walk.machine.agent_mode(), Mode::Approve);
    assert!(walk.modes.is_empty(), "not in the middle of a turn");
    walk.finish(walk.machine.current_turn().unwrap(), "end_turn");
    walk.prompt();
    assert_eq!(walk.modes, [Mode::Approve], "before the next prompt");
    assert!(!walk.commands.iter().any(|command| matches!(command, AgentCommand::Prompt { .. })));
    // A chat stays one.
    let chat = SessionPatch { mode: Some(Mode::Chat), ..SessionPatch::default() };
    assert_eq!(walk.machine.agent_mode_after(&chat), Some(Mode::Chat));
    let both =
        SessionPatch { permission_policy: Some(None), mode: Some(Mode::Auto), ..SessionPatch::default() };
    assert_eq!(walk.machine.agent_mode_after(&both), Some(Mode::Auto), "under the policy that it brings");
}

#[test]
fn always_is_remembered_for_the_same_commands_and_can_be_taken_back() {
    let mut walk = running(Mode::Approve, PermissionPolicy::default(), PermissionPolicy::default());
    let first = walk.asks_for_tool("1", "status");
    assert_eq!(offered(&first), ["allow_always", "allow_once", "reject_once", "reject_always"]);
    assert_eq!(first.options[0].name, "Always allow every call of `status` in this session");
    let answered = walk.always(&first, Decision::Allow).unwrap();
    assert_eq!(answered.outcome.unwrap().scope, Scope::Session);
    assert_eq!(walk.last_answer(), "agents_allow_once", "never the agent's own always");
    let grant = walk.machine.grants()[0].clone();
    assert_eq!((grant.by.as_str(), grant.permission_id), ("bob", first.id));

    let again = walk.asks_for_tool("2", "status");
    let by_grant = format!("grant:{}", grant.id);
    assert_eq!(decided(&again), (DecidedBy::Policy, Decision::Allow, Some(by_grant.as_str())));
    assert_eq!(again.outcome.as_ref().unwrap().scope, Scope::Session);
    assert_eq!(walk.explained("status"), (Action::Allow, Some(by_grant)));
    assert_eq!(walk.asks_for_tool("3", "push").state, PermissionState::Pending);

    walk.set_policy(PolicyPatch {
        rules: Some(Some(vec![rule(Action::Reject, "status")])),
        ..PolicyPatch::default()
    });
    let beaten = walk.asks_for_tool("4", "status");
    assert_eq!(decided(&beaten), (DecidedBy::Policy, Decision::Reject, Some("session.rules[0]")));
    walk.set_policy(PolicyPatch { rules: Some(None), ..PolicyPatch::default() });
    assert!(walk.asks_for_tool("5", "status").outcome.is_some());
    let unknown = walk.step(|machine, step| machine.revoke(step, "bob".into(), Some(GrantId::new())));
    assert!(matches!(unknown, Err(Refusal::GrantNotFound)));
    walk.step(|machine, step| machine.revoke(step, "bob".into(), Some(grant.id))).unwrap();
    assert_eq!(walk.asks_for_tool("6", "status").state, PermissionState::Pending);
    walk.step(|machine, step| machine.revoke(step, "bob".into(), None)).unwrap();
}

#[test]
fn always_is_offered_only_where_it_would_spare_a_question() {
    let mut walk =
        running(Mode::Approve, rules(vec![rule(Action::Ask, "push")]), PermissionPolicy::default());
    let asked_by_rule = walk.asks_for_tool("1", "push");
    assert_eq!(offered(&asked_by_rule), ["allow_once", "reject_once", "reject_always"]);
    assert!(matches!(walk.always(&asked_by_rule, Decision::Allow), Err(Refusal::OptionNotOffered)));
    assert_eq!(walk.machine.snapshot().pending_permissions.len(), 1, "it is still open");
    let undecidable = walk.asks_for("2", "write", &json!({"path": "a/b"}));
    assert_eq!(offered(&undecidable), ["allow_once", "reject_once"]);
    // Two are as many as this session remembers.
    for (id, tool) in [("3", "ls"), ("4", "date")] {
        let permission = walk.asks_for_tool(id, tool);
        walk.always(&permission, Decision::Allow).unwrap();
    }
    assert_eq!(offered(&walk.asks_for_tool("5", "id")), ["allow_once", "reject_once"]);
}

#[test]
fn what_is_always_rejected_stays_so_in_a_looser_mode() {
    let mut walk = running(Mode::Approve, PermissionPolicy::default(), PermissionPolicy::default());
    let permission = walk.asks_for_tool("1", "rm");
    walk.always(&permission, Decision::Reject).unwrap();
    let auto = SessionPatch { mode: Some(Mode::Auto), ..SessionPatch::default() };
    assert_eq!(walk.machine.agent_mode_after(&auto), Some(Mode::Approve));
    walk.step(|machine, step| machine.apply_patch(step, "alice".into(), &auto)).unwrap();
    assert_eq!(decided(&walk.asks_for_tool("2", "rm")).1, Decision::Reject);
    assert_eq!(decided(&walk.asks_for_tool("3", "ls")).1, Decision::Allow);
}

#[test]
fn no_rule_that_allows_one_tool_lets_another_run_under_its_id() {
    let tree = Rule { tool: Some("tree".into()), ..Rule::new(Action::Allow) };
    let mut walk = running(Mode::Approve, rules(vec![tree]), PermissionPolicy::default());
    assert_eq!(decided(&walk.asks_for_tool("1", "tree")).1, Decision::Allow);
    // The model gives two calls of one message the same id, and then goose asks about both.
    let line = json!({"command": "rm -rf ~"});
    walk.agent(AgentEvent::ToolCallStarted(ToolCall {
        id: "2".into(),
        tool: Some("shell".into()),
        input: Some(line.clone()),
        ..ToolCall::default()
    }));
    let other = walk.asks_for_tool("2", "tree");
    assert_eq!((other.state, other.tool_call.tool), (PermissionState::Pending, None));
    assert_eq!(walk.asks_about("2", &line).state, PermissionState::Pending);
    // Or it asks about another input than it has told.
    walk.asks_for_tool("3", "tree");
    let changed = walk.asks_about("3", &line);
    assert_eq!((changed.state, changed.tool_call.tool), (PermissionState::Pending, None));
}

#[test]
fn the_plan_is_written_unasked_unless_a_rule_rejects_it() {
    let every = |action| Rule { tool: Some("plan".into()), ..Rule::new(action) };
    let plan = |id: &str| {
        let AgentEvent::PermissionRequested(mut request) = ask(id, id, true) else { unreachable!() };
        request.tool_call.tool = Some("plan".into());
        AgentEvent::PermissionRequested(request)
    };
    let strict = PermissionPolicy { default: Some(Action::Reject), ..PermissionPolicy::default() };
    for (server, written) in [
        (PermissionPolicy::default(), true),
        (rules(vec![every(Action::Ask)]), true),
        (strict, true),
        (rules(vec![every(Action::Reject)]), false),
    ] {
        let mut walk = running(Mode::Auto, server, PermissionPolicy::default());
        walk.agent(plan("p"));
        if written {
            assert!(walk.events.is_empty(), "{:?}", walk.kinds());
            assert_eq!(walk.last_answer(), "agents_allow_once");
        } else {
            assert_eq!(decided(&walk.last_permission()).2, Some("server.rules[0]"));
            assert_eq!(walk.kinds(), ["permission.requested", "permission.resolved"]);
        }
        let call = AskedCall { tool: "plan".into(), extension: None, input: json!({}) };
        let said = walk.machine.explain(&walk.machine.supposed(call)).decision;
        assert_eq!(said, if written { Action::Allow } else { Action::Reject });
    }
}

#[test]
fn what_nobody_would_see_is_rejected_where_the_session_says_so() {
    let unseen = PermissionPolicy {
        on_no_subscriber: Some(OnNoSubscriber::Reject),
        timeout_s: Some(7),
        ..PermissionPolicy::default()
    };
    let mut walk = running(Mode::Approve, PermissionPolicy::default(), unseen);
    assert!(!walk.machine.wants_subscribers());
    let permission = walk.asks_for_tool("1", "ls");
    assert_eq!(permission.expires_at, permission.requested_at.plus(Duration::from_secs(7)));
    assert!(walk.machine.wants_subscribers());
    // What is pending stays as it was asked for.
    walk.set_policy(PolicyPatch { on_no_subscriber: Some(None), ..PolicyPatch::default() });
    walk.asks_for_tool("2", "ls");
    walk.step(Machine::nobody_subscribes);
    assert_eq!(decided(&walk.last_permission()).0, DecidedBy::Policy);
    let pending = &walk.machine.snapshot().pending_permissions;
    assert_eq!(pending.len(), 1, "the second one waits");
    assert!(!walk.machine.wants_subscribers());
}

#[test]
fn policy_and_grants_outlive_a_restart() {
    let own = PermissionPolicy {
        rules: vec![rule(Action::Reject, "rm")],
        timeout_s: Some(5),
        ..PermissionPolicy::default()
    };
    let mut walk = running(Mode::Auto, PermissionPolicy::default(), own.clone());
    walk.set_policy(PolicyPatch { default: Some(Some(Action::Ask)), ..PolicyPatch::default() });
    let own = PermissionPolicy { default: Some(Action::Ask), ..own };
    let json = serde_json::to_string(walk.machine.record()).unwrap();
    let record: SessionRecord = serde_json::from_str(&json).unwrap();
    assert_eq!(record.snapshot.permission_policy, own);
    let last = record.snapshot.last_event_id;
    let machine = Machine::restore(record, last, BOUNDS, Arc::new(permissions()));
    assert_eq!(machine.agent_mode(), Mode::Approve);
    // A record from before there were policies.
    let mut old: serde_json::Value = serde_json::from_str(&json).unwrap();
    old.as_object_mut().unwrap().remove("grants");
    old["snapshot"].as_object_mut().unwrap().remove("permission_policy");
    let old: SessionRecord = serde_json::from_value(old).unwrap();
    assert_eq!(old.snapshot.permission_policy, PermissionPolicy::default());
}
