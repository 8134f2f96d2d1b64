//! Turns that are stopped, whatever the agent and the store do, and agents that die.

use super::doubles::RunningAgent;
use super::*;
use crate::session::registry::CrashBounds;
use crate::session::turn::WhenBusy;

/// Waits for the agent's command to end its turn.
async fn told_to_stop(agent: &mut RunningAgent) {
    while !matches!(agent.commands.recv().await.unwrap(), AgentCommand::Cancel) {}
}

#[tokio::test]
async fn a_store_that_is_slow_keeps_neither_the_agent_from_stopping_nor_from_being_killed() {
    let mut world = World::new(|settings| settings.stop_grace = Duration::from_millis(20)).await;
    let (session, mut agent) = world.ready().await;
    let turn = prompt(&session).await.unwrap();
    world.store.set(Commits::OnDemand);
    let cancelling = session.clone();
    let cancelled = session.tasks.spawn(async move { cancelling.cancel(&"alice".into(), turn.id).await });
    told_to_stop(&mut agent).await;
    agent.ended.cancelled().await;
    assert!(!cancelled.is_finished(), "nothing is told that is not written");
    world.store.commit();
    cancelled.await.unwrap().unwrap();
    assert_eq!(session.turn_ended(turn.id).await.unwrap().state, TurnState::Cancelled);
}

#[tokio::test]
async fn an_agent_that_stopped_in_time_is_not_killed_when_the_store_is_slow() {
    let mut world = World::new(|settings| settings.stop_grace = Duration::from_millis(200)).await;
    let (session, mut agent) = world.ready().await;
    let turn = prompt(&session).await.unwrap();
    session.cancel(&"alice".into(), turn.id).await.unwrap();
    told_to_stop(&mut agent).await;
    world.store.set(Commits::OnDemand);
    agent.says(AgentEvent::PromptFinished { turn: turn.id, result: Ok("cancelled".into()) }).await;
    world.store.something_waits().await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    world.store.commit();
    assert_eq!(session.turn_ended(turn.id).await.unwrap().state, TurnState::Cancelled);
    assert!(!agent.ended.is_cancelled());
    assert_eq!(session.snapshot().await.unwrap().state, SessionState::Idle);
}

#[tokio::test]
async fn a_turn_ends_although_its_agent_cannot_be_ended_nor_its_tools_be_found() {
    for agent_answers in [true, false] {
        let mut world = World::new(|settings| settings.stop_grace = Duration::from_millis(20)).await;
        let session = world.create().await.unwrap();
        let mut agent = world.launch().await.succeed_stuck();
        session.started().await.unwrap().unwrap();
        let turn = prompt(&session).await.unwrap();
        session.cancel(&"alice".into(), turn.id).await.unwrap();
        told_to_stop(&mut agent).await;
        if agent_answers {
            agent.says(AgentEvent::PromptFinished { turn: turn.id, result: Ok("cancelled".into()) }).await;
        }
        assert_eq!(session.turn_ended(turn.id).await.unwrap().state, TurnState::Cancelled);
        assert!(agent.ended.is_cancelled());
        until(&session, SessionState::Hibernated).await;
    }
}

#[tokio::test]
async fn a_turn_that_takes_too_long_is_stopped() {
    let mut world = World::new(|settings| settings.turn_duration = Duration::from_millis(20)).await;
    let (session, mut agent) = world.ready().await;
    let turn = prompt(&session).await.unwrap();
    told_to_stop(&mut agent).await;
    agent.says(AgentEvent::PromptFinished { turn: turn.id, result: Ok("cancelled".into()) }).await;
    assert_eq!(session.turn_ended(turn.id).await.unwrap().state, TurnState::Failed);
    assert!(!agent.ended.is_cancelled());
}

#[tokio::test]
async fn a_session_whose_agents_die_takes_a_queued_turn_when_it_has_cooled_down_and_no_other() {
    let cooldown = Duration::from_secs(1);
    let mut world = World::new(|settings| {
        settings.crash = CrashBounds { deaths: 2, within: Duration::from_mins(1), cooldown };
    })
    .await;
    let (session, agent) = world.ready().await;
    agent.exits().await;
    until(&session, SessionState::Hibernated).await;
    prompt(&session).await.unwrap();
    let agent = world.launch().await.succeed();
    agent.exits().await;
    until(&session, SessionState::Failed).await;
    assert!(matches!(prompt(&session).await, Err(Refusal::CoolingDown { .. })));
    assert!(matches!(
        session.patch(&"alice".into(), mode(Mode::Chat)).await,
        Err(Refusal::CoolingDown { .. })
    ));
    let queued = session.prompt(&"alice".into(), Prompt::Text("go".into()), WhenBusy::Queue).await.unwrap();
    assert_eq!(queued.state, TurnState::Queued);
    assert!(world.launches.is_empty(), "no other agent is started yet");
    let mut agent = world.launch().await.succeed();
    assert!(
        matches!(agent.commands.recv().await, Some(AgentCommand::Prompt { turn, .. }) if turn == queued.id)
    );
}
