//! Turns that wait for those before them.

use super::*;

#[test]
fn queued_turns_run_in_order_and_the_session_is_not_idle_between_them() {
    let mut walk = Walk::ready();
    let first = walk.prompt();
    let second = walk.queue().unwrap();
    let third = walk.queue().unwrap();
    assert_eq!(walk.stored(second).state, TurnState::Queued);
    assert_eq!(walk.machine.next_queued(), None, "one runs");
    let before = walk.events.len();
    walk.commands.clear();
    for (turn, next) in [(first, Some(second)), (second, Some(third)), (third, None)] {
        walk.finish(turn, "end_turn");
        assert_eq!(walk.machine.next_queued(), next);
        if let Some(next) = next {
            walk.now += 1;
            walk.begin_queued(next);
        }
    }
    assert_eq!(
        walk.kinds()[before..],
        [
            "turn.completed",
            "turn.started",
            "turn.completed",
            "turn.started",
            "turn.completed",
            "session.state"
        ]
    );
    assert_eq!(walk.state(), SessionState::Idle);
    let sent: Vec<TurnId> = walk.commands.iter().map(sent_turn).collect();
    assert_eq!(sent, [second, third]);
    let turn = walk.stored(third);
    assert!(turn.prompt.is_some() && turn.started_at > Some(turn.created_at));
}

/// Queues a turn; gives it as the store has it.
fn queue_whole(walk: &mut Walk) -> Turn {
    let id = walk.queue().unwrap();
    walk.stored(id)
}

fn sent_turn(command: &AgentCommand) -> TurnId {
    match command {
        AgentCommand::Prompt { turn, content } => {
            assert_eq!(content[0]["text"], "do it then");
            *turn
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn none_overtakes_those_that_wait() {
    let mut walk = Walk::ready();
    let first = walk.prompt();
    let second = walk.queue().unwrap();
    walk.finish(first, "end_turn");
    let refused = walk.step(|machine, step| {
        machine.prompt(step, TurnId::new(), "carol".into(), Prompt::Text("me first".into()))
    });
    assert!(matches!(refused, Err(Refusal::TurnInProgress(turn)) if turn == second));
    assert!(matches!(walk.machine.hibernate(), Err(Refusal::TurnInProgress(turn)) if turn == second));
    let third = queue_whole(&mut walk);
    walk.step(|machine, step| machine.begin_queued(step, third));
    assert_eq!(walk.machine.current_turn(), None, "nor does one of them the other");
}

#[test]
fn the_queue_is_bounded() {
    let mut walk = Walk::ready();
    walk.prompt();
    walk.queue().unwrap();
    let second = queue_whole(&mut walk);
    let before = walk.events.len();
    assert!(matches!(walk.queue(), Err(Refusal::QueueFull)));
    assert_eq!(walk.events.len(), before, "nothing is told");
    walk.step(|machine, step| machine.cancel_queued(step, "bob".into(), second));
    walk.queue().unwrap();
}

#[test]
fn one_that_waits_can_be_cancelled_and_the_others_do_not_mind() {
    let mut walk = Walk::ready();
    let first = walk.prompt();
    let second = queue_whole(&mut walk);
    let third = walk.queue().unwrap();
    walk.commands.clear();
    let before = walk.events.len();
    let (id, first_event_id) = (second.id, second.first_event_id);
    let ended = walk.step(|machine, step| machine.cancel_queued(step, "carol".into(), second));
    assert_eq!((ended.state, ended.started_at), (TurnState::Cancelled, None));
    assert!(ended.last_event_id.unwrap() > first_event_id);
    let (kind, of, body) = &walk.events[before];
    assert_eq!((*kind, *of), (EventKind::TurnCancelled, Some(id)));
    assert!(
        matches!(body, EventBody::Turn { by: Some(by), turn } if by.name() == "carol" && turn.prompt.is_none())
    );
    assert!(walk.commands.is_empty(), "the running turn goes on");
    assert!(walk.stored(id).prompt.is_some());
    walk.finish(first, "end_turn");
    assert_eq!(walk.machine.next_queued(), Some(third));
}

#[test]
fn they_outlive_the_agent_and_a_restart_and_wake_the_next() {
    let mut walk = Walk::ready();
    walk.prompt();
    let second = walk.queue().unwrap();
    let third = walk.queue().unwrap();
    walk.agent(AgentEvent::Exited(AgentExit {
        how: "signal 9".into(),
        stderr_tail: String::new(),
        class: TurnErrorClass::AgentExited,
    }));
    assert_eq!((walk.state(), walk.last_turn().state), (SessionState::Hibernated, TurnState::Interrupted));
    walk.starts = false;
    walk.begin_queued(second);
    assert!(walk.starts);
    assert_eq!(walk.state(), SessionState::Running);
    walk.restart();
    assert_eq!(walk.last_turn().id, second);
    assert_eq!(walk.state(), SessionState::Hibernated);
    assert_eq!(walk.machine.next_queued(), Some(third));
    walk.starts = false;
    walk.begin_queued(third);
    assert!(walk.starts);
}

#[test]
fn each_has_its_try_when_agents_do_not_start() {
    let mut walk = Walk::ready();
    walk.prompt();
    let second = walk.queue().unwrap();
    let third = walk.queue().unwrap();
    walk.restart();
    for turn in [second, third] {
        assert_eq!(walk.machine.next_queued(), Some(turn));
        walk.begin_queued(turn);
        let error = LaunchError::Failed { detail: "goose was not found".into(), stderr_tail: None };
        walk.step(|machine, step| machine.start_failed(step, &error));
        assert_eq!((walk.last_turn().id, walk.last_turn().state), (turn, TurnState::Failed));
        assert_eq!(walk.state(), SessionState::Failed);
    }
    assert_eq!(walk.machine.next_queued(), None);
}

#[test]
fn none_begins_while_the_agent_starts_or_takes_new_settings() {
    let mut walk = Walk::new();
    let first = walk.queue().unwrap();
    assert_eq!((walk.machine.next_queued(), walk.state()), (None, SessionState::Starting));
    walk.step(|machine, step| machine.started(step, facts(), token(), Vec::new()));
    walk.step(|machine, step| machine.begin_patch(step.now)).unwrap();
    assert_eq!(walk.machine.next_queued(), None);
    walk.machine.end_patch();
    assert_eq!(walk.machine.next_queued(), Some(first));
}

#[test]
fn a_deletion_cancels_them_behind_the_running_one() {
    let mut walk = Walk::ready();
    let first = walk.prompt();
    let second = walk.queue().unwrap();
    let third = walk.queue().unwrap();
    let before = walk.events.len();
    walk.step(|machine, step| machine.begin_delete(step, &"alice".into())).unwrap();
    let told: Vec<_> = walk.events[before..].iter().map(|(kind, turn, _)| (*kind, *turn)).collect();
    let cancelled = |turn| (EventKind::TurnCancelled, Some(turn));
    assert_eq!(told, [cancelled(first), cancelled(second), cancelled(third)]);
    assert!(matches!(walk.queue(), Err(Refusal::Busy(_))));
    assert_eq!(walk.machine.next_queued(), None);
}

#[test]
fn one_that_could_not_be_written_down_in_time_never_runs() {
    let mut walk = Walk::ready();
    let first = walk.prompt();
    let second = queue_whole(&mut walk);
    walk.step(|machine, step| machine.not_begun(step, second));
    let ended = walk.last_turn();
    assert_eq!(ended.error.unwrap().class, TurnErrorClass::StorageUnavailable);
    assert_eq!(walk.machine.current_turn(), Some(first));
    walk.finish(first, "end_turn");
    assert_eq!((walk.machine.next_queued(), walk.state()), (None, SessionState::Idle));
}
