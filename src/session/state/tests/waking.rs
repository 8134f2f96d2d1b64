//! A session whose agent is gone: how it hibernates, wakes, and comes out of a restart.

use super::*;
use crate::session::agent::Unfit;

#[test]
fn an_agent_that_dies_interrupts_the_turn_and_is_woken_by_the_next() {
    let mut walk = Walk::ready();
    walk.prompt();
    walk.call("1");
    walk.ask("1", "r1");
    walk.agent(AgentEvent::Exited(AgentExit {
        how: "signal 9".into(),
        stderr_tail: String::new(),
        class: TurnErrorClass::AgentExited,
    }));
    assert_eq!(
        walk.kinds()[9..],
        ["notice", "permission.resolved", "tool_call.finished", "turn.interrupted", "session.state"]
    );
    assert_eq!(walk.state(), SessionState::Hibernated);
    assert!(walk.machine.snapshot().state_reason.as_ref().unwrap().contains("signal 9"));
    assert_eq!(walk.machine.snapshot().agent.as_ref().unwrap().pid, None);
    // The next turn begins at once, and is sent when there is an agent.
    walk.commands.clear();
    let turn = walk.prompt();
    assert_eq!(walk.state(), SessionState::Running);
    assert!(walk.starts && walk.commands.is_empty());
    walk.step(|machine, step| machine.started(step, facts(), token(), Vec::new()));
    assert!(matches!(&walk.commands[..], [AgentCommand::Prompt { turn: sent, .. }] if *sent == turn));
    assert_eq!(walk.machine.snapshot().agent.as_ref().unwrap().generation, 2);
    assert_eq!(walk.machine.snapshot().state_reason, None);
}

#[test]
fn a_session_hibernates_between_turns_only() {
    let mut walk = Walk::ready();
    let turn = walk.prompt();
    assert!(
        matches!(walk.step(|machine, _| machine.hibernate()), Err(Refusal::TurnInProgress(running)) if running == turn)
    );
    walk.finish(turn, "end_turn");
    assert!(walk.step(|machine, _| machine.hibernate()).unwrap());
    assert_eq!(walk.state(), SessionState::Hibernated);
    assert!(!walk.step(|machine, _| machine.hibernate()).unwrap(), "there is nothing to let go");
}

#[test]
fn a_turn_whose_agent_does_not_start_fails_and_the_next_tries_again() {
    let mut walk = Walk::ready();
    walk.step(|machine, _| machine.hibernate()).unwrap();
    walk.prompt();
    let error = LaunchError::Failed { detail: "goose was not found".into(), stderr_tail: None };
    walk.step(|machine, step| machine.start_failed(step, &error));
    let ended = walk.last_turn();
    assert_eq!((ended.state, ended.error.unwrap().class), (TurnState::Failed, TurnErrorClass::StartFailed));
    assert_eq!(walk.state(), SessionState::Failed);
    walk.commands.clear();
    walk.starts = false;
    walk.prompt();
    assert!(walk.starts && walk.commands.is_empty());
}

#[test]
fn a_turn_cancelled_while_its_agent_wakes_ends_at_once_and_is_never_sent() {
    let mut walk = Walk::ready();
    walk.step(|machine, _| machine.hibernate()).unwrap();
    walk.commands.clear();
    let turn = walk.prompt();
    walk.step(|machine, step| machine.cancel(step, "bob".into(), turn)).unwrap();
    assert_eq!(walk.last_turn().state, TurnState::Cancelled);
    walk.step(|machine, step| machine.started(step, facts(), token(), Vec::new()));
    assert!(walk.commands.is_empty());
    assert_eq!(walk.state(), SessionState::Idle);
}

#[test]
fn an_agent_that_must_not_go_on_fails_its_session_until_the_next_turn() {
    let mut walk = Walk::ready();
    walk.prompt();
    walk.call("1");
    walk.ask("1", "r1");
    walk.step(|machine, step| machine.agent_unfit(step, &Unfit("it remembers too much".into())));
    assert_eq!(
        walk.kinds()[9..],
        ["permission.resolved", "tool_call.finished", "turn.failed", "session.state"]
    );
    assert_eq!(walk.last_turn().error.unwrap().class, TurnErrorClass::AgentError);
    let snapshot = walk.machine.snapshot();
    assert_eq!(
        (walk.state(), snapshot.state_reason.as_deref()),
        (SessionState::Failed, Some("it remembers too much"))
    );
    walk.commands.clear();
    walk.prompt();
    assert!(walk.starts && walk.commands.is_empty());
}

#[test]
fn a_restart_closes_what_was_open_and_leaves_the_rest() {
    let mut walk = Walk::ready();
    walk.prompt();
    walk.call("1");
    walk.ask("1", "r1");
    let mut walk = walk.left_by();
    walk.step(Machine::gateway_restarted);
    assert_eq!(
        walk.kinds(),
        ["permission.resolved", "tool_call.finished", "turn.interrupted", "session.state"]
    );
    let ended = walk.last_turn();
    let turns: Vec<Option<TurnId>> = walk.events.iter().map(|(_, turn, _)| *turn).collect();
    assert_eq!(turns, [Some(ended.id), Some(ended.id), Some(ended.id), None]);
    assert_eq!(ended.error.unwrap().class, TurnErrorClass::GatewayRestarted);
    assert_eq!(walk.state(), SessionState::Hibernated);
    assert!(walk.machine.snapshot().pending_permissions.is_empty());
    // Once more changes nothing.
    let mut again = walk.left_by();
    again.step(Machine::gateway_restarted);
    assert!(again.events.is_empty());
}
