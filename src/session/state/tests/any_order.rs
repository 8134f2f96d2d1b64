//! Any inputs in any order: what was begun is ended once, and the snapshot is what the events say.

use std::collections::{HashMap, HashSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::session::id::MessageId;
use crate::session::permission::PolicyPatch;
use crate::session::policy::{Action, Rule};

/// What happens to the queue.
#[derive(Clone, Debug)]
enum Queue {
    Prompt,
    Begin,
    Cancel(usize),
}

/// What happens to words put into a turn; each in its place among all that were.
#[derive(Clone, Debug)]
enum Steer {
    Ask,
    Take(usize),
    Answer(usize),
    Use(usize),
}

#[derive(Clone, Debug)]
enum Input {
    Started,
    StartFailed,
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
    AgentsMode(Mode),
    ModeSet(bool),
    Text(u8),
    Call(u8),
    Update(u8, Option<ToolCallStatus>),
    Output(u8),
    Ask(u8, bool),
    Withdraw(u8),
    Finish(bool),
    Exit,
    Restart,
    Hibernate,
    Delete,
}

fn input() -> impl Strategy<Value = Input> {
    let status = prop_oneof![
        Just(None),
        Just(Some(ToolCallStatus::InProgress)),
        Just(Some(ToolCallStatus::Completed)),
        Just(Some(ToolCallStatus::Failed)),
        Just(Some(ToolCallStatus::Skipped)),
    ];
    let decision = prop_oneof![Just(Decision::Allow), Just(Decision::Reject)];
    let scope = prop_oneof![3 => Just(Scope::Once), 1 => Just(Scope::Session)];
    let actions = prop_oneof![Just(Action::Allow), Just(Action::Ask), Just(Action::Reject)];
    let action = proptest::option::of(actions);
    prop_oneof![
        4 => Just(Input::Started),
        1 => Just(Input::StartFailed),
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
        2 => prop_oneof![Just(Mode::Auto), Just(Mode::Approve)].prop_map(Input::AgentsMode),
        6 => proptest::bool::weighted(0.9).prop_map(Input::ModeSet),
        6 => (0..3u8).prop_map(Input::Text),
        6 => (0..4u8).prop_map(Input::Call),
        6 => (0..5u8, status).prop_map(|(id, status)| Input::Update(id, status)),
        3 => (0..5u8).prop_map(Input::Output),
        6 => (0..5u8, any::<bool>()).prop_map(|(id, plan)| Input::Ask(id, plan)),
        1 => (0..8u8).prop_map(Input::Withdraw),
        6 => any::<bool>().prop_map(Input::Finish),
        1 => Just(Input::Exit),
        1 => Just(Input::Restart),
        2 => Just(Input::Hibernate),
        1 => Just(Input::Delete),
    ]
}

fn exit() -> AgentEvent {
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

#[expect(clippy::too_many_lines, reason = "a table: one entry for each input")]
fn apply(walk: &mut Walk, input: &Input, asked: &mut u32) {
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
        Input::AgentsMode(mode) => walk.agent(AgentEvent::ModeChanged(mode.as_str().into())),
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
        Input::Text(id) => walk.agent(chunk(Some(&id.to_string()), "text")),
        Input::Call(id) => walk.call(&id.to_string()),
        Input::Update(id, status) => {
            let title = Some(format!("step {}", walk.now));
            walk.agent(AgentEvent::ToolCallUpdated(ToolCall {
                id: id.to_string(),
                status,
                title,
                ..ToolCall::default()
            }));
        }
        Input::Output(id) => walk.agent(AgentEvent::ToolOutput {
            tool_call_id: id.to_string(),
            stream: "stdout".into(),
            text: "text".into(),
            truncated: false,
        }),
        Input::Ask(id, plan) => {
            *asked += 1;
            walk.agent(ask(&id.to_string(), &format!("r{asked}"), plan));
        }
        Input::Withdraw(reply) => {
            walk.agent(AgentEvent::PermissionWithdrawn(ReplyToken(format!("r{reply}"))));
        }
        Input::Finish(well) => {
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
        Input::Exit => walk.agent(exit()),
        Input::Restart => walk.restart(),
        Input::Hibernate => {
            let _ = walk.step(|machine, _| machine.hibernate());
        }
        Input::Delete => {
            let _ = walk.step(|machine, step| machine.begin_delete(step, &"a".into()));
        }
    }
}

/// What is open according to the events alone.
#[derive(Default)]
struct Ledger {
    turns: HashMap<TurnId, TurnState>,
    queue: VecDeque<TurnId>,
    calls: HashMap<String, bool>,
    permissions: HashMap<PermissionId, bool>,
    /// What was put into turns, ever.
    steered: HashSet<MessageId>,
    /// What was put into the running turn and is not used.
    unused: HashSet<MessageId>,
    /// Whether that was said.
    told_unused: bool,
    /// Whether the session is deleted in the end.
    is_deleted: bool,
}

impl Ledger {
    fn read(&mut self, kind: EventKind, turn: Option<TurnId>, body: &EventBody) {
        match (kind, body) {
            (EventKind::TurnQueued, EventBody::Turn { turn, .. }) => {
                assert!(turn.prompt.is_some() && turn.state == TurnState::Queued);
                assert!(self.turns.insert(turn.id, TurnState::Queued).is_none());
                self.queue.push_back(turn.id);
            }
            (EventKind::TurnStarted, EventBody::Turn { turn, .. }) => {
                assert_eq!(self.in_state(TurnState::Running), [], "two turns run");
                match self.turns.insert(turn.id, TurnState::Running) {
                    None => assert!(turn.prompt.is_some() && self.queue.is_empty(), "none overtakes another"),
                    before => {
                        assert_eq!(
                            (before, self.queue.pop_front()),
                            (Some(TurnState::Queued), Some(turn.id))
                        );
                        assert!(turn.prompt.is_none() && turn.started_at.is_some());
                    }
                }
            }
            (EventKind::TurnSteered, EventBody::Steered { message_id, .. }) => {
                assert!(self.steered.insert(*message_id), "words are put into a turn once");
                self.unused.insert(*message_id);
            }
            (EventKind::MessageUser, EventBody::Text { message_id, .. }) => {
                self.unused.remove(message_id);
            }
            (EventKind::Notice, EventBody::Notice { code, .. }) if code == "steer-unused" => {
                assert!(!self.told_unused && !self.unused.is_empty());
                self.told_unused = true;
            }
            (kind, EventBody::Turn { turn, .. }) => {
                assert!(kind.ends_turn() && turn.prompt.is_none() && turn.ended_at.is_some());
                let before = self.turns.insert(turn.id, turn.state);
                assert!(matches!(before, Some(TurnState::Running | TurnState::Queued)), "a turn ends once");
                assert_eq!(before == Some(TurnState::Queued), turn.started_at.is_none());
                self.queue.retain(|queued| *queued != turn.id);
                if before == Some(TurnState::Running) {
                    assert!(
                        self.told_unused != self.unused.is_empty() || self.is_deleted,
                        "nothing is lost unsaid"
                    );
                    self.told_unused = false;
                    self.unused.clear();
                }
            }
            (EventKind::ToolCallStarted, EventBody::ToolCall { tool_call }) => {
                assert_ne!(self.calls.insert(tool_call.id.clone(), true), Some(true), "a call begins once");
            }
            (EventKind::ToolCallFinished, EventBody::ToolCall { tool_call }) => {
                assert_eq!(self.calls.insert(tool_call.id.clone(), false), Some(true), "a call ends once");
            }
            (EventKind::PermissionRequested, EventBody::Permission { permission, .. }) => {
                assert!(self.permissions.insert(permission.id, true).is_none());
            }
            (EventKind::PermissionResolved, EventBody::Permission { permission, .. }) => {
                assert_eq!(
                    self.permissions.insert(permission.id, false),
                    Some(true),
                    "a question is decided once"
                );
            }
            _ => {}
        }
        if let Some(turn) = turn
            && !kind.ends_turn()
            && kind != EventKind::TurnQueued
        {
            assert_eq!(self.turns.get(&turn), Some(&TurnState::Running), "{kind:?} outside its turn");
        }
    }

    fn in_state(&self, state: TurnState) -> Vec<TurnId> {
        self.turns.iter().filter(|(_, found)| **found == state).map(|(id, _)| *id).collect()
    }
}

proptest! {
    #[test]
    fn whatever_comes_in_whatever_order(inputs in proptest::collection::vec(input(), 1..120)) {
        let mut walk = Walk::new();
        let mut asked = 0;
        for input in inputs {
            apply(&mut walk, &input, &mut asked);
        }
        let mut ledger = Ledger { is_deleted: walk.machine.is_deleting(), ..Ledger::default() };
        for (kind, turn, body) in &walk.events {
            ledger.read(*kind, *turn, body);
        }
        let snapshot = walk.machine.snapshot().clone();
        // The counter that ids are given from counts every event.
        prop_assert_eq!(snapshot.last_event_id.0, walk.events.len() as u64);
        // What the snapshot shows as open is what the events leave open.
        let current: Vec<TurnId> = snapshot.current_turn.iter().map(|turn| turn.id).collect();
        prop_assert_eq!(ledger.in_state(TurnState::Running), current);
        let queued: Vec<TurnId> = snapshot.queued_turns.iter().map(|turn| turn.id).collect();
        prop_assert_eq!(Vec::from(ledger.queue.clone()), queued);
        prop_assert!(snapshot.queued_turns.iter().all(|turn| turn.prompt.is_none()));
        // The records say the same, and each has its prompt, but for those that went with their session.
        for (id, state) in &ledger.turns {
            let stored = walk.stored(*id);
            prop_assert_eq!(stored.state, *state);
            prop_assert!(stored.prompt.is_some() || walk.machine.is_deleting());
        }
        prop_assert_eq!(
            ledger.calls.iter().filter(|(_, open)| **open).map(|(id, _)| id.clone()).collect::<HashSet<_>>(),
            snapshot.open_tool_calls.iter().map(|call| call.id.clone()).collect::<HashSet<_>>()
        );
        prop_assert_eq!(
            ledger.permissions.iter().filter(|(_, open)| **open).map(|(id, _)| *id).collect::<HashSet<_>>(),
            snapshot.pending_permissions.iter().map(|pending| pending.id).collect::<HashSet<_>>()
        );
        // Every question has exactly one answer, or is still pending, or died with the agent.
        let mut answered = HashSet::new();
        for command in &walk.commands {
            if let AgentCommand::AnswerPermission { reply, .. } = command {
                prop_assert!(answered.insert(reply.clone()), "two answers to {reply:?}");
            }
        }
        // Once there is no agent nothing stays open.
        walk.agent(exit());
        // What was queued waits for the next agent, and then has its turn.
        while let Some(next) = walk.machine.next_queued() {
            walk.begin_queued(next);
            walk.step(|machine, step| machine.started(step, facts(), token(), Vec::new()));
            walk.finish(next, "end_turn");
            prop_assert_eq!(walk.last_turn().id, next);
        }
        let snapshot = walk.machine.snapshot();
        prop_assert!(snapshot.current_turn.is_none() && snapshot.queued_turns.is_empty());
        prop_assert!(snapshot.open_tool_calls.is_empty() && snapshot.pending_permissions.is_empty());
    }
}
