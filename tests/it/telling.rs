//! What goose tells besides its messages, on the real one: its slash commands, what it does with a long conversation, and
//! what all of that uses.

use serde_json::{Value, json};

use crate::support::{Event, Session, Setup, assert_at_rest, carried, kinds, of_turn, only, script, text};

/// A prompt that makes the model say `said`, in a call that uses so much.
fn says(said: &str, input: u64, output: u64) -> String {
    script(&json!([[{"text": said}, {"usage": {"input": input, "output": output}}]]))
}

fn of_code<'a>(events: &'a [Event], code: &str) -> Vec<&'a Event> {
    events.iter().filter(|event| event.kind() == "notice" && event.data["code"] == code).collect()
}

fn total(usage: &Value) -> u64 {
    usage["total_tokens"].as_u64().unwrap_or_else(|| panic!("{usage}"))
}

/// Takes a turn; gives it, its events, and by how much the session's usage has grown.
async fn turn(session: &Session<'_>, prompt: &str) -> (Value, Vec<Event>, u64) {
    let before = session.now().await["usage"]["total_tokens"].as_u64().unwrap_or_default();
    let turn = session.turn(prompt).await;
    let events = of_turn(&session.log().await, &turn);
    (turn, events, total(&session.now().await["usage"]) - before)
}

#[tokio::test]
async fn slash_commands_are_listed_and_work() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({})).await;
    let mut events = session.events().await;
    let listed = events.until("commands.updated").await.data["commands"].clone();
    for name in ["status", "compact", "clear", "skills"] {
        let command = listed.as_array().unwrap().iter().find(|command| command["name"] == name);
        assert!(command.is_some_and(|command| !text(&command["description"]).is_empty()), "{name}: {listed}");
    }
    assert_eq!(session.now().await["commands"], listed);
    session.turn(&format!("Of the brown horse.\n{}", says("It is an animal.", 100, 10))).await;

    let (status, told, used) = turn(&session, "/status").await;
    assert_eq!(status["state"], "completed");
    assert!(text(&status["text"]).contains("Session status"), "{status}");
    assert_eq!(carried(&told, "message.user", "text"), ["/status"]);
    assert_eq!((&status["usage"], used), (&Value::Null, 0), "the model is not asked");

    let (compacted, told, used) = turn(&session, "/compact").await;
    assert_eq!(
        (&compacted["state"], &compacted["text"]),
        (&json!("completed"), &json!("Compaction complete"))
    );
    let [notice] = of_code(&told, "compaction")[..] else { panic!("{:?}", kinds(&told)) };
    assert_eq!(
        (&notice.data["level"], &notice.data["message"]),
        (&json!("info"), &json!("Compaction complete"))
    );
    assert!(used > 0, "a summary takes the model");
    assert_eq!(total(&compacted["usage"]), used);

    let heard = |gander: &crate::support::Gander| {
        json!(gander.model.requests().pop().unwrap()["messages"]).to_string()
    };
    session.turn(&says("And a cart is a thing.", 10, 5)).await;
    assert!(heard(&gander).contains("brown horse"), "goose goes on from the summary");
    let (cleared, ..) = turn(&session, "/clear").await;
    assert_eq!((&cleared["state"], &cleared["text"]), (&json!("completed"), &json!("Conversation cleared")));
    session.turn(&says("Who am I?", 10, 5)).await;
    assert!(!heard(&gander).contains("horse"), "nothing of before is left");
    assert_at_rest(&gander).await;
    gander.stop().await;
}

#[tokio::test]
async fn a_conversation_that_grows_too_long_is_summed_up_and_that_is_told_and_counted() {
    let gander = Setup::real().start().await;
    let env = json!({"GOOSE_AUTO_COMPACT_THRESHOLD": "0.5", "GOOSE_CONTEXT_LIMIT": "1000"});
    let session = gander.session(&json!({"env": env})).await;
    let (first, told, used) = turn(&session, &says("Long.", 900, 10)).await;
    assert_eq!((total(&first["usage"]), used), (910, 910));
    assert!(of_code(&told, "compaction").is_empty());
    let calls = gander.model.requests().len();
    let (second, told, used) = turn(&session, &says("Short.", 7, 3)).await;
    assert_eq!((&second["state"], &second["text"]), (&json!("completed"), &json!("Short.")));
    assert_eq!(gander.model.requests().len() - calls, 2, "one call for the summary, one for the answer");
    let notices: Vec<String> =
        of_code(&told, "compaction").into_iter().map(|event| text(&event.data["message"])).collect();
    assert!(notices[0].contains("auto-compact"), "{notices:?}");
    assert_eq!(notices.last().unwrap(), "Compaction complete");
    assert!(used > 10, "with the summary's call: {used}");
    assert_eq!(total(&second["usage"]), used);
    for field in ["input_tokens", "output_tokens"] {
        let sum = first["usage"][field].as_u64().unwrap() + second["usage"][field].as_u64().unwrap();
        assert_eq!(session.now().await["usage"][field], sum, "{field}");
    }
    gander.stop().await;
}

#[tokio::test]
async fn costs_are_added_up_like_tokens() {
    let gander = Setup::real().start().await;
    // One whose price goose knows.
    let session = gander.session(&json!({"mode": "auto", "model": "gpt-4o"})).await;
    let replies = json!([
        [{"call": {"tool": "tree", "input": {"path": "."}}}, {"usage": {"input": 10_000, "output": 200}}],
        [{"text": "Done."}, {"usage": {"input": 20_000, "output": 400}}],
    ]);
    let first = session.turn(&script(&replies)).await;
    let second = session.turn(&says("Again.", 10_000, 200)).await;
    let amount = |usage: &Value| usage["cost"]["amount"].as_f64().unwrap_or_else(|| panic!("{usage}"));
    let session_cost = session.now().await["usage"].clone();
    let (one, two) = (amount(&first["usage"]), amount(&second["usage"]));
    assert!(two > 0.0);
    assert!((one - 3.0 * two).abs() < 1e-9, "three times as much: {one}, {two}");
    assert!((amount(&session_cost) - one - two).abs() < 1e-9, "{session_cost}");
    assert_eq!(first["usage"]["cost"]["currency"], "USD");
    gander.stop().await;
}

#[tokio::test]
async fn a_flood_of_notices_is_cut_off_and_counted() {
    let gander = Setup::fake().config("[limits]\nturn_notices = 7").start().await;
    let session = gander.session(&json!({})).await;
    let status = |number: usize| {
        let status = json!({"type": "progress", "message": format!("at {number}")});
        let params = json!({"update": {"sessionUpdate": "status_message", "status": status}});
        format!(
            "raw {}",
            json!({"jsonrpc": "2.0", "method": "_goose/unstable/session/update", "params": params})
        )
    };
    let flood: Vec<String> = (0..1000).map(status).collect();
    let turn = session.turn(&flood.join("\n")).await;
    assert_eq!(turn["state"], "completed");
    let told = of_turn(&session.log().await, &turn);
    let notices = carried(&told, "notice", "message");
    assert_eq!(notices.len(), 8);
    assert_eq!(notices[6], "at 6");
    assert_eq!(notices[7], "993 more notices of the agent were left out (limits.turn_notices)");
    assert_eq!(told[told.len() - 2].data["code"], "notices-left-out");
    assert_eq!(only(&told, "turn.completed").data["turn"]["id"], turn["id"]);
    gander.stop().await;
}
