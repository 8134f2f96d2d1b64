//! Questions that outlast pages, and what waits beside them.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{answer_path, shell, until_asked};
use crate::support::{Session, Setup, assert_all_ended_once, assert_at_rest, carried, only, refusal, text};

/// What a page that is loaded now shows as open: from the snapshot, and from the log alone.
async fn open_on_a_page(session: &Session<'_>) -> Vec<Value> {
    let log = session.log().await;
    let mut open: Vec<Value> =
        carried(&log, "permission.requested", "permission").into_iter().cloned().collect();
    for resolved in carried(&log, "permission.resolved", "permission") {
        open.retain(|asked| asked["id"] != resolved["id"]);
    }
    assert_eq!(session.now().await["pending_permissions"], json!(open));
    open
}

#[tokio::test]
async fn a_question_is_shown_and_can_be_answered_after_a_reload_and_ends_with_a_restart() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events_with("?after=latest").await;
    let (_, permission) = until_asked(&session, &mut events, &shell("touch made")).await;
    // The page is closed, and loaded again.
    drop(events);
    assert_eq!(open_on_a_page(&session).await, std::slice::from_ref(&permission));
    let mut events = session.events_with("?after=latest").await;
    session.answer(&permission, "allow").await;
    assert_eq!(events.until("permission.resolved").await.data["permission"]["id"], permission["id"]);
    events.until("turn.completed").await;
    assert_eq!(open_on_a_page(&session).await, Vec::<Value>::new());

    // Who waits for the turn, and who follows it, when gander ends, is not left waiting.
    let (_, permission) = until_asked(&session, &mut events, &shell("touch other")).await;
    let cwd = text(&session.snapshot["cwd"]);
    let (id, dir) = (session.id.clone(), Arc::clone(&gander.dir));
    let mut gander = gander;
    gander.signal("KILL");
    gander.ended().await;
    assert!(events.next().await.is_none_or(|event| event.kind() == "session.state"));
    drop(gander);
    let gander = Setup::real().dir(dir).start().await;
    let session = Session { gander: &gander, id, snapshot: Value::Null };
    assert_eq!(open_on_a_page(&session).await, Vec::<Value>::new());
    assert_at_rest(&gander).await;
    let log = session.log().await;
    assert_all_ended_once(&log);
    let resolved = carried(&log, "permission.resolved", "permission")[1];
    assert_eq!((&resolved["id"], &resolved["state"]), (&permission["id"], &json!("cancelled")));
    assert_eq!(
        (&resolved["outcome"]["by"], &resolved["outcome"]["decision"]),
        (&json!("restart"), &json!("reject"))
    );
    let path = answer_path(&session, &permission);
    for decision in ["allow", "reject"] {
        let late = gander.request(Method::POST, &path).json(&json!({"decision": decision}));
        assert_eq!(refusal(late, 409, "permission-already-resolved").await["permission"], *resolved);
    }
    assert!(Path::new(&cwd).join("made").exists() && !Path::new(&cwd).join("other").exists());
    gander.stop().await;
}

#[tokio::test]
async fn while_one_of_fifty_sessions_waits_for_an_answer_the_others_go_on() {
    let gander = Setup::real().config("[sessions]\nmax_starting = 50").start().await;
    let asking = gander.session(&json!({"mode": "approve"})).await;
    let body = json!({"mode": "auto"});
    let others = join_all((0..49).map(|_| gander.session(&body))).await;
    let mut events = asking.events_with("?after=latest").await;
    let (turn, permission) = until_asked(&asking, &mut events, &shell("echo asked > asked")).await;
    let goes_on = shell("echo went on");
    let turns = join_all(others.iter().map(|session| session.turn(&goes_on))).await;
    for turn in turns {
        assert_eq!(turn["state"], "completed", "{turn}");
    }
    assert_eq!(asking.now().await["state"], "awaiting_permission");
    let pending = gander.get("/v1/permissions?state=pending").await;
    assert_eq!(pending["permissions"], json!([permission]));
    gander.post(&answer_path(&asking, &permission), &json!({"decision": "allow"}), StatusCode::OK).await;
    let told = events.through("turn.completed").await;
    assert_eq!(only(&told, "turn.completed").data["turn"]["id"], turn["id"]);
    assert!(Path::new(&text(&asking.now().await["cwd"])).join("asked").exists());
    gander.stop().await;
}

#[tokio::test]
async fn always_is_the_agents_once() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    for (option, heard) in [("allow_always", "allow_once"), ("reject_always", "reject_once")] {
        let mut events = session.events_with("?after=latest").await;
        let (_, permission) = until_asked(&session, &mut events, "ask").await;
        gander.post(&answer_path(&session, &permission), &json!({"option_id": option}), StatusCode::OK).await;
        let told = events.through("turn.completed").await;
        assert_eq!(only(&told, "turn.completed").data["turn"]["text"], heard);
        let grants =
            gander.request(Method::DELETE, &session.path("/permission-grants")).send().await.unwrap();
        assert_eq!(grants.status(), StatusCode::NO_CONTENT);
    }
    gander.stop().await;
}
