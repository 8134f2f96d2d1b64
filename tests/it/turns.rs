//! Prompt turns on the real goose.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    EventStream, Gander, Session, Setup, answer, carried, kinds, of_turn, only, refusal, script, text,
};

async fn start() -> Gander {
    Setup::real().start().await
}

/// Begins a turn and reads its events.
async fn stream_turn(session: &Session<'_>, prompt: &str) -> EventStream {
    let request = session.gander.request(Method::POST, &session.path("/turns"));
    EventStream::open(request.json(&json!({"prompt": prompt}))).await
}

#[tokio::test]
async fn a_text_turn_is_one_delta_per_chunk_and_one_end() {
    let gander = start().await;
    let session = gander.session(&json!({})).await;
    let mut events = session.events_with("?after=latest").await;
    let reply = json!([[{"text": "Hello"}, {"text": " from"}, {"text": " here."}, {"usage": {"input": 10, "output": 6}}]]);
    let turn = session.turn(&script(&reply)).await;
    assert_eq!(turn["state"], "completed");
    assert_eq!(turn["stop_reason"], "end_turn");
    assert_eq!(turn["error"], Value::Null);
    assert_eq!(turn["text"], "Hello from here.");
    assert_eq!(
        (&turn["usage"]["input_tokens"], &turn["usage"]["output_tokens"], &turn["usage"]["total_tokens"]),
        (&json!(10), &json!(6), &json!(16))
    );
    let told = of_turn(&events.through("turn.completed").await, &turn);
    assert_eq!(
        kinds(&told),
        [
            "turn.started",
            "session.state",
            "message.delta",
            "message.delta",
            "message.delta",
            "turn.completed"
        ]
    );
    assert_eq!(carried(&told, "message.delta", "text"), ["Hello", " from", " here."]);
    let ids = carried(&told, "message.delta", "message_id");
    assert!(ids.iter().all(|id| *id == ids[0]), "one message: {ids:?}");
    assert_eq!(told[0].data["id"], turn["first_event_id"]);
    assert_eq!(told[0].data["turn"]["prompt"], script(&reply), "the prompt is in the first event");
    let end = told.last().unwrap();
    assert_eq!(end.data["id"], turn["last_event_id"]);
    assert_eq!(end.data["turn"]["prompt"], Value::Null, "and not in the last");
    for field in ["id", "state", "text", "stop_reason", "usage", "started_at", "ended_at", "last_event_id"] {
        assert_eq!(end.data["turn"][field], turn[field], "{field}");
    }
    drop(events);
    gander.stop().await;
}

#[tokio::test]
async fn a_turns_usage_is_the_sum_over_its_model_calls() {
    let gander = start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let replies = json!([
        [{"call": {"tool": "tree", "input": {"path": "."}}}, {"usage": {"input": 100, "output": 20}}],
        [{"text": "One more."}, {"call": {"tool": "tree", "input": {"path": "."}}}, {"usage": {"input": 200, "output": 30}}],
        [{"text": "Done."}, {"usage": {"input": 400, "output": 40}}],
    ]);
    let turn = session.turn(&script(&replies)).await;
    assert_eq!(turn["text"], "Done.", "the last message");
    assert_eq!(turn["usage"]["input_tokens"], 700);
    assert_eq!(turn["usage"]["output_tokens"], 90);
    assert_eq!(turn["usage"]["total_tokens"], 790);
    let again =
        session.turn(&script(&json!([[{"text": "Hi."}, {"usage": {"input": 1, "output": 2}}]]))).await;
    assert_eq!(again["usage"]["total_tokens"], 3, "of this turn alone");
    let mut events = session.events().await;
    loop {
        // goose tells the session's sums a moment after the turn.
        let event = events.until("usage.updated").await;
        if event.data["usage"]["total_tokens"] == 793 {
            break;
        }
    }
    assert_eq!(session.now().await["usage"]["input_tokens"], 701);
}

#[tokio::test]
async fn a_turns_stream_ends_by_itself_behind_its_last_event() {
    let gander = start().await;
    let session = gander.session(&json!({})).await;
    session.turn(&script(&json!([[{"text": "Before."}]]))).await;
    let reply = json!([[{"text": "a"}, {"text": "b"}]]);
    let told = stream_turn(&session, &script(&reply)).await.rest().await;
    assert_eq!(told[0].kind(), "turn.started");
    assert_eq!(told.last().unwrap().kind(), "turn.completed");
    assert!(told.iter().all(|event| event.data["turn_id"] == told[0].data["turn_id"]));
    assert_eq!(carried(&told, "message.delta", "text"), ["a", "b"]);
    let mut log = session.log().await;
    log.retain(|event| event.data["turn_id"] == told[0].data["turn_id"]);
    assert_eq!(told, log, "the same ids and bytes as in the session's events");
    let id = text(&told[0].data["turn_id"]);
    assert_eq!(gander.get(&session.path(&format!("/turns/{id}"))).await["state"], "completed");
}

#[tokio::test]
async fn reasoning_becomes_thoughts_and_no_message() {
    let gander = start().await;
    let session = gander.session(&json!({})).await;
    let reply = json!([[{"reasoning": "I think"}, {"reasoning": " so."}, {"text": "Yes."}]]);
    let turn = session.turn(&script(&reply)).await;
    assert_eq!(turn["text"], "Yes.");
    let told = of_turn(&session.log().await, &turn);
    let mut story = kinds(&told);
    story.retain(|kind| ["thought.delta", "message.delta"].contains(kind));
    assert_eq!(story, ["thought.delta", "thought.delta", "message.delta"]);
    let thoughts: Vec<String> = carried(&told, "thought.delta", "text").into_iter().map(text).collect();
    assert_eq!(thoughts.concat(), "I think so.");
    assert_ne!(
        carried(&told, "thought.delta", "message_id")[0],
        carried(&told, "message.delta", "message_id")[0]
    );
    let messages = gander.get(&session.path("/messages")).await;
    assert_eq!(messages["messages"].as_array().unwrap().len(), 2, "{messages}");
}

#[tokio::test]
async fn one_turn_runs_at_a_time_and_callers_wait_for_it_as_long_as_they_like() {
    let gander = start().await;
    let session = gander.session(&json!({})).await;
    let hang = script(&json!([[{"text": "Well"}, "hang"]]));
    let mut events = session.events_with("?after=latest").await;
    let request = gander.request(Method::POST, &session.path("/turns")).header("prefer", "wait=1");
    let response = request.json(&json!({"prompt": hang})).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::ACCEPTED, "not finished in time");
    assert_eq!(response.headers()["preference-applied"], "wait=1");
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let turn: Value = response.json().await.unwrap();
    assert_eq!(turn["state"], "running");
    assert_eq!(location, session.path(&format!("/turns/{}", text(&turn["id"]))));
    assert_eq!(gander.get(&location).await["state"], "running");
    events.until("message.delta").await;

    let second = gander.request(Method::POST, &session.path("/turns")).json(&json!({"prompt": "And?"}));
    let problem = refusal(second, 409, "turn-in-progress").await;
    assert_eq!(problem["turn_id"], turn["id"]);
    let now = session.now().await;
    assert_eq!(now["state"], "running");
    assert_eq!(now["current_turn"]["id"], turn["id"]);

    let cancelled = session.cancel(&turn).await;
    assert_eq!(cancelled["id"], turn["id"]);
    let told = events.through("turn.cancelled").await;
    assert_eq!(told.last().unwrap().data["turn"]["stop_reason"], "cancelled");
    let ended = gander.get(&location).await;
    assert_eq!((&ended["state"], &ended["text"]), (&json!("cancelled"), &json!("Well")));
    let again = gander.request(Method::POST, &format!("{location}/cancel"));
    refusal(again, 409, "turn-not-running").await;

    // goose is at hand for the next one.
    let next = session.turn(&script(&json!([[{"text": "Here."}]]))).await;
    assert_eq!((&next["state"], &next["text"]), (&json!("completed"), &json!("Here.")));
    drop(events);
    gander.stop().await;
}

#[tokio::test]
async fn turns_and_messages_are_listed_page_by_page() {
    let gander = start().await;
    let session = gander.session(&json!({})).await;
    let mut turns = Vec::new();
    for word in ["one", "two", "three"] {
        turns.push(session.turn(&script(&json!([[{"text": word}, {"text": "!"}]]))).await);
    }
    let plain = gander.request(Method::POST, &session.path("/turns"));
    let blocks = json!([{"type": "text", "text": script(&json!([[{"text": "four"}]]))}]);
    let response = plain.json(&json!({"prompt": blocks})).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let began: Value = response.json().await.unwrap();
    assert_eq!(began["state"], "running");
    session.events_with(&format!("?after={}", began["first_event_id"])).await.until("turn.completed").await;
    turns.push(gander.get(&location).await);
    assert_eq!(turns[3]["text"], "four");

    let first = gander.get(&session.path("/turns?limit=3")).await;
    assert_eq!(first["turns"], json!([turns[3], turns[2], turns[1]]), "newest first");
    let cursor = text(&first["next_cursor"]);
    let rest = gander.get(&session.path(&format!("/turns?limit=3&cursor={cursor}"))).await;
    assert_eq!(rest, json!({"turns": [turns[0]], "next_cursor": null}));
    for unknown in ["01890a5d-ac96-774b-bcce-b302099a8057", "1"] {
        refusal(
            gander.request(Method::GET, &session.path(&format!("/turns/{unknown}"))),
            404,
            "turn-not-found",
        )
        .await;
    }

    let mut messages = Vec::new();
    let mut path = session.path("/messages?limit=3");
    loop {
        let page = gander.get(&path).await;
        messages.extend(page["messages"].as_array().unwrap().clone());
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = session.path(&format!("/messages?limit=3&cursor={cursor}"));
    }
    let story: Vec<(String, String)> =
        messages.iter().map(|message| (text(&message["role"]), text(&message["text"]))).collect();
    let mut expected = Vec::new();
    for (turn, words) in turns.iter().zip(["one!", "two!", "three!", "four"]) {
        let prompt = if turn["prompt"].is_string() { &turn["prompt"] } else { &turn["prompt"][0]["text"] };
        expected.push(("user".to_owned(), text(prompt)));
        expected.push(("assistant".to_owned(), words.to_owned()));
    }
    assert_eq!(story, expected, "oldest first, the pieces joined");
    assert_eq!(messages[6]["content"], blocks);
    assert!(
        messages
            .iter()
            .zip([0, 0, 1, 1, 2, 2, 3, 3])
            .all(|(message, at)| message["turn_id"] == turns[at]["id"])
    );
}

#[tokio::test]
async fn a_caller_that_leaves_changes_nothing() {
    let gander = start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let replies = json!([
        [{"text": "I look."}, {"call": {"tool": "tree", "input": {"path": "."}}}],
        [{"text": "Nothing here."}],
    ]);
    let mut events = session.events_with("?after=latest").await;

    let mut stream = stream_turn(&session, &script(&replies)).await;
    let asked = stream.until("permission.requested").await;
    drop(stream);
    session.answer(&asked.data["permission"], "allow").await;
    let told = events.through("turn.completed").await;
    assert_eq!(only(&told, "turn.completed").data["turn"]["text"], "Nothing here.");

    let request = gander.request(Method::POST, &session.path("/turns")).header("prefer", "wait=30");
    let asked = tokio::select! {
        answer = request.json(&json!({"prompt": script(&replies)})).send() => panic!("answered: {answer:?}"),
        asked = events.until("permission.requested") => asked,
    };
    session.answer(&asked.data["permission"], "allow").await;
    let ended = events.until("turn.completed").await;
    assert_eq!(ended.data["turn"]["text"], "Nothing here.");
    assert_eq!(session.now().await["state"], "idle");
    let turn = answer(
        gander.request(Method::GET, &session.path(&format!("/turns/{}", text(&ended.data["turn_id"])))),
        StatusCode::OK,
    );
    assert_eq!(turn.await["state"], "completed");
}
