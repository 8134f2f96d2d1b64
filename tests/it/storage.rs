//! The storage on a disk that is full, and the sizes and files of the database.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{Event, Gander, Session, Setup, answer, refusal, text, until_async};

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

/// Floods a session until the disk is full; the session's events so far are read by nobody.
async fn flood_until_full(session: &Session<'_>) -> Value {
    let turn = session.prompt("flood 200000\necho done").await;
    until_async("the disk is full", async || !is_ready(session.gander).await).await;
    turn
}

#[tokio::test]
async fn a_full_disk_stops_new_work_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount(24) else { return };
    let setup = Setup::fake().dir(Arc::clone(&disk.dir)).config("[storage]\nreserve_bytes = 0");
    let gander = setup.start().await;
    let (flooding, idle) = (gander.session(&json!({})).await, gander.session(&json!({})).await);
    let mut live = idle.events().await;
    let ballast = disk.fill();
    let turn = flood_until_full(&flooding).await;

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
    until_async("writing works again", async || is_ready(&gander).await).await;
    let done = idle.turn("echo hello").await;
    assert_eq!((&done["state"], &done["text"]), (&json!("completed"), &json!("hello")));
    assert_eq!(live.until("turn.completed").await.data["turn"]["id"], done["id"]);
    flooding.delete().await;
    refusal(gander.request(Method::GET, &path), 404, "session-not-found").await;
    assert_ids_in_order(&idle.log().await);
    gander.stop().await;
}
