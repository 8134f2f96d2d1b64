//! Tool calls and what goose asks before them, on the real goose.

mod cancel;
mod grants;
mod lasting;
mod policy;
mod unseen;

use std::path::Path;

use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    Event, EventStream, Session, Setup, carried, kinds, of_turn, only, refusal, script, text,
};

/// Replies: one shell call, then a text.
fn shell(command: &str) -> String {
    script(&json!([
        [{"text": "I do it."}, {"call": {"tool": "shell", "input": {"command": command}}}],
        [{"text": "That was it."}],
    ]))
}

/// Begins a turn and reads on until goose asks; gives the permission too.
async fn until_asked(session: &Session<'_>, events: &mut EventStream, prompt: &str) -> (Value, Value) {
    let turn = session.prompt(prompt).await;
    let asked = events.until("permission.requested").await;
    (turn, asked.data["permission"].clone())
}

/// A turn's types of events without its states.
fn story(events: &[Event], turn: &Value) -> Vec<String> {
    let told = of_turn(events, turn);
    kinds(&told).into_iter().filter(|kind| *kind != "session.state").map(str::to_owned).collect()
}

fn answer_path(session: &Session<'_>, permission: &Value) -> String {
    session.path(&format!("/permissions/{}", text(&permission["id"])))
}

#[tokio::test]
async fn in_approve_nothing_runs_before_the_answer() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let cwd = text(&session.snapshot["cwd"]);
    let made = Path::new(&cwd).join("made");
    let mut events = session.events_with("?after=latest").await;
    // goose tells no output live of a command that ends at once, so this one ends when it is told to.
    let command = "echo first; until [ -e told ]; do sleep 0.01; done; touch made";
    let (turn, permission) = until_asked(&session, &mut events, &shell(command)).await;

    assert_eq!(permission["state"], "pending");
    assert_eq!((&permission["session_id"], &permission["turn_id"]), (&json!(session.id), &turn["id"]));
    assert_eq!(permission["kind"], "tool");
    let call = &permission["tool_call"];
    assert_eq!((&call["tool"], &call["extension"]), (&json!("shell"), &json!("developer")));
    assert_eq!((&call["input"]["command"], &call["cwd"]), (&json!(command), &json!(cwd)));
    let options = permission["options"].as_array().unwrap();
    let kinds_offered: Vec<&Value> = options.iter().map(|option| &option["kind"]).collect();
    assert_eq!(kinds_offered, ["allow_always", "allow_once", "reject_once", "reject_always"]);
    assert!(options.iter().all(|option| option["id"].is_string() && option["name"].is_string()));
    assert!(text(&permission["requested_at"]) < text(&permission["expires_at"]));
    assert_eq!(permission["outcome"], Value::Null);

    events.until("session.state").await;
    let now = session.now().await;
    assert_eq!(now["state"], "awaiting_permission");
    assert_eq!(now["pending_permissions"], json!([permission]));
    assert_eq!(now["open_tool_calls"][0]["id"], call["id"]);
    assert_eq!(gander.get(&answer_path(&session, &permission)).await, permission);
    assert_eq!(gander.model.requests().len(), 1, "goose waits");
    assert!(!made.exists(), "nothing has run");

    let answered = session.answer(&permission, "allow").await;
    assert_eq!(answered["state"], "resolved");
    let outcome = &answered["outcome"];
    assert_eq!((&outcome["decision"], &outcome["scope"]), (&json!("allow"), &json!("once")));
    assert_eq!((&outcome["by"], &outcome["rule"]), (&json!("caller:default"), &Value::Null));
    events.until("tool_call.output").await;
    std::fs::write(Path::new(&cwd).join("told"), "").unwrap();
    events.until("turn.completed").await;
    assert!(made.exists(), "now it has");

    let log = session.log().await;
    assert_eq!(
        story(&log, &turn),
        [
            "turn.started",
            "message.delta",
            "tool_call.started",
            "permission.requested",
            "permission.resolved",
            "tool_call.updated",
            "tool_call.output",
            "tool_call.finished",
            "message.delta",
            "turn.completed"
        ]
    );
    let started = &only(&log, "tool_call.started").data["tool_call"];
    assert_eq!(
        (&started["id"], &started["tool"], &started["extension"]),
        (&call["id"], &json!("shell"), &json!("developer"))
    );
    assert_eq!(started["input"]["command"], command);
    assert_eq!(only(&log, "permission.resolved").data["permission"], answered);
    let updated = &only(&log, "tool_call.updated").data["tool_call"];
    assert_eq!(*updated, json!({"id": call["id"], "status": "in_progress"}), "only what changed");
    let output = &only(&log, "tool_call.output").data;
    assert_eq!((&output["tool_call_id"], &output["stream"]), (&call["id"], &json!("stdout")));
    assert_eq!(output["text"], "first\n");
    let finished = &only(&log, "tool_call.finished").data["tool_call"];
    assert_eq!((&finished["id"], &finished["status"]), (&call["id"], &json!("completed")));
    assert!(finished.get("input").is_none(), "{finished}");
    assert!(finished["content"].to_string().contains("first"), "{finished}");
    let states: Vec<&Value> = carried(&log, "session.state", "state");
    assert_eq!(states, ["starting", "idle", "running", "awaiting_permission", "running", "idle"]);
    gander.stop().await;
}

#[tokio::test]
async fn a_rejected_call_does_not_run_and_the_turn_goes_on() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events_with("?after=latest").await;
    let (turn, permission) = until_asked(&session, &mut events, &shell("touch made")).await;
    let path = answer_path(&session, &permission);
    for (unknown, field) in [
        (json!({"option_id": "maybe"}), "/option_id"),
        (json!({"decision": "allow", "scope": "week"}), "/scope"),
    ] {
        let problem =
            refusal(gander.request(Method::POST, &path).json(&unknown), 422, "unknown-permission-option")
                .await;
        assert_eq!(problem["errors"][0]["pointer"], field);
    }
    let body = json!({"option_id": "reject_once", "reason": "Not today."});
    let answered = gander.post(&path, &body, StatusCode::OK).await;
    assert_eq!(answered["outcome"]["decision"], "reject");
    assert_eq!(answered["outcome"]["reason"], "Not today.");
    events.through("turn.completed").await;
    let log = session.log().await;
    assert_eq!(only(&log, "tool_call.finished").data["tool_call"]["status"], "rejected");
    let end = &only(&log, "turn.completed").data["turn"];
    assert_eq!(
        (&end["id"], &end["stop_reason"], &end["text"]),
        (&turn["id"], &json!("end_turn"), &json!("That was it."))
    );
    assert!(!Path::new(&text(&session.snapshot["cwd"])).join("made").exists());
}

#[tokio::test]
async fn two_calls_of_one_message_are_asked_one_after_the_other() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let replies = json!([
        [
            {"call": {"tool": "shell", "input": {"command": "touch one"}}},
            {"call": {"tool": "shell", "input": {"command": "touch two"}}},
        ],
        [{"text": "Both."}],
    ]);
    let mut events = session.events_with("?after=latest").await;
    let (_, first) = until_asked(&session, &mut events, &script(&replies)).await;
    assert_eq!(session.now().await["pending_permissions"], json!([first]));
    session.answer(&first, "reject").await;
    let second = events.until("permission.requested").await.data["permission"].clone();
    session.answer(&second, "allow").await;
    events.until("turn.completed").await;

    let log = session.log().await;
    let asked = carried(&log, "permission.requested", "permission");
    let commands: Vec<&Value> =
        asked.iter().map(|permission| &permission["tool_call"]["input"]["command"]).collect();
    assert_eq!(commands, ["touch one", "touch two"]);
    let mut order = kinds(&log);
    order.retain(|kind| kind.starts_with("permission."));
    assert_eq!(
        order,
        ["permission.requested", "permission.resolved", "permission.requested", "permission.resolved"]
    );
    let status_of = |permission: &Value| {
        let calls = carried(&log, "tool_call.finished", "tool_call");
        let mut own = calls.into_iter().filter(|call| call["id"] == permission["tool_call"]["id"]);
        let status = text(&own.next().unwrap()["status"]);
        assert!(own.next().is_none(), "one end each");
        status
    };
    assert_eq!((status_of(&first).as_str(), status_of(&second).as_str()), ("rejected", "completed"));
    let cwd = text(&session.snapshot["cwd"]);
    assert!(!Path::new(&cwd).join("one").exists());
    assert!(Path::new(&cwd).join("two").exists());
}

#[tokio::test]
async fn what_is_asked_depends_on_the_mode() {
    let gander = Setup::real().start().await;

    let auto = gander.session(&json!({"mode": "auto"})).await;
    let turn = auto.turn(&shell("touch made")).await;
    assert_eq!(turn["text"], "That was it.");
    let log = auto.log().await;
    assert!(!kinds(&log).iter().any(|kind| kind.starts_with("permission.")), "{:?}", kinds(&log));
    assert_eq!(only(&log, "tool_call.finished").data["tool_call"]["status"], "completed");
    assert!(Path::new(&text(&auto.snapshot["cwd"])).join("made").exists());
    auto.delete().await;

    let chat = gander.session(&json!({"mode": "chat"})).await;
    let turn = chat.turn(&shell("touch made")).await;
    assert_eq!((&turn["state"], &turn["text"]), (&json!("completed"), &json!("That was it.")));
    let log = chat.log().await;
    assert!(!kinds(&log).iter().any(|kind| kind.starts_with("permission.")), "{:?}", kinds(&log));
    assert_eq!(only(&log, "tool_call.finished").data["tool_call"]["status"], "skipped");
    assert!(!Path::new(&text(&chat.snapshot["cwd"])).join("made").exists());
    chat.delete().await;

    let smart = gander.session(&json!({})).await;
    assert_eq!(smart.snapshot["mode"], "smart_approve", "the default");
    let replies = json!([
        [{"call": {"tool": "tree", "input": {"path": "."}}}],
        [{"call": {"tool": "shell", "input": {"command": "ls"}}}],
        [{"text": "Seen."}],
    ]);
    let mut events = smart.events_with("?after=latest").await;
    let (_, permission) = until_asked(&smart, &mut events, &script(&replies)).await;
    assert_eq!(permission["tool_call"]["tool"], "shell");
    let log = smart.log().await;
    let finished = &only(&log, "tool_call.finished").data["tool_call"];
    assert_eq!((&finished["tool"], &finished["status"]), (&json!("tree"), &json!("completed")), "unasked");
    smart.answer(&permission, "allow").await;
    events.until("turn.completed").await;
    gander.stop().await;
}

#[tokio::test]
async fn a_new_mode_holds_from_the_next_call_on() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    session.patch(&json!({"mode": "approve"})).await;
    let mut events = session.events_with("?after=latest").await;
    let (_, permission) = until_asked(&session, &mut events, &shell("true")).await;
    session.answer(&permission, "allow").await;
    events.until("turn.completed").await;
    session.patch(&json!({"mode": "auto"})).await;
    session.turn(&shell("true")).await;
    let log = session.log().await;
    assert_eq!(carried(&log, "permission.requested", "permission").len(), 1, "asked once only");
}

#[tokio::test]
async fn an_unanswered_permission_expires_and_the_turn_goes_on() {
    let gander = Setup::real().config("[permissions]\ntimeout = \"1s\"").start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let turn = session.turn(&shell("touch made")).await;
    assert_eq!((&turn["stop_reason"], &turn["text"]), (&json!("end_turn"), &json!("That was it.")));
    let log = session.log().await;
    let permission = &only(&log, "permission.resolved").data["permission"];
    assert_eq!(permission["state"], "expired");
    assert_eq!(
        (&permission["outcome"]["by"], &permission["outcome"]["decision"]),
        (&json!("timeout"), &json!("reject"))
    );
    assert!(text(&permission["outcome"]["at"]) >= text(&permission["expires_at"]));
    assert_eq!(only(&log, "tool_call.finished").data["tool_call"]["status"], "rejected");
    assert!(!Path::new(&text(&session.snapshot["cwd"])).join("made").exists());
    let late =
        gander.request(Method::POST, &answer_path(&session, permission)).json(&json!({"decision": "reject"}));
    assert_eq!(refusal(late, 409, "permission-already-resolved").await["permission"], *permission);
}

#[tokio::test]
async fn exactly_one_answer_wins() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events_with("?after=latest").await;
    let (_, permission) = until_asked(&session, &mut events, &shell("echo ran >> runs")).await;
    let path = answer_path(&session, &permission);
    let answers = join_all((0..100).map(|caller| {
        let decision = if caller % 2 == 0 { "allow" } else { "reject" };
        let body = json!({"decision": decision, "reason": format!("caller {caller}")});
        let request = gander.request(Method::POST, &path).json(&body);
        async move {
            let response = request.send().await.unwrap();
            (decision, response.status(), response.json::<Value>().await.unwrap())
        }
    }))
    .await;
    let told = events.through("turn.completed").await;
    let stored = &only(&told, "permission.resolved").data["permission"];
    for (decision, status, body) in answers {
        if stored["outcome"]["decision"] == decision {
            assert_eq!((status, &body), (StatusCode::OK, stored));
        } else {
            assert_eq!(
                (status, &body["code"]),
                (StatusCode::CONFLICT, &json!("permission-already-resolved"))
            );
            assert_eq!(&body["permission"], stored);
        }
    }
    let winner = text(&stored["outcome"]["decision"]);
    let runs = std::fs::read_to_string(Path::new(&text(&session.snapshot["cwd"])).join("runs"));
    assert_eq!(runs.unwrap_or_default(), if winner == "allow" { "ran\n" } else { "" });
    assert_eq!(session.answer(&permission, &winner).await, *stored, "the same again");
}

#[tokio::test]
async fn permissions_are_listed_by_state_and_across_sessions() {
    let gander = Setup::real().start().await;
    let first = gander.session(&json!({"mode": "approve"})).await;
    let second = gander.session(&json!({"mode": "approve"})).await;
    let (mut turns, mut pending) = (Vec::new(), Vec::new());
    for session in [&first, &second] {
        let mut events = session.events_with("?after=latest").await;
        let (turn, permission) = until_asked(session, &mut events, &shell("true")).await;
        turns.push(turn);
        pending.push(permission);
    }
    let all = gander.get("/v1/permissions?state=pending").await;
    assert_eq!(all, json!({"permissions": [pending[1], pending[0]], "next_cursor": null}), "newest first");
    let page = gander.get("/v1/permissions?limit=1").await;
    assert_eq!(page["permissions"], json!([pending[1]]));
    let cursor = text(&page["next_cursor"]);
    let rest = gander.get(&format!("/v1/permissions?limit=1&cursor={cursor}")).await;
    assert_eq!(rest, json!({"permissions": [pending[0]], "next_cursor": null}));

    let resolved = first.answer(&pending[0], "allow").await;
    let none = json!({"permissions": [], "next_cursor": null});
    assert_eq!(gander.get(&first.path("/permissions?state=pending")).await, none);
    assert_eq!(
        gander.get(&first.path("/permissions?state=resolved")).await["permissions"],
        json!([resolved])
    );
    assert_eq!(gander.get(&second.path("/permissions?state=resolved")).await, none);
    assert_eq!(gander.get(&second.path("/permissions")).await["permissions"], json!([pending[1]]));
    assert_eq!(gander.get("/v1/permissions?state=pending").await["permissions"], json!([pending[1]]));
    // A permission of another session is not found in this one.
    let elsewhere = gander.request(Method::GET, &answer_path(&first, &pending[1]));
    refusal(elsewhere, 404, "permission-not-found").await;

    second.cancel(&turns[1]).await;
    second.events().await.until("turn.cancelled").await;
    let cancelled = gander.get("/v1/permissions?state=cancelled").await;
    assert_eq!(cancelled["permissions"][0]["id"], pending[1]["id"]);
    assert_eq!(gander.get("/v1/permissions?state=pending").await, none);
}
