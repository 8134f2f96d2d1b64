//! Who did what: every call that changes something and every decision leaves an entry, which outlives the session.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    EventStream, Gander, Session, Setup, WORD, answer, script, signal, text, until, until_async,
};

/// What `gander audit` prints for a storage folder; it must succeed.
fn printed(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_gander"))
        .arg("audit")
        .args(arguments)
        .env_clear()
        .env("GANDER_STORAGE__DIR", dir.join("storage"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn audit(dir: &Path, arguments: &[&str]) -> Vec<Value> {
    let printed = printed(dir, &[&["--json"], arguments].concat());
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn runs(command: &str) -> Value {
    let call = json!({"call": {"tool": "shell", "input": {"command": command}}});
    let prompt = format!("{WORD}\n{}", script(&json!([[call], [{"text": WORD}]])));
    json!({"prompt": prompt})
}

/// Makes a call whose request is named after the operation, as OpenAPI names it.
async fn call(gander: &Gander, operation: &str, method: Method, path: &str, body: &Value) -> Value {
    let request = gander.request(method, path).header("x-request-id", format!("r-{operation}"));
    let response = request.json(body).send().await.unwrap();
    let (status, body) = (response.status(), response.bytes().await.unwrap());
    assert!(status.is_success(), "{operation}: {status} {}", String::from_utf8_lossy(&body));
    if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() }
}

/// Answers the next question, to be remembered; gives what is remembered then.
async fn always(session: &Session<'_>, events: &mut EventStream, operation: &str) -> String {
    let permission = events.until("permission.requested").await.data["permission"].clone();
    let path = session.path(&format!("/permissions/{}", text(&permission["id"])));
    let body = json!({"decision": "allow", "scope": "session", "reason": WORD});
    call(session.gander, operation, Method::POST, &path, &body).await;
    events.until("turn.completed").await;
    let grants = session.gander.get(&session.path("/permission-grants")).await;
    text(&grants["permission_grants"][0]["id"])
}

/// Makes every call that the interface has for changing something. Gives the session's id.
async fn every_call(gander: &Gander) -> String {
    let made = call(gander, "createSession", Method::POST, "/v1/sessions", &json!({"mode": "approve"})).await;
    let session = Session { gander, id: text(&made["id"]), snapshot: made };
    let post = |operation, rest: &str, body| {
        let path = session.path(rest);
        async move { call(gander, operation, Method::POST, &path, &body).await }
    };
    let delete = |operation, rest: &str| {
        let path = session.path(rest);
        async move { call(gander, operation, Method::DELETE, &path, &json!({})).await }
    };
    let change = json!({"title": WORD, "mode": "smart_approve"});
    call(gander, "updateSession", Method::PATCH, &session.path(""), &change).await;
    let mut events = session.events_with("?after=latest").await;
    post("createTurn", "/turns", runs("echo heron one")).await;
    let grant = always(&session, &mut events, "answerPermission").await;
    delete("revokePermissionGrant", &format!("/permission-grants/{grant}")).await;
    post("again", "/turns", runs("echo heron two")).await;
    always(&session, &mut events, "again").await;
    delete("revokePermissionGrants", "/permission-grants").await;
    let explained = json!({"tool": "shell", "input": {"command": WORD}});
    post("explainPermission", "/permissions/explain", explained).await;
    let turn = text(&post("again", "/turns", runs("echo heron three")).await["id"]);
    events.until("permission.requested").await;
    post("steerTurn", &format!("/turns/{turn}/steer"), json!({"prompt": WORD})).await;
    post("cancelTurn", &format!("/turns/{turn}/cancel"), json!({})).await;
    events.until("turn.cancelled").await;
    until_async("idle", || async { session.now().await["state"] == "idle" }).await;
    post("hibernateSession", "/hibernate", json!({})).await;
    call(gander, "createStreamTicket", Method::POST, "/v1/stream-tickets", &json!({})).await;
    delete("deleteSession", "").await;
    session.id
}

#[tokio::test]
async fn every_call_that_changes_something_leaves_who_did_it_for_good() {
    let gander = Setup::real().start().await;
    let id = every_call(&gander).await;
    // While it runs, and after it was started anew.
    let entries = audit(gander.dir.path(), &[]);
    let dir = Arc::clone(&gander.dir);
    gander.stop().await;
    let gander = Setup::real().dir(Arc::clone(&dir)).start().await;
    assert_eq!(audit(dir.path(), &[]), entries);

    let mut left: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in &entries {
        let of_gateway = entry["what"] == "stream_ticket.created";
        assert_eq!(entry["session"], if of_gateway { Value::Null } else { json!(id) }, "{entry}");
        if let Some(request) = entry["request"].as_str() {
            assert_eq!(entry["who"], "caller:default", "{entry}");
            let operation = request.strip_prefix("r-").unwrap().to_owned();
            left.entry(operation).or_default().push(text(&entry["what"]));
        }
    }
    let mut expected: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("createSession", &["session.created"][..]),
        ("updateSession", &["session.updated"]),
        ("createTurn", &["turn.started"]),
        // The answer, and what it leaves for the questions to come.
        ("answerPermission", &["permission.resolved", "session.updated"]),
        ("revokePermissionGrant", &["session.updated"]),
        ("revokePermissionGrants", &["session.updated"]),
        ("explainPermission", &[]),
        ("steerTurn", &["turn.steered"]),
        ("cancelTurn", &["turn.cancel", "turn.cancelled"]),
        ("hibernateSession", &["session.hibernated"]),
        ("createStreamTicket", &["stream_ticket.created"]),
        ("deleteSession", &["session.deleted"]),
    ]);
    // A new call is in the document, and so has to be here.
    let document: Value = serde_json::from_str(include_str!("../../openapi/gander.json")).unwrap();
    for operations in document["paths"].as_object().unwrap().values() {
        for (_, operation) in operations.as_object().unwrap().iter().filter(|(method, _)| *method != "get") {
            let operation = operation["operationId"].as_str().unwrap();
            let expected = expected.remove(operation).unwrap_or_else(|| panic!("{operation} is not tried"));
            assert_eq!(left.remove(operation).unwrap_or_default(), expected, "{operation}");
        }
    }
    assert!(expected.is_empty(), "{expected:?}");
    let changed = entries.iter().find(|entry| entry["request"] == "r-updateSession").unwrap();
    assert_eq!(changed["details"]["mode"], "smart_approve");
    let decided = entries.iter().find(|entry| entry["what"] == "permission.resolved").unwrap();
    assert_eq!(
        (&decided["details"]["tool"], &decided["details"]["decision"], &decided["details"]["scope"]),
        (&json!("shell"), &json!("allow"), &json!("session"))
    );

    // For people, and a part of it.
    let whole = printed(dir.path(), &[]);
    assert_eq!(whole.lines().count(), entries.len());
    assert!(
        !whole.contains(WORD) && !entries.iter().any(|entry| entry.to_string().contains(WORD)),
        "{whole}"
    );
    assert_eq!(audit(dir.path(), &["--session", &id, "--caller", "default"]).len() + 2, entries.len());
    assert_eq!(audit(dir.path(), &["--since", "1h"]), entries);
    assert_eq!(audit(dir.path(), &["--since", "2999-01-01T00:00:00Z"]), Vec::<Value>::new());
    assert_eq!(audit(dir.path(), &["--caller", "nobody"]), Vec::<Value>::new());
    gander.stop().await;
}

/// What decided the permissions of a session.
fn deciders(dir: &Path, session: &str) -> Vec<String> {
    let decided = audit(dir, &["--session", session]);
    let decided = decided.iter().filter(|entry| entry["what"] == "permission.resolved");
    decided.map(|entry| text(&entry["who"])).collect()
}

#[tokio::test]
async fn every_decision_leaves_what_decided() {
    let rules = "[[permissions.rules]]\naction = \"reject\"\ncommand = \"ls\"\n";
    let by_rule = Setup::fake().config(rules).start().await;
    let session = by_rule.session(&json!({"mode": "approve"})).await;
    session.turn("ask").await;
    assert_eq!(deciders(by_rule.dir.path(), &session.id), ["policy"]);
    let entry = audit(by_rule.dir.path(), &[]).into_iter().find(|entry| entry["who"] == "policy").unwrap();
    assert_eq!(entry["details"]["rule"], "server.rules[0]");
    by_rule.stop().await;

    let mut gander = Setup::fake().config("[permissions]\ntimeout = \"1s\"").start().await;
    let expiring = gander.session(&json!({"mode": "approve"})).await;
    expiring.turn("ask").await;
    assert_eq!(deciders(gander.dir.path(), &expiring.id), ["timeout"]);
    let patient = json!({"mode": "approve", "permission_policy": {"timeout_s": 600}});
    let (cancelled, killed, restarted) =
        (gander.session(&patient).await, gander.session(&patient).await, gander.session(&patient).await);
    for session in [&cancelled, &killed, &restarted] {
        let mut events = session.events().await;
        let turn = session.prompt("ask").await;
        events.until("permission.requested").await;
        if session.id == cancelled.id {
            session.cancel(&turn).await;
            events.until("turn.cancelled").await;
        }
        if session.id == killed.id {
            let pid = session.now().await["agent"]["pid"].as_u64().unwrap();
            signal(u32::try_from(pid).unwrap(), "KILL");
            events.until("turn.interrupted").await;
        }
    }
    let ids = [cancelled.id.clone(), killed.id.clone(), restarted.id.clone()];
    gander.signal("KILL");
    gander.ended().await;
    let dir = Arc::clone(&gander.dir);
    drop(gander);
    let gander = Setup::fake().dir(Arc::clone(&dir)).start().await;
    let found: Vec<Vec<String>> = ids.iter().map(|id| deciders(dir.path(), id)).collect();
    assert_eq!(found, [["cancel"], ["agent_exit"], ["restart"]]);
    gander.stop().await;
}

#[tokio::test]
async fn what_gander_deletes_by_itself_is_told_and_what_is_old_is_forgotten() {
    let config = "[sessions]\nexpire_after = \"300ms\"\n[storage]\nkeep_audit = \"3s\"";
    let gander = Setup::fake().config(config).start().await;
    let session = gander.session(&json!({})).await;
    until("the session has expired", || {
        audit(gander.dir.path(), &["--session", &session.id])
            .iter()
            .any(|entry| (&entry["who"], &entry["what"]) == (&json!("expiry"), &json!("session.deleted")))
    })
    .await;
    until("all of it is forgotten", || audit(gander.dir.path(), &[]).is_empty()).await;
    answer(gander.request(Method::POST, "/v1/stream-tickets"), StatusCode::CREATED).await;
    assert_eq!(audit(gander.dir.path(), &[]).len(), 1, "what is done now is kept");
    gander.stop().await;
}
