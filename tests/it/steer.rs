//! Words put into a running turn, on the real goose.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    Event, EventStream, Session, Setup, answer, assert_at_rest, kinds, of_turn, only, refusal, script,
    signal, text, until_async,
};

/// A prompt whose model calls the shell and then says that it is done.
fn runs(command: &str) -> String {
    script(&json!([[{"call": {"tool": "shell", "input": {"command": command}}}], [{"text": "Done."}]]))
}

fn steering(session: &Session<'_>, turn: &Value, prompt: &Value) -> RequestBuilder {
    let path = session.path(&format!("/turns/{}/steer", text(&turn["id"])));
    session.gander.request(Method::POST, &path).json(&json!({"prompt": prompt}))
}

/// Begins a turn that waits for a permission; gives both.
async fn waiting(session: &Session<'_>, events: &mut EventStream) -> (Value, Value) {
    let turn = session.prompt(&runs("true")).await;
    let asked = events.until("permission.requested").await;
    (turn, asked.data["permission"].clone())
}

/// The last messages of the model's last call, those of the user only.
fn heard(session: &Session<'_>) -> String {
    let call = session.gander.model.requests().pop().unwrap();
    let messages = call["messages"].as_array().unwrap();
    let users = messages.iter().filter(|message| message["role"] == "user");
    users.map(|message| message["content"].to_string()).collect()
}

#[tokio::test]
async fn what_is_put_into_a_turn_reaches_the_model_in_that_turn() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events_with("?after=latest").await;
    // At once: goose may not even have begun.
    let turn = session.prompt(&runs("true")).await;
    let steered =
        answer(steering(&session, &turn, &json!("Take the other way.")), StatusCode::ACCEPTED).await;
    assert_eq!((&steered["id"], &steered["state"]), (&turn["id"], &json!("running")));
    let asked = events.until("permission.requested").await.data["permission"].clone();
    // While a permission is asked; with blocks; the same key twice.
    let blocks = json!([{"type": "text", "text": "Both of"}, {"type": "text", "text": "them."}]);
    for _ in 0..2 {
        let again = steering(&session, &turn, &blocks).header("idempotency-key", "once");
        answer(again, StatusCode::ACCEPTED).await;
    }
    assert_eq!(session.now().await["state"], "awaiting_permission");
    session.answer(&asked, "allow").await;
    events.until("turn.completed").await;

    let words = heard(&session);
    assert_eq!(words.matches("Take the other way.").count(), 1, "{words}");
    assert_eq!(words.matches("Both of").count(), 1, "{words}");
    let log = session.log().await;
    let told = of_turn(&log, &turn);
    let story = kinds(&told);
    let of_steers: Vec<&Event> = told.iter().filter(|event| event.kind() == "turn.steered").collect();
    assert_eq!(of_steers.len(), 2);
    for (steer, prompt) in of_steers.iter().zip([json!("Take the other way."), blocks]) {
        let data = &steer.data;
        assert_eq!((&data["prompt"], &data["by"]), (&prompt, &json!("default")));
        assert_eq!((&data["turn"]["id"], &data["turn"]["prompt"]), (&turn["id"], &Value::Null));
        let used = told
            .iter()
            .find(|event| event.kind() == "message.user" && event.data["message_id"] == data["message_id"]);
        let used = used.unwrap_or_else(|| panic!("{data} is not used: {story:?}"));
        assert!(used.data["id"].as_u64() > data["id"].as_u64());
        assert!(used.data["id"].as_u64() > only(&told, "tool_call.finished").data["id"].as_u64());
    }
    let end = told.last().unwrap();
    assert_eq!((end.kind(), &end.data["turn"]["text"]), ("turn.completed", &json!("Done.")));
    assert!(!story.contains(&"notice"), "{story:?}");
    // The conversation has them where goose used them.
    let messages = gander.get(&session.path("/messages")).await;
    let said: Vec<String> =
        messages["messages"].as_array().unwrap().iter().map(|message| text(&message["text"])).collect();
    assert_eq!(said[1], "Take the other way.", "{said:?}");
    assert_eq!(said.last().unwrap(), "Done.");
    assert_at_rest(&gander).await;
    gander.stop().await;
}

#[tokio::test]
async fn words_that_goose_did_not_get_to_use_are_told_of() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({})).await;
    let mut events = session.events_with("?after=latest").await;
    let first = script(&json!([[{"text": "The answer"}, "hang"]]));
    let turn = session.prompt(&first).await;
    events.until("message.delta").await;
    answer(steering(&session, &turn, &json!("And then?")), StatusCode::ACCEPTED).await;
    // The model never ends its answer, so goose never uses them: that is told before the turn's end.
    session.cancel(&turn).await;
    let told = of_turn(&events.through("turn.cancelled").await, &turn);
    let notice = &only(&told, "notice").data;
    assert_eq!((&notice["code"], &notice["level"]), (&json!("steer-unused"), &json!("warning")));
    assert_eq!(kinds(&told)[..1], ["turn.steered"]);
    let next = session.turn(&script(&json!([[{"text": "Next."}]]))).await;
    assert_eq!(next["text"], "Next.");
    assert!(!heard(&session).contains("And then?"), "they are not for another turn");
    gander.stop().await;
}

#[tokio::test]
async fn words_that_die_with_goose_are_told_of() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events_with("?after=latest").await;
    let (turn, _) = waiting(&session, &mut events).await;
    answer(steering(&session, &turn, &json!("And then?")), StatusCode::ACCEPTED).await;
    let pid = session.now().await["agent"]["pid"].as_u64().unwrap();
    signal(u32::try_from(pid).unwrap(), "KILL");
    let told = of_turn(&events.through("turn.interrupted").await, &turn);
    assert!(told.iter().any(|event| event.data["code"] == "steer-unused"), "{:?}", kinds(&told));
    gander.stop().await;
}

#[tokio::test]
async fn what_does_not_run_or_makes_no_sense_is_refused() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events_with("?after=latest").await;
    let (turn, permission) = waiting(&session, &mut events).await;
    let request = gander.request(Method::POST, &session.path("/turns"));
    let queued =
        request.json(&json!({"prompt": script(&json!([[{"text": "later"}]])), "when_busy": "queue"}));
    let queued = answer(queued, StatusCode::ACCEPTED).await;
    refusal(steering(&session, &queued, &json!("x")), 409, "turn-not-running").await;
    let unknown = json!({"id": "01890a5d-ac96-774b-bcce-b302099a8057"});
    refusal(steering(&session, &unknown, &json!("x")), 404, "turn-not-found").await;
    for (prompt, pointer) in [
        (json!(" "), "/prompt"),
        (json!([{"type": "resource_link", "uri": "file:///etc/hostname", "name": "x"}]), "/prompt/0/uri"),
    ] {
        let problem = refusal(steering(&session, &turn, &prompt), 422, "invalid-request").await;
        assert_eq!(problem["errors"][0]["pointer"], pointer);
    }
    session.answer(&permission, "reject").await;
    events.until("turn.completed").await;
    refusal(steering(&session, &turn, &json!("too late")), 409, "turn-not-running").await;
    let end = session.path(&format!("/turns/{}", text(&queued["id"])));
    until_async("the queued turn ends", || async { gander.get(&end).await["state"] == "completed" }).await;
    let log = session.log().await;
    assert!(!kinds(&log).contains(&"turn.steered"));
    gander.stop().await;
}

#[tokio::test]
async fn an_agent_that_cannot_says_so() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({})).await;
    let mut events = session.events_with("?after=latest").await;
    let turn = session.prompt("echo hello\nwait").await;
    events.until("message.delta").await;
    refusal(steering(&session, &turn, &json!("x")), 422, "not-in-this-transport").await;
    session.cancel(&turn).await;
    events.until("turn.cancelled").await;
    gander.stop().await;
}
