//! Answers: to whom they go, and where they stand among the other things an agent says.

use super::*;

#[tokio::test]
async fn answers_out_of_order_reach_their_requests() {
    let mut peer = Peer::with_session(Limits::default()).await;
    let (first, second) = (peer.set_mode(Mode::Chat), peer.set_mode(Mode::Auto));
    let (one, two) = (peer.sent().await, peer.sent().await);
    assert_eq!(one["params"], json!({"sessionId": "s", "modeId": "chat"}));
    // To nothing that is open, of a type that gander does not use, for the second, twice, for the first.
    for (id, error) in [
        (json!(4711), "unknown"),
        (json!(null), "null"),
        (json!(two["id"].to_string()), "text"),
        (two["id"].clone(), "second"),
        (two["id"].clone(), "again"),
        (one["id"].clone(), "first"),
    ] {
        peer.say(&json!({"id": id, "error": {"code": -32602, "message": error}})).await;
    }
    assert_eq!(first.await.unwrap().unwrap_err().message, "first");
    let failure = second.await.unwrap().unwrap_err();
    assert_eq!((failure.message.as_str(), failure.code), ("second", Some(-32602)));
}

#[tokio::test]
async fn an_answer_comes_behind_the_events_before_it() {
    let mut peer = Peer::open_with(Limits::default(), 1 << 16, 1);
    peer.start_session().await;
    let mut answer = peer.set_mode(Mode::Chat);
    let request = peer.sent().await;
    peer.update("fills the queue").await;
    tokio::task::yield_now().await;
    let reply = json!({"id": request["id"], "result": {}});
    peer.write(format!("{}\n{reply}\n", chunk("s", "before the answer")).as_bytes()).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(answer.try_recv().is_err(), "told ahead of an event");
    assert_eq!(peer.text().await, "fills the queue");
    assert_eq!(answer.await.unwrap(), Ok(()));
    assert_eq!(peer.text().await, "before the answer");
}

#[tokio::test]
async fn a_success_that_is_told_stands_at_its_place_among_what_the_agent_says() {
    let mut peer = Peer::with_session(Limits::default()).await;
    let connection = peer.connection.clone();
    let asked = peer.tasks.spawn(async move {
        let told = |answer: &RawValue| AgentEvent::Unknown(serde_json::from_str(answer.get()).unwrap());
        connection.request_told("_own/method", &json!({"sessionId": "s"}), told).await
    });
    let request = peer.sent().await;
    assert_eq!((&request["method"], &request["params"]), (&json!("_own/method"), &json!({"sessionId": "s"})));
    // In one write, so that they come as one batch.
    let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"taken": true}});
    let lines = format!("{}\n{answer}\n{}\n", chunk("s", "before"), chunk("s", "behind"));
    peer.write(lines.as_bytes()).await;
    assert_eq!(peer.text().await, "before");
    assert_eq!(peer.event().await, Some(AgentEvent::Unknown(json!({"taken": true}))));
    assert_eq!(peer.text().await, "behind");
    asked.await.unwrap().unwrap();

    // A refusal is told to whoever asked, and to nobody else.
    let connection = peer.connection.clone();
    let asked = peer.tasks.spawn(async move {
        let told = |_: &RawValue| unreachable!("it is refused");
        connection.request_told("_own/method", &json!({}), told).await
    });
    let id = peer.sent().await["id"].clone();
    peer.say(&json!({"id": id, "error": {"code": -32601, "message": "Method not found"}})).await;
    assert_eq!(asked.await.unwrap().unwrap_err().code, Some(-32601));
    peer.exits("exit code 0");
    peer.ended("exit code 0", TurnErrorClass::AgentExited).await;
}
