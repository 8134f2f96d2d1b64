//! The machine alone: first the walks that callers know, then any order of inputs.

mod any_order;
mod mode;
mod permissions;
mod stopping;
mod queued;
mod steered;
mod usage;
mod waking;
mod walk;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use self::walk::*;
use super::*;
use crate::session::agent::{
    AgentCommand, AgentEvent, AgentExit, AgentFacts, AgentFailure, AgentOption, AgentPermissionRequest,
    LaunchSpec, Mode, ModelCallUsage, PermissionReply, ReplyToken, ResumeToken,
};
use crate::session::fake_permissions::permissions;
use crate::session::handle::SessionPatch;
use crate::session::id::{GrantId, MessageId, Timestamp};
use crate::session::permission::{Answer, Decision, PermissionState, Scope};
use crate::session::tool_call::{ToolCall, ToolCallStatus};
use crate::session::turn::{Prompt, Turn, TurnState};

#[test]
fn a_text_turn_ends_with_its_text_and_the_sum_of_its_usage() {
    let mut walk = Walk::ready();
    let turn = walk.prompt();
    walk.agent(chunk(Some("a"), "I will "));
    walk.agent(chunk(Some("a"), "look."));
    walk.agent(chunk(Some("b"), "Done"));
    walk.agent(chunk(Some("b"), "."));
    for _ in 0..2 {
        walk.agent(AgentEvent::ModelCallUsed(ModelCallUsage {
            input_tokens: Some(10),
            output_tokens: Some(6),
            total_tokens: Some(16),
            ..ModelCallUsage::default()
        }));
    }
    walk.finish(turn, "end_turn");
    assert_eq!(
        walk.kinds()[4..],
        [
            "turn.started",
            "session.state",
            "message.delta",
            "message.delta",
            "message.delta",
            "message.delta",
            "turn.completed",
            "session.state"
        ]
    );
    let ended = walk.last_turn();
    assert_eq!(ended.text.as_deref(), Some("Done."));
    assert_eq!(ended.stop_reason.as_deref(), Some("end_turn"));
    assert_eq!(ended.usage.unwrap().total_tokens, Some(32));
    assert_eq!(ended.prompt, None);
    // session.created, session.state, session.updated, session.state come before.
    assert_eq!((ended.first_event_id, ended.last_event_id), (EventId(5), Some(EventId(11))));
    assert_eq!(walk.state(), SessionState::Idle);
}

#[test]
fn text_after_a_tool_call_is_another_message_also_when_ids_repeat() {
    let mut walk = Walk::ready();
    walk.prompt();
    walk.agent(chunk(Some("same"), "before"));
    walk.call("1");
    walk.agent(chunk(Some("same"), "after"));
    let ids: HashSet<MessageId> = walk
        .events
        .iter()
        .filter_map(|(_, _, body)| match body {
            EventBody::Text { message_id, .. } => Some(*message_id),
            _ => None,
        })
        .collect();
    assert_eq!(ids.len(), 2);
}

#[test]
fn an_allowed_call_runs_and_finishes() {
    let mut walk = Walk::ready();
    let turn = walk.prompt();
    walk.call("1");
    walk.ask("1", "r1");
    assert_eq!(walk.state(), SessionState::AwaitingPermission);
    let permission = walk.machine.snapshot().pending_permissions[0].clone();
    assert_eq!(permission.tool_call.tool.as_deref(), Some("shell"));
    assert_eq!(permission.tool_call.extension.as_deref(), Some("developer"));
    assert_eq!(permission.tool_call.input, Some(serde_json::json!({"command": "ls"})));
    assert_eq!(permission.tool_call.cwd, "/work");
    assert_eq!(permission.expires_at, at(61));
    let decided = walk
        .step(|machine, step| machine.answer(step, "bob".into(), permission.id, answer(Decision::Allow)))
        .unwrap();
    assert_eq!(decided.outcome.unwrap().by, DecidedBy::Caller("bob".into()));
    assert!(matches!(
        &walk.commands[1..],
        [AgentCommand::AnswerPermission { reply: ReplyToken(token), answer: PermissionReply::Selected(option) }]
            if token == "r1" && option == "agents_allow_once"
    ));
    walk.agent(AgentEvent::ToolCallUpdated(ToolCall {
        id: "1".into(),
        status: Some(ToolCallStatus::Completed),
        ..ToolCall::default()
    }));
    walk.finish(turn, "end_turn");
    assert_eq!(
        walk.kinds()[5..],
        [
            "session.state",
            "tool_call.started",
            "permission.requested",
            "session.state",
            "permission.resolved",
            "session.state",
            "tool_call.finished",
            "turn.completed",
            "session.state"
        ]
    );
    assert_eq!(walk.last_call().status, Some(ToolCallStatus::Completed));
    // A second answer finds nothing pending.
    let late = walk
        .step(|machine, step| machine.answer(step, "eve".into(), permission.id, answer(Decision::Reject)));
    assert!(matches!(late, Err(Refusal::PermissionNotFound)));
}

#[test]
fn a_rejected_call_is_rejected_not_failed() {
    let mut walk = Walk::ready();
    walk.prompt();
    walk.call("1");
    walk.ask("1", "r1");
    let id = walk.pending();
    walk.step(|machine, step| machine.answer(step, "bob".into(), id, answer(Decision::Reject))).unwrap();
    walk.agent(AgentEvent::ToolCallUpdated(ToolCall {
        id: "1".into(),
        status: Some(ToolCallStatus::Failed),
        ..ToolCall::default()
    }));
    assert_eq!(walk.last_call().status, Some(ToolCallStatus::Rejected));
    assert_eq!(walk.state(), SessionState::Running);
}

#[test]
fn a_cancel_is_told_to_the_agent_before_the_open_questions_are_answered() {
    let mut walk = Walk::ready();
    let turn = walk.prompt();
    walk.call("1");
    walk.ask("1", "r1");
    walk.step(|machine, step| machine.cancel(step, "bob".into(), turn)).unwrap();
    assert!(matches!(
        &walk.commands[1..],
        [AgentCommand::Cancel, AgentCommand::AnswerPermission { answer: PermissionReply::Cancelled, .. }]
    ));
    assert_eq!(walk.state(), SessionState::Cancelling);
    // One that arrives while cancelling is answered at once and never told.
    walk.ask("1", "r2");
    assert!(matches!(
        walk.commands.last(),
        Some(AgentCommand::AnswerPermission { reply: ReplyToken(token), answer: PermissionReply::Cancelled }) if token == "r2"
    ));
    assert_eq!(walk.kinds().iter().filter(|kind| **kind == "permission.requested").count(), 1);
    // It ends cancelled whatever the agent says.
    walk.finish(turn, "end_turn");
    let ended = walk.last_turn();
    assert_eq!((ended.state, ended.stop_reason.as_deref()), (TurnState::Cancelled, Some("cancelled")));
    assert_eq!(walk.last_call().status, Some(ToolCallStatus::Cancelled));
    assert_eq!(walk.events[walk.events.len() - 2].0, EventKind::TurnCancelled);
}

#[test]
fn an_unanswered_question_expires_as_a_rejection() {
    let mut walk = Walk::ready();
    walk.prompt();
    walk.call("1");
    walk.ask("1", "r1");
    walk.step(|machine, step| machine.expire(step, &[PermissionId::new()]));
    assert_eq!(walk.state(), SessionState::AwaitingPermission);
    let id = walk.pending();
    walk.step(|machine, step| machine.expire(step, &[id]));
    assert_eq!(walk.state(), SessionState::Running);
    let Some(Change::Permission(permission)) =
        walk.changes.iter().rev().find(|change| matches!(change, Change::Permission(_)))
    else {
        panic!("not written down")
    };
    assert_eq!(permission.state, PermissionState::Expired);
    assert!(matches!(
        walk.commands.last(),
        Some(AgentCommand::AnswerPermission { answer: PermissionReply::Selected(option), .. }) if option == "agents_reject_once"
    ));
}

#[test]
fn a_plan_write_is_allowed_without_a_word() {
    let mut walk = Walk::ready();
    walk.prompt();
    let told = walk.events.len();
    walk.agent(ask("p", "r1", true));
    assert_eq!(walk.events.len(), told);
    assert!(matches!(
        walk.commands.last(),
        Some(AgentCommand::AnswerPermission { answer: PermissionReply::Selected(option), .. }) if option == "agents_allow_once"
    ));
}

#[test]
fn live_output_is_cut_at_a_character_and_told_once() {
    let mut walk = Walk::ready();
    walk.prompt();
    walk.call("1");
    for text in ["12345678", "äöü", "more"] {
        walk.agent(AgentEvent::ToolOutput {
            tool_call_id: "1".into(),
            stream: "stdout".into(),
            text: text.into(),
            truncated: false,
        });
    }
    let outputs: Vec<(String, bool)> = walk
        .events
        .iter()
        .filter_map(|(_, _, body)| match body {
            EventBody::Output { text, truncated, .. } => Some((text.clone(), *truncated)),
            _ => None,
        })
        .collect();
    assert_eq!(outputs, [("12345678".into(), false), ("ä".into(), true)]);
}

#[test]
fn what_is_asked_at_the_wrong_moment_is_refused_and_changes_nothing() {
    let mut walk = Walk::new();
    let text = || Prompt::Text("x".into());
    assert!(matches!(
        walk.step(|machine, step| machine.prompt(step, TurnId::new(), "a".into(), text())),
        Err(Refusal::Busy(_))
    ));
    walk.step(|machine, step| machine.started(step, facts(), token(), Vec::new()));
    let running = walk.prompt();
    let told = walk.events.len();
    assert!(matches!(
        walk.step(|machine, step| machine.prompt(step, TurnId::new(), "a".into(), text())),
        Err(Refusal::TurnInProgress(turn)) if turn == running
    ));
    assert!(matches!(
        walk.step(|machine, step| machine.cancel(step, "a".into(), TurnId::new())),
        Err(Refusal::TurnNotRunning)
    ));
    assert_eq!(walk.events.len(), told);
}

#[test]
fn the_callers_title_stays() {
    let mut walk = Walk::ready();
    walk.agent(AgentEvent::TitleChanged("the agent's".into()));
    assert_eq!(walk.machine.snapshot().title.as_deref(), Some("the agent's"));
    let patch = SessionPatch { title: Some(Some("mine".into())), ..SessionPatch::default() };
    walk.step(|machine, step| machine.apply_patch(step, "alice".into(), &patch)).unwrap();
    walk.agent(AgentEvent::TitleChanged("again".into()));
    assert_eq!(walk.machine.snapshot().title.as_deref(), Some("mine"));
    let patch = SessionPatch { title: Some(None), ..SessionPatch::default() };
    walk.step(|machine, step| machine.apply_patch(step, "alice".into(), &patch)).unwrap();
    walk.agent(AgentEvent::TitleChanged("again".into()));
    assert_eq!(walk.machine.snapshot().title.as_deref(), Some("again"));
}
