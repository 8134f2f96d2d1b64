//! The agent's mode before a prompt: it is set, or the prompt is not sent.

use super::*;
use crate::session::turn::TurnErrorClass;

fn failure() -> AgentFailure {
    AgentFailure { class: TurnErrorClass::AgentUnresponsive, code: None, message: "no answer".into() }
}

/// A session whose agent has gone into a looser mode by itself, and a turn that was begun then.
fn held_back() -> (Walk, TurnId) {
    let mut walk = Walk::ready();
    walk.agent(AgentEvent::ModeChanged("auto".into()));
    let turn = walk.prompt();
    assert_eq!(walk.modes, [Mode::Approve]);
    assert!(walk.commands.is_empty(), "{:?}", walk.commands);
    assert_eq!(walk.state(), SessionState::Running);
    (walk, turn)
}

#[test]
fn a_prompt_waits_until_the_agent_is_in_its_mode() {
    let (mut walk, turn) = held_back();
    walk.step(|machine, step| machine.mode_set(step, Mode::Approve));
    assert!(matches!(walk.commands[..], [AgentCommand::Prompt { turn: sent, .. }] if sent == turn));
    assert_eq!(walk.machine.snapshot().agent.as_ref().unwrap().mode, "approve");
    let notice = walk.machine.snapshot().notices.last().unwrap();
    assert_eq!(notice.code, "mode-restored");
    assert!(notice.message.contains("auto") && notice.message.contains("approve"), "{notice:?}");
    walk.finish(turn, "end_turn");
    walk.prompt();
    assert_eq!(walk.commands.len(), 2, "the next one waits for nothing");
    assert_eq!(walk.modes.len(), 1);
}

#[test]
fn what_the_agent_cannot_be_set_to_fails_the_turn_and_the_session() {
    let (mut walk, _) = held_back();
    assert!(walk.step(|machine, step| machine.mode_not_set(step, &failure())));
    assert!(walk.commands.is_empty(), "never sent");
    assert_eq!(walk.last_turn().state, TurnState::Failed);
    assert_eq!(walk.state(), SessionState::Failed);
    let reason = walk.machine.snapshot().state_reason.clone().unwrap();
    assert!(reason.contains("approve") && reason.contains("no answer"), "{reason}");
    walk.prompt();
    assert!(walk.starts, "the next turn starts another agent");
}

#[test]
fn a_turn_cancelled_while_it_waits_for_the_mode_is_never_sent() {
    let (mut walk, turn) = held_back();
    walk.step(|machine, step| machine.cancel(step, "bob".into(), turn)).unwrap();
    assert_eq!(walk.last_turn().state, TurnState::Cancelled);
    walk.step(|machine, step| machine.mode_set(step, Mode::Approve));
    assert!(walk.commands.is_empty(), "{:?}", walk.commands);
    assert_eq!(walk.state(), SessionState::Idle);
    assert!(
        !walk.step(|machine, step| machine.mode_not_set(step, &failure())),
        "nobody waits for it any more"
    );
    assert_eq!(walk.state(), SessionState::Idle);
}

#[test]
fn a_turn_that_was_not_begun_leaves_no_session_that_starts_for_ever() {
    let mut walk = Walk::ready();
    walk.step(|machine, _| machine.hibernate()).unwrap();
    let turn = walk.prompt();
    let turn = walk.stored(turn);
    walk.step(|machine, step| machine.not_begun(step, turn));
    assert_eq!(walk.state(), SessionState::Hibernated);
    walk.prompt();
}
