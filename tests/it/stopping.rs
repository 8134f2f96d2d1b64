//! Turns that are stopped, whatever goose does: they end, nothing of them runs on, and the session goes on.

use std::path::Path;

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::process::machine::{Tag, eventually};
use crate::support::{
    Gander, Session, Setup, assert_all_ended_once, carried, lives, only, script, shares_goose, signal, text,
    until,
};

/// A prompt whose model answers with one text.
fn says(words: &str) -> String {
    script(&json!([[{"text": words}]]))
}

/// A prompt whose shell call runs this and then tells so.
fn shell(command: &str) -> String {
    script(&json!([[{"call": {"tool": "shell", "input": {"command": command}}}], [{"text": "done"}]]))
}

/// What goose does when its turn is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Situation {
    MidStream,
    MidTool,
    PendingPermission,
    BeforeTheModelsFirstWord,
    RetryBackOff,
    Stopped,
}

impl Situation {
    const ALL: [Self; 6] = [
        Self::MidStream,
        Self::MidTool,
        Self::PendingPermission,
        Self::BeforeTheModelsFirstWord,
        Self::RetryBackOff,
        Self::Stopped,
    ];

    /// Whether goose hears a cancel in it.
    fn is_heard(self) -> bool {
        matches!(self, Self::MidStream | Self::MidTool | Self::PendingPermission)
    }

    fn prompt(self, tag: &Tag) -> String {
        match self {
            Self::MidStream | Self::Stopped => script(&json!([[{"text": "Well"}, "hang"]])),
            Self::MidTool | Self::PendingPermission => shell(&format!("sleep {tag}")),
            Self::BeforeTheModelsFirstWord => script(&json!([["hang"]])),
            Self::RetryBackOff => script(&json!([[{"error": {"status": 500, "body": {}}}]])),
        }
    }
}

/// How often the model was asked with this word in the conversation.
fn asked(gander: &Gander, word: &str) -> usize {
    gander.model.requests().iter().filter(|request| request.to_string().contains(word)).count()
}

fn pid(snapshot: &Value) -> u32 {
    snapshot["agent"]["pid"].as_u64().unwrap().try_into().unwrap()
}

async fn cancel_in(gander: &Gander, situation: Situation) {
    let mode = if situation == Situation::PendingPermission { "approve" } else { "auto" };
    let session = gander.session(&json!({"mode": mode})).await;
    let word = format!("the word is {situation:?}");
    session.turn(&says(&word)).await;
    let before = asked(gander, &word);
    let tag = Tag::new();
    let mut events = session.events_with("?after=latest").await;
    let turn = session.prompt(&situation.prompt(&tag)).await;
    match situation {
        Situation::MidStream => drop(events.until("message.delta").await),
        Situation::MidTool => eventually("the tool runs", || tag.sleeping() == 1).await,
        Situation::PendingPermission => drop(events.until("permission.requested").await),
        Situation::BeforeTheModelsFirstWord | Situation::RetryBackOff => {
            until("the model is asked", || asked(gander, &word) > before).await;
        }
        Situation::Stopped => {
            events.until("message.delta").await;
            signal(pid(&session.snapshot), "STOP");
        }
    }
    assert_eq!(session.cancel(&turn).await["id"], turn["id"]);
    // By itself goose would take minutes, or for ever.
    let told = events.through("turn.cancelled").await;
    let ended = &told.last().unwrap().data["turn"];
    assert_eq!((&ended["id"], &ended["stop_reason"]), (&turn["id"], &json!("cancelled")), "{situation:?}");
    assert_eq!(tag.running(), Vec::<u32>::new(), "{situation:?}");
    if !situation.is_heard() {
        assert_eq!(only(&told, "notice").data["code"], "agent-killed", "{situation:?}");
        // Of a goose that all sessions share only the session's connection ends.
        assert_eq!(lives(pid(&session.snapshot)), shares_goose(), "{situation:?}");
    }

    let next = session.turn(&says("Here again.")).await;
    assert_eq!(
        (&next["state"], &next["text"]),
        (&json!("completed"), &json!("Here again.")),
        "{situation:?}"
    );
    let last = gander.model.requests().into_iter().rfind(|request| request.to_string().contains(&word));
    assert!(
        last.is_some_and(|last| last.to_string().contains("Here again.")),
        "{situation:?}: it has forgotten"
    );
    let generation = if situation.is_heard() { 1 } else { 2 };
    assert_eq!(session.now().await["agent"]["generation"], generation, "{situation:?}");
    assert_all_ended_once(&session.log().await);
}

#[tokio::test]
async fn a_cancel_ends_its_turn_in_every_situation_and_what_was_said_before_is_remembered() {
    let gander = Setup::real()
        .config("[cancel]\ngrace = \"1s\"")
        // goose is to retry with its pauses, for as long as it likes.
        .env("GOOSE_PROVIDER_SKIP_BACKOFF", "false")
        .start()
        .await;
    // A goose that is stopped and that all sessions share would stop the others too: see `serve`.
    let alone = |situation: &Situation| !(shares_goose() && *situation == Situation::Stopped);
    let situations = Situation::ALL.into_iter().filter(alone);
    join_all(situations.map(|situation| cancel_in(&gander, situation))).await;
    gander.stop().await;
}

/// An MCP server that offers nothing, in a goose configuration of its own.
fn with_server(dir: &Path, tag: &Tag) -> String {
    const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request: continue
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    if request["method"] == "initialize":
        answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": {},
                            "serverInfo": {"name": "idle", "version": "1"}}
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
"#;
    std::fs::write(dir.join("server.py"), SERVER).unwrap();
    let extension = json!({
        "enabled": true, "type": "stdio", "name": "idle", "description": "", "cmd": "python3",
        "args": [dir.join("server.py"), tag.to_string()], "envs": {}, "timeout": 300,
    });
    std::fs::write(dir.join("config.yaml"), json!({"extensions": {"idle": extension}}).to_string()).unwrap();
    format!("[goose]\nconfig_dir = {:?}\n", dir.display().to_string())
}

async fn run_in_background(session: &Session<'_>, tag: &Tag) {
    let turn = session.turn(&shell(&format!("sleep {tag} >/dev/null 2>&1 &"))).await;
    assert_eq!(turn["state"], "completed");
    eventually("the job runs", || tag.sleeping() == 1).await;
}

#[tokio::test]
async fn a_cancel_kills_what_its_turn_started_and_neither_servers_nor_earlier_jobs() {
    let (dir, server, job) = (tempfile::tempdir().unwrap(), Tag::new(), Tag::new());
    let gander = Setup::real().config(&with_server(dir.path(), &server)).start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    run_in_background(&session, &job).await;
    // Also in a turn that goose is woken for: the server is new then, and no job of earlier turns is left.
    for woken in [false, true] {
        if woken {
            gander.post(&session.path("/hibernate"), &json!({}), StatusCode::OK).await;
            assert_eq!((server.running(), job.running()), (vec![], vec![]));
        }
        let (tool, left) = (Tag::new(), Tag::new());
        let mut events = session.events_with("?after=latest").await;
        let turn =
            session.prompt(&shell(&format!("(setsid sleep {left} &) >/dev/null 2>&1; sleep {tool}"))).await;
        eventually("its tools run", || tool.sleeping() == 1 && left.sleeping() == 1).await;
        let servers = server.running();
        assert_eq!(servers.len(), 1);
        session.cancel(&turn).await;
        let told = events.through("turn.cancelled").await;
        assert_eq!((tool.running(), left.running()), (vec![], vec![]));
        assert_eq!((server.running(), job.sleeping()), (servers, usize::from(!woken)));
        let notice = only(&told, "notice");
        assert_eq!(notice.data["code"], "processes-killed");
        let message = text(&notice.data["message"]);
        // The shell lets its first command end, and goose itself kills the shell.
        assert!(message.starts_with(['1', '2', '3']), "{message}");
        assert_eq!(session.turn(&says("On.")).await["text"], "On.");
    }
    gander.stop().await;
}

#[tokio::test]
async fn a_turn_that_takes_too_long_is_stopped_and_fails_whether_goose_hears_or_not() {
    let gander =
        Setup::real().config("[turns]\nmax_duration = \"4s\"\n[cancel]\ngrace = \"300ms\"").start().await;
    let gander = &gander;
    join_all([true, false].map(async |hears| {
        let session = gander.session(&json!({"mode": "auto"})).await;
        let reply = if hears { json!([[{"text": "Well"}, "hang"]]) } else { json!([["hang"]]) };
        let turn = session.turn(&script(&reply)).await;
        assert_eq!(
            (&turn["state"], &turn["error"]["class"]),
            (&json!("failed"), &json!("deadline")),
            "{turn}"
        );
        assert_eq!(turn["text"], if hears { json!("Well") } else { Value::Null });
        let log = session.log().await;
        assert_all_ended_once(&log);
        let codes = carried(&log, "notice", "code");
        assert_eq!(codes.contains(&&json!("agent-killed")), !hears, "{codes:?}");
        assert_eq!(session.turn(&says("On.")).await["text"], "On.");
    }))
    .await;
}
