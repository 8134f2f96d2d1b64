//! Prompts that link files, and have to wait for the agent.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_link_that_moves_while_the_agent_starts_fails_its_turn_unsent() {
    let mut world = World::new(|_| {}).await;
    let dir = tempfile::tempdir().unwrap();
    let session = world.create().await.unwrap();
    world.launch().await.succeed_in(dir.path().to_owned());
    session.started().await.unwrap().unwrap();
    let file = dir.path().canonicalize().unwrap().join("a.txt");
    let link = json!({"type": "resource_link", "uri": format!("file://{}", file.display()), "name": "a"});
    for moves in [true, false] {
        let _ = fs::remove_file(&file);
        fs::write(&file, "mine").unwrap();
        session.hibernate(&"alice".into()).await.unwrap();
        let prompt = Prompt::Blocks(vec![link.clone()]);
        let turn = session.prompt(&"alice".into(), prompt, WhenBusy::Reject).await.unwrap();
        let launch = world.launch().await;
        if moves {
            fs::remove_file(&file).unwrap();
            symlink("/etc/hostname", &file).unwrap();
        }
        let mut agent = launch.succeed_in(dir.path().to_owned());
        if !moves {
            let sent = agent.commands.recv().await.unwrap();
            assert!(matches!(sent, AgentCommand::Prompt { turn: sent, .. } if sent == turn.id), "{sent:?}");
            continue;
        }
        until(&session, SessionState::Idle).await;
        let ended = world.store.kept_turn(turn.id);
        let error = ended.error.unwrap();
        assert_eq!((ended.state, error.class), (TurnState::Failed, TurnErrorClass::PromptRefused));
        assert!(agent.commands.try_recv().is_err(), "it is told nothing of it");
    }
}
