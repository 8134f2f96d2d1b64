//! The home of the one goose: what is kept in it, and for whom.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{pid, says, shared, shell};
use crate::callers::write_tokens;
use crate::extensions::loaded;
use crate::support::{Session, command, offered_tools, output, real_goose, script};

fn remember(word: &str) -> String {
    let input = json!({"category": "words", "data": word, "is_global": true});
    let call = json!({"call": {"tool": "memory__remember_memory", "input": input}});
    script(&json!([[call], [{"text": "done"}]]))
}

#[tokio::test]
async fn memories_outlive_goose_and_go_no_further_than_one_caller() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let users = dir.path().join("home/.config/goose");
    fs::create_dir_all(users.join("memory")).unwrap();
    fs::write(users.join("memory/words.txt"), "operators-own\n").unwrap();
    let config = "extensions: {memory: {enabled: true, type: builtin, name: memory, bundled: true, timeout: 300, \
                  display_name: Memory, description: Memories}}";
    fs::write(users.join("config.yaml"), config).unwrap();
    let start = |builtins: &str| {
        shared().config(&format!("[goose]\nbuiltins = {builtins}")).dir(Arc::clone(&dir)).start()
    };

    let gander = start("[\"memory\"]").await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    session.turn(&remember("heliotrope")).await;
    let id = session.id.clone();
    gander.stop().await;

    // There is one caller, whose sessions all know it, also after goose was started anew.
    let gander = start("[\"memory\"]").await;
    let other = gander.session(&json!({"mode": "auto"})).await;
    other.turn(&says("Well?")).await;
    let told = gander.model.requests().pop().unwrap().to_string();
    assert!(told.contains("heliotrope") && !told.contains("operators-own"), "{told}");
    gander.stop().await;

    // There may be several now: neither the configuration of goose's user nor a session that had it brings it back.
    let gander = start("[\"todo\"]").await;
    let new = gander.session(&json!({"mode": "auto"})).await;
    assert!(!loaded(&new.snapshot).contains(&"memory".to_owned()), "{}", new.snapshot);
    let woken = Session { gander: &gander, id, snapshot: Value::Null };
    for session in [&new, &woken] {
        let asked = gander.model.requests().len();
        let turn = session.turn(&says("And now?")).await;
        assert_eq!(turn["state"], "completed", "{turn}");
        let call = gander.model.requests().split_off(asked).pop().unwrap();
        let tools = offered_tools(&call);
        assert!(!tools.iter().any(|tool| tool.contains("memor")), "{tools:?}");
        assert!(!call["messages"][0].to_string().contains("heliotrope"), "{call}");
        assert!(!call.to_string().contains("operators-own"), "{call}");
    }
    // While it comes back, and is taken away, it finds nothing of the user's.
    let environment = fs::read_to_string(format!("/proc/{}/environ", pid(&new.snapshot))).unwrap();
    let within = format!("XDG_CONFIG_HOME={}", gander.storage().join("homes/serve/xdg-config").display());
    assert!(environment.split('\0').any(|variable| variable == within), "{environment}");
    assert_eq!(fs::read_to_string(users.join("memory/words.txt")).unwrap(), "operators-own\n");
    gander.stop().await;
}

#[tokio::test]
async fn what_reaches_other_sessions_is_for_one_caller() {
    let dir = tempfile::tempdir().unwrap();
    write_tokens(dir.path(), &[("ada", &[]), ("bob", &[])]);
    for builtins in ["memory", "todo,chatrecall,summon"] {
        for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["check"]] {
            let mut command = gander(dir.path(), arguments);
            command.env("GANDER_GOOSE__BUILTINS", builtins);
            let output = output(command).await;
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            let named = builtins.trim_start_matches("todo,").replace(',', ", ");
            let why = format!(
                "there are 2 callers, and with goose.transport = \"websocket\" and {named} in goose.builtins there \
                 may be one"
            );
            assert!(said.contains(&why), "{said}");
        }
    }
}

fn gander(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = command(dir, &real_goose(), arguments);
    command
        .env("GANDER_AUTH__TOKENS_FILE", dir.join("tokens.toml"))
        .env("GANDER_GOOSE__TRANSPORT", "websocket");
    command
}

#[tokio::test]
async fn temporary_files_go_with_the_goose_that_had_them() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    for config in ["[goose]\nhome = \"shared\"\nterminal = false", "[goose]\nterminal = false"] {
        let start = || shared().config(config).dir(Arc::clone(&dir)).start();
        let gander = start().await;
        let session = gander.session(&json!({"mode": "auto"})).await;
        session.turn(&shell("echo left > \"$TMPDIR/left\"")).await;
        let left = gander.storage().join("homes/serve/tmp/left");
        assert!(left.is_file());
        gander.stop().await;
        let gander = start().await;
        // It runs when a session is there.
        gander.session(&json!({})).await;
        assert!(!left.exists(), "{config}");
        gander.stop().await;
    }
}
