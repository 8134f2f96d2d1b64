//! However an agent ends, everyone who waits is told and the last event is its exit.

use super::*;
use std::path::Path;

#[tokio::test]
async fn the_exit_fails_what_is_open_and_loses_no_update() {
    let mut peer = Peer::with_session(Limits::default()).await;
    let answer = peer.set_mode(Mode::Auto);
    let content = vec![json!({"type": "text", "text": "x"})];
    peer.connection.send(AgentCommand::Prompt { turn: TurnId::new(), content }).unwrap();
    peer.update("first").await;
    // Without an end: the agent died in the middle of it, or right after it.
    peer.write(chunk("s", "last words").to_string().as_bytes()).await;
    peer.exits("exit code 3");
    let failure = answer.await.unwrap().unwrap_err();
    assert_eq!(
        (failure.class, failure.message.as_str()),
        (TurnErrorClass::AgentExited, "the agent ended: exit code 3")
    );
    assert_eq!(peer.text().await, "first");
    // The pipe is still open, as if a process that the agent started held it.
    assert_eq!(peer.text().await, "last words");
    assert_eq!(peer.kills(), 0);
    let failure = peer.connection.new_session(Path::new("/ws"), &[]).await.unwrap_err();
    assert_eq!(failure.class, TurnErrorClass::AgentExited);
    peer.ended("exit code 3", TurnErrorClass::AgentExited).await;
}

#[tokio::test]
async fn an_agent_that_closes_its_output_and_lives_on_is_killed() {
    let mut peer = Peer::with_session(Limits::default()).await;
    let answer = peer.set_mode(Mode::Auto);
    peer.update("last words").await;
    peer.stdout.shutdown().await.unwrap();
    assert_eq!(peer.text().await, "last words");
    assert_eq!(answer.await.unwrap().unwrap_err().class, TurnErrorClass::AgentUnresponsive);
    assert_eq!(peer.kills(), 1);
    peer.ended("the agent closed its pipes and did not exit", TurnErrorClass::AgentUnresponsive).await;
}

#[tokio::test]
async fn an_agent_that_closes_its_input_and_lives_on_is_killed() {
    let mut peer = Peer::with_session(Limits::default()).await;
    let (other, _) = tokio::io::duplex(1);
    peer.stdin = BufReader::new(other).lines();
    let answer = peer.set_mode(Mode::Auto);
    assert_eq!(answer.await.unwrap().unwrap_err().class, TurnErrorClass::AgentUnresponsive);
    assert_eq!(peer.kills(), 1);
    peer.ended("the agent closed its pipes and did not exit", TurnErrorClass::AgentUnresponsive).await;
}

#[tokio::test]
async fn closing_the_input_comes_after_what_is_queued() {
    let mut peer = Peer::with_session(Limits::default()).await;
    for _ in 0..3 {
        peer.connection.send(AgentCommand::Cancel).unwrap();
    }
    peer.connection.close_stdin();
    assert_eq!(peer.connection.send(AgentCommand::Cancel), Err(AgentGone));
    for _ in 0..3 {
        assert_eq!(peer.sent().await["method"], "session/cancel");
    }
    assert_eq!(peer.stdin.next_line().await.unwrap(), None);
    peer.stdout.shutdown().await.unwrap();
    peer.exits("exit code 0");
    assert_eq!(peer.kills(), 0);
    peer.ended("exit code 0", TurnErrorClass::AgentExited).await;
}

#[tokio::test]
async fn nobody_needs_to_listen() {
    let mut peer = Peer::with_session(Limits::default()).await;
    peer.events.close();
    let answer = peer.set_mode(Mode::Auto);
    let request = peer.sent().await;
    peer.update("to nobody").await;
    peer.say(&json!({"id": request["id"], "result": null})).await;
    assert_eq!(answer.await.unwrap(), Ok(()));
    peer.exits("exit code 0");
    peer.tasks.finished().await;
}

fn impatient() -> Limits {
    let at_once = Duration::from_millis(20);
    Limits { request_timeout: at_once, start_timeout: at_once, ..Limits::default() }
}

#[tokio::test]
async fn an_agent_that_does_not_answer_a_request_is_given_up() {
    let peer = Peer::open(impatient());
    let failure = peer.connection.new_session(Path::new("/ws"), &[]).await.unwrap_err();
    let message = "the agent did not answer session/new within 20ms";
    assert_eq!((failure.class, failure.message.as_str()), (TurnErrorClass::AgentUnresponsive, message));
    assert_eq!(peer.kills(), 1);
    peer.ended(message, TurnErrorClass::AgentUnresponsive).await;

    let mut peer = Peer::with_session(impatient()).await;
    let answer = peer.set_mode(Mode::Auto);
    let request = peer.sent().await;
    let failure = answer.await.unwrap().unwrap_err();
    assert_eq!(failure.class, TurnErrorClass::AgentUnresponsive);
    // Its end is already decided.
    let _ =
        peer.stdout.write_all(format!("{}\n", json!({"id": request["id"], "result": {}})).as_bytes()).await;
    peer.ended("the agent did not answer session/set_mode within 20ms", TurnErrorClass::AgentUnresponsive)
        .await;
}

#[tokio::test]
async fn an_answer_that_gander_has_not_read_yet_is_not_late() {
    let mut peer = Peer::open_with(impatient(), 1 << 16, 2);
    peer.start_session().await;
    // More than waits for the core: the reader is held back, and the answer stands behind it.
    for _ in 0..200 {
        peer.update("flood").await;
        tokio::task::yield_now().await;
    }
    let mut answer = peer.set_mode(Mode::Auto);
    let request = peer.sent().await;
    peer.say(&json!({"id": request["id"], "result": {}})).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let answered = loop {
        tokio::select! {
            answered = &mut answer => break answered,
            _ = peer.event() => {}
        }
    };
    assert_eq!(answered.unwrap(), Ok(()));
    assert_eq!(peer.kills(), 0);
}
