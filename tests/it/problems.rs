//! What goes wrong, and what callers are told: always a problem with its code, and gander stays up.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Event, EventStream, Gander, Session, Setup, answer, fake_agent, refusal, script, text, until, until_async,
};

/// A program of this text, as goose.
fn program(dir: &TempDir, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// What a folder holds; nothing when it does not exist.
fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).map(|found| found.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
}

/// gander must be up and have nothing of a session that did not start.
async fn nothing_is_left(gander: &Gander) {
    answer(gander.client.get(format!("http://{}/healthz", gander.address)), StatusCode::OK).await;
    assert_eq!(gander.get("/v1/sessions").await["sessions"], json!([]));
    for folder in ["homes", "workspaces"] {
        assert_eq!(entries(&gander.storage().join(folder)), Vec::<PathBuf>::new(), "{folder}");
    }
    until("no process is left", || gander.descendants().is_empty()).await;
}

/// Making a session must fail so, and leave nothing.
async fn no_session(gander: &Gander, body: &Value, status: u16, code: &str) -> Value {
    let problem = refusal(gander.request(Method::POST, "/v1/sessions").json(body), status, code).await;
    nothing_is_left(gander).await;
    let shown = problem.to_string();
    assert!(!shown.contains(gander.dir.path().to_str().unwrap()), "a path of the host is told: {shown}");
    problem
}

/// What `/readyz` says of the agent: whether it is there, and why not.
async fn agent_readiness(gander: &Gander) -> (u16, Value) {
    let response = gander.client.get(format!("http://{}/readyz", gander.address)).send().await.unwrap();
    let status = response.status().as_u16();
    (status, response.json::<Value>().await.unwrap()["checks"]["agent"].clone())
}

#[tokio::test]
async fn a_goose_that_cannot_be_used_is_told_and_one_put_right_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let good = fake_agent();
    for (goose, says) in [
        (PathBuf::from("/nonexistent/goose"), "not found"),
        (PathBuf::from("goose-that-is-nowhere"), "not found"),
        (dir.path().to_owned(), "not found"),
        (program(&dir, "text", "#!/bin/sh\necho ' 1.52.0'\n", 0o644), "not found"),
        (program(&dir, "no-program", "just text\n", 0o755), "version"),
        (program(&dir, "other", "#!/bin/sh\necho hello\n", 0o755), "version"),
        (program(&dir, "fails", "#!/bin/sh\nexit 1\n", 0o755), "version"),
        (program(&dir, "old", "#!/bin/sh\necho ' 1.30.0'\n", 0o755), "1.30.0 is too old"),
    ] {
        let gander = Setup::with_agent(goose.clone()).start().await;
        let problem = no_session(&gander, &json!({}), 502, "agent-start-failed").await;
        assert!(text(&problem["detail"]).contains(says), "{}: {problem}", goose.display());
        let (status, agent) = agent_readiness(&gander).await;
        assert_eq!((status, &agent["ok"]), (503, &json!(false)), "{agent}");
        assert!(text(&agent["detail"]).contains(says), "{agent}");
        // Whoever puts goose right need not start gander again.
        if goose.is_file() {
            fs::remove_file(&goose).unwrap();
            symlink(&good, &goose).unwrap();
            assert_eq!(agent_readiness(&gander).await.0, 200);
            gander.session(&json!({})).await;
        }
        gander.stop().await;
    }
}

#[tokio::test]
async fn a_start_that_hangs_ends_with_what_hangs() {
    for (variable, hangs) in [("FAKE_AGENT_INITIALIZE", "initialize"), ("FAKE_AGENT_NEW", "session/new")] {
        let gander = Setup::fake()
            .env(&format!("GANDER_GOOSE__ENV__{variable}"), "hang")
            .env("GANDER_GOOSE__START_TIMEOUT", "400ms")
            .start()
            .await;
        let problem = no_session(&gander, &json!({}), 504, "agent-start-timeout").await;
        assert!(text(&problem["waiting_for"]).contains(hangs), "{problem}");
        assert!(text(&problem["detail"]).contains(hangs), "{problem}");
        gander.stop().await;
    }
}

#[tokio::test]
async fn a_session_that_is_not_what_was_asked_for_does_not_start() {
    for (variable, fault, code, says) in [
        ("FAKE_AGENT_NEW", "wrong-mode", "agent-start-failed", "mode"),
        ("FAKE_AGENT_NEW", "no-config-options", "provider-not-configured", "provider"),
        ("FAKE_AGENT_NEW", "error", "agent-start-failed", "did not start a session"),
        ("FAKE_AGENT_NEW", "exit", "agent-start-failed", "did not start a session"),
        ("FAKE_AGENT_INITIALIZE", "exit", "agent-start-failed", "did not start a session"),
        ("FAKE_AGENT_INITIALIZE", "error", "agent-start-failed", "did not start a session"),
    ] {
        let gander = Setup::fake().env(&format!("GANDER_GOOSE__ENV__{variable}"), fault).start().await;
        let problem = no_session(&gander, &json!({}), 502, code).await;
        assert!(text(&problem["detail"]).contains(says), "{variable}={fault}: {problem}");
        gander.stop().await;
    }
}

#[tokio::test]
async fn the_last_words_of_a_goose_that_ends_are_told_without_secrets_and_paths() {
    let dir = tempfile::tempdir().unwrap();
    let goose = program(
        &dir,
        "goose",
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo ' 1.52.0'; exit; fi\n\
         echo \"panicked: key $OPENAI_API_KEY in $GOOSE_PATH_ROOT/config and $HOME/x\" >&2\nexit 3\n",
        0o755,
    );
    let gander = Setup::with_agent(goose).env("OPENAI_API_KEY", "sk-very-secret-value").start().await;
    let problem = no_session(&gander, &json!({}), 502, "agent-start-failed").await;
    let tail = text(&problem["stderr_tail"]);
    assert!(tail.contains("panicked: key"), "{tail}");
    assert!(!tail.contains("sk-very-secret-value"), "{tail}");
    assert!(!gander.log().contains("sk-very-secret-value"));
    gander.stop().await;
}

#[tokio::test]
async fn no_provider_and_an_unknown_one_are_told_apart_from_a_broken_goose() {
    let without = || {
        // The variables of the scripted model, taken back.
        Setup::real()
            .env("GOOSE_PROVIDER", "")
            .env("GOOSE_MODEL", "")
            .env("OPENAI_API_KEY", "")
            .env("OPENAI_HOST", "")
    };
    let gander = without().start().await;
    no_session(&gander, &json!({}), 502, "provider-not-configured").await;
    gander.stop().await;

    let gander = Setup::real().start().await;
    let problem = no_session(&gander, &json!({"provider": "nosuch"}), 422, "invalid-request").await;
    assert_eq!(problem["errors"][0]["pointer"], "/provider");
    // The one that is set up works on.
    let session = gander.session(&json!({})).await;
    assert_eq!(session.turn(&script(&json!([[{"text": "Here."}]]))).await["text"], "Here.");
    assert!(!gander.model.requests().is_empty());
    gander.stop().await;
}

#[tokio::test]
async fn a_malformed_goose_configuration_is_told() {
    let config = tempfile::tempdir().unwrap();
    fs::write(config.path().join("config.yaml"), "GOOSE_PROVIDER: [openai\n").unwrap();
    let gander = Setup::fake().env("GANDER_GOOSE__CONFIG_DIR", config.path().to_str().unwrap()).start().await;
    let problem = no_session(&gander, &json!({}), 502, "agent-start-failed").await;
    assert!(text(&problem["detail"]).contains("config.yaml is malformed"), "{problem}");
    assert!(!problem.to_string().contains(config.path().to_str().unwrap()), "{problem}");
    fs::write(config.path().join("config.yaml"), "GOOSE_PROVIDER: openai\n").unwrap();
    gander.session(&json!({})).await;
    gander.stop().await;
}

#[tokio::test]
async fn a_failed_start_that_nobody_waited_for_stays_to_be_seen() {
    let gander = Setup::fake().env("GANDER_GOOSE__ENV__FAKE_AGENT_NEW", "exit").start().await;
    let create = gander.request(Method::POST, "/v1/sessions").header("prefer", "respond-async");
    let session = answer(create, StatusCode::ACCEPTED).await;
    assert_eq!(session["state"], "starting");
    let path = format!("/v1/sessions/{}", text(&session["id"]));
    let events = gander.request(Method::GET, &format!("{path}/events"));
    let mut events = EventStream::open(events).await;
    let failed = loop {
        let state = events.until("session.state").await.data;
        if state["state"] == "failed" {
            break state;
        }
    };
    assert!(text(&failed["reason"]).contains("did not start a session"), "{failed}");
    let now = gander.get(&path).await;
    assert_eq!((&now["state"], &now["state_reason"]), (&json!("failed"), &failed["reason"]));
    // A turn tries again, and tells in its own end that it was in vain.
    let turn = gander.request(Method::POST, &format!("{path}/turns")).header("prefer", "wait=30");
    let turn = answer(turn.json(&json!({"prompt": "echo a"})), StatusCode::OK).await;
    assert_eq!(
        (&turn["state"], &turn["error"]["class"]),
        (&json!("failed"), &json!("start_failed")),
        "{turn}"
    );
    let gone = gander.request(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    nothing_is_left(&gander).await;
    gander.stop().await;
}

#[tokio::test]
async fn a_folder_that_a_session_may_not_work_in_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let root = dir.path().join("root");
    let inside = root.join("inside");
    let outside = dir.path().join("root-beside");
    for folder in [&inside, &outside] {
        fs::create_dir_all(folder).unwrap();
    }
    symlink(&outside, root.join("way-out")).unwrap();
    symlink(&inside, dir.path().join("way-in")).unwrap();
    let refused = async |gander: &Gander, cwd: &Path| {
        let problem = no_session(gander, &json!({"cwd": cwd}), 422, "invalid-request").await;
        assert_eq!(pointers(&problem), ["/cwd"], "{}", cwd.display());
        problem
    };
    let gander = Setup::fake().start().await;
    for cwd in ["relative", "", "./x", "~", "/nonexistent/folder", file.to_str().unwrap(), "/a\0b"] {
        refused(&gander, Path::new(cwd)).await;
    }
    let session = gander.session(&json!({"cwd": outside})).await;
    assert_eq!(session.snapshot["cwd"], outside.canonicalize().unwrap().to_str().unwrap());
    gander.stop().await;

    let gander = Setup::fake().env("GANDER_SESSIONS__CWD_ROOTS", root.to_str().unwrap()).start().await;
    let missing = refused(&gander, &root.join("nothing")).await;
    for cwd in [&outside, &root.join("way-out"), &root.join("inside/../../root-beside"), &PathBuf::from("/")]
    {
        // In the same words as for one that does not exist: nobody learns what else this host has.
        let problem = refused(&gander, cwd).await;
        assert_eq!(problem["errors"], missing["errors"], "{}", cwd.display());
    }
    for cwd in [&root, &inside, &dir.path().join("way-in")] {
        gander.session(&json!({"cwd": cwd})).await;
    }
    gander.stop().await;
}

/// The pointers of a problem's errors.
fn pointers(problem: &Value) -> Vec<String> {
    problem["errors"].as_array().unwrap().iter().map(|error| text(&error["pointer"])).collect()
}

#[tokio::test]
async fn extensions_that_cannot_be_had_are_refused_before_anything_starts() {
    let gander = Setup::fake()
        .config("[goose]\nbuiltins = [\"todo\"]\ndisabled_extensions = [\"developer\", \"memory\"]")
        .start()
        .await;
    let body = json!({"builtins": ["todo", "develper", "memory"], "disabled_extensions": "apps,summarise,kubernetes"});
    let problem = no_session(&gander, &body, 422, "invalid-request").await;
    assert_eq!(
        pointers(&problem),
        ["/builtins/1", "/builtins/2", "/disabled_extensions/1", "/disabled_extensions/2"]
    );
    let details: Vec<String> =
        problem["errors"].as_array().unwrap().iter().map(|error| text(&error["detail"])).collect();
    assert!(details[0].contains("did you mean developer?"), "{details:?}");
    assert!(details[1].contains("switched this extension off"), "{details:?}");
    assert!(details[2].contains("did you mean summarize?"), "{details:?}");
    assert!(!details[3].contains("did you mean"), "{details:?}");
    // Without the shell nobody gets what could bring it back; goose's own ways to write a name count.
    for name in ["extensionmanager", "Extension_Manager"] {
        no_session(&gander, &json!({"builtins": [name]}), 422, "invalid-request").await;
    }
    gander
        .session(&json!({"builtins": ["todo", "Code_Execution"], "disabled_extensions": ["developer"]}))
        .await;
    gander.stop().await;
}

/// A session with everything that its agent tells by itself, and what can be seen of it.
async fn settled_session(gander: &Gander) -> (Session<'_>, (Value, Vec<Event>)) {
    let session = gander.session(&json!({"metadata": {"a": "b"}})).await;
    session.events().await.until("commands.updated").await;
    let before = (session.now().await, session.log().await);
    (session, before)
}

/// The session must be as it was, be the only one, and work.
async fn nothing_has_changed(session: &Session<'_>, before: (Value, Vec<Event>)) {
    let now = (session.now().await, session.log().await);
    assert!(now == before, "something has changed: {}", now.0);
    assert_eq!(session.gander.get("/v1/sessions").await["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(session.turn("echo still here").await["text"], "still here");
}

#[tokio::test]
async fn bodies_that_cannot_be_taken_are_refused_and_change_nothing() {
    let gander = Setup::fake().env("GANDER_LIMITS__BODY_BYTES", "4096").start().await;
    let (session, before) = settled_session(&gander).await;
    let at = |method: Method, rest: &str| gander.request(method, &session.path(rest));
    let sessions = || gander.request(Method::POST, "/v1/sessions");

    // Unknown fields and wrong types, at the top and deeper.
    for (request, pointer) in [
        (sessions().json(&json!({"permision_policy": {}})), "/permision_policy"),
        (sessions().json(&json!({"title": 7})), "/title"),
        (sessions().json(&json!({"mode": "yolo"})), "/mode"),
        (sessions().json(&json!({"metadata": {"a": 7}})), "/metadata/a"),
        (sessions().json(&json!({"metadata": {"a/b~": {}}})), "/metadata/a~1b~0"),
        (sessions().json(&json!({"builtins": ["todo", 7]})), "/builtins/1"),
        (sessions().json(&json!({"env": {"OPENAI_HOST": "http://evil.example"}})), "/env/OPENAI_HOST"),
        (sessions().json(&json!({"env": {"LD_PRELOAD": "/x"}})), "/env/LD_PRELOAD"),
        (sessions().json(&json!([])), ""),
        (at(Method::PATCH, "").json(&json!({"cwd": "/"})), "/cwd"),
        (at(Method::PATCH, "").json(&json!({"mode": null})), "/mode"),
        (at(Method::PATCH, "").json(&json!({"metadata": {"c": 7}})), "/metadata/c"),
        (at(Method::POST, "/turns").json(&json!({"prompt": "a", "when": "busy"})), "/when"),
        (at(Method::POST, "/turns").json(&json!({})), ""),
        (at(Method::POST, "/turns").json(&json!({"prompt": " \n"})), "/prompt"),
        (at(Method::POST, "/turns").json(&json!({"prompt": []})), "/prompt"),
        (at(Method::POST, "/turns").json(&json!({"prompt": 7})), "/prompt"),
        (prompt(&at, &json!({"type": "text", "txt": "a"})), "/prompt/0/text"),
        (prompt(&at, &json!({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"})), "/prompt/0/type"),
        (
            prompt(&at, &json!({"type": "resource_link", "uri": "file:///etc/passwd", "name": "x"})),
            "/prompt/0/uri",
        ),
        (prompt(&at, &json!({"type": "image", "mimeType": "image/png", "data": "?"})), "/prompt/0/data"),
        (
            prompt(&at, &json!({"type": "resource", "resource": {"uri": "x", "blob": "AAAA"}})),
            "/prompt/0/resource/blob",
        ),
    ] {
        let problem = refusal(request, 422, "invalid-request").await;
        assert_eq!(pointers(&problem)[0], pointer, "{problem}");
    }

    // What is no JSON, no JSON by its name, and too much of it.
    let raw = |body: &'static str, kind: &str| {
        gander.request(Method::POST, "/v1/sessions").header("content-type", kind).body(body)
    };
    for body in ["{", "{\"title\": }", "{}{}", "null x", "\u{feff}{}"] {
        refusal(raw(body, "application/json"), 400, "malformed-request").await;
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
        refusal(raw("{}", kind), 415, "unsupported-media-type").await;
    }
    let large = || json!({"title": "x".repeat(5000)});
    for request in [sessions(), at(Method::PATCH, ""), at(Method::POST, "/turns")] {
        refusal(request.json(&large()), 413, "body-too-large").await;
    }
    refusal(sessions().json(&large()).header("idempotency-key", "k"), 413, "body-too-large").await;
    // In one piece: a client that still writes when the answer is there may find the connection closed.
    let parts = futures_util::stream::iter([Ok::<_, std::io::Error>("{\"title\": \"".repeat(600))]);
    let unannounced = sessions().header("content-type", "application/json");
    let refused = unannounced.body(reqwest::Body::wrap_stream(parts)).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    // The rest is not read, so nothing more can be sent on this connection.
    assert_eq!(refused.headers()["connection"], "close");
    assert_eq!(refused.json::<Value>().await.unwrap()["code"], "body-too-large");

    nothing_has_changed(&session, before).await;
    gander.stop().await;
}

#[tokio::test]
async fn queries_headers_ids_and_paths_that_mean_nothing_are_refused() {
    let gander = Setup::fake().start().await;
    let (session, before) = settled_session(&gander).await;
    let at = |method: Method, rest: &str| gander.request(method, &session.path(rest));
    for query in [
        "?limit=0",
        "?limit=201",
        "?limit=x",
        "?cursor=x",
        "?state=asleep",
        "?sort=title",
        "?limit=1&limit=2",
    ] {
        refusal(gander.request(Method::GET, &format!("/v1/sessions{query}")), 400, "malformed-request").await;
    }
    for query in
        ["?after=x", "?after=-1", "?after=", "?follow=maybe", "?types=turn.startd", "?named=1", "?since=1"]
    {
        refusal(at(Method::GET, &format!("/events{query}")), 400, "malformed-request").await;
    }
    for id in ["x", "-1", "1.5", "99999999999999999999999"] {
        refusal(at(Method::GET, "/events").header("last-event-id", id), 400, "malformed-request").await;
    }
    let waits = at(Method::POST, "/turns").json(&json!({"prompt": "echo a"})).header("prefer", "wait=long");
    refusal(waits, 400, "malformed-request").await;

    // Ids and paths that name nothing.
    let nothing = "01890000-0000-7000-8000-000000000000";
    for id in ["x", nothing, "%00", "..%2f"] {
        refusal(gander.request(Method::GET, &format!("/v1/sessions/{id}")), 404, "session-not-found").await;
        refusal(gander.request(Method::DELETE, &format!("/v1/sessions/{id}")), 404, "session-not-found")
            .await;
        refusal(at(Method::GET, &format!("/turns/{id}")), 404, "turn-not-found").await;
        refusal(at(Method::POST, &format!("/turns/{id}/cancel")), 404, "turn-not-found").await;
        refusal(at(Method::GET, &format!("/permissions/{id}")), 404, "permission-not-found").await;
        let decide = at(Method::POST, &format!("/permissions/{id}")).json(&json!({"decision": "allow"}));
        refusal(decide, 404, "permission-not-found").await;
    }
    for path in ["/", "/v1", "/v1/", "/v1/session", "/v2/sessions", "/v1/sessions/", "/healthz/x"] {
        refusal(gander.request(Method::GET, path), 404, "not-found").await;
    }
    for (method, path, allowed) in [
        (Method::PUT, "/v1/sessions", "GET,HEAD,POST"),
        (Method::POST, "/v1/info", "GET,HEAD"),
        (Method::DELETE, "/healthz", "GET,HEAD"),
    ] {
        refusal(gander.request(method.clone(), path), 405, "method-not-allowed").await;
        let response = gander.request(method, path).send().await.unwrap();
        let mut allow: Vec<&str> = response.headers()["allow"].to_str().unwrap().split(',').collect();
        allow.sort_unstable();
        assert_eq!(allow.join(","), allowed);
    }

    // The caller's own request id comes back in the answer and in the problem.
    let named = gander.request(Method::GET, "/v1/nothing").header("x-request-id", "my-id-7");
    assert_eq!(refusal(named, 404, "not-found").await["request_id"], "my-id-7");

    nothing_has_changed(&session, before).await;
    gander.stop().await;
}

/// A prompt of one content block.
fn prompt(at: &impl Fn(Method, &str) -> RequestBuilder, block: &Value) -> RequestBuilder {
    at(Method::POST, "/turns").json(&json!({"prompt": [block]}))
}

#[tokio::test]
async fn over_capacity_callers_are_told_when_to_come_again() {
    for (limit, says) in
        [("GANDER_SESSIONS__MAX", "sessions.max"), ("GANDER_SESSIONS__MAX_RUNNING", "max_running")]
    {
        let gander = Setup::fake().env(limit, "2").start().await;
        let first = gander.session(&json!({})).await;
        let second = gander.session(&json!({})).await;
        // An agent with nothing to do would be let go for another.
        let mut hanging = Vec::new();
        for session in [&first, &second] {
            hanging.push(text(&session.prompt("hang").await["id"]));
        }
        let problem = refusal(gander.request(Method::POST, "/v1/sessions"), 503, "at-capacity").await;
        assert!(text(&problem["detail"]).contains(says), "{problem}");
        assert!(problem["retry_after_s"].as_u64().unwrap() > 0);
        let response = gander.request(Method::POST, "/v1/sessions").send().await.unwrap();
        assert_eq!(response.headers()["retry-after"], problem["retry_after_s"].to_string().as_str());
        assert_eq!(gander.get("/v1/sessions").await["sessions"].as_array().unwrap().len(), 2);
        second.cancel(&json!({"id": hanging[1]})).await;
        until_async("the turn is over", || async { second.now().await["current_turn"].is_null() }).await;
        assert_eq!(second.turn("echo on").await["text"], "on");
        // A place that is free again is given out again.
        first.delete().await;
        gander.session(&json!({})).await;
        gander.stop().await;
    }
    // Failed starts take no place.
    let gander = Setup::fake()
        .env("GANDER_SESSIONS__MAX_RUNNING", "1")
        .env("GANDER_SESSIONS__MAX", "1")
        .env("GANDER_GOOSE__ENV__FAKE_AGENT_NEW", "error")
        .start()
        .await;
    for _ in 0..3 {
        no_session(&gander, &json!({}), 502, "agent-start-failed").await;
    }
    gander.stop().await;
}
