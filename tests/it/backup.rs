//! The backup that docs/operations.md describes, taken while gander runs, and the restore of it.

use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::{Session, Setup, script};

#[tokio::test]
async fn a_backup_taken_while_gander_runs_is_a_gander_that_goes_on() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    session.turn(&script(&json!([[{"text": "the word is heron"}]]))).await;
    let before = session.now().await;

    let copy = Arc::new(tempfile::tempdir().unwrap());
    let storage = copy.path().join("storage");
    std::fs::create_dir(&storage).unwrap();
    let database = rusqlite::Connection::open(gander.storage().join("gander.db")).unwrap();
    database.execute("VACUUM INTO ?1", [storage.join("gander.db").to_str().unwrap()]).unwrap();
    drop(database);
    let copied = Command::new("cp")
        .arg("-a")
        .args(["token", "homes", "workspaces"].map(|name| gander.storage().join(name)))
        .arg(&storage)
        .status()
        .unwrap();
    assert!(copied.success());
    // What the original does from here on is not in the backup.
    session.turn(&script(&json!([[{"text": "and the bird flies on"}]]))).await;
    let id = session.id.clone();
    gander.stop().await;

    let restored = Setup::real().dir(copy).start().await;
    let session = Session { gander: &restored, id, snapshot: Value::Null };
    let now = session.now().await;
    assert_eq!((&now["state"], &now["title"]), (&json!("hibernated"), &before["title"]));
    let turn = session.turn(&script(&json!([[{"text": "still here"}]]))).await;
    assert_eq!(turn["state"], "completed", "{turn}");
    assert!(turn["first_event_id"].as_u64() > before["last_event_id"].as_u64());
    let asked = restored.model.requests().pop().unwrap().to_string();
    assert!(asked.contains("the word is heron"), "goose remembers: {asked}");
    assert!(!asked.contains("flies on"));
    restored.stop().await;
}
