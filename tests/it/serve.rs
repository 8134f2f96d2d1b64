//! One `goose serve` for all sessions: what its end, its port and its secret mean for them.

mod faults;
mod one_home;

use std::fs;

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::process::machine::{Tag, eventually};
use crate::support::{
    Gander, Session, Setup, assert_all_ended_once, descendants, lives, script, signal, text, until_async,
};

/// The real goose, one for all.
fn shared() -> Setup {
    Setup::real().env("GANDER_GOOSE__TRANSPORT", "websocket")
}

fn shell(command: &str) -> String {
    script(&json!([[{"call": {"tool": "shell", "input": {"command": command}}}], [{"text": "done"}]]))
}

fn says(words: &str) -> String {
    script(&json!([[{"text": words}]]))
}

fn pid(session: &Value) -> u32 {
    session["agent"]["pid"].as_u64().unwrap().try_into().unwrap()
}

/// What readiness says of the agent: whether it is right, and the detail.
async fn readiness(gander: &Gander) -> (StatusCode, Value) {
    let response = gander.client.get(format!("http://{}/readyz", gander.address)).send().await.unwrap();
    let status = response.status();
    (status, response.json::<Value>().await.unwrap()["checks"]["agent"].clone())
}

async fn ready(gander: &Gander) {
    until_async("it is ready", || async { readiness(gander).await.0 == StatusCode::OK }).await;
}

/// Begins a turn with a shell that goes on, and waits until that runs.
async fn long_turn(session: &Session<'_>, tag: &Tag) {
    session.prompt(&shell(&format!("sleep {tag}"))).await;
    eventually("the tool runs", || tag.sleeping() == 1).await;
}

#[tokio::test]
async fn sessions_share_one_goose_and_neither_words_nor_ends() {
    let gander = shared().start().await;
    let (one, two) =
        (gander.session(&json!({"mode": "auto"})).await, gander.session(&json!({"mode": "auto"})).await);
    assert_eq!(
        (pid(&one.snapshot), &one.snapshot["agent"]["transport"]),
        (pid(&two.snapshot), &json!("websocket"))
    );
    assert_eq!(gander.get("/v1/info").await["agent"]["transport"], "websocket");
    let (tag_of_one, tag_of_two) = (Tag::new(), Tag::new());
    let mut events = one.events_with("?after=latest").await;
    long_turn(&one, &tag_of_one).await;
    long_turn(&two, &tag_of_two).await;

    // A stop, and a delete, touch the session's own processes alone.
    let turn = one.now().await["current_turn"].clone();
    one.cancel(&turn).await;
    events.until("turn.cancelled").await;
    assert_eq!((tag_of_one.running().len(), tag_of_two.sleeping()), (0, 1));
    assert_eq!(one.turn(&says("Here.")).await["text"], "Here.");
    let background = Tag::new();
    one.turn(&shell(&format!("(setsid sleep {background} &) >/dev/null 2>&1"))).await;
    eventually("the job runs", || background.sleeping() == 1).await;
    one.delete().await;
    assert_eq!((background.running().len(), tag_of_two.sleeping()), (0, 1));
    two.delete().await;
    assert_eq!(tag_of_two.running(), Vec::<u32>::new());
    let goose = pid(&two.snapshot);
    assert!(lives(goose), "it stays for others");
    gander.stop().await;
    assert!(!lives(goose));
}

#[tokio::test]
async fn a_goose_that_is_killed_in_the_middle_of_five_turns_interrupts_all_and_all_go_on() {
    let gander = shared().start().await;
    let sessions = join_all((0..5).map(async |_| gander.session(&json!({"mode": "auto"})).await)).await;
    let tags: Vec<Tag> = sessions.iter().map(|_| Tag::new()).collect();
    let turns = sessions.iter().zip(&tags).enumerate().map(async |(number, (session, tag))| {
        session.turn(&says(&format!("the word is w{number}"))).await;
        let events = session.events().await;
        long_turn(session, tag).await;
        events
    });
    let streams = join_all(turns).await;
    let killed = pid(&sessions[0].snapshot);
    signal(killed, "KILL");
    for mut events in streams {
        let told = events.through("turn.interrupted").await;
        assert_all_ended_once(&told);
        assert_eq!(told.last().unwrap().data["turn"]["error"]["class"], "agent_exited");
        let notice = told.iter().find(|event| event.data["code"] == "agent-exited").unwrap();
        assert!(text(&notice.data["message"]).contains("goose serve"), "{:?}", notice.data);
    }
    // Told only when nothing is left.
    assert!(tags.iter().all(|tag| tag.running().is_empty()));
    let turns = sessions.iter().map(async |session| session.turn(&says("Again.")).await);
    for turn in join_all(turns).await {
        assert_eq!((&turn["state"], &turn["text"]), (&json!("completed"), &json!("Again.")));
    }
    for (number, session) in sessions.iter().enumerate() {
        let now = session.now().await;
        assert_ne!(pid(&now), killed);
        assert_eq!(now["agent"]["generation"], 2);
        // Each has its own past.
        let word = format!("the word is w{number}");
        let last = gander.model.requests().into_iter().rfind(|request| request.to_string().contains(&word));
        assert!(last.unwrap().to_string().contains("Again."), "{word} is forgotten");
    }
    gander.stop().await;
}

#[tokio::test]
async fn a_goose_that_hangs_is_killed_and_another_takes_its_place() {
    let config = "[goose.serve]\nhealth_interval = \"100ms\"\nhealth_timeout = \"300ms\"";
    let gander = shared().config(config).start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let mut events = session.events_with("?after=latest").await;
    let tag = Tag::new();
    long_turn(&session, &tag).await;
    let hung = pid(&session.snapshot);
    signal(hung, "STOP");
    let told = events.through("turn.interrupted").await;
    assert_eq!(told.last().unwrap().data["turn"]["error"]["class"], "agent_exited");
    assert!(!lives(hung) && tag.running().is_empty());
    assert_eq!(session.turn(&says("Back.")).await["text"], "Back.");
    gander.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_goose_that_hangs() {
    // Only this connection is closed; what the others do is for the health check to see.
    let config =
        "[cancel]\ngrace = \"300ms\"\n[goose.serve]\nhealth_interval = \"500ms\"\nhealth_timeout = \"500ms\"";
    let gander = shared().config(config).start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let mut events = session.events_with("?after=latest").await;
    let tag = Tag::new();
    long_turn(&session, &tag).await;
    signal(pid(&session.snapshot), "STOP");
    let turn = session.now().await["current_turn"].clone();
    session.cancel(&turn).await;
    events.until("turn.cancelled").await;
    assert_eq!(tag.running(), Vec::<u32>::new());
    let next = session.turn(&says("Back.")).await;
    assert_eq!(next["text"], "Back.", "{next}");
    gander.stop().await;
}

#[tokio::test]
async fn sessions_come_back_after_a_restart_and_a_deleted_one_does_not() {
    let gander = shared().start().await;
    let dir = gander.dir.clone();
    let (kept, deleted) =
        (gander.session(&json!({"mode": "auto"})).await, gander.session(&json!({"mode": "auto"})).await);
    kept.turn(&says("the word is anchor")).await;
    deleted.turn(&says("the word is deleted")).await;
    gander.post(&kept.path("/hibernate"), &json!({}), StatusCode::OK).await;
    assert_eq!(kept.turn(&says("Awake.")).await["text"], "Awake.");
    let folder = gander.storage().join("homes").join(&deleted.id);
    let noted: Value = serde_json::from_slice(&fs::read(folder.join("goose-sessions")).unwrap()).unwrap();
    let name = text(&noted["id"]);
    assert_eq!(rows(&gander, &name), 1);
    deleted.delete().await;
    assert_eq!((rows(&gander, &name), folder.exists()), (0, false));
    let id = kept.id.clone();
    gander.stop().await;

    let gander = shared().dir(dir).start().await;
    let kept = Session { gander: &gander, id, snapshot: Value::Null };
    assert_eq!(kept.turn(&says("Here again.")).await["text"], "Here again.");
    let last = gander.model.requests().pop().unwrap().to_string();
    assert!(last.contains("the word is anchor") && last.contains("Awake."), "{last}");
    gander.stop().await;
}

/// How many sessions of this name goose keeps.
fn rows(gander: &Gander, name: &str) -> i64 {
    let path = gander.storage().join("homes/serve/data/sessions/sessions.db");
    let database = rusqlite::Connection::open(path).unwrap();
    let mut query = database.prepare("SELECT count(*) FROM sessions WHERE id = ?1").unwrap();
    query.query_row([name], |row| row.get::<_, i64>(0)).unwrap()
}

#[tokio::test]
async fn a_session_stays_with_the_transport_that_it_was_made_with() {
    let own = || Setup::real().env("GANDER_GOOSE__TRANSPORT", "stdio");
    let gander = own().start().await;
    let dir = gander.dir.clone();
    let of_pipes = gander.session(&json!({})).await.id;
    gander.stop().await;

    let gander = shared().dir(dir.clone()).start().await;
    let of_socket = gander.session(&json!({})).await.id;
    assert_refused(&gander, of_pipes, "stdio").await;
    gander.stop().await;

    let gander = own().dir(dir).start().await;
    assert_refused(&gander, of_socket, "websocket").await;
    gander.stop().await;
}

async fn assert_refused(gander: &Gander, id: String, transport: &str) {
    let turn = Session { gander, id, snapshot: Value::Null }.turn(&says("Well?")).await;
    assert_eq!(turn["state"], "failed");
    let message = text(&turn["error"]["message"]);
    assert!(message.contains(&format!("goose.transport = \"{transport}\"")), "{message}");
}

#[tokio::test]
async fn nothing_outlives_a_gander_that_is_killed() {
    let mut gander = shared().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let (tag, goose) = (Tag::new(), pid(&session.snapshot));
    long_turn(&session, &tag).await;
    let all = descendants(gander.pid());
    assert!(all.contains(&goose));
    gander.signal("KILL");
    gander.ended().await;
    eventually("everything is gone", || !all.iter().any(|pid| lives(*pid)) && tag.running().is_empty()).await;
}

#[tokio::test]
async fn the_secret_is_in_gooses_environment_and_nowhere_else() {
    let gander = shared().env("GANDER_LOG__FILTER", "trace").start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    session.turn(&says("Hello.")).await;
    let environment = fs::read_to_string(format!("/proc/{}/environ", pid(&session.snapshot))).unwrap();
    let variable = environment.split('\0').find_map(|pair| pair.strip_prefix("GOOSE_SERVER__SECRET_KEY="));
    let secret = variable.unwrap();
    assert_eq!(secret.len(), 64);
    for process in descendants(gander.pid()) {
        let line = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
        assert!(!line.contains(secret), "{line}");
    }
    assert!(!gander.log().contains(secret));
    gander.stop().await;
}

#[tokio::test]
async fn the_users_own_home_can_be_the_home_of_all() {
    let gander = shared().config("[goose]\nhome = \"shared\"").start().await;
    let session = gander.session(&json!({"mode": "auto", "disabled_extensions": "developer"})).await;
    let loaded = session.snapshot["extensions"].to_string();
    assert!(!loaded.contains("developer") && !loaded.contains("summon"), "{loaded}");
    session.turn(&says("the word is homely")).await;
    gander.post(&session.path("/hibernate"), &json!({}), StatusCode::OK).await;
    assert_eq!(session.turn(&says("On.")).await["text"], "On.");
    assert!(gander.model.requests().pop().unwrap().to_string().contains("the word is homely"));
    let database = gander.dir.path().join("home/.local/share/goose/sessions/sessions.db");
    let rows = || {
        let database = rusqlite::Connection::open(&database).unwrap();
        database.query_row("SELECT count(*) FROM sessions", (), |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(rows(), 1);
    session.delete().await;
    assert_eq!(rows(), 0);
    gander.stop().await;
}

#[tokio::test]
async fn what_goose_remembers_to_allow_stops_the_turns_of_all() {
    let gander = shared().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    session.turn(&says("Fine.")).await;
    let file = gander.storage().join("homes/serve/config/permission.yaml");
    fs::write(&file, "user:\n  always_allow: [shell]\n").unwrap();
    let turn = session.turn(&says("Not fine.")).await;
    assert_eq!(turn["state"], "failed");
    assert!(text(&turn["error"]["message"]).contains("always_allow"), "{turn}");
    fs::remove_file(file).unwrap();
    assert_eq!(session.turn(&says("Fine again.")).await["text"], "Fine again.");
    gander.stop().await;
}
