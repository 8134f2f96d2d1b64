//! What can come in, and how it gets to the machine.

use proptest::prelude::*;

use super::super::*;
use crate::session::id::MessageId;
use crate::session::permission::PolicyPatch;
use crate::session::policy::{Action, Rule};

/// What happens to the queue.
#[derive(Clone, Debug)]
pub(super) enum Queue {
    Prompt,
    Begin,
    Cancel(usize),
}

/// What happens to words put into a turn; each in its place among all that were.
#[derive(Clone, Debug)]
pub(super) enum Steer {
    Ask,
    Take(usize),
    Answer(usize),
    Use(usize),
}

/// What the agent says; calls, messages and questions by small numbers, so that they meet again.
#[derive(Clone, Debug)]
pub(super) enum Said {
    Mode(Mode),
    Text(u8),
    Call(u8),
    Update(u8, Option<ToolCallStatus>),
    Output(u8),
    Ask(u8, bool),
    Withdraw(u8),
    Finish(bool),
    Exit,
}

/// Whatever can come in.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Started,
    StartFailed,
    Said(Said),
    Prompt,
    Queue(Queue),
    Steer(Steer),
    Cancel,
    Answer(usize, Decision, Scope),
    Revoke,
    Policy(Option<Action>),
    Unseen,
    Expire(usize),
    Deadline,
    Patch,
    ModeSet(bool),
    Restart,
    Hibernate,
    Delete,
}

fn said() -> impl Strategy<Value = Said> {
    let status = prop_oneof![
        Just(None),
        Just(Some(ToolCallStatus::InProgress)),
        Just(Some(ToolCallStatus::Completed)),
        Just(Some(ToolCallStatus::Failed)),
        Just(Some(ToolCallStatus::Skipped)),
    ];
    prop_oneof![
        2 => prop_oneof![Just(Mode::Auto), Just(Mode::Approve)].prop_map(Said::Mode),
        6 => (0..3u8).prop_map(Said::Text),
        6 => (0..4u8).prop_map(Said::Call),
        6 => (0..5u8, status).prop_map(|(id, status)| Said::Update(id, status)),
        3 => (0..5u8).prop_map(Said::Output),
        6 => (0..5u8, any::<bool>()).prop_map(|(id, plan)| Said::Ask(id, plan)),
        1 => (0..8u8).prop_map(Said::Withdraw),
        6 => any::<bool>().prop_map(Said::Finish),
        1 => Just(Said::Exit),
    ]
}

/// Weighted, so that most walks get into turns and some of them end badly.
pub(super) fn input() -> impl Strategy<Value = Input> {
    let decision = prop_oneof![Just(Decision::Allow), Just(Decision::Reject)];
    let scope = prop_oneof![3 => Just(Scope::Once), 1 => Just(Scope::Session)];
    let actions = prop_oneof![Just(Action::Allow), Just(Action::Ask), Just(Action::Reject)];
    let action = proptest::option::of(actions);
    prop_oneof![
        4 => Just(Input::Started),
        1 => Just(Input::StartFailed),
        37 => said().prop_map(Input::Said),
        8 => Just(Input::Prompt),
        8 => Just(Input::Queue(Queue::Prompt)),
        6 => Just(Input::Queue(Queue::Begin)),
        2 => (0..2usize).prop_map(|index| Input::Queue(Queue::Cancel(index))),
        4 => Just(Input::Steer(Steer::Ask)),
        4 => (0..3usize).prop_map(|index| Input::Steer(Steer::Take(index))),
        2 => (0..3usize).prop_map(|index| Input::Steer(Steer::Answer(index))),
        2 => (0..3usize).prop_map(|index| Input::Steer(Steer::Use(index))),
        3 => Just(Input::Cancel),
        6 => (0..3usize, decision, scope).prop_map(|(n, d, s)| Input::Answer(n, d, s)),
        1 => Just(Input::Revoke),
        3 => action.prop_map(Input::Policy),
        1 => Just(Input::Unseen),
        2 => (0..3usize).prop_map(Input::Expire),
        1 => Just(Input::Deadline),
        2 => Just(Input::Patch),
        6 => proptest::bool::weighted(0.9).prop_map(Input::ModeSet),
        1 => Just(Input::Restart),
        2 => Just(Input::Hibernate),
        1 => Just(Input::Delete),
    ]
}

pub(super) fn exit() -> AgentEvent {
    let class = TurnErrorClass::AgentExited;
    AgentEvent::Exited(AgentExit { how: "exit code 1".into(), stderr_tail: String::new(), class })
}

fn apply_to_queue(walk: &mut Walk, input: &Queue) {
    match *input {
        Queue::Prompt => {
            let _ = walk.queue();
        }
        Queue::Begin => {
            if let Some(next) = walk.machine.next_queued() {
                walk.begin_queued(next);
            }
        }
        Queue::Cancel(index) => {
            let queued = walk.machine.snapshot().queued_turns.get(index).map(|turn| turn.id);
            if let Some(id) = queued {
                let turn = walk.stored(id);
                walk.step(|machine, step| machine.cancel_queued(step, "a".into(), turn));
            }
        }
    }
}

fn apply_steer(walk: &mut Walk, input: &Steer) {
    // The newest first, so that most are still of use.
    let nth = |walk: &Walk, index: usize| walk.steers.iter().rev().nth(index).copied();
    match *input {
        Steer::Ask => {
            if let Some(turn) = walk.machine.current_turn() {
                let message = MessageId::new();
                let prompt = Prompt::Text("x".into());
                if walk.machine.steer(turn, message, "a".into(), prompt).is_ok() {
                    walk.steers.push(message);
                }
            }
        }
        Steer::Take(index) => {
            if let Some(message) = nth(walk, index) {
                walk.agent(AgentEvent::Steered { message, agents_id: Some(message.to_string()) });
            }
        }
        Steer::Answer(index) => {
            if let Some(message) = nth(walk, index) {
                walk.machine.steer_answered(message);
            }
        }
        Steer::Use(index) => {
            if let Some(message) = nth(walk, index) {
                walk.agent(AgentEvent::UserMessage {
                    message_id: Some(message.to_string()),
                    text: "x".into(),
                });
            }
        }
    }
}

fn apply_said(walk: &mut Walk, said: &Said, asked: &mut u32) {
    match *said {
        Said::Mode(mode) => walk.agent(AgentEvent::ModeChanged(mode.as_str().into())),
        Said::Text(id) => walk.agent(chunk(Some(&id.to_string()), "text")),
        Said::Call(id) => walk.call(&id.to_string()),
        Said::Update(id, status) => {
            let title = Some(format!("step {}", walk.now));
            walk.agent(AgentEvent::ToolCallUpdated(ToolCall {
                id: id.to_string(),
                status,
                title,
                ..ToolCall::default()
            }));
        }
        Said::Output(id) => walk.agent(AgentEvent::ToolOutput {
            tool_call_id: id.to_string(),
            stream: "stdout".into(),
            text: "text".into(),
            truncated: false,
        }),
        Said::Ask(id, plan) => {
            *asked += 1;
            walk.agent(ask(&id.to_string(), &format!("r{asked}"), plan));
        }
        Said::Withdraw(reply) => {
            walk.agent(AgentEvent::PermissionWithdrawn(ReplyToken(format!("r{reply}"))));
        }
        Said::Finish(well) => {
            if let Some(turn) = walk.machine.current_turn() {
                let failure = AgentFailure {
                    class: TurnErrorClass::AgentError,
                    code: Some(-32603),
                    message: "no".into(),
                };
                let result = if well { Ok("end_turn".into()) } else { Err(failure) };
                walk.agent(AgentEvent::PromptFinished { turn, result });
            }
        }
        Said::Exit => walk.agent(exit()),
    }
}

/// Puts an input in. `asked` counts the agent's questions, each of which has a token of its own.
pub(super) fn apply(walk: &mut Walk, input: &Input, asked: &mut u32) {
    walk.now += 7;
    match *input {
        Input::Started => walk.step(|machine, step| machine.started(step, facts(), token(), Vec::new())),
        Input::StartFailed => {
            let error = LaunchError::Failed { detail: "no".into(), stderr_tail: None };
            walk.step(|machine, step| machine.start_failed(step, &error));
        }
        Input::Prompt => {
            let prompt = Prompt::Text("x".into());
            let _ = walk.step(|machine, step| machine.prompt(step, TurnId::new(), "a".into(), prompt));
        }
        Input::Said(ref said) => apply_said(walk, said, asked),
        Input::Steer(ref input) => apply_steer(walk, input),
        Input::Queue(ref input) => apply_to_queue(walk, input),
        Input::Cancel => {
            if let Some(turn) = walk.machine.current_turn() {
                let _ = walk.step(|machine, step| machine.cancel(step, "a".into(), turn));
            }
        }
        Input::Answer(index, decision, scope) => {
            let pending = walk.machine.snapshot().pending_permissions.get(index).cloned();
            let Some(asked) = pending else { return };
            let answer = Answer { scope, ..answer(decision) };
            let answered = walk.step(|machine, step| machine.answer(step, "a".into(), asked.id, answer));
            if matches!(answered, Err(Refusal::OptionNotOffered)) {
                assert_eq!(scope, Scope::Session);
                assert!(walk.machine.snapshot().pending_permissions.contains(&asked), "it stays as it is");
            } else {
                answered.unwrap();
            }
        }
        Input::Revoke => walk.step(|machine, step| machine.revoke(step, "a".into(), None)).unwrap(),
        Input::Policy(action) => {
            let rules = action.map(|action| vec![Rule { tool: Some("shell".into()), ..Rule::new(action) }]);
            let policy = PolicyPatch { rules: Some(rules), ..PolicyPatch::default() };
            let patch = SessionPatch { permission_policy: Some(Some(policy)), ..SessionPatch::default() };
            let _ = walk.step(|machine, step| machine.apply_patch(step, "a".into(), &patch));
        }
        Input::Unseen => walk.step(Machine::nobody_subscribes),
        Input::Expire(index) => {
            let pending = walk.machine.snapshot().pending_permissions.get(index).map(|pending| pending.id);
            walk.step(|machine, step| machine.expire(step, pending.as_slice()));
        }
        Input::Deadline => {
            if let Some(turn) = walk.machine.current_turn() {
                walk.step(|machine, step| machine.stop_at_deadline(step, turn));
            }
        }
        Input::Patch => {
            let patch = SessionPatch { mode: Some(Mode::Auto), ..SessionPatch::default() };
            walk.step(|machine, step| {
                if machine.begin_patch(step.now).is_ok() {
                    machine.end_patch();
                    machine.apply_patch(step, "a".into(), &patch).unwrap();
                }
            });
        }
        Input::ModeSet(well) => {
            // As many answers as there were questions.
            let Some(mode) = walk.modes.pop() else { return };
            walk.step(|machine, step| {
                if well {
                    machine.mode_set(step, mode);
                } else {
                    let class = TurnErrorClass::AgentError;
                    machine.mode_not_set(step, &AgentFailure { class, code: None, message: "no".into() });
                }
            });
        }
        Input::Restart => walk.restart(),
        Input::Hibernate => {
            let _ = walk.step(|machine, _| machine.hibernate());
        }
        Input::Delete => {
            let _ = walk.step(|machine, step| machine.begin_delete(step, &"a".into()));
        }
    }
}
