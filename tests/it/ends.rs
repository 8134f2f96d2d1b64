//! How sessions and gander end, and what is left of them: nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::process::machine::{Tag, Tools, eventually};
use crate::support::{
    Gander, Session, Setup, answer, assert_all_ended_once, descendants, fake_agent, kinds, lives, refusal,
    script, shares_goose, signal, text, until,
};

fn agent_pid(session: &Session<'_>) -> u32 {
    session.snapshot["agent"]["pid"].as_u64().unwrap().try_into().unwrap()
}

/// A prompt whose shell call runs this and then tells so.
fn shell(command: &str) -> String {
    script(&json!([[{"call": {"tool": "shell", "input": {"command": command}}}], [{"text": "done"}]]))
}

/// A prompt whose shell call leaves the tools running, detached from the shell's output.
fn leaves(tools: &Tools) -> String {
    shell(&format!("{{ {} }} >/dev/null 2>&1 </dev/null", tools.script()))
}

/// Every file and folder below one.
pub(crate) fn below(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
            found.insert(entry.path());
        }
    }
    found
}

/// The sessions that have rows in each of the database's tables.
pub(crate) fn sessions_with_rows(gander: &Gander) -> Vec<(&'static str, Vec<i64>)> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let database = rusqlite::Connection::open_with_flags(gander.storage().join("gander.db"), flags).unwrap();
    let columns = [
        ("sessions", "number"),
        ("events", "k >> 40"),
        ("runs", "session"),
        ("turns", "session"),
        ("permissions", "session"),
        ("deletions", "session"),
    ];
    let rows = |(table, column)| {
        let mut query = database.prepare(&format!("SELECT DISTINCT {column} FROM {table}")).unwrap();
        let found = query.query_map((), |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
        (table, found)
    };
    columns.map(rows).into()
}

async fn delete(gander: &Gander, path: &str) -> StatusCode {
    gander.request(Method::DELETE, path).send().await.unwrap().status()
}

#[tokio::test]
async fn a_deleted_session_leaves_no_process_and_no_data_and_another_keeps_its_own() {
    // Also where gander has a temporary folder of its own.
    let gander = Setup::real().env("TMPDIR", "/tmp").start().await;
    let (session, other) =
        (gander.session(&json!({"mode": "auto"})).await, gander.session(&json!({"mode": "approve"})).await);
    let (tools, kept) = (Tools::new(), Tools::new());
    assert_eq!(session.turn(&leaves(&tools)).await["text"], "done");
    tools.all_run().await;
    let mut asked = other.events().await;
    other.prompt(&leaves(&kept)).await;
    other.answer(&asked.until("permission.requested").await.data["permission"], "allow").await;
    asked.until("turn.completed").await;
    kept.all_run().await;

    // Temporary files of goose and of its tools are the session's data too.
    let told = session.turn(&shell("echo \"<$TMPDIR>\"; touch $TMPDIR/mine")).await;
    assert_eq!(told["state"], "completed");
    let home = gander.storage().join("homes").join(&session.id);
    let workspace = gander.storage().join("workspaces").join(&session.id);
    // A goose that all sessions share has one such folder for all of them.
    assert!(shares_goose() || home.join("tmp/mine").is_file(), "{:?}", below(&home));
    assert!(home.is_dir() && workspace.is_dir());
    let agent = agent_pid(&session);

    session.delete().await;
    // Not "soon": the answer is the proof that nothing is left.
    assert_eq!(tools.running(), Vec::<u32>::new());
    assert_eq!(lives(agent), shares_goose());
    assert!(!home.exists() && !workspace.exists());
    let named = |path: &PathBuf| path.to_string_lossy().contains(&session.id);
    assert_eq!(below(gander.dir.path()).into_iter().find(named), None);
    for (table, sessions) in sessions_with_rows(&gander) {
        let expected = if table == "deletions" { vec![] } else { vec![2] };
        assert_eq!(sessions, expected, "{table}");
    }
    let list = gander.get("/v1/sessions").await;
    assert_eq!((&list["sessions"][0]["id"], &list["sessions"][1]), (&json!(other.id), &Value::Null));

    assert_eq!(kept.running().len(), 4);
    assert_eq!(other.turn(&script(&json!([[{"text": "here"}]]))).await["text"], "here");
    other.delete().await;
    assert_eq!(kept.running(), Vec::<u32>::new());
    assert_eq!(gander.descendants(), Vec::<u32>::new());
}

#[tokio::test]
async fn a_running_turn_ends_cancelled_when_its_session_is_deleted() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let tag = Tag::new();
    let mut events = session.events().await;
    session.prompt(&shell(&format!("sleep {tag}"))).await;
    eventually("the tool runs", || tag.sleeping() == 1).await;
    session.delete().await;
    assert_eq!(tag.running(), Vec::<u32>::new());
    let told = events.rest().await;
    assert_all_ended_once(&told);
    assert_eq!(kinds(&told[told.len() - 2..]), ["turn.cancelled", "session.deleted"]);

    // One that waits for an answer.
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events().await;
    session.prompt(&shell("ls")).await;
    let mut told = events.through("permission.requested").await;
    session.delete().await;
    told.extend(events.rest().await);
    assert_all_ended_once(&told);
    let resolved = told.iter().find(|event| event.kind() == "permission.resolved").unwrap();
    assert_eq!(resolved.data["permission"]["outcome"]["by"], "cancel");
    assert_eq!(gander.get("/v1/permissions?state=pending").await["permissions"], json!([]));
}

#[tokio::test]
async fn a_session_whose_folder_cannot_be_removed_is_gone_from_everywhere_else() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({})).await;
    gander.post(&session.path("/hibernate"), &json!({}), StatusCode::OK).await;
    let home = gander.storage().join("homes").join(&session.id);
    fs::remove_dir_all(&home).unwrap();
    fs::write(&home, "no folder").unwrap();
    // Nobody finds it any more, so nobody could try again but the next start; the operator is told.
    assert_eq!(delete(&gander, &session.path("")).await, StatusCode::NO_CONTENT);
    until("the operator is told", || gander.log().contains("what belonged to a deleted session is left"))
        .await;
    refusal(gander.request(Method::GET, &session.path("")), 404, "session-not-found").await;
    assert_eq!(gander.get("/v1/sessions").await["sessions"], json!([]));
    assert!(!gander.storage().join("workspaces").join(&session.id).exists());
    fs::remove_file(&home).unwrap();
    gander.stop().await;
}

#[tokio::test]
async fn a_session_can_be_deleted_while_it_starts() {
    // The real goose, at whatever moment of its start that is.
    let gander = Setup::real().start().await;
    for _ in 0..3 {
        let request = gander.request(Method::POST, "/v1/sessions").header("prefer", "respond-async");
        let session = answer(request.json(&json!({})), StatusCode::ACCEPTED).await;
        assert_eq!(session["state"], "starting");
        let path = format!("/v1/sessions/{}", text(&session["id"]));
        assert_eq!(delete(&gander, &path).await, StatusCode::NO_CONTENT);
        refusal(gander.request(Method::GET, &path), 404, "session-not-found").await;
        assert_eq!(gander.descendants(), Vec::<u32>::new());
    }
    let homes = fs::read_dir(gander.storage().join("homes")).unwrap().flatten();
    let homes: Vec<_> = homes.map(|home| home.file_name()).filter(|name| name != "serve").collect();
    assert!(homes.is_empty(), "{homes:?}");
    gander.stop().await;

    // One that never gets ready.
    for hangs in ["FAKE_AGENT_INITIALIZE", "FAKE_AGENT_NEW"] {
        let gander = Setup::fake().config(&format!("[goose.env]\n{hangs} = \"hang\"")).start().await;
        let request = gander.request(Method::POST, "/v1/sessions").header("prefer", "respond-async");
        let session = answer(request.json(&json!({})), StatusCode::ACCEPTED).await;
        let program = fake_agent();
        let runs = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
        until("the agent runs", || gander.descendants().iter().any(runs)).await;
        let path = format!("/v1/sessions/{}", text(&session["id"]));
        assert_eq!(delete(&gander, &path).await, StatusCode::NO_CONTENT);
        assert_eq!(gander.descendants(), Vec::<u32>::new());
        refusal(gander.request(Method::DELETE, &path), 404, "session-not-found").await;
    }
}

#[tokio::test]
async fn of_two_deletes_one_wins_and_the_other_finds_nothing() {
    let gander = Setup::fake().start().await;
    for _ in 0..10 {
        let session = gander.session(&json!({})).await;
        let path = session.path("");
        let (one, two) = tokio::join!(delete(&gander, &path), delete(&gander, &path));
        let both = BTreeSet::from([one.as_u16(), two.as_u16()]);
        assert_eq!(both, BTreeSet::from([204, 404]));
        // Whatever is asked of it then: it is gone.
        for rest in ["", "/turns", "/events", "/plan", "/messages", "/permissions"] {
            refusal(gander.request(Method::GET, &session.path(rest)), 404, "session-not-found").await;
        }
        refusal(gander.request(Method::DELETE, &path), 404, "session-not-found").await;
    }
}

#[tokio::test]
async fn a_killed_goose_interrupts_its_turn() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let tag = Tag::new();
    let mut events = session.events().await;
    let turn = session.prompt(&shell(&format!("sleep {tag}"))).await;
    eventually("the tool runs", || tag.sleeping() == 1).await;
    signal(agent_pid(&session), "KILL");
    let told = events.through("turn.interrupted").await;
    assert_all_ended_once(&told);
    let ended = &told.last().unwrap().data["turn"];
    assert_eq!((&ended["id"], &ended["error"]["class"]), (&turn["id"], &json!("agent_exited")));
    // Told only when nothing of it is left.
    assert_eq!(tag.running(), Vec::<u32>::new());
    assert_eq!(events.until("session.state").await.data["state"], "hibernated");
    // What a killed goose leaves in its temporary folder goes with the session.
    session.delete().await;
    assert!(!gander.storage().join("homes").join(&session.id).exists());
}

#[tokio::test]
async fn a_gander_that_stops_leaves_no_process_and_no_file_outside_its_storage() {
    let gander = Setup::real().start().await;
    let outside = tempfile::tempdir().unwrap();
    let session = gander.session(&json!({"mode": "auto", "cwd": outside.path()})).await;
    let tools = Tools::new();
    assert_eq!(session.turn(&leaves(&tools)).await["text"], "done");
    tools.all_run().await;
    let all = descendants(gander.pid());
    // Nor does what it prints outlive it as a secret in somebody's log.
    assert!(![gander.welcome(), gander.log()].iter().any(|text| text.contains(&gander.token)));
    let dir = gander.dir.clone();
    gander.stop().await;
    assert_eq!(tools.running(), Vec::<u32>::new());
    assert_eq!(all.into_iter().find(|pid| lives(*pid)), None);
    assert_eq!(below(outside.path()), BTreeSet::new());
    let storage = dir.path().join("storage");
    let stray = below(dir.path())
        .into_iter()
        .find(|path| !path.starts_with(&storage) && !path.ends_with("gander.toml"));
    assert_eq!(stray, None);
}

/// What a process holds open: descriptors by what they lead to, without numbers, and threads. Left out is the database,
/// of which each of a fixed number of connections opens its files when it first needs them.
pub(crate) fn held(pid: u32) -> BTreeMap<String, usize> {
    let mut held = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        if target.to_string_lossy().contains("gander.db") {
            continue;
        }
        let kind = target.to_string_lossy().trim_end_matches(|last| "[]0123456789".contains(last)).to_owned();
        *held.entry(kind).or_default() += 1;
    }
    held.insert("threads".into(), fs::read_dir(format!("/proc/{pid}/task")).unwrap().count());
    held
}

#[tokio::test]
async fn sessions_that_come_and_go_leave_nothing_open() {
    let gander = Setup::fake().start().await;
    let cycle = async |rounds: usize| {
        for round in 0..rounds {
            let session = gander.session(&json!({})).await;
            let mut events = session.events().await;
            // Every third agent dies by itself.
            if round % 3 == 0 {
                session.prompt("open-call\ncrash 1").await;
                events.until("turn.interrupted").await;
            } else {
                session.turn("call\necho x\nstderr 1000").await;
            }
            session.delete().await;
            events.rest().await;
        }
    };
    cycle(3).await;
    let before = held(gander.pid());
    cycle(30).await;
    assert_eq!(gander.descendants(), Vec::<u32>::new());
    // A connection or an idle thread may live on for some seconds.
    until("all is given back", || {
        let mut more = held(gander.pid());
        more.retain(|kind, count| *count > before.get(kind).copied().unwrap_or(0));
        more.is_empty()
    })
    .await;
}
