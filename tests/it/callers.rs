//! Who may call, and what everybody else sees: nothing.

mod doors;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{EventStream, Gander, Session, Setup, answer, refusal, text};

/// The token of the caller with this name.
pub(crate) fn token(name: &str) -> String {
    format!("token-of-{name}")
}

/// A token as a tokens file has it.
pub(crate) fn hash(token: &str) -> String {
    Sha256::digest(token).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

/// Writes a tokens file with these callers and their roles; no roles means the default ones.
pub(crate) fn write_tokens(dir: &Path, callers: &[(&str, &[&str])]) {
    let mut file = String::new();
    for (name, roles) in callers {
        let hash = hash(&token(name));
        write!(file, "[[tokens]]\nname = \"{name}\"\nsha256 = \"{hash}\"\n").unwrap();
        if !roles.is_empty() {
            writeln!(file, "roles = {roles:?}").unwrap();
        }
    }
    // Replaced in one step, as careful tools do: gander never sees half a file.
    let draft = dir.join("tokens.draft");
    fs::write(&draft, file).unwrap();
    fs::rename(draft, dir.join("tokens.toml")).unwrap();
}

/// A gander on the fake agent with these callers. Its own requests are those of the first.
pub(crate) async fn gander_of(callers: &[(&str, &[&str])]) -> Gander {
    gander_with(callers, "").await
}

/// The same with more configuration (TOML).
pub(crate) async fn gander_with(callers: &[(&str, &[&str])], toml: &str) -> Gander {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    write_tokens(dir.path(), callers);
    let file = dir.path().join("tokens.toml").to_str().unwrap().to_owned();
    let setup = Setup::fake().config(toml).dir(dir).env("GANDER_AUTH__TOKENS_FILE", &file);
    let mut gander = setup.start().await;
    gander.token = token(callers[0].0);
    gander
}

/// A session with a turn that waits for the answer to a permission request.
async fn asking_session(gander: &Gander) -> (Session<'_>, Value, Value) {
    let session = gander.session(&json!({"mode": "approve", "title": "Mine"})).await;
    let mut events = session.events().await;
    let turn = session.prompt("ask").await;
    let permission = events.until("permission.requested").await.data["permission"].clone();
    (session, turn, permission)
}

#[tokio::test]
async fn a_lost_role_is_missed_by_repeated_requests_too() {
    let gander = gander_of(&[("alice", &[])]).await;
    let post = |path: &str, body: &Value| {
        gander.request(Method::POST, path).header("idempotency-key", "k").json(body)
    };
    let made = answer(post("/v1/sessions", &json!({"mode": "approve"})), StatusCode::CREATED).await;
    let path = |rest: &str| format!("/v1/sessions/{}{rest}", text(&made["id"]));
    let mut events = EventStream::open(gander.request(Method::GET, &path("/events"))).await;
    let turn = answer(post(&path("/turns"), &json!({"prompt": "ask\nask"})), StatusCode::ACCEPTED).await;
    let asked = events.until("permission.requested").await.data["permission"]["id"].clone();
    let permission = path(&format!("/permissions/{}", text(&asked)));
    let cancel = path(&format!("/turns/{}/cancel", text(&turn["id"])));
    let calls = [
        ("/v1/sessions".to_owned(), json!({"mode": "approve"}), "prompt"),
        (path("/turns"), json!({"prompt": "ask\nask"}), "prompt"),
        (permission.clone(), json!({"decision": "allow"}), "approve"),
        (cancel, json!({}), "prompt"),
        (path("/hibernate"), json!({}), "prompt"),
    ];
    answer(post(&permission, &calls[2].1), StatusCode::OK).await;
    answer(post(&calls[3].0, &calls[3].1), StatusCode::ACCEPTED).await;
    events.until("turn.cancelled").await;
    answer(post(&calls[4].0, &calls[4].1), StatusCode::OK).await;
    for kept in ["prompt", "approve"] {
        write_tokens(gander.dir.path(), &[("alice", &["read", kept])]);
        for (path, body, role) in &calls {
            if *role == kept {
                assert!(post(path, body).send().await.unwrap().status().is_success(), "{path}");
            } else {
                let problem = refusal(post(path, body), 403, "role-missing").await;
                assert_eq!(problem["role"], *role, "{path}");
            }
        }
    }
    gander.stop().await;
}

/// One call of the API, from its OpenAPI document.
struct Call {
    id: String,
    method: Method,
    path: String,
}

impl Call {
    /// A request for it, by the caller with this name, about these things.
    fn request(
        &self,
        gander: &Gander,
        name: &str,
        session: &str,
        turn: &str,
        permission: &str,
    ) -> RequestBuilder {
        let path = self
            .path
            .replace("{session_id}", session)
            .replace("{turn_id}", turn)
            .replace("{permission_id}", permission)
            .replace("{grant_id}", permission);
        assert!(!path.contains('{'), "{path}: say here what this stands for");
        // A new call whose body cannot be empty needs one here: without, it is refused for its body.
        let body = match self.id.as_str() {
            "createTurn" | "steerTurn" => json!({"prompt": "echo stolen"}),
            "updateSession" => json!({"title": "stolen"}),
            "answerPermission" => json!({"decision": "allow"}),
            "explainPermission" => json!({"tool": "shell", "input": {}}),
            _ => json!({}),
        };
        let request = gander.request_as(&token(name), self.method.clone(), &path);
        if self.method == Method::GET { request } else { request.json(&body) }
    }

    /// The role that it takes.
    fn role(&self) -> &'static str {
        match (&self.method, self.path.contains("/permission")) {
            (&Method::GET, _) => "read",
            _ if ["explainPermission", "createStreamTicket"].contains(&self.id.as_str()) => "read",
            (_, true) => "approve",
            _ => "prompt",
        }
    }
}

/// Every call that needs a token; those that end things come last.
async fn calls(gander: &Gander) -> Vec<Call> {
    let document =
        answer(gander.client.get(format!("http://{}/openapi.json", gander.address)), StatusCode::OK).await;
    let mut calls = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if path.starts_with("/v1/") {
                let method = method.to_ascii_uppercase().parse().unwrap();
                calls.push(Call { id: text(&operation["operationId"]), method, path: path.clone() });
            }
        }
    }
    calls.sort_by_key(|call| (call.method != Method::GET, call.method == Method::DELETE));
    assert!(calls.len() >= 17 && calls.last().unwrap().method == Method::DELETE);
    calls
}

#[tokio::test]
async fn another_callers_session_does_not_exist() {
    let gander = gander_of(&[("alice", &[]), ("bob", &[]), ("root", &["admin"])]).await;
    let (session, turn, permission) = asking_session(&gander).await;
    let (turn, permission) = (text(&turn["id"]), text(&permission["id"]));
    assert_eq!(session.now().await["owner"], "alice");
    let before = session.log().await;
    let bobs = answer(
        gander.request_as(&token("bob"), Method::POST, "/v1/sessions").json(&json!({"title": "Bob's"})),
        StatusCode::CREATED,
    )
    .await;
    let bobs = text(&bobs["id"]);
    let calls = calls(&gander).await;
    let about_sessions = || calls.iter().filter(|call| call.path.contains("{session_id}"));
    assert!(about_sessions().count() >= 12);
    for call in about_sessions() {
        let request = call.request(&gander, "bob", &session.id, &turn, &permission);
        refusal(request, 404, "session-not-found").await;
        // Its turns and permissions are not found through a session of one's own either.
        if call.path.contains("{turn_id}") {
            refusal(call.request(&gander, "bob", &bobs, &turn, ""), 404, "turn-not-found").await;
        }
        if call.path.contains("{permission_id}") {
            refusal(call.request(&gander, "bob", &bobs, "", &permission), 404, "permission-not-found").await;
        }
    }
    // Nothing of it had an effect, and the owner and an admin see everything.
    assert_eq!(session.log().await, before);
    assert_eq!(session.now().await["title"], "Mine");
    for name in ["alice", "root"] {
        for call in about_sessions().filter(|call| call.method == Method::GET && call.id != "streamEvents") {
            answer(call.request(&gander, name, &session.id, &turn, &permission), StatusCode::OK).await;
        }
    }
    // Lists have one's own only, an admin's everybody's.
    for (name, sessions, permissions) in
        [("alice", vec![&session.id], 1), ("bob", vec![&bobs], 0), ("root", vec![&bobs, &session.id], 1)]
    {
        let list = async |path: &str| {
            answer(gander.request_as(&token(name), Method::GET, path), StatusCode::OK).await
        };
        let listed = list("/v1/sessions").await;
        let ids: Vec<String> =
            listed["sessions"].as_array().unwrap().iter().map(|one| text(&one["id"])).collect();
        assert_eq!(ids.iter().collect::<Vec<_>>(), sessions, "{name}");
        let pending = list("/v1/permissions?state=pending").await;
        assert_eq!(pending["permissions"].as_array().unwrap().len(), permissions, "{name}");
    }
    // An admin may do everything, and is told as who did it.
    let path = session.path(&format!("/permissions/{permission}"));
    let request = gander.request_as(&token("root"), Method::POST, &path).json(&json!({"decision": "reject"}));
    assert_eq!(answer(request, StatusCode::OK).await["outcome"]["by"], "caller:root");
    let gone = gander.request_as(&token("root"), Method::DELETE, &session.path("")).send().await.unwrap();
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    gander.stop().await;
}

#[tokio::test]
async fn every_call_takes_its_role() {
    let others = [
        ("not-read", &["prompt", "approve"]),
        ("not-prompt", &["read", "approve"]),
        ("not-approve", &["read", "prompt"]),
    ];
    let only = [("only-read", &["read"]), ("only-prompt", &["prompt"]), ("only-approve", &["approve"])];
    let callers: Vec<(&str, &[&str])> = others
        .iter()
        .map(|(name, roles)| (*name, &roles[..]))
        .chain(only.iter().map(|(name, roles)| (*name, &roles[..])))
        .chain([("root", &["admin"][..])])
        .collect();
    let gander = gander_of(&callers).await;
    let nothing = "01890000-0000-7000-8000-000000000000";
    let mut roles = BTreeSet::new();
    for call in calls(&gander).await {
        let role = call.role();
        roles.insert(role);
        let by = |name: String| call.request(&gander, &name, nothing, nothing, nothing);
        let problem = refusal(by(format!("not-{role}")), 403, "role-missing").await;
        assert_eq!(problem["role"], role, "{}", call.id);
        let with = by(format!("only-{role}")).send().await.unwrap();
        assert_ne!(with.status(), StatusCode::FORBIDDEN, "{}", call.id);
    }
    assert_eq!(roles.len(), 3);
    // A turn whose events are wanted with it takes both roles, and does not begin without.
    let prompter = token("only-prompt");
    let made = answer(gander.request_as(&prompter, Method::POST, "/v1/sessions"), StatusCode::CREATED).await;
    let turns = format!("/v1/sessions/{}/turns", text(&made["id"]));
    let request = gander.request_as(&prompter, Method::POST, &turns).json(&json!({"prompt": "echo a"}));
    let problem = refusal(request.header("accept", "text/event-stream"), 403, "role-missing").await;
    assert_eq!(problem["role"], "read");
    let seen = answer(gander.request_as(&token("root"), Method::GET, &turns), StatusCode::OK).await;
    assert_eq!(seen["turns"], json!([]));
    gander.stop().await;
}

#[tokio::test]
async fn without_a_valid_token_there_is_nothing_but_health_and_the_document() {
    let gander = Setup::fake().start().await;
    let url = |path: &str| format!("http://{}{path}", gander.address);
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        answer(gander.client.get(url(path)), StatusCode::OK).await;
    }
    let token = gander.token.clone();
    let paths = calls(&gander).await.into_iter().map(|call| (call.method, call.path));
    for (method, path) in paths.chain([(Method::GET, "/v1/nothing".into()), (Method::PUT, "/v1/info".into())])
    {
        let bare = || gander.client.request(method.clone(), url(&path));
        for request in [
            bare(),
            bare().bearer_auth("wrong"),
            bare().bearer_auth(&token[..token.len() - 1]),
            bare().header("authorization", format!("Basic {token}")),
            bare().header("authorization", &token),
            gander.client.request(method.clone(), url(&format!("{path}?token={token}"))),
        ] {
            let problem = answer(request.try_clone().unwrap(), StatusCode::UNAUTHORIZED).await;
            assert_eq!(problem["code"], "unauthenticated", "{method} {path}");
            let refused = request.send().await.unwrap();
            assert!(refused.headers()["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
        }
    }
    gander.stop().await;
}

#[tokio::test]
async fn the_tokens_file_counts_from_the_next_call_on() {
    let gander = gander_of(&[("alice", &[]), ("bob", &[])]).await;
    let (session, ..) = asking_session(&gander).await;
    let bobs =
        answer(gander.request_as(&token("bob"), Method::POST, "/v1/sessions"), StatusCode::CREATED).await;
    let bobs_path = format!("/v1/sessions/{}", text(&bobs["id"]));
    let bobs_events =
        gander.request_as(&token("bob"), Method::GET, &format!("{bobs_path}/events?after=latest"));
    let mut bobs_events = EventStream::open(bobs_events).await;
    let mut all_events = session.events().await;
    all_events.until("permission.requested").await;
    let mut none_yet = session.events_with("?after=latest").await;

    write_tokens(gander.dir.path(), &[("bob", &[]), ("carol", &[])]);
    refusal(gander.request_as(&token("alice"), Method::GET, "/v1/info"), 401, "unauthenticated").await;
    answer(gander.request_as(&token("carol"), Method::GET, "/v1/info"), StatusCode::OK).await;
    // Her streams end, his goes on.
    all_events.rest().await;
    none_yet.rest().await;
    let begin = gander.request_as(&token("bob"), Method::POST, &format!("{bobs_path}/turns"));
    answer(begin.json(&json!({"prompt": "echo still here"})), StatusCode::ACCEPTED).await;
    bobs_events.until("turn.completed").await;

    // What she began is not lost: once back, she finds it as it was.
    write_tokens(gander.dir.path(), &[("alice", &[])]);
    assert_eq!(session.now().await["state"], "awaiting_permission");
    bobs_events.rest().await;

    // A turn's own stream ends with its caller's token too, and the turn does not.
    let pending = session.now().await["pending_permissions"][0].clone();
    session.answer(&pending, "allow").await;
    all_events = session.events().await;
    all_events.until("turn.completed").await;
    let begin = gander.request(Method::POST, &session.path("/turns")).json(&json!({"prompt": "ask"}));
    let mut turn_events = EventStream::open(begin).await;
    turn_events.until("permission.requested").await;
    write_tokens(gander.dir.path(), &[("bob", &[])]);
    turn_events.rest().await;
    write_tokens(gander.dir.path(), &[("alice", &[])]);
    assert_eq!(session.now().await["state"], "awaiting_permission");
    session.delete().await;
    gander.stop().await;
}
