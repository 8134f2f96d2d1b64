//! The actor on a store and agents that do what the test says: what goes wrong, and when.

mod deleting;
mod doubles;
mod linked;
mod permissions;
mod queued;
mod steered;
mod stopping;
mod store;

use std::time::Duration;

use super::*;
use crate::session::agent::{AgentCommand, AgentEvent, LaunchError, Mode, Setting};
use crate::session::event::EventKind;
use crate::session::handle::SessionHandle;
use crate::session::registry::CreateError;
use crate::session::tool_call::ToolCall;
use crate::session::turn::{Prompt, Turn, TurnErrorClass, TurnState, WhenBusy};
use doubles::World;
use store::Commits;

async fn until(session: &SessionHandle, state: SessionState) {
    session.status.clone().wait_for(|status| status.state == state).await.unwrap();
}

async fn prompt(session: &SessionHandle) -> Result<Turn, Refusal> {
    session.prompt(&"alice".into(), Prompt::Text("go".into()), WhenBusy::Reject).await
}

fn title(text: &str) -> SessionPatch {
    SessionPatch { title: Some(Some(text.into())), ..SessionPatch::default() }
}

fn mode(mode: Mode) -> SessionPatch {
    SessionPatch { mode: Some(mode), ..SessionPatch::default() }
}

/// Asks for another mode in the background and waits until the agent is asked.
async fn begin_to_change_mode(
    session: &SessionHandle,
    agent: &mut doubles::RunningAgent,
) -> (tokio::task::JoinHandle<Result<Snapshot, Refusal>>, AgentCommand) {
    let patching = session.clone();
    let changed = session.tasks.spawn(async move { patching.patch(&"alice".into(), mode(Mode::Chat)).await });
    let asked = agent.commands.recv().await.unwrap();
    assert!(matches!(asked, AgentCommand::SetMode { mode: Mode::Chat, .. }));
    (changed, asked)
}

#[tokio::test]
async fn a_launcher_that_panics_is_a_failed_start() {
    let mut world = World::new(|_| {}).await;
    let session = world.create().await.unwrap();
    drop(world.launch().await);
    assert!(matches!(session.started().await.unwrap(), Err(LaunchError::Failed { .. })));
    // The next prompt tries again.
    let turn = prompt(&session).await.unwrap();
    let mut agent = world.launch().await.succeed();
    assert!(
        matches!(agent.commands.recv().await, Some(AgentCommand::Prompt { turn: sent, .. }) if sent == turn.id)
    );
}

#[tokio::test]
async fn a_session_whose_launcher_panics_can_be_deleted_meanwhile() {
    let mut world = World::new(|_| {}).await;
    let session = world.create().await.unwrap();
    let launch = world.launch().await;
    let cancel = launch.cancel.clone();
    let deleting = session.clone();
    let deleted = session.tasks.spawn(async move { deleting.delete(&"alice".into()).await });
    cancel.cancelled().await;
    drop(launch);
    deleted.await.unwrap().unwrap();
    world.registry.all_ended().await;
}

#[tokio::test]
async fn an_agent_that_does_not_heed_a_cancel_is_ended_and_its_last_words_open_nothing() {
    let mut world = World::new(|settings| settings.stop_grace = Duration::ZERO).await;
    let (session, agent) = world.ready().await;
    let turn = prompt(&session).await.unwrap();
    // While the actor waits for the store, the agent begins a call that nobody will hear the end of.
    world.store.set(Commits::OnDemand);
    let cancelling = session.clone();
    let cancelled = session.tasks.spawn(async move { cancelling.cancel(&"alice".into(), turn.id).await });
    world.store.something_waits().await;
    agent.says(AgentEvent::ToolCallStarted(ToolCall { id: "late".into(), ..ToolCall::default() })).await;
    world.store.commit();
    cancelled.await.unwrap().unwrap();
    agent.ended.cancelled().await;
    assert_eq!(session.turn_ended(turn.id).await.unwrap().state, TurnState::Cancelled);
    // Two commands later all that waited has been taken.
    session.snapshot().await.unwrap();
    session.snapshot().await.unwrap();
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.state, SessionState::Hibernated);
    assert!(!world.store.kinds().contains(&EventKind::ToolCallStarted), "{:?}", world.store.kinds());
    assert!(agent.events.is_closed());
    // The next turn wakes another.
    prompt(&session).await.unwrap();
    world.launch().await;
}

#[tokio::test]
async fn a_change_that_takes_no_agent_does_not_end_one_that_does() {
    let mut world = World::new(|_| {}).await;
    let (session, mut agent) = world.ready().await;
    let (changed, asked) = begin_to_change_mode(&session, &mut agent).await;
    session.patch(&"alice".into(), title("x")).await.unwrap();
    assert!(matches!(session.patch(&"alice".into(), mode(Mode::Auto)).await, Err(Refusal::Busy(_))));
    let AgentCommand::SetMode { done, .. } = asked else { unreachable!() };
    done.send(Ok(())).unwrap();
    assert_eq!(changed.await.unwrap().unwrap().mode, Mode::Chat);
    session.patch(&"alice".into(), title("y")).await.unwrap();
    prompt(&session).await.unwrap();
}

#[tokio::test]
async fn what_is_refused_takes_no_place() {
    let mut world = World::new(|settings| settings.max_running = 1).await;
    let (session, mut agent) = world.ready().await;
    let (changed, asked) = begin_to_change_mode(&session, &mut agent).await;
    agent.exits().await;
    until(&session, SessionState::Hibernated).await;
    assert!(matches!(prompt(&session).await, Err(Refusal::Busy(_))));
    assert!(matches!(session.patch(&"alice".into(), mode(Mode::Auto)).await, Err(Refusal::Busy(_))));
    world.ready().await;
    drop(asked);
    assert!(matches!(changed.await.unwrap(), Err(Refusal::SettingRefused { setting: Setting::Mode, .. })));
}

#[tokio::test]
async fn a_place_is_looked_for_with_the_next_when_the_longest_idle_is_busy() {
    let mut world = World::new(|settings| settings.max_running = 2).await;
    let (busy, mut agent) = world.ready().await;
    let (idle, _idle_agent) = world.ready().await;
    let (_changed, _asked) = begin_to_change_mode(&busy, &mut agent).await;
    world.ready().await;
    assert_eq!(idle.snapshot().await.unwrap().state, SessionState::Hibernated);
    assert_eq!(busy.snapshot().await.unwrap().state, SessionState::Idle);
}

#[tokio::test]
async fn without_an_idle_agent_there_is_no_place() {
    let mut world = World::new(|settings| settings.max_running = 1).await;
    let (session, _agent) = world.ready().await;
    prompt(&session).await.unwrap();
    assert!(matches!(world.create().await, Err(CreateError::AtCapacity(_))));
    // A start that fails gives its place back.
    session.delete(&"alice".into()).await.unwrap();
    let failing = world.create().await.unwrap();
    world.launch().await.fail();
    failing.started().await.unwrap().unwrap_err();
    world.ready().await;
}

#[tokio::test]
async fn no_more_agents_are_started_at_once_than_may_be() {
    let mut world = World::new(|settings| settings.max_starting = 1).await;
    let (hibernated, _agent) = world.ready().await;
    hibernated.hibernate(&"alice".into()).await.unwrap();
    let _starting = world.create().await.unwrap();
    let launch = world.launch().await;
    assert!(
        matches!(world.create().await, Err(CreateError::AtCapacity(why)) if why.contains("max_starting"))
    );
    assert!(matches!(prompt(&hibernated).await, Err(Refusal::AtCapacity(_))));
    let queued =
        hibernated.prompt(&"alice".into(), Prompt::Text("go".into()), WhenBusy::Queue).await.unwrap();
    assert_eq!(queued.state, TurnState::Queued);
    assert!(world.launches.is_empty());
    // A start that fails gives its place back as well.
    launch.fail();
    let mut agent = world.launch().await.succeed();
    assert!(
        matches!(agent.commands.recv().await, Some(AgentCommand::Prompt { turn, .. }) if turn == queued.id)
    );
    world.ready().await;
}

#[tokio::test]
async fn a_session_whose_log_broke_has_no_agent_and_is_not_idle() {
    let mut world = World::new(|settings| settings.idle_hibernate = Duration::from_mins(1)).await;
    let (session, agent) = world.ready().await;
    assert!(session.idle_since().is_some());
    world.store.set(Commits::Fail);
    assert!(matches!(session.patch(&"alice".into(), title("x")).await, Err(Refusal::Store(_))));
    agent.ended.cancelled().await;
    assert!(session.idle_since().is_none(), "it would be let go again and again");
}

#[tokio::test]
async fn an_agent_whose_start_is_told_after_the_log_broke_is_ended() {
    let mut world = World::new(|_| {}).await;
    let session = world.create().await.unwrap();
    let launch = world.launch().await;
    world.store.set(Commits::Fail);
    assert!(matches!(session.patch(&"alice".into(), title("x")).await, Err(Refusal::Store(_))));
    launch.cancel.cancelled().await;
    // It was ready at that moment.
    let agent = launch.succeed();
    agent.ended.cancelled().await;
}

#[tokio::test]
async fn an_agent_that_talks_on_after_a_commit_failed_is_ended() {
    let mut world = World::new(|_| {}).await;
    let (session, agent) = world.ready().await;
    prompt(&session).await.unwrap();
    world.store.set(Commits::Fail);
    for text in ["not", "heard"] {
        agent.says(AgentEvent::MessageChunk { message_id: None, text: text.into() }).await;
    }
    agent.ended.cancelled().await;
    until(&session, SessionState::Failed).await;
}

#[tokio::test]
async fn a_wait_for_a_turn_whose_end_cannot_be_written_ends_with_an_error() {
    let mut world = World::new(|_| {}).await;
    let (session, agent) = world.ready().await;
    let turn = prompt(&session).await.unwrap();
    world.store.set(Commits::Fail);
    agent.says(AgentEvent::PromptFinished { turn: turn.id, result: Ok("end_turn".into()) }).await;
    assert!(matches!(session.turn_ended(turn.id).await, Err(Refusal::Store(_))));
}

#[tokio::test]
async fn a_deletion_that_the_store_refuses_still_ends_the_agent() {
    let mut world = World::new(|_| {}).await;
    let (session, agent) = world.ready().await;
    world.store.set(Commits::Refused);
    assert!(matches!(session.delete(&"alice".into()).await, Err(Refusal::Store(_))));
    assert!(agent.ended.is_cancelled());
    assert!(session.log().head().closed, "a subscriber would wait for ever");
}

#[tokio::test]
async fn an_agent_that_is_lost_while_it_starts_is_not_taken_for_ready() {
    let mut world = World::new(|_| {}).await;
    let session = world.create().await.unwrap();
    let launch = world.launch().await;
    let agent = launch.lose_connection_and_succeed();
    until(&session, SessionState::Hibernated).await;
    agent.ended.cancelled().await;
}

#[tokio::test]
async fn an_idle_agent_is_let_go_once_nothing_runs_in_its_background() {
    let mut world = World::new(|settings| settings.idle_hibernate = Duration::from_millis(1)).await;
    let session = world.create().await.unwrap();
    let agent = world.launch().await.succeed_with(2);
    until(&session, SessionState::Hibernated).await;
    assert!(agent.ended.is_cancelled());
    assert_eq!(agent.background.load(std::sync::atomic::Ordering::SeqCst), 0);
    let snapshot = session.snapshot().await.unwrap();
    assert!(snapshot.notices.is_empty(), "nothing was ended with it: {:?}", snapshot.notices);
}

#[tokio::test]
async fn a_change_that_waits_for_a_start_is_answered_however_that_goes() {
    let mut world = World::new(|_| {}).await;
    let (session, _) = world.ready().await;
    session.hibernate(&"alice".into()).await.unwrap();
    let change = |session: &SessionHandle| {
        let waiting = session.clone();
        session.tasks.spawn(async move { waiting.patch(&"alice".into(), mode(Mode::Chat)).await })
    };
    let failing = change(&session);
    world.launch().await.fail();
    assert!(matches!(failing.await.unwrap(), Err(Refusal::StartFailed(_))));
    let changing = change(&session);
    let mut agent = world.launch().await.succeed();
    let Some(AgentCommand::SetMode { done, .. }) = agent.commands.recv().await else { panic!("no mode") };
    done.send(Ok(())).unwrap();
    assert_eq!(changing.await.unwrap().unwrap().mode, Mode::Chat);
    let deleted = change(&session);
    let asked = agent.commands.recv().await.unwrap();
    session.delete(&"alice".into()).await.unwrap();
    // As an agent's end answers all that was asked of it.
    drop(asked);
    assert!(matches!(deleted.await.unwrap(), Err(Refusal::SessionGone)));
}
