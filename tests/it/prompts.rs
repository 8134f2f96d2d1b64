//! What a prompt may be made of, on the real goose.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    Gander, Session, Setup, answer, assert_at_rest, kinds, of_turn, refusal, script, text, until_async,
};

/// One white pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const NOT_THE_SESSIONS: &str = "must be a file in the session's directory";

fn link(uri: &str) -> Value {
    json!({"type": "resource_link", "uri": uri, "name": "a file"})
}

fn file(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// A prompt of text that makes the model say `said`, and of further blocks.
fn prompt(said: &str, blocks: &[Value]) -> Value {
    let first = json!({"type": "text", "text": script(&json!([[{"text": said}]]))});
    [first].into_iter().chain(blocks.iter().cloned()).collect()
}

fn turn(session: &Session<'_>, prompt: &Value) -> RequestBuilder {
    let request = session.gander.request(Method::POST, &session.path("/turns")).header("prefer", "wait=30");
    request.json(&json!({"prompt": prompt}))
}

fn cwd(session: &Session<'_>) -> PathBuf {
    PathBuf::from(text(&session.snapshot["cwd"]))
}

/// What the model was last sent by the user.
fn heard(gander: &Gander) -> String {
    let call = gander.model.requests().pop().unwrap();
    let last = call["messages"].as_array().unwrap().iter().rfind(|message| message["role"] == "user");
    last.unwrap()["content"].to_string()
}

#[tokio::test]
async fn a_link_to_a_file_of_the_session_brings_its_text() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let cwd = cwd(&session);
    fs::write(cwd.join("notes on it.txt"), "The horse is brown.").unwrap();
    symlink("notes on it.txt", cwd.join("shortcut")).unwrap();
    let web = link("https://example.org/page");
    let ended =
        answer(turn(&session, &prompt("Read.", &[link(&file(&cwd.join("shortcut"))), web])), StatusCode::OK)
            .await;
    assert_eq!((&ended["state"], &ended["text"]), (&json!("completed"), &json!("Read.")));
    // goose is given the file that was looked at, and no way to it.
    let real = cwd.canonicalize().unwrap().join("notes on it.txt");
    assert_eq!(ended["prompt"][1]["uri"], file(&real).replace(' ', "%20"));
    let words = heard(&gander);
    assert!(words.contains("The horse is brown.") && words.contains("notes on it.txt"), "{words}");
    assert!(words.contains("https://example.org/page"), "{words}");

    // Into a running turn, too.
    let mut events = session.events_with("?after=latest").await;
    let calls =
        script(&json!([[{"call": {"tool": "shell", "input": {"command": "true"}}}], [{"text": "Done."}]]));
    let running = session.prompt(&calls).await;
    let asked = events.until("permission.requested").await.data["permission"].clone();
    let steer = session.path(&format!("/turns/{}/steer", text(&running["id"])));
    let steering = |uri: String| {
        let blocks = json!([{"type": "text", "text": "See"}, link(&uri)]);
        gander.request(Method::POST, &steer).json(&json!({"prompt": blocks}))
    };
    let refused = refusal(steering("file:///etc/hostname".to_owned()), 422, "invalid-request").await;
    assert_eq!(refused["errors"], json!([{"pointer": "/prompt/1/uri", "detail": NOT_THE_SESSIONS}]));
    fs::write(cwd.join("more"), "The cart is red.").unwrap();
    answer(steering(file(&cwd.join("more"))), StatusCode::ACCEPTED).await;
    session.answer(&asked, "allow").await;
    events.until("turn.completed").await;
    assert!(heard(&gander).contains("The cart is red."));
    assert_at_rest(&gander).await;
    gander.stop().await;
}

#[tokio::test]
async fn a_link_to_a_file_of_the_host_is_refused_and_goose_never_sees_it() {
    let gander = Setup::real().config("[limits]\nlinked_file_bytes = 20").start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let cwd = cwd(&session);
    symlink("/etc/hostname", cwd.join("innocent.txt")).unwrap();
    fs::write(cwd.join("large.txt"), "x".repeat(21)).unwrap();
    answer(turn(&session, &prompt("Ready.", &[])), StatusCode::OK).await;
    let (calls, events) = (gander.model.requests().len(), session.log().await.len());
    let mut faults = Vec::new();
    for uri in [
        "file:///etc/hostname".to_owned(),
        "FILE:/etc/hostname".to_owned(),
        "file://localhost/etc/no-such-file".to_owned(),
        file(&cwd.join("innocent.txt")),
        format!("{}/../../../../../../../../../etc/hostname", file(&cwd)),
        file(&cwd.join("missing.txt")),
        file(&cwd),
    ] {
        let problem = refusal(turn(&session, &prompt("Never.", &[link(&uri)])), 422, "invalid-request").await;
        assert_eq!(problem["errors"][0]["pointer"], "/prompt/1/uri", "{uri}");
        faults.push(text(&problem["errors"][0]["detail"]));
    }
    faults.dedup();
    assert_eq!(faults, [NOT_THE_SESSIONS], "the same words for all: callers learn nothing of the host");
    let two = [
        link("ftp://example.org/a"),
        json!({"type": "text", "text": "and"}),
        link(&file(&cwd.join("large.txt"))),
    ];
    let problem = refusal(turn(&session, &prompt("Never.", &two)), 422, "invalid-request").await;
    let found = problem["errors"].as_array().unwrap();
    let pointers: Vec<&Value> = found.iter().map(|fault| &fault["pointer"]).collect();
    assert_eq!(pointers, ["/prompt/1/uri", "/prompt/3/uri"]);
    assert!(text(&found[1]["detail"]).contains("limits.linked_file_bytes"));
    // Nothing of it has happened.
    assert_eq!(session.log().await.len(), events);
    assert_eq!(gander.model.requests().len(), calls);
    let after = answer(turn(&session, &prompt("After.", &[])), StatusCode::OK).await;
    assert_eq!(after["text"], "After.");
    let hostname = fs::read_to_string("/etc/hostname").unwrap();
    let requests = json!(gander.model.requests()).to_string();
    assert!(!requests.contains("/etc/hostname") && !requests.contains("Never."));
    assert!(hostname.trim().is_empty() || !requests.contains(hostname.trim()));
    gander.stop().await;
}

#[tokio::test]
async fn a_queued_turn_whose_link_has_moved_meanwhile_fails_unsent() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let cwd = cwd(&session);
    for name in ["stays.txt", "moves.txt"] {
        fs::write(cwd.join(name), "before").unwrap();
    }
    let mut events = session.events_with("?after=latest").await;
    let calls =
        script(&json!([[{"call": {"tool": "shell", "input": {"command": "true"}}}], [{"text": "Done."}]]));
    session.prompt(&calls).await;
    let asked = events.until("permission.requested").await.data["permission"].clone();
    let mut queued = Vec::new();
    for (said, name) in [("Moved.", "moves.txt"), ("Stayed.", "stays.txt")] {
        let body = json!({"prompt": prompt(said, &[link(&file(&cwd.join(name)))]), "when_busy": "queue"});
        queued.push(gander.post(&session.path("/turns"), &body, StatusCode::ACCEPTED).await);
    }
    fs::write(cwd.join("stays.txt"), "what it says when it is read").unwrap();
    fs::remove_file(cwd.join("moves.txt")).unwrap();
    symlink("/etc/hostname", cwd.join("moves.txt")).unwrap();
    session.answer(&asked, "allow").await;
    events.until("turn.completed").await;
    events.until("turn.completed").await;
    let log = session.log().await;
    let failed = of_turn(&log, &queued[0]);
    assert_eq!(kinds(&failed), ["turn.queued", "turn.failed"]);
    let error = &failed[1].data["turn"]["error"];
    assert_eq!((&error["class"], &error["retryable"]), (&json!("prompt_refused"), &json!(false)));
    assert!(text(&error["message"]).contains(NOT_THE_SESSIONS), "{error}");
    let path = session.path(&format!("/turns/{}", text(&queued[1]["id"])));
    until_async("the turn ends", || async { gander.get(&path).await["text"] == "Stayed." }).await;
    assert!(heard(&gander).contains("what it says when it is read"));
    assert!(!json!(gander.model.requests()).to_string().contains("Moved."));
    assert_at_rest(&gander).await;
    gander.stop().await;
}

#[tokio::test]
async fn an_image_reaches_the_model_and_what_is_none_does_not() {
    let gander = Setup::real().config("[limits]\nprompt_blocks = 3\nimage_bytes = 90").start().await;
    // To a model that it does not know to see, goose sends words in an image's place.
    let session = gander.session(&json!({"model": "gpt-4o"})).await;
    let image = |kind: &str, data: &str| json!({"type": "image", "mimeType": kind, "data": data});
    let seen = prompt("A pixel.", &[image("image/png", PNG)]);
    assert_eq!(answer(turn(&session, &seen), StatusCode::OK).await["text"], "A pixel.");
    let words = heard(&gander);
    assert!(words.contains(&format!("data:image/png;base64,{PNG}")), "{words}");
    let calls = gander.model.requests().len();
    let aside = json!({"type": "text", "text": "for me", "annotations": {"audience": ["user"]}});
    let large = format!("{}{}", &PNG[..PNG.len() - 4], "A".repeat(60));
    for (blocks, pointer, word) in [
        (vec![image("image/jpeg", PNG)], "/prompt/1/data", "image/png"),
        (vec![image("image/svg+xml", "PHN2Zz4=")], "/prompt/1/mimeType", "image/webp"),
        (vec![image("image/png", "!!!notbase64")], "/prompt/1/data", "base64"),
        (vec![image("image/png", &large)], "/prompt/1/data", "limits.image_bytes"),
        (vec![aside], "/prompt/1/annotations/audience", "assistant"),
        (vec![json!({"type": "text", "text": "a"}); 3], "/prompt", "limits.prompt_blocks"),
    ] {
        let problem = refusal(turn(&session, &prompt("Never.", &blocks)), 422, "invalid-request").await;
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
        assert!(text(&problem["errors"][0]["detail"]).contains(word), "{problem}");
    }
    assert_eq!(gander.model.requests().len(), calls);
    gander.stop().await;
}
