//! A gander that is killed, and the one that starts after it on the same folder.

use std::fs;
use std::sync::Arc;

use gander::shutdown::Tasks;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::process::machine::{Tools, eventually};
use crate::support::{
    Event, Session, Setup, answer, assert_all_ended_once, assert_at_rest, descendants, kinds, lives, refusal,
    script, text, until,
};

fn frames(events: &[Event]) -> Vec<&[u8]> {
    events.iter().map(|event| event.frame.as_ref()).collect()
}

#[tokio::test]
async fn a_killed_gander_leaves_no_process_and_the_next_one_closes_what_was_open() {
    let mut gander = Setup::real().start().await;
    let tools = Tools::new();
    let shell = |command: &str| {
        let call = json!({"call": {"tool": "shell", "input": {"command": command}}});
        script(&json!([[{"text": "I look."}, call], [{"text": "done"}]]))
    };
    let idle = gander.session(&json!({"title": "idle"})).await;
    idle.turn(&script(&json!([[{"text": "Hello"}]]))).await;
    let hanging = gander.session(&json!({"title": "hanging"})).await;
    let mut events = hanging.events().await;
    let hanging_turn = hanging.prompt(&script(&json!([[{"text": "begun"}, "hang"]]))).await;
    events.until("message.delta").await;
    let asking = gander.session(&json!({"title": "asking", "mode": "approve"})).await;
    let mut events = asking.events().await;
    let asking_turn = asking.prompt(&shell("ls")).await;
    let asked = events.until("permission.requested").await.data["permission"].clone();
    let working = gander.session(&json!({"title": "working", "mode": "auto"})).await;
    let working_turn = working.prompt(&shell(&format!("{} sleep 600", tools.script()))).await;
    tools.all_run().await;
    drop(events);

    let processes = descendants(gander.pid());
    // goose's housekeeping may add an event at any time: what is compared is what was read.
    let mut before: Vec<(String, Vec<Event>)> = Vec::new();
    for session in [&idle, &hanging, &asking, &working] {
        before.push((session.id.clone(), session.log().await));
    }
    let dir = Arc::clone(&gander.dir);
    gander.signal("KILL");
    gander.ended().await;
    eventually("nothing is left", || tools.running().is_empty() && !processes.iter().any(|pid| lives(*pid)))
        .await;
    drop(gander);

    let orphans = ["homes", "workspaces"]
        .map(|kind| dir.path().join("storage").join(kind).join("01890a5d-ac96-774b-bcce-b302099a8057"));
    for orphan in &orphans {
        fs::create_dir(orphan).unwrap();
        fs::write(orphan.join("file"), "x").unwrap();
    }
    let gander = Setup::real().dir(dir).start().await;
    assert_at_rest(&gander).await;
    let list = gander.get("/v1/sessions?state=hibernated").await;
    let titles: Vec<String> =
        list["sessions"].as_array().unwrap().iter().map(|session| text(&session["title"])).collect();
    assert_eq!(titles, ["working", "asking", "hanging", "idle"]);
    for session in list["sessions"].as_array().unwrap() {
        assert!(session["current_turn"].is_null() && session["agent"]["pid"].is_null(), "{session}");
        assert_eq!((&session["pending_permissions"], &session["open_tool_calls"]), (&json!([]), &json!([])));
    }
    assert_eq!(gander.get("/v1/permissions?state=pending").await["permissions"], json!([]));

    for (id, old) in before {
        let session = Session { gander: &gander, id, snapshot: Value::Null };
        let log = session.log().await;
        assert_eq!(frames(&log[..old.len()]), frames(&old));
        let ids: Vec<Option<String>> = log.iter().map(|event| event.id.clone()).collect();
        assert_eq!(ids, (1..=log.len()).map(|id| Some(id.to_string())).collect::<Vec<_>>());
        assert_all_ended_once(&log);
        assert_eq!(session.now().await["last_event_id"], log.len());
        let interrupted: Vec<&Event> =
            log.iter().filter(|event| event.kind() == "turn.interrupted").collect();
        if session.id == idle_id(&list) {
            assert_eq!(interrupted, Vec::<&Event>::new());
        } else {
            assert_eq!(interrupted.len(), 1);
            let turn = session
                .gander
                .get(&session.path(&format!("/turns/{}", text(&interrupted[0].data["turn_id"]))))
                .await;
            assert_eq!(
                (&turn["state"], &turn["error"]["class"]),
                (&json!("interrupted"), &json!("gateway_restarted"))
            );
            assert!([&hanging_turn["id"], &asking_turn["id"], &working_turn["id"]].contains(&&turn["id"]));
        }
        if asked["session_id"] == session.id {
            let permission =
                session.gander.get(&session.path(&format!("/permissions/{}", text(&asked["id"])))).await;
            assert_eq!(
                (&permission["state"], &permission["outcome"]["by"]),
                (&json!("cancelled"), &json!("restart"))
            );
            let path = session.path(&format!("/permissions/{}", text(&asked["id"])));
            let late = gander.request(Method::POST, &path).json(&json!({"decision": "allow"}));
            refusal(late, 409, "permission-already-resolved").await;
        }
        // The log goes on where it was.
        let mut events = session.events_with("?after=latest").await;
        let patch = gander.request(Method::PATCH, &session.path("")).json(&json!({"title": "after"}));
        answer(patch, StatusCode::OK).await;
        let updated = events.until("session.updated").await;
        assert_eq!(updated.id, Some((log.len() + 1).to_string()));
        session.delete().await;
    }
    until("folders of sessions that are not there are gone", || {
        orphans.iter().all(|orphan| !orphan.exists())
    })
    .await;
    for kind in ["homes", "workspaces"] {
        assert_eq!(fs::read_dir(gander.storage().join(kind)).unwrap().count(), 0, "{kind}");
    }
    gander.stop().await;
}

fn idle_id(list: &Value) -> String {
    text(&list["sessions"][3]["id"])
}

#[tokio::test]
async fn an_event_that_a_subscriber_saw_is_there_after_a_kill_in_the_middle_of_a_flood() {
    let mut dir = None;
    for _ in 0..3 {
        let setup = Setup::fake();
        let mut gander = if let Some(dir) = dir.take() { setup.dir(dir) } else { setup }.start().await;
        let session = gander.session(&json!({})).await;
        let id = session.id.clone();
        let mut stream = session.events().await;
        session.prompt("open-call\nflood 100000000").await;
        let mut seen = Vec::new();
        for _ in 0..5000 {
            seen.push(stream.next().await.unwrap());
        }
        gander.signal("KILL");
        seen.extend(stream.rest().await);
        gander.ended().await;
        let kept = Arc::clone(&gander.dir);
        drop(gander);

        let gander = Setup::fake().dir(Arc::clone(&kept)).start().await;
        let session = Session { gander: &gander, id, snapshot: Value::Null };
        let resumed = format!("?follow=false&after={}", seen.len());
        let rest = session.events_with(&resumed).await.rest().await;
        let log = session.log().await;
        assert_eq!(frames(&log[..seen.len()]), frames(&seen));
        assert_eq!(frames(&log[seen.len()..]), frames(&rest));
        assert_all_ended_once(&log);
        assert_eq!(kinds(&log[log.len() - 3..]), ["tool_call.finished", "turn.interrupted", "session.state"]);
        gander.stop().await;
        dir = Some(kept);
    }
}

#[tokio::test]
async fn a_deletion_that_a_kill_cut_short_is_finished_by_the_next_start() {
    let deaf =
        "[goose]\nend_grace = \"1h\"\n[goose.env]\nFAKE_AGENT_EOF = \"ignore\"\nFAKE_AGENT_TERM = \"ignore\"";
    let mut gander = Setup::fake().config(deaf).start().await;
    let session = gander.session(&json!({})).await;
    session.turn("echo hello\ncall").await;
    let mut events = session.events().await;
    session.prompt("hang").await;
    // It waits for an agent that will not end.
    let deleting = Tasks::new().spawn(gander.request(Method::DELETE, &session.path("")).send());
    events.until("turn.cancelled").await;
    let path = session.path("");
    let dir = Arc::clone(&gander.dir);
    gander.signal("KILL");
    gander.ended().await;
    assert!(deleting.await.unwrap().is_err());
    drop(gander);
    let gander = Setup::fake().dir(dir).start().await;
    until("the folders are gone", || fs::read_dir(gander.storage().join("homes")).unwrap().count() == 0)
        .await;
    crate::support::until_async("the session is gone", async || {
        gander.request(Method::GET, &path).send().await.unwrap().status() == StatusCode::NOT_FOUND
    })
    .await;
    assert_eq!(gander.get("/v1/sessions").await["sessions"], json!([]));
}
