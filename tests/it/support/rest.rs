//! What must be so of every session when none does anything, whatever has ended the gander before.

use serde_json::{Value, json};

use super::{Event, Gander, Session, assert_all_ended_once, text};

/// Fails unless nothing is open in any session, and lists, snapshots and logs tell the same.
pub(crate) async fn assert_at_rest(gander: &Gander) {
    let list = gander.get("/v1/sessions?limit=200").await;
    for listed in list["sessions"].as_array().unwrap() {
        let session = Session { gander, id: text(&listed["id"]), snapshot: Value::Null };
        let now = session.now().await;
        assert_eq!(now, *listed, "the list and the snapshot differ");
        let state = text(&now["state"]);
        assert!(["idle", "hibernated", "failed"].contains(&state.as_str()), "{now}");
        assert_eq!((&now["current_turn"], &now["queued_turns"]), (&Value::Null, &json!([])));
        assert_eq!((&now["pending_permissions"], &now["open_tool_calls"]), (&json!([]), &json!([])));
        assert_eq!(now["agent"]["pid"].is_u64(), state == "idle", "{now}");

        let log = session.log().await;
        let ids: Vec<Option<u64>> = log.iter().map(|event| event.data["id"].as_u64()).collect();
        assert_eq!(ids, (1..=log.len() as u64).map(Some).collect::<Vec<_>>(), "{now}");
        assert_eq!(now["last_event_id"], log.len());
        assert_eq!(log[0].kind(), "session.created", "{}", log[0].data);
        assert_all_ended_once(&log);
        let told = log.iter().rfind(|event| event.kind() == "session.state").unwrap();
        assert_eq!((&told.data["state"], &told.data["reason"]), (&now["state"], &now["state_reason"]));
        assert_turns(&session, &log).await;
        assert_permissions(&session, &log).await;
    }
    let pending = gander.get("/v1/permissions?state=pending").await;
    assert_eq!(pending["permissions"], json!([]));
}

/// The list of turns is what the log tells of them, from the newest on.
async fn assert_turns(session: &Session<'_>, log: &[Event]) {
    let listed = session.gander.get(&session.path("/turns?limit=200")).await;
    let ends = ["turn.completed", "turn.failed", "turn.cancelled", "turn.interrupted"];
    let told: Vec<&Value> = log
        .iter()
        .rev()
        .filter(|event| ends.contains(&event.kind()))
        .map(|event| &event.data["turn"])
        .take(200)
        .collect();
    let mut listed = listed["turns"].as_array().unwrap().clone();
    for turn in &mut listed {
        assert!(turn["prompt"].is_string() || turn["prompt"].is_array(), "{turn}");
        turn.as_object_mut().unwrap().remove("prompt");
    }
    let mut told: Vec<Value> = told.into_iter().cloned().collect();
    for turn in &mut told {
        turn.as_object_mut().unwrap().remove("prompt");
    }
    assert_eq!(listed, told);
}

/// The list of permissions is what the log tells of them.
async fn assert_permissions(session: &Session<'_>, log: &[Event]) {
    let listed = session.gander.get(&session.path("/permissions?limit=200")).await;
    let listed = listed["permissions"].as_array().unwrap();
    let told: Vec<&Value> = log
        .iter()
        .filter(|event| event.kind() == "permission.resolved")
        .map(|event| &event.data["permission"])
        .collect();
    assert_eq!(listed.len(), told.len());
    for permission in told {
        let same = listed.iter().find(|listed| listed["id"] == permission["id"]).unwrap();
        assert_eq!((&same["state"], &same["outcome"]), (&permission["state"], &permission["outcome"]));
    }
}
