//! Turns that wait for those before them, on the real goose.

use std::sync::Arc;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    EventStream, Gander, Session, Setup, answer, assert_at_rest, carried, kinds, of_turn, only, refusal,
    script, signal, text, until_async,
};

/// A prompt whose model answers with one text.
fn says(words: &str) -> String {
    script(&json!([[{"text": words}]]))
}

/// A prompt whose model says a word and then nothing more.
fn hangs() -> String {
    script(&json!([[{"text": "working"}, "hang"]]))
}

/// A prompt that is to wait when it has to.
fn queueing(session: &Session<'_>, prompt: &str) -> RequestBuilder {
    let request = session.gander.request(Method::POST, &session.path("/turns"));
    request.json(&json!({"prompt": prompt, "when_busy": "queue"}))
}

async fn queue(session: &Session<'_>, prompt: &str) -> Value {
    let turn = answer(queueing(session, prompt), StatusCode::ACCEPTED).await;
    assert_eq!(turn["state"], "queued", "{turn}");
    turn
}

/// Begins a turn that hangs; gives it when it does.
async fn occupy(session: &Session<'_>) -> Value {
    let mut events = session.events_with("?after=latest").await;
    let turn = session.prompt(&hangs()).await;
    events.until("message.delta").await;
    turn
}

async fn until_ended(session: &Session<'_>, turn: &Value) -> Value {
    let path = session.path(&format!("/turns/{}", text(&turn["id"])));
    until_async("the turn ends", || async { session.gander.get(&path).await["ended_at"] != Value::Null })
        .await;
    session.gander.get(&path).await
}

fn ids(turns: &Value) -> Vec<String> {
    turns.as_array().unwrap().iter().map(|turn| text(&turn["id"])).collect()
}

/// The turns that began, in order.
async fn started(session: &Session<'_>) -> Vec<String> {
    let log = session.log().await;
    carried(&log, "turn.started", "turn").into_iter().map(|turn| text(&turn["id"])).collect()
}

#[tokio::test]
async fn queued_turns_run_in_order_but_for_one_that_is_cancelled() {
    let gander = Setup::real().config("[limits]\nqueued_turns = 3").start().await;
    let session = gander.session(&json!({})).await;
    let first = occupy(&session).await;

    let second = queue(&session, &says("two")).await;
    let third = queue(&session, &says("three")).await;
    let mut fourth = EventStream::open(queueing(&session, &says("four"))).await;
    let told = fourth.until("turn.queued").await.data;
    assert_eq!((&told["turn"]["prompt"], &told["by"]), (&json!(says("four")), &json!("default")));
    assert_eq!(told["id"], told["turn"]["first_event_id"]);
    assert_eq!(told["turn"]["started_at"], Value::Null);
    let fourth_id = text(&told["turn_id"]);

    // Over the limit nothing is queued, and whoever does not want to wait is told what runs.
    let problem = refusal(queueing(&session, "And?"), 503, "at-capacity").await;
    assert!(problem["retry_after_s"].is_u64(), "{problem}");
    let plain = gander.request(Method::POST, &session.path("/turns")).json(&json!({"prompt": "And?"}));
    assert_eq!(refusal(plain, 409, "turn-in-progress").await["turn_id"], first["id"]);

    // Lists and the snapshot have them.
    let listed = gander.get(&session.path("/turns")).await;
    assert_eq!(ids(&listed["turns"])[..2], [fourth_id.clone(), text(&third["id"])], "newest first");
    assert_eq!(listed["turns"][1], third);
    let now = session.now().await;
    assert_eq!(now["current_turn"]["id"], first["id"]);
    assert_eq!(ids(&now["queued_turns"]), [text(&second["id"]), text(&third["id"]), fourth_id.clone()]);
    assert_eq!(now["queued_turns"][0]["prompt"], Value::Null);

    let cancelled = session.cancel(&third).await;
    assert_eq!((&cancelled["state"], &cancelled["started_at"]), (&json!("cancelled"), &Value::Null));
    let again = session.path(&format!("/turns/{}/cancel", text(&third["id"])));
    refusal(gander.request(Method::POST, &again), 409, "turn-not-running").await;
    let waited = tokio::join!(
        answer(queueing(&session, &says("five")).header("prefer", "wait=30"), StatusCode::OK),
        async {
            until_async("it is queued", || async { ids(&session.now().await["queued_turns"]).len() == 3 })
                .await;
            session.cancel(&first).await;
        }
    );
    let fifth = waited.0;
    assert_eq!((&fifth["state"], &fifth["text"]), (&json!("completed"), &json!("five")));

    let told = fourth.rest().await;
    assert!(told.iter().all(|event| event.data["turn_id"] == fourth_id.as_str()), "of this turn alone");
    assert_eq!(told[0].kind(), "turn.started");
    assert_eq!((&told[0].data["turn"]["prompt"], &told[0].data["by"]), (&Value::Null, &Value::Null));
    assert_eq!(told.last().unwrap().data["turn"]["text"], "four");

    let order = [text(&first["id"]), text(&second["id"]), fourth_id, text(&fifth["id"])];
    assert_eq!(started(&session).await, order);
    let ended = gander.get(&session.path(&format!("/turns/{}", order[1]))).await;
    assert_eq!((&ended["text"], &ended["prompt"]), (&json!("two"), &json!(says("two"))));
    let log = session.log().await;
    let of_third = of_turn(&log, &third);
    assert_eq!(kinds(&of_third), ["turn.queued", "turn.cancelled"]);
    let (second_end, fifth_end) = (&ended["last_event_id"], &fifth["last_event_id"]);
    let between = log.iter().filter(|event| {
        event.kind() == "session.state"
            && event.data["id"].as_u64() > second_end.as_u64()
            && event.data["id"].as_u64() < fifth_end.as_u64()
    });
    assert_eq!(between.count(), 0, "never idle in between");
    let story = gander.get(&session.path("/messages")).await;
    let words: Vec<String> =
        story["messages"].as_array().unwrap().iter().map(|message| text(&message["text"])).collect();
    let expected =
        [hangs(), "working".into(), says("two"), "two".into(), says("four"), "four".into(), says("five")];
    assert_eq!(words[..7], expected, "each prompt where goose got it");
    until_async("rest", || async { session.now().await["state"] == "idle" }).await;
    gander.stop().await;
}

#[tokio::test]
async fn the_same_key_queues_once() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({})).await;
    let first = occupy(&session).await;
    let keyed = || queueing(&session, &says("once")).header("idempotency-key", "k1");
    let turn = answer(keyed(), StatusCode::ACCEPTED).await;
    assert_eq!(answer(keyed(), StatusCode::ACCEPTED).await, turn);
    assert_eq!(ids(&session.now().await["queued_turns"]), [text(&turn["id"])]);
    session.cancel(&first).await;
    assert_eq!(until_ended(&session, &turn).await["text"], "once");
    let wrong = gander.request(Method::POST, &session.path("/turns"));
    let wrong = wrong.json(&json!({"prompt": "x", "when_busy": "wait"}));
    let problem = refusal(wrong, 422, "invalid-request").await;
    assert_eq!(problem["errors"][0]["pointer"], "/when_busy", "{problem}");
    gander.stop().await;
}

#[tokio::test]
async fn where_nothing_runs_queueing_is_beginning() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({})).await;
    let turn = answer(queueing(&session, &says("at once")), StatusCode::ACCEPTED).await;
    assert_eq!(turn["state"], "running");
    until_ended(&session, &turn).await;
    assert_eq!(kinds(&of_turn(&session.log().await, &turn))[0], "turn.started");
    // A session that is being made takes turns, too.
    let request = gander.request(Method::POST, "/v1/sessions").header("prefer", "respond-async");
    let made = answer(request, StatusCode::ACCEPTED).await;
    let session = Session { gander: &gander, id: text(&made["id"]), snapshot: made };
    let turn = answer(queueing(&session, &says("soon")), StatusCode::ACCEPTED).await;
    assert_eq!(until_ended(&session, &turn).await["text"], "soon");
    gander.stop().await;
}

#[tokio::test]
async fn what_is_queued_outlives_goose() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({})).await;
    session.turn(&says("the word is heron")).await;
    let first = occupy(&session).await;
    let second = queue(&session, &says("two")).await;
    let third = queue(&session, &says("three")).await;
    let pid = session.now().await["agent"]["pid"].as_u64().unwrap();
    signal(u32::try_from(pid).unwrap(), "KILL");
    assert_eq!(until_ended(&session, &third).await["text"], "three");
    assert_eq!(until_ended(&session, &second).await["text"], "two");
    assert_eq!(until_ended(&session, &first).await["state"], "interrupted");
    assert_eq!(session.now().await["agent"]["generation"], 2, "one goose for both");
    let last = gander.model.requests().pop().unwrap().to_string();
    assert!(last.contains("the word is heron"), "{last}");
    assert_at_rest(&gander).await;
    gander.stop().await;
}

/// Occupies a session and queues two turns; ends gander with `end`, starts it again, and waits for the turns.
async fn over_a_restart(setup: impl Fn() -> Setup, end: impl AsyncFnOnce(Gander)) {
    let gander = setup().start().await;
    let session = gander.session(&json!({})).await;
    session.turn(&says("the word is heron")).await;
    let first = occupy(&session).await;
    let second = queue(&session, &says("two")).await;
    let third = queue(&session, &says("three")).await;
    let (dir, id) = (Arc::clone(&gander.dir), session.id.clone());
    end(gander).await;

    let gander = setup().dir(dir).start().await;
    let session = Session { gander: &gander, snapshot: Value::Null, id };
    assert_eq!(until_ended(&session, &third).await["text"], "three", "without anybody asking");
    assert_eq!(until_ended(&session, &second).await["prompt"], second["prompt"]);
    assert_eq!(until_ended(&session, &first).await["state"], "interrupted");
    assert_eq!(started(&session).await[1..], [&first, &second, &third].map(|turn| text(&turn["id"])));
    let last = gander.model.requests().pop().unwrap().to_string();
    assert!(last.contains("the word is heron"), "{last}");
    until_async("rest", || async { session.now().await["state"] == "idle" }).await;
    assert_at_rest(&gander).await;
    gander.stop().await;
}

#[tokio::test]
async fn what_is_queued_outlives_a_crash_of_gander() {
    over_a_restart(Setup::real, async |mut gander| {
        gander.signal("KILL");
        gander.ended().await;
    })
    .await;
}

#[tokio::test]
async fn what_is_queued_waits_for_the_next_start_when_gander_is_stopped() {
    let setup = || Setup::real().config("[server]\nshutdown_grace = \"100ms\"");
    over_a_restart(setup, async |gander| {
        gander.stop().await;
    })
    .await;
}

#[tokio::test]
async fn what_is_queued_waits_for_a_place() {
    let gander = Setup::real().config("[sessions]\nmax_running = 1").start().await;
    let sleeping = gander.session(&json!({})).await;
    let working = gander.session(&json!({})).await;
    let first = occupy(&working).await;
    let turn = queue(&sleeping, &says("at last")).await;
    assert_eq!(sleeping.now().await["state"], "hibernated");
    let plain = gander.request(Method::POST, &sleeping.path("/turns")).json(&json!({"prompt": "me first"}));
    assert_eq!(refusal(plain, 409, "turn-in-progress").await["turn_id"], turn["id"]);
    // The place is free when its holder has nothing to do any more.
    working.cancel(&first).await;
    assert_eq!(until_ended(&sleeping, &turn).await["text"], "at last");
    assert_eq!(working.now().await["state"], "hibernated");
    // Or is gone.
    let first = occupy(&working).await;
    let turn = queue(&sleeping, &says("once more")).await;
    working.delete().await;
    assert_eq!(until_ended(&sleeping, &turn).await["text"], "once more");
    assert_eq!(first["state"], "running");
    gander.stop().await;
}

#[tokio::test]
async fn a_deletion_closes_what_is_queued() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({})).await;
    let first = occupy(&session).await;
    let second = queue(&session, &says("never")).await;
    let mut stream = session.events_with(&format!("?after={}", second["first_event_id"])).await;
    session.delete().await;
    let told = stream.rest().await;
    let ends: Vec<&Value> = carried(&told, "turn.cancelled", "turn").into_iter().collect();
    assert_eq!(ends.len(), 2);
    assert_eq!([&ends[0]["id"], &ends[1]["id"]], [&first["id"], &second["id"]]);
    only(&told, "session.deleted");
    gander.stop().await;
}
