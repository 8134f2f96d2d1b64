//! What goes wrong, and what callers are told: always a problem with its code, and gander stays up.

mod requests;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{EventStream, Gander, Setup, answer, fake_agent, refusal, script, text, until};

/// The pointers of a problem's errors.
fn pointers(problem: &Value) -> Vec<String> {
    problem["errors"].as_array().unwrap().iter().map(|error| text(&error["pointer"])).collect()
}

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
