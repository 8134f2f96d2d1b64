//! Putting words into a turn: who is told what, in whatever order the agent's words come.

use tokio::sync::oneshot;

use super::*;
use crate::session::agent::{AgentFailure, SteerFailure};
use crate::session::id::{MessageId, TurnId};

type Done = oneshot::Sender<Result<(), SteerFailure>>;

/// Steers in the background and waits until the agent is asked.
async fn begin_to_steer(
    session: &SessionHandle,
    agent: &mut doubles::RunningAgent,
    turn: TurnId,
) -> (tokio::task::JoinHandle<Result<Turn, Refusal>>, MessageId, Done) {
    let steering = session.clone();
    let answer = session.tasks.spawn(async move {
        steering.steer(&"bob".into(), turn, Prompt::Text("the other way".into())).await
    });
    loop {
        match agent.commands.recv().await {
            Some(AgentCommand::Steer { turn: of, message, content, done }) => {
                assert_eq!((of, &content[0]["text"]), (turn, &"the other way".into()));
                return (answer, message, done);
            }
            Some(AgentCommand::Prompt { .. }) => {}
            other => panic!("no steer but {other:?}"),
        }
    }
}

fn finished(turn: TurnId) -> AgentEvent {
    AgentEvent::PromptFinished { turn, result: Ok("end_turn".into()) }
}

#[tokio::test]
async fn what_the_agent_took_is_told_within_its_turn_and_before_the_caller_is_answered() {
    let mut world = World::new(|_| {}).await;
    let (session, mut agent) = world.ready().await;
    let turn = prompt(&session).await.unwrap().id;
    let (answer, message, done) = begin_to_steer(&session, &mut agent, turn).await;
    // The adapter tells the events first, and among them the turn's end, before it says that the words are taken.
    let taken = AgentEvent::Steered { message, agents_id: None };
    agent.events.send(vec![taken, finished(turn)]).await.unwrap();
    done.send(Ok(())).unwrap();
    assert_eq!(answer.await.unwrap().unwrap().state, TurnState::Completed);
    let kinds = world.store.kinds();
    let of = |kind| kinds.iter().position(|found| *found == kind).unwrap();
    assert!(of(EventKind::TurnSteered) < of(EventKind::TurnCompleted), "{kinds:?}");
}

#[tokio::test]
async fn what_was_not_told_was_not_taken() {
    let mut world = World::new(|_| {}).await;
    let (session, mut agent) = world.ready().await;
    let turn = prompt(&session).await.unwrap().id;
    let (answer, _, done) = begin_to_steer(&session, &mut agent, turn).await;
    agent.exits().await;
    session.turn_ended(turn).await.unwrap();
    done.send(Ok(())).unwrap();
    assert!(matches!(answer.await.unwrap(), Err(Refusal::TurnNotRunning)));
    assert!(!world.store.kinds().contains(&EventKind::TurnSteered));
}

#[tokio::test]
async fn every_refusal_of_the_agent_is_told_and_nothing_else() {
    let mut world = World::new(|_| {}).await;
    let (session, mut agent) = world.ready().await;
    let turn = prompt(&session).await.unwrap().id;
    let failure = |class| SteerFailure::Failed(AgentFailure { class, code: None, message: "no".into() });
    for (failure, expected) in [
        (SteerFailure::TurnOver, "the turn is not running"),
        (SteerFailure::NotBegun, "the session is busy: its agent has not begun the turn yet"),
        (SteerFailure::Unsupported, "the agent takes no words into a running turn"),
        (failure(TurnErrorClass::AgentExited), "the turn is not running"),
        (failure(TurnErrorClass::AgentUnresponsive), "the session has failed: no"),
        (failure(TurnErrorClass::AgentError), "the agent does not take it: no"),
    ] {
        let (answer, _, done) = begin_to_steer(&session, &mut agent, turn).await;
        done.send(Err(failure)).unwrap();
        assert_eq!(answer.await.unwrap().unwrap_err().to_string(), expected);
    }
    // As an agent that is gone does.
    let (answer, _, done) = begin_to_steer(&session, &mut agent, turn).await;
    drop(done);
    assert!(matches!(answer.await.unwrap(), Err(Refusal::TurnNotRunning)));
    assert!(!world.store.kinds().contains(&EventKind::TurnSteered));
    assert!(matches!(
        session.steer(&"bob".into(), TurnId::new(), Prompt::Text("x".into())).await,
        Err(Refusal::TurnNotFound)
    ));
}

#[tokio::test]
async fn nothing_is_put_into_a_turn_while_nothing_can_be_written() {
    let mut world = World::new(|_| {}).await;
    let (session, mut agent) = world.ready().await;
    let turn = prompt(&session).await.unwrap().id;
    world.store.trouble_is(Some(StoreError::Unavailable("full".into())));
    let refused = session.steer(&"bob".into(), turn, Prompt::Text("x".into())).await;
    assert!(matches!(refused, Err(Refusal::Store(StoreError::Unavailable(_)))));
    world.store.trouble_is(None);
    let (_answer, _, _done) = begin_to_steer(&session, &mut agent, turn).await;
}
