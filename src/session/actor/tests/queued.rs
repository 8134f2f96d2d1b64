//! Queued turns, and what they wait for.

use super::*;

async fn queue(session: &SessionHandle) -> Result<Turn, Refusal> {
    session.prompt(&"bob".into(), Prompt::Text("then".into()), WhenBusy::Queue).await
}

async fn sent(agent: &mut doubles::RunningAgent) -> crate::session::id::TurnId {
    match agent.commands.recv().await {
        Some(AgentCommand::Prompt { turn, .. }) => turn,
        other => panic!("no prompt but {other:?}"),
    }
}

async fn finish(agent: &doubles::RunningAgent, turn: &Turn) {
    agent.says(AgentEvent::PromptFinished { turn: turn.id, result: Ok("end_turn".into()) }).await;
}

#[tokio::test]
async fn a_queued_turn_begins_when_the_one_before_it_is_over() {
    let mut world = World::new(|_| {}).await;
    let (session, mut agent) = world.ready().await;
    let first = prompt(&session).await.unwrap();
    let second = queue(&session).await.unwrap();
    assert_eq!((first.state, second.state), (TurnState::Running, TurnState::Queued));
    finish(&agent, &first).await;
    assert_eq!(sent(&mut agent).await, first.id);
    assert_eq!(sent(&mut agent).await, second.id);
    finish(&agent, &second).await;
    assert_eq!(session.turn_ended(second.id).await.unwrap().state, TurnState::Completed);
}

#[tokio::test]
async fn a_queued_turn_waits_while_nothing_can_be_written() {
    let mut world = World::new(|_| {}).await;
    let (session, mut agent) = world.ready().await;
    let first = prompt(&session).await.unwrap();
    let second = queue(&session).await.unwrap();
    let full = StoreError::Unavailable("full".into());
    world.store.trouble_is(Some(full));
    assert!(matches!(queue(&session).await, Err(Refusal::Store(StoreError::Unavailable(_)))));
    finish(&agent, &first).await;
    session.turn_ended(first.id).await.unwrap();
    assert_eq!(session.turn(second.id).await.unwrap().state, TurnState::Queued);
    assert_eq!(world.store.kinds().iter().filter(|kind| **kind == EventKind::TurnStarted).count(), 1);
    world.store.trouble_is(None);
    assert_eq!(sent(&mut agent).await, first.id);
    assert_eq!(sent(&mut agent).await, second.id);
}

#[tokio::test]
async fn a_turn_that_waits_for_a_place_gets_one_as_soon_as_an_agent_is_idle() {
    let mut world = World::new(|settings| settings.max_running = 1).await;
    let (sleeping, _) = world.ready().await;
    let (busy, agent) = world.ready().await;
    let running = prompt(&busy).await.unwrap();
    let waiting = queue(&sleeping).await.unwrap();
    assert_eq!(waiting.state, TurnState::Queued);
    finish(&agent, &running).await;
    let mut agent = world.launch().await.succeed();
    assert_eq!(sent(&mut agent).await, waiting.id);
    assert_eq!(busy.snapshot().await.unwrap().state, SessionState::Hibernated);
}

#[tokio::test]
async fn a_place_that_was_waited_for_is_free_again_when_the_turn_is_cancelled() {
    let mut world = World::new(|settings| settings.max_running = 1).await;
    let (sleeping, _) = world.ready().await;
    let (busy, agent) = world.ready().await;
    let running = prompt(&busy).await.unwrap();
    let waiting = queue(&sleeping).await.unwrap();
    assert_eq!(sleeping.cancel(&"bob".into(), waiting.id).await.unwrap().state, TurnState::Cancelled);
    assert_eq!(sleeping.turn_ended(waiting.id).await.unwrap().state, TurnState::Cancelled);
    finish(&agent, &running).await;
    busy.turn_ended(running.id).await.unwrap();
    assert_eq!(busy.snapshot().await.unwrap().state, SessionState::Idle, "nobody waits for its place");
    world.ready().await;
}

#[tokio::test]
async fn turns_that_wait_when_the_agent_is_lost_wake_another() {
    let mut world = World::new(|_| {}).await;
    let (session, agent) = world.ready().await;
    let first = prompt(&session).await.unwrap();
    let second = queue(&session).await.unwrap();
    agent.exits().await;
    let mut agent = world.launch().await.succeed();
    assert_eq!(sent(&mut agent).await, second.id);
    assert_eq!(session.turn_ended(first.id).await.unwrap().state, TurnState::Interrupted);
}

#[tokio::test]
async fn a_session_with_turns_that_wait_does_not_expire() {
    let mut world = World::new(|settings| settings.max_running = 1).await;
    let (sleeping, _) = world.ready().await;
    let (busy, _agent) = world.ready().await;
    prompt(&busy).await.unwrap();
    let waiting = queue(&sleeping).await.unwrap();
    let refused = sleeping.delete_unless_running(&"expiry".into()).await;
    assert!(matches!(refused, Err(Refusal::TurnInProgress(turn)) if turn == waiting.id));
}
