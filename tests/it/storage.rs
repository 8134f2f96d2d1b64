//! The storage on a disk that is full, and the sizes and files of the database.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{Event, Gander, Session, Setup, refusal, text, until_async};

/// A file system of a few megabytes in memory, in a folder's `storage`.
struct SmallDisk {
    dir: Arc<TempDir>,
}

impl SmallDisk {
    /// `None`, with a note, where nothing can be mounted.
    fn mount(megabytes: u32) -> Option<Self> {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let storage = dir.path().join("storage");
        std::fs::create_dir(&storage).unwrap();
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(&storage)
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !mounted {
            #[expect(clippy::print_stdout, reason = "a test that did not run says so")]
            {
                println!("skipped: a small file system cannot be mounted here");
            }
            return None;
        }
        Some(Self { dir })
    }

    fn storage(&self) -> PathBuf {
        self.dir.path().join("storage")
    }

    /// Writes until nothing more fits.
    fn fill(&self) -> PathBuf {
        let ballast = self.storage().join("ballast");
        let file = std::fs::File::create(&ballast).unwrap();
        let mut size = 1 << 20;
        while size > 0 {
            while std::io::Write::write_all(&mut &file, &vec![0; size]).is_ok() {}
            size /= 2;
        }
        ballast
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a gander that has just ended may still have files in it.
        let _ = Command::new("umount").arg("-l").arg(self.storage()).status();
    }
}

/// No id is missing or comes twice.
fn assert_ids_in_order(events: &[Event]) {
    for (event, id) in events.iter().zip(1..) {
        assert_eq!(event.data["id"], id);
    }
}

async fn is_ready(gander: &Gander) -> bool {
    let response = gander.client.get(format!("http://{}/readyz", gander.address)).send().await.unwrap();
    response.status() == StatusCode::OK
}

/// Fills the disk while a turn runs that has much to say. Gives the turn and the file that takes the room.
async fn fill_within_a_turn(disk: &SmallDisk, session: &Session<'_>, events: usize) -> (Value, PathBuf) {
    let turn = session.prompt(&format!("sleep 1000\nflood {events}\necho done")).await;
    let ballast = disk.fill();
    until_async("the disk is full", async || !is_ready(session.gander).await).await;
    (turn, ballast)
}

#[tokio::test]
async fn a_full_disk_stops_new_work_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount(64) else { return };
    let setup = Setup::fake().dir(Arc::clone(&disk.dir)).config("[storage]\nreserve_bytes = 0");
    let gander = setup.start().await;
    let (flooding, idle) = (gander.session(&json!({})).await, gander.session(&json!({})).await);
    let mut live = idle.events().await;
    let (turn, ballast) = fill_within_a_turn(&disk, &flooding, 20_000).await;

    // Nothing new is begun.
    let prompt = json!({"prompt": "echo hello"});
    let turns = gander.request(Method::POST, &idle.path("/turns")).json(&prompt);
    let problem = refusal(turns, 503, "storage-unavailable").await;
    assert!(problem["retry_after_s"].is_u64(), "{problem}");
    refusal(gander.request(Method::POST, "/v1/sessions").json(&json!({})), 503, "storage-unavailable").await;
    // What is there can be read, also of the session that waits.
    assert_eq!(idle.now().await["state"], "idle");
    assert_eq!(flooding.now().await["state"], "running");
    assert_eq!(gander.get("/v1/sessions").await["sessions"].as_array().unwrap().len(), 2);
    assert_ids_in_order(&flooding.log().await);

    // With room everything goes on: the turn that ran completes, the stream is still there, the next turn works.
    std::fs::remove_file(ballast).unwrap();
    let path = flooding.path(&format!("/turns/{}", text(&turn["id"])));
    until_async("the turn ends", async || gander.get(&path).await["state"] != "running").await;
    assert_eq!(gander.get(&path).await["state"], "completed");
    let events = flooding.log().await;
    assert_ids_in_order(&events);
    assert_eq!(events.iter().filter(|event| event.kind() == "message.delta").count(), 20_001);
    until_async("writing works again", async || is_ready(&gander).await).await;
    let done = idle.turn("echo hello").await;
    assert_eq!((&done["state"], &done["text"]), (&json!("completed"), &json!("hello")));
    assert_eq!(live.until("turn.completed").await.data["turn"]["id"], done["id"]);
    assert_ids_in_order(&idle.log().await);
    gander.stop().await;
}

#[tokio::test]
async fn deleting_makes_room_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount(64) else { return };
    let gander = Setup::fake().dir(Arc::clone(&disk.dir)).start().await;
    let (flooding, other) = (gander.session(&json!({})).await, gander.session(&json!({})).await);
    flooding.turn("flood 20000").await;
    fill_within_a_turn(&disk, &flooding, 60_000).await;
    // Its turn waits for room, and so does its task: it goes all the same.
    flooding.delete().await;
    until_async("writing works again", async || is_ready(&gander).await).await;
    assert_eq!(other.turn("echo hello").await["text"], "hello");
    refusal(gander.request(Method::GET, &flooding.path("")), 404, "session-not-found").await;
    gander.stop().await;
}

#[tokio::test]
async fn a_gander_on_a_full_disk_can_be_stopped() {
    let Some(disk) = SmallDisk::mount(64) else { return };
    let setup = Setup::fake().dir(Arc::clone(&disk.dir));
    let gander = setup.config("[server]\nshutdown_grace = \"100ms\"").start().await;
    let session = gander.session(&json!({})).await;
    let (turn, ballast) = fill_within_a_turn(&disk, &session, 20_000).await;
    let (id, told) = (session.id.clone(), session.log().await);
    gander.stop().await;
    std::fs::remove_file(ballast).unwrap();

    let gander = Setup::fake().dir(Arc::clone(&disk.dir)).start().await;
    let session = Session { gander: &gander, id, snapshot: Value::Null };
    let path = session.path(&format!("/turns/{}", text(&turn["id"])));
    until_async("the turn is closed", async || gander.get(&path).await["state"] != "running").await;
    assert_eq!(gander.get(&path).await["state"], "interrupted");
    let events = session.log().await;
    assert_ids_in_order(&events);
    assert_eq!(events[..told.len()], told);
    gander.stop().await;
}

#[tokio::test]
async fn deleted_sessions_give_their_room_back() {
    let gander = Setup::fake().start().await;
    let kept = gander.session(&json!({})).await;
    let size = || ["gander.db"].map(|name| std::fs::metadata(gander.storage().join(name)).unwrap().len())[0];
    let before = size();
    let mut sessions = Vec::new();
    for _ in 0..20 {
        let session = gander.session(&json!({})).await;
        session.turn("flood 2000").await;
        sessions.push(session);
    }
    let full = || size() > before + 5_000_000;
    until_async("the log of changes is moved into the file", async || full()).await;
    for session in sessions {
        session.delete().await;
    }
    until_async("the file is small again", async || size() < before + 1_000_000).await;
    for folder in ["homes", "workspaces"] {
        let left = std::fs::read_dir(gander.storage().join(folder)).unwrap().count();
        assert_eq!(left, 1, "{folder}");
    }
    assert_eq!(kept.turn("echo hello").await["text"], "hello");
    gander.stop().await;
}

#[tokio::test]
async fn a_session_that_is_not_used_is_deleted() {
    let gander = Setup::fake().config("[sessions]\nexpire_after = \"2s\"").start().await;
    let (unused, used) = (gander.session(&json!({})).await, gander.session(&json!({})).await);
    let mut events = unused.events().await;
    used.prompt("wait").await;
    let deleted = events.until("session.deleted").await;
    assert_eq!(deleted.data["session"]["by"], "expiry");
    assert!(events.next().await.is_none());
    assert_eq!(used.now().await["state"], "running");
    gander.stop().await;
}

/// What `gander serve` says and how it ends, with this file in the database's place.
fn start_with(make: impl FnOnce(&rusqlite::Connection)) -> (String, Option<i32>) {
    let dir = tempfile::tempdir().unwrap();
    make(&rusqlite::Connection::open(dir.path().join("gander.db")).unwrap());
    let output = Command::new(env!("CARGO_BIN_EXE_gander"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env_clear()
        .env("HOME", dir.path())
        .env("GANDER_STORAGE__DIR", dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (said.replace(&*dir.path().to_string_lossy(), "<dir>"), output.status.code())
}

#[test]
fn a_database_that_cannot_be_used_stops_the_start_with_one_line() {
    let foreign = start_with(|file| file.execute_batch("CREATE TABLE recipes (name TEXT)").unwrap());
    let newer = start_with(|file| {
        let version = "PRAGMA application_id = 0x676e6472; PRAGMA user_version = 999; CREATE TABLE t (x)";
        file.execute_batch(version).unwrap();
    });
    let damaged = start_with(|file| std::fs::write(file.path().unwrap(), "no database".repeat(999)).unwrap());
    for ((said, code), line) in [
        (foreign, "<dir>/gander.db is not gander's database"),
        (newer, "<dir>/gander.db was written by a newer gander (schema 999, this one knows up to 6)"),
        (damaged, "<dir>/gander.db is damaged: file is not a database"),
    ] {
        assert!(code.is_some_and(|code| code != 0), "{code:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(line), "{said}");
    }
}
