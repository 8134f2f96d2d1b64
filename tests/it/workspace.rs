//! What goose makes of a workspace's own files, on the real one: hints and skills.

use std::fs;
use std::path::Path;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    EventStream, Gander, Session, Setup, answer, assert_at_rest, script, text, until_async,
};

const WHITE: &str = "When a horse is to be painted.";

fn write_skill(cwd: &Path, name: &str, description: &str, body: &str) {
    let folder = cwd.join(".agents/skills").join(name);
    fs::create_dir_all(&folder).unwrap();
    let text = format!("---\nname: {name}\ndescription: {description}\n---\n{body}\n");
    fs::write(folder.join("SKILL.md"), text).unwrap();
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list.as_array().unwrap().iter().find(|entry| entry["name"] == name)
}

/// All that the model was sent in its last call, or what the system said to it.
fn heard(gander: &Gander, role: Option<&str>) -> String {
    let call = gander.model.requests().pop().unwrap();
    let messages = call["messages"].as_array().unwrap();
    let heard = messages.iter().filter(|message| role.is_none_or(|role| message["role"] == role));
    heard.map(|message| message["content"].to_string()).collect()
}

/// Waits until the session tells of a skill in its own directory.
async fn told_of(events: &mut EventStream, name: &str) -> Value {
    loop {
        let event = events.until("commands.updated").await;
        if let Some(skill) = named(&event.data["skills"], name).filter(|skill| !skill["path"].is_null()) {
            assert!(named(&event.data["commands"], name).is_some(), "{}", event.data);
            return skill.clone();
        }
    }
}

async fn session_in<'gander>(gander: &'gander Gander, cwd: &Path) -> Session<'gander> {
    gander.session(&json!({"cwd": cwd})).await
}

#[tokio::test]
async fn a_skill_of_the_workspace_is_listed_offered_and_used() {
    let gander = Setup::real().start().await;
    let workspace = tempfile::tempdir().unwrap();
    write_skill(workspace.path(), "paint-it", WHITE, "Take the white paint.");
    let session = session_in(&gander, workspace.path()).await;
    let mut events = session.events().await;
    let expected = json!({"name": "paint-it", "description": WHITE, "path": ".agents/skills/paint-it"});
    assert_eq!(told_of(&mut events, "paint-it").await, expected);
    let snapshot = session.now().await;
    assert_eq!(named(&snapshot["skills"], "paint-it"), Some(&expected));
    let command = named(&snapshot["commands"], "paint-it").unwrap();
    assert_eq!((&command["description"], &command["kind"]), (&json!(WHITE), &json!("skill")));
    assert_eq!(named(&snapshot["commands"], "status").unwrap()["kind"], "builtin");
    assert!(named(&snapshot["skills"], "status").is_none());
    // goose brings skills of its own, which have no place here.
    for skill in snapshot["skills"].as_array().unwrap().iter().filter(|skill| skill["name"] != "paint-it") {
        assert_eq!(skill["path"], Value::Null, "{skill}");
    }

    session.turn(&script(&json!([[{"text": "Hello."}]]))).await;
    assert!(heard(&gander, Some("system")).contains(WHITE), "the model knows when to use it");
    assert!(!heard(&gander, None).contains("Take the white paint."));
    let used = session.turn("/paint-it in the evening").await;
    assert_eq!(used["state"], "completed");
    let words = heard(&gander, Some("user"));
    assert!(words.contains("Take the white paint.") && words.contains("in the evening"), "{words}");
    assert_at_rest(&gander).await;
    gander.stop().await;
}

#[tokio::test]
async fn skills_that_come_and_go_are_told_with_the_next_turn_and_after_waking() {
    let gander = Setup::real().start().await;
    let workspace = tempfile::tempdir().unwrap();
    let session = session_in(&gander, workspace.path()).await;
    let mut events = session.events().await;
    events.until("commands.updated").await;
    // What is asked when goose starts has been answered when a turn is over.
    session.turn(&script(&json!([[{"text": "Nothing yet."}]]))).await;
    assert!(named(&session.now().await["skills"], "paint-it").is_none());

    write_skill(workspace.path(), "paint-it", WHITE, "Take the white paint.");
    session.turn(&script(&json!([[{"text": "Hello."}]]))).await;
    assert_eq!(told_of(&mut events, "paint-it").await["path"], ".agents/skills/paint-it");

    answer(gander.request(Method::POST, &session.path("/hibernate")), StatusCode::OK).await;
    assert!(named(&session.now().await["skills"], "paint-it").is_some(), "as they were last");
    fs::remove_dir_all(workspace.path().join(".agents/skills/paint-it")).unwrap();
    write_skill(workspace.path(), "ride-it", "When a horse is to be ridden.", "Take the saddle.");
    session.turn(&script(&json!([[{"text": "Awake."}]]))).await;
    assert_eq!(told_of(&mut events, "ride-it").await["path"], ".agents/skills/ride-it");
    until_async("the skill that is gone is listed no more", || async {
        let snapshot = session.now().await;
        named(&snapshot["skills"], "paint-it").is_none() && named(&snapshot["commands"], "paint-it").is_none()
    })
    .await;
    gander.stop().await;
}

#[tokio::test]
async fn hints_in_the_workspace_reach_the_model() {
    let gander = Setup::real().start().await;
    let workspace = tempfile::tempdir().unwrap();
    fs::write(workspace.path().join("AGENTS.md"), "All horses here are brown.").unwrap();
    fs::write(workspace.path().join(".goosehints"), "Carts are drawn, never driven.").unwrap();
    fs::write(workspace.path().join("CLAUDE.md"), "Not for goose.").unwrap();
    let session = session_in(&gander, workspace.path()).await;
    let turn = session.turn(&script(&json!([[{"text": "So it is."}]]))).await;
    assert_eq!(text(&turn["text"]), "So it is.");
    let system = heard(&gander, Some("system"));
    assert!(system.contains("All horses here are brown."), "{system}");
    assert!(system.contains("Carts are drawn, never driven."), "{system}");
    assert!(!system.contains("Not for goose."));
    // Another session, elsewhere, has nothing of it.
    let other = gander.session(&json!({})).await;
    other.turn(&script(&json!([[{"text": "Yes."}]]))).await;
    assert!(!heard(&gander, None).contains("horses"));
    gander.stop().await;
}
