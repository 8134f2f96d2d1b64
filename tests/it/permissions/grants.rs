//! "Always" within one session, on the real goose.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{answer_path, shell, until_asked};
use crate::support::{EventStream, Session, Setup, carried, only, refusal, text};

/// Asks for a command and gives the question.
async fn asked(session: &Session<'_>, events: &mut EventStream, command: &str) -> Value {
    until_asked(session, events, &shell(command)).await.1
}

async fn reject(session: &Session<'_>, events: &mut EventStream, permission: &Value) {
    session.answer(permission, "reject").await;
    events.until("turn.completed").await;
}

#[tokio::test]
async fn always_is_asked_once_and_can_be_taken_back() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let grants = session.path("/permission-grants");
    assert_eq!(gander.get(&grants).await, json!({"permission_grants": [], "next_cursor": null}));
    let mut events = session.events_with("?after=latest").await;
    let permission = asked(&session, &mut events, "echo one >> log").await;
    let offered: Vec<&str> = permission["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| option["id"].as_str().unwrap())
        .collect();
    assert_eq!(offered, ["allow_once", "reject_once"], "where it writes cannot be told by its words");
    reject(&session, &mut events, &permission).await;

    let permission = asked(&session, &mut events, "echo 'one two'").await;
    let option = &permission["options"][0];
    assert_eq!((&option["id"], &option["kind"]), (&json!("allow_always"), &json!("allow_always")));
    assert!(text(&option["name"]).contains("echo 'one two'"), "{option}");
    let body = json!({"option_id": "allow_always"});
    let path = answer_path(&session, &permission);
    let answered = gander.post(&path, &body, StatusCode::OK).await;
    assert_eq!(
        (&answered["outcome"]["scope"], &answered["outcome"]["decision"]),
        (&json!("session"), &json!("allow"))
    );
    let again = json!({"decision": "allow", "scope": "session"});
    assert_eq!(gander.post(&path, &again, StatusCode::OK).await, answered, "the same again");
    let once = gander.request(Method::POST, &path).json(&json!({"decision": "allow"}));
    refusal(once, 409, "permission-already-resolved").await;
    let told = events.through("turn.completed").await;
    let list = gander.get(&grants).await;
    let grant = &list["permission_grants"][0];
    assert_eq!((&grant["name"], &grant["by"]), (&option["name"], &json!("default")));
    assert_eq!((&grant["permission_id"], &grant["tool"]), (&permission["id"], &json!("shell")));
    assert_eq!((&grant["calls"], &grant["commands"]), (&json!("commands"), &json!([["echo", "one two"]])));
    let updated = carried(&told, "session.updated", "session");
    assert!(updated.iter().any(|session| session["permission_grants"] == json!([grant])), "{updated:?}");

    // The same words in other quotes are the same command, and goose asked each time.
    session.turn(&shell("echo  one\\ two")).await;
    let log = session.log().await;
    let outcome = &carried(&log, "permission.resolved", "permission").last().unwrap()["outcome"];
    assert_eq!((&outcome["by"], &outcome["scope"]), (&json!("policy"), &json!("session")));
    assert_eq!(outcome["rule"], format!("grant:{}", text(&grant["id"])));
    let mut events = session.events_with("?after=latest").await;
    let other = asked(&session, &mut events, "echo three").await;
    reject(&session, &mut events, &other).await;

    // A rule beats it.
    session
        .patch(&json!({"permission_policy": {"rules": [{"action": "reject", "command": "echo one*"}]}}))
        .await;
    let mut events = session.events_with("?after=latest").await;
    session.turn(&shell("echo 'one two'")).await;
    let told = events.through("turn.completed").await;
    assert_eq!(only(&told, "permission.resolved").data["permission"]["outcome"]["rule"], "session.rules[0]");
    session.patch(&json!({"permission_policy": null})).await;

    // It outlives a hibernation, and ends when it is taken back.
    gander.post(&session.path("/hibernate"), &json!({}), StatusCode::OK).await;
    let mut events = session.events_with("?after=latest").await;
    session.turn(&shell("echo 'one two'")).await;
    let told = events.through("turn.completed").await;
    assert_eq!(only(&told, "permission.resolved").data["permission"]["outcome"]["decision"], "allow");
    let this = format!("{grants}/{}", text(&grant["id"]));
    let revoked = gander.request(Method::DELETE, &this).send().await.unwrap();
    assert_eq!(revoked.status(), StatusCode::NO_CONTENT);
    refusal(gander.request(Method::DELETE, &this), 404, "not-found").await;
    assert_eq!(gander.get(&grants).await["permission_grants"], json!([]));
    let mut events = session.events_with("?after=latest").await;
    let permission = asked(&session, &mut events, "echo 'one two'").await;
    reject(&session, &mut events, &permission).await;
    gander.stop().await;
}

#[tokio::test]
async fn what_is_remembered_outlives_a_restart() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events_with("?after=latest").await;
    let permission = asked(&session, &mut events, "echo one").await;
    gander
        .post(&answer_path(&session, &permission), &json!({"option_id": "allow_always"}), StatusCode::OK)
        .await;
    events.until("turn.completed").await;
    let before = gander.get(&session.path("/permission-grants")).await;
    let (id, dir) = (session.id.clone(), gander.dir.clone());
    gander.stop().await;
    let gander = Setup::real().dir(dir).start().await;
    let session = Session { gander: &gander, id, snapshot: json!({}) };
    assert_eq!(gander.get(&session.path("/permission-grants")).await, before);
    session.turn(&shell("echo one")).await;
    let log = session.log().await;
    let resolved = carried(&log, "permission.resolved", "permission");
    assert_eq!(resolved.last().unwrap()["outcome"]["by"], "policy");
    gander.stop().await;
}

#[tokio::test]
async fn never_is_remembered_in_a_looser_mode_too_and_all_is_forgotten_at_once() {
    let gander = Setup::real().config("[limits]\npermission_grants = 2").start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events_with("?after=latest").await;
    let permission = asked(&session, &mut events, "touch made").await;
    let body = json!({"decision": "reject", "scope": "session"});
    gander.post(&answer_path(&session, &permission), &body, StatusCode::OK).await;
    events.until("turn.completed").await;
    let patched = session.patch(&json!({"mode": "auto"})).await;
    assert_eq!((&patched["mode"], &patched["agent"]["mode"]), (&json!("auto"), &json!("approve")));
    session.turn(&shell("touch made")).await;
    session.turn(&shell("touch other")).await;
    let cwd = text(&session.snapshot["cwd"]);
    let has = |file: &str| std::path::Path::new(&cwd).join(file).exists();
    assert!(!has("made") && has("other"));

    session.patch(&json!({"mode": "approve"})).await;
    let mut events = session.events_with("?after=latest").await;
    let permission = asked(&session, &mut events, "true").await;
    gander
        .post(&answer_path(&session, &permission), &json!({"option_id": "allow_always"}), StatusCode::OK)
        .await;
    events.until("turn.completed").await;
    let grants = session.path("/permission-grants");
    let page = gander.get(&format!("{grants}?limit=1")).await;
    assert_eq!(page["permission_grants"][0]["decision"], "allow", "newest first");
    let rest = gander.get(&format!("{grants}?limit=1&cursor={}", text(&page["next_cursor"]))).await;
    assert_eq!(
        (&rest["permission_grants"][0]["decision"], &rest["next_cursor"]),
        (&json!("reject"), &Value::Null)
    );

    // It remembers as many as it may.
    let permission = asked(&session, &mut events, "false").await;
    let path = answer_path(&session, &permission);
    for (body, field) in [
        (json!({"option_id": "reject_always"}), "/option_id"),
        (json!({"decision": "allow", "scope": "session"}), "/scope"),
    ] {
        let request = gander.request(Method::POST, &path).json(&body);
        let problem = refusal(request, 422, "unknown-permission-option").await;
        assert_eq!(problem["errors"][0]["pointer"], field);
    }
    reject(&session, &mut events, &permission).await;
    let revoked = gander.request(Method::DELETE, &grants).send().await.unwrap();
    assert_eq!(revoked.status(), StatusCode::NO_CONTENT);
    assert_eq!(gander.get(&grants).await["permission_grants"], json!([]));
    gander.stop().await;
}
