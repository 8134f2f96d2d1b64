//! Turns that are stopped, and agents that die.

use super::*;
use crate::session::handle::Refusal;

fn exit(how: &str) -> AgentEvent {
    AgentEvent::Exited(AgentExit {
        how: how.into(),
        stderr_tail: "panicked at the end\n".into(),
        class: TurnErrorClass::AgentExited,
    })
}

/// Has the agent of the running turn, or of the one begun for it, die.
fn die(walk: &mut Walk) {
    walk.prompt();
    walk.step(|machine, step| machine.started(step, facts(), token(), Vec::new()));
    walk.agent(exit("exit code 3"));
}

fn refused(walk: &mut Walk) -> Refusal {
    let prompt = Prompt::Text("again".into());
    walk.step(|machine, step| machine.prompt(step, TurnId::new(), "alice".into(), prompt)).unwrap_err()
}

#[test]
fn a_turn_that_takes_too_long_is_stopped_and_fails() {
    let mut walk = Walk::ready();
    let turn = walk.prompt();
    walk.call("1");
    walk.ask("1", "r1");
    walk.step(|machine, step| machine.stop_at_deadline(step, TurnId::new()));
    assert_eq!((walk.state(), walk.commands.len()), (SessionState::AwaitingPermission, 1), "another turn's");
    walk.step(|machine, step| machine.stop_at_deadline(step, turn));
    assert!(matches!(
        &walk.commands[1..],
        [AgentCommand::Cancel, AgentCommand::AnswerPermission { answer: PermissionReply::Cancelled, .. }]
    ));
    assert_eq!(walk.state(), SessionState::Cancelling);
    // It is too late for the agent to be done.
    walk.finish(turn, "end_turn");
    let ended = walk.last_turn();
    let error = ended.error.unwrap();
    assert_eq!(
        (ended.state, error.class, error.retryable),
        (TurnState::Failed, TurnErrorClass::Deadline, false)
    );
    assert!(error.message.contains("10m"), "{}", error.message);
    assert_eq!(walk.state(), SessionState::Idle);
}

#[test]
fn a_turn_that_waits_for_its_agent_too_long_ends_without_one() {
    let mut walk = Walk::ready();
    walk.step(|machine, _| machine.hibernate()).unwrap();
    let turn = walk.prompt();
    walk.step(|machine, step| machine.stop_at_deadline(step, turn));
    assert_eq!(walk.last_turn().error.unwrap().class, TurnErrorClass::Deadline);
    walk.step(|machine, step| machine.started(step, facts(), token(), Vec::new()));
    assert!(walk.commands.is_empty());
    assert_eq!(walk.state(), SessionState::Idle);
}

#[test]
fn who_cancels_a_turn_that_is_being_stopped_gets_it_cancelled() {
    let mut walk = Walk::ready();
    let turn = walk.prompt();
    walk.step(|machine, step| machine.stop_at_deadline(step, turn));
    walk.step(|machine, step| machine.cancel(step, "bob".into(), turn)).unwrap();
    assert_eq!(walk.commands.len(), 2, "the agent is told once");
    walk.finish(turn, "cancelled");
    assert_eq!(walk.last_turn().state, TurnState::Cancelled);
    assert!(
        matches!(&walk.events[walk.events.len() - 2].2, EventBody::Turn { by: Some(by), .. } if by.name() == "bob")
    );
}

#[test]
fn a_stopped_turn_ends_as_it_was_to_when_the_agent_dies_or_is_killed() {
    for dies in [true, false] {
        let mut walk = Walk::ready();
        let turn = walk.prompt();
        walk.call("1");
        walk.step(|machine, step| machine.cancel(step, "bob".into(), turn)).unwrap();
        if dies {
            walk.agent(exit("exit code 3"));
        } else {
            walk.step(|machine, step| machine.stop_overdue(step, 2));
            assert!(walk.machine.snapshot().notices[0].message.contains("2 processes"));
        }
        let ended = walk.last_turn();
        assert_eq!((ended.state, ended.error), (TurnState::Cancelled, None));
        assert_eq!(walk.last_call().status, Some(ToolCallStatus::Cancelled));
        assert_eq!(walk.state(), SessionState::Hibernated);
        assert!(walk.machine.snapshot().state_reason.is_some());
        assert_eq!(walk.machine.snapshot().agent.as_ref().unwrap().pid, None);
    }
}

#[test]
fn a_death_is_told_with_the_agents_last_words_and_where_there_is_room_with_all_of_them() {
    let mut walk = Walk::ready();
    walk.prompt();
    let stderr_tail = format!("{}ö end\n", "ä".repeat(4000));
    let class = TurnErrorClass::AgentExited;
    walk.agent(AgentEvent::Exited(AgentExit {
        how: "signal 9".into(),
        stderr_tail: stderr_tail.clone(),
        class,
    }));
    let message = walk.last_turn().error.unwrap().message;
    assert!(message.starts_with("the agent ended: signal 9\nä") && message.ends_with("ö end"), "{message}");
    assert!(message.len() < 2100);
    let snapshot = walk.machine.snapshot();
    assert!(snapshot.notices[0].message.ends_with(&stderr_tail));
    assert_eq!(snapshot.state_reason.as_deref(), Some("the agent ended: signal 9"));
}

#[test]
fn an_agent_that_dies_again_and_again_is_not_started_until_a_while_later() {
    let mut walk = Walk::ready();
    die(&mut walk);
    walk.now += 29;
    die(&mut walk);
    assert_eq!(walk.state(), SessionState::Hibernated);
    walk.now += 29;
    die(&mut walk);
    assert_eq!(walk.state(), SessionState::Failed);
    let reason = walk.machine.snapshot().state_reason.clone().unwrap();
    assert_eq!(
        reason,
        "the agent ended 3 times within 1m without finishing a turn, the last time: exit code 3"
    );
    let told = walk.events.len();
    walk.now += 59;
    assert!(matches!(
        refused(&mut walk),
        Refusal::CoolingDown { retry_after, .. } if retry_after == Duration::from_secs(1)
    ));
    let now = at(walk.now);
    assert!(matches!(walk.machine.begin_patch(now), Err(Refusal::CoolingDown { .. })));
    assert_eq!(walk.events.len(), told);
    walk.now += 1;
    // It is tried again, and as patiently as before.
    for _ in 0..2 {
        die(&mut walk);
        assert_eq!(walk.state(), SessionState::Hibernated);
    }
    die(&mut walk);
    assert_eq!(walk.state(), SessionState::Failed);
}

#[test]
fn deaths_that_are_far_apart_or_come_between_finished_turns_are_no_loop() {
    let mut walk = Walk::ready();
    for _ in 0..9 {
        die(&mut walk);
        walk.now += 31;
    }
    assert_eq!(walk.state(), SessionState::Hibernated);
    for _ in 0..9 {
        let turn = walk.prompt();
        walk.step(|machine, step| machine.started(step, facts(), token(), Vec::new()));
        walk.finish(turn, "end_turn");
        walk.agent(exit("signal 9"));
    }
    assert_eq!(walk.state(), SessionState::Hibernated);
}

#[test]
fn a_restart_forgets_the_deaths_and_keeps_the_reason() {
    let mut walk = Walk::ready();
    (0..3).for_each(|_| die(&mut walk));
    let record = walk.machine.record().clone();
    let last = record.snapshot.last_event_id;
    walk.machine = Machine::restore(record, last, BOUNDS, Arc::new(permissions()));
    walk.step(Machine::gateway_restarted);
    assert_eq!(walk.state(), SessionState::Failed);
    assert!(walk.machine.snapshot().state_reason.as_ref().unwrap().contains("3 times"));
    die(&mut walk);
    assert_eq!(walk.state(), SessionState::Hibernated);
}
