//! Words put into the running turn.

use super::*;
use crate::session::id::MessageId;

fn steer(walk: &mut Walk, turn: TurnId) -> Result<MessageId, Refusal> {
    let message = MessageId::new();
    let prompt = Prompt::Text("the other way".into());
    walk.step(|machine, _| machine.steer(turn, message, "bob".into(), prompt)).map(|()| message)
}

fn taken(message: MessageId, agents_id: &str) -> AgentEvent {
    AgentEvent::Steered { message, agents_id: Some(agents_id.into()) }
}

fn echo(agents_id: &str, text: &str) -> AgentEvent {
    AgentEvent::UserMessage { message_id: Some(agents_id.into()), text: text.into() }
}

fn unused_notices(walk: &Walk) -> usize {
    let notices = &walk.machine.snapshot().notices;
    notices.iter().filter(|notice| notice.code == "steer-unused").count()
}

#[test]
fn words_are_told_when_the_agent_takes_them_and_used_under_the_same_id() {
    let mut walk = Walk::ready();
    let turn = walk.prompt();
    let message = steer(&mut walk, turn).unwrap();
    let before = walk.events.len();
    walk.agent(taken(message, "steer_1"));
    assert!(walk.machine.steer_answered(message));
    walk.agent(chunk(Some("m"), "I was at it."));
    walk.agent(echo("steer_1", "the other "));
    walk.agent(echo("steer_1", "way"));
    walk.agent(chunk(Some("n"), "Well then."));
    walk.finish(turn, "end_turn");
    assert_eq!(
        walk.kinds()[before..before + 6],
        ["turn.steered", "message.delta", "message.user", "message.user", "message.delta", "turn.completed"]
    );
    let (_, of, body) = &walk.events[before];
    let EventBody::Steered { turn: told, message_id, prompt, by } = body else { panic!("{body:?}") };
    assert_eq!((*of, told.id, told.prompt.as_ref()), (Some(turn), turn, None));
    assert_eq!((*message_id, by.name()), (message, "bob"));
    assert_eq!(*prompt, Prompt::Text("the other way".into()));
    for (_, _, body) in &walk.events[before + 2..before + 4] {
        assert!(matches!(body, EventBody::Text { message_id, .. } if *message_id == message));
    }
    assert_eq!(walk.last_turn().text.as_deref(), Some("Well then."));
    assert_eq!(unused_notices(&walk), 0);
}

#[test]
fn words_that_were_taken_in_vain_are_told_of_before_the_turns_end() {
    let mut walk = Walk::ready();
    let turn = walk.prompt();
    for id in ["steer_1", "steer_2"] {
        let message = steer(&mut walk, turn).unwrap();
        walk.agent(taken(message, id));
        walk.machine.steer_answered(message);
    }
    walk.agent(echo("steer_1", "the other way"));
    walk.step(|machine, step| machine.cancel(step, "bob".into(), turn)).unwrap();
    let before = walk.events.len();
    walk.finish(turn, "cancelled");
    assert_eq!(walk.kinds()[before..], ["notice", "turn.cancelled", "session.state"]);
    assert_eq!(walk.events[before].1, Some(turn));
    assert!(walk.machine.snapshot().notices[0].message.starts_with("1 of the prompts"));
    // It is over with that turn.
    let next = walk.prompt();
    walk.agent(echo("steer_2", "a command"));
    walk.finish(next, "end_turn");
    assert_eq!(unused_notices(&walk), 1);
}

#[test]
fn what_the_agent_takes_when_the_turn_is_over_is_not_told() {
    let mut walk = Walk::ready();
    let turn = walk.prompt();
    let message = steer(&mut walk, turn).unwrap();
    walk.finish(turn, "end_turn");
    let next = walk.prompt();
    let before = walk.events.len();
    walk.agent(taken(message, "steer_1"));
    assert_eq!(walk.events.len(), before);
    assert!(!walk.machine.steer_answered(message), "so that its caller is told");
    walk.finish(next, "end_turn");
    assert_eq!(unused_notices(&walk), 0);
}

#[test]
fn only_a_turn_that_runs_can_be_steered() {
    let mut walk = Walk::ready();
    let turn = walk.prompt();
    let queued = walk.queue().unwrap();
    assert!(matches!(steer(&mut walk, queued), Err(Refusal::TurnNotRunning)));
    assert!(matches!(steer(&mut walk, TurnId::new()), Err(Refusal::TurnNotRunning)));
    walk.call("1");
    walk.ask("1", "r1");
    assert_eq!(walk.state(), SessionState::AwaitingPermission);
    steer(&mut walk, turn).unwrap();
    walk.step(|machine, step| machine.cancel(step, "bob".into(), turn)).unwrap();
    assert!(matches!(steer(&mut walk, turn), Err(Refusal::TurnNotRunning)));
    walk.finish(turn, "cancelled");
    assert!(matches!(steer(&mut walk, turn), Err(Refusal::TurnNotRunning)));
    // One that waits for its agent has nobody to put words into.
    walk.restart();
    walk.begin_queued(queued);
    assert!(matches!(steer(&mut walk, queued), Err(Refusal::Busy(_))));
    walk.step(|machine, step| machine.started(step, facts(), token(), Vec::new()));
    steer(&mut walk, queued).unwrap();
}

#[test]
fn what_waits_for_the_agent_is_bounded() {
    let mut walk = Walk::ready();
    let turn = walk.prompt();
    let asked: Vec<MessageId> = (0..64).map(|_| steer(&mut walk, turn).unwrap()).collect();
    assert!(matches!(steer(&mut walk, turn), Err(Refusal::TooManySteers)));
    walk.agent(taken(asked[0], "steer_1"));
    assert!(matches!(steer(&mut walk, turn), Err(Refusal::TooManySteers)), "it is still to be used");
    walk.agent(echo("steer_1", "now"));
    steer(&mut walk, turn).unwrap();
    assert!(!walk.machine.steer_answered(asked[1]));
    steer(&mut walk, turn).unwrap();
}

#[test]
fn a_restart_tells_what_was_taken_in_vain() {
    let mut walk = Walk::ready();
    let turn = walk.prompt();
    for id in ["steer_1", "steer_2"] {
        let message = steer(&mut walk, turn).unwrap();
        walk.agent(taken(message, id));
    }
    walk.agent(echo("steer_1", "the other way"));
    let before = walk.events.len();
    walk.restart();
    assert_eq!(walk.kinds()[before..], ["notice", "turn.interrupted", "session.state"]);
}
