//! Sessions that come and go, many of them by force: afterwards everything is as it was.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::ends::{below, held, sessions_with_rows};
use crate::support::{Chance, Gander, Session, Setup, answer, script, signal, text, until};

/// How many cycles run beside each other.
const LANES: usize = 4;
/// By how much the memory may differ, in bytes: allocators keep some. A session's tail alone may have 2 MiB.
const MEMORY_SLACK: u64 = 16 << 20;
/// By how much the files may: pages of the database that are given back a moment later.
const DISK_SLACK: u64 = 8 << 20;

fn prompt() -> String {
    let call = json!({"call": {"tool": "shell", "input": {"command": "seq 200; sleep 0.1"}}});
    script(&json!([[{"text": "I count."}, call], [{"text": "done"}]]))
}

async fn lives_well(gander: &Gander) {
    let session = gander.session(&json!({"mode": "auto"})).await;
    assert_eq!(session.turn(&prompt()).await["text"], "done");
    session.delete().await;
}

/// The session's goose is killed wherever it has got to: in its start, at the beginning of its turn, in its tool, after
/// it.
async fn is_killed(gander: &Gander, chance: &mut Chance) {
    let request = gander.request(Method::POST, "/v1/sessions").header("prefer", "respond-async");
    let made = answer(request.json(&json!({"mode": "auto"})), StatusCode::ACCEPTED).await;
    let session = Session { gander, id: text(&made["id"]), snapshot: made };
    let turn = async {
        while session.now().await["state"] == "starting" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // goose may be dead by then; the session wakes another, or says that it has failed.
        let request = gander.request(Method::POST, &session.path("/turns")).header("prefer", "wait=30");
        let _ = request.json(&json!({"prompt": prompt()})).send().await;
    };
    let killed = async {
        tokio::time::sleep(chance.span(Duration::from_millis(1500))).await;
        for pid in gooses_of(gander, &session.id) {
            signal(pid, "KILL");
        }
    };
    tokio::join!(turn, killed);
    session.delete().await;
}

/// The processes that have the session's home in their environment: goose and what it has started.
fn gooses_of(gander: &Gander, session: &str) -> Vec<u32> {
    let home = format!("GOOSE_PATH_ROOT={}", gander.storage().join("homes").join(session).display());
    let has_home = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == home.as_bytes())
    };
    gander.descendants().into_iter().filter(has_home).take(1).collect()
}

/// Sessions of which every so many are killed.
async fn cycles(gander: &Gander, count: usize, killed: usize, chance: &mut Chance) {
    let lanes: Vec<Chance> = (0..LANES).map(|_| chance.fork()).collect();
    let lane = async |(lane, mut chance): (usize, Chance)| {
        for number in (lane..count).step_by(LANES) {
            // Spread evenly, so that the dying are beside the living.
            if number * killed / count == (number + 1) * killed / count {
                lives_well(gander).await;
            } else {
                is_killed(gander, &mut chance).await;
            }
        }
    };
    join_all(lanes.into_iter().enumerate().map(lane)).await;
}

/// What is there when nothing happens.
struct Stock {
    held: BTreeMap<String, usize>,
    memory: u64,
    disk: u64,
}

impl Stock {
    fn of(gander: &Gander) -> Self {
        let status = fs::read_to_string(format!("/proc/{}/status", gander.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        // Beside the database is a log of its changes, which is emptied at moments of its own.
        let files = below(&gander.storage()).into_iter().filter(|path| !path.ends_with("gander.db-wal"));
        let disk = files.map(|path| fs::metadata(path).map_or(0, |about| about.len())).sum();
        Self { held: held(gander.pid()), memory: kilobytes << 10, disk }
    }
}

#[tokio::test]
async fn after_100_sessions_of_which_30_were_killed_everything_is_as_it_was() {
    let mut chance = Chance::new("cycles");
    // As patient as the cycles: a session must not be kept from its next goose for having lost some.
    let gander = Setup::real().config("[crash]\ndeaths = 100").start().await;
    cycles(&gander, 2 * LANES, LANES, &mut chance).await;
    until("the first ones are gone", || gander.descendants().is_empty()).await;
    let before = Stock::of(&gander);

    cycles(&gander, 100, 30, &mut chance).await;

    assert_eq!(gander.descendants(), Vec::<u32>::new());
    assert_eq!(gander.get("/v1/sessions").await["sessions"], Value::Array(Vec::new()));
    for folder in ["homes", "workspaces"] {
        assert_eq!(below(&gander.storage().join(folder)).into_iter().next(), None);
    }
    until("no row is left", || sessions_with_rows(&gander).iter().all(|(_, sessions)| sessions.is_empty()))
        .await;
    // A connection or an idle thread may live on for some seconds.
    until("all is given back", || {
        let mut more = Stock::of(&gander).held;
        more.retain(|kind, count| *count > before.held.get(kind).copied().unwrap_or(0));
        more.is_empty()
    })
    .await;
    let after = Stock::of(&gander);
    assert!(after.memory < before.memory + MEMORY_SLACK, "{} and then {}", before.memory, after.memory);
    assert!(after.disk < before.disk + DISK_SLACK, "{} and then {}", before.disk, after.disk);
    gander.stop().await;
}
