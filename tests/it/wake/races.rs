//! Wakes that many ask for at once, that are broken off, or that fail.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::until_state;
use crate::support::{Gander, Session, Setup, assert_at_rest, fake_agent, lives, refusal, text, until};

/// An agent that notes its starts, and does not start while there is a file named `broken`.
struct NotedAgent {
    dir: TempDir,
}

impl NotedAgent {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = acp ]; then\n  echo start >> {at}/starts\n  \
             if [ -e {at}/broken ]; then echo 'no disk here' >&2; exit 7; fi\nfi\nexec '{}' \"$@\"\n",
            fake_agent().display()
        );
        let path = dir.path().join("goose");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir }
    }

    fn setup(&self) -> Setup {
        Setup::with_agent(self.dir.path().join("goose"))
    }

    fn starts(&self) -> usize {
        fs::read_to_string(self.dir.path().join("starts")).unwrap_or_default().lines().count()
    }

    fn broken(&self) -> PathBuf {
        self.dir.path().join("broken")
    }
}

#[tokio::test]
async fn all_who_wake_a_session_at_once_start_one_agent() {
    let agent = NotedAgent::new();
    let gander = agent.setup().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let mut refused = BTreeSet::new();
    for round in 1..=6 {
        session.hibernate().await;
        assert_eq!(agent.starts(), round);
        let mut callers = JoinSet::new();
        for number in 0..6 {
            let request = if (number + round) % 3 == 0 {
                let mode = ["approve", "chat"][number % 2];
                gander.request(Method::PATCH, &session.path("")).json(&json!({"mode": mode}))
            } else {
                gander.request(Method::POST, &session.path("/turns")).json(&json!({"prompt": "echo on"}))
            };
            callers.spawn(async move {
                let response = request.send().await.unwrap();
                (response.status().as_u16(), response.json::<Value>().await.unwrap())
            });
        }
        let mut modes = BTreeSet::new();
        let mut taken = 0;
        while let Some(answer) = callers.join_next().await {
            let (status, body) = answer.unwrap();
            match status {
                200 => {
                    taken += 1;
                    modes.insert(text(&body["mode"]));
                }
                202 => taken += 1,
                409 => {
                    refused.insert(text(&body["code"]));
                }
                _ => panic!("{status} {body}"),
            }
        }
        assert!(taken > 0);
        until_state(&session, "idle").await;
        let now = session.now().await;
        assert_eq!((agent.starts(), &now["agent"]["generation"]), (round + 1, &json!(round + 1)));
        assert!(modes.is_empty() || modes.contains(&text(&now["mode"])), "{modes:?} {now}");
        assert_eq!(now["mode"], now["agent"]["mode"]);
    }
    assert!(refused.iter().all(|code| code == "turn-in-progress" || code == "session-busy"), "{refused:?}");
    assert_at_rest(&gander).await;
    gander.stop().await;
}

#[tokio::test]
async fn a_goose_that_would_not_start_is_tried_again_and_goes_on() {
    let agent = NotedAgent::new();
    let gander = agent.setup().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    session.turn("echo before").await;
    session.hibernate().await;
    fs::write(agent.broken(), "").unwrap();
    let turn = session.turn("echo never").await;
    assert_eq!((&turn["state"], &turn["error"]["class"]), (&json!("failed"), &json!("start_failed")));
    let now = session.now().await;
    assert_eq!(now["state"], "failed");
    assert!(text(&now["state_reason"]).len() > 10, "{now}");
    // A change that takes the agent is told so, and the session is as it was.
    let patch = gander.request(Method::PATCH, &session.path("")).json(&json!({"mode": "chat"}));
    refusal(patch, 502, "agent-start-failed").await;
    assert_eq!((&session.now().await["mode"], agent.starts()), (&json!("approve"), 3));
    assert_eq!(gander.descendants(), Vec::<u32>::new());

    // A restart keeps the reason; the next turn tries again.
    let dir = Arc::clone(&gander.dir);
    let id = session.id.clone();
    gander.stop().await;
    let gander = agent.setup().dir(dir).start().await;
    let session = Session { gander: &gander, id, snapshot: Value::Null };
    let kept = session.now().await;
    assert_eq!((&kept["state"], &kept["state_reason"]), (&json!("failed"), &now["state_reason"]));
    fs::remove_file(agent.broken()).unwrap();
    assert_eq!(session.turn("echo after").await["text"], "after");
    let now = session.now().await;
    assert_eq!((&now["state"], &now["state_reason"]), (&json!("idle"), &Value::Null));
    assert_eq!((&now["agent"]["mode"], agent.starts()), (&json!("approve"), 4));
    assert_at_rest(&gander).await;
    gander.stop().await;
}

/// A session whose agent is being started again, for a turn, and will never be ready.
async fn waking(gander: &Gander) -> (Session<'_>, Value) {
    let session = gander.session(&json!({})).await;
    session.hibernate().await;
    let turn = session.prompt("echo never").await;
    until("the agent is being started", || !gander.descendants().is_empty()).await;
    (session, turn)
}

#[tokio::test]
async fn a_wake_is_not_hibernated_but_can_be_cancelled_and_deleted() {
    let gander = Setup::fake().config("[goose.env]\nFAKE_AGENT_LOAD = \"hang\"").start().await;
    let (session, turn) = waking(&gander).await;
    let hibernation = || gander.request(Method::POST, &session.path("/hibernate"));
    refusal(hibernation(), 409, "turn-in-progress").await;
    session.cancel(&turn).await;
    let ended = gander.get(&session.path(&format!("/turns/{}", text(&turn["id"])))).await;
    assert_eq!(ended["state"], "cancelled");
    // The start goes on without a turn, and is no more to be hibernated than the first one.
    assert_eq!(session.now().await["state"], "starting");
    refusal(hibernation(), 409, "session-busy").await;
    let prompt = gander.request(Method::POST, &session.path("/turns")).json(&json!({"prompt": "echo no"}));
    refusal(prompt, 409, "session-busy").await;
    session.delete().await;
    assert_eq!(gander.descendants(), Vec::<u32>::new());
    refusal(gander.request(Method::GET, &session.path("")), 404, "session-not-found").await;
    gander.stop().await;
}

#[tokio::test]
async fn a_stop_and_a_kill_end_a_wake_and_its_turn_once() {
    let config = "[server]\nshutdown_grace = \"10ms\"\n[goose.env]\nFAKE_AGENT_LOAD = \"hang\"";
    for killed in [false, true] {
        let mut gander = Setup::fake().config(config).start().await;
        let (session, turn) = waking(&gander).await;
        let (id, processes, dir) = (session.id.clone(), gander.descendants(), Arc::clone(&gander.dir));
        gander.signal(if killed { "KILL" } else { "TERM" });
        assert_eq!(gander.ended().await.success(), !killed);
        until("nothing is left", || !processes.iter().any(|pid| lives(*pid))).await;
        drop(gander);
        let gander = Setup::fake().dir(dir).start().await;
        assert_at_rest(&gander).await;
        let session = Session { gander: &gander, id, snapshot: Value::Null };
        let ended = gander.get(&session.path(&format!("/turns/{}", text(&turn["id"])))).await;
        assert_eq!(
            (&ended["state"], &ended["error"]["class"]),
            (&json!("interrupted"), &json!("gateway_restarted")),
            "killed: {killed}"
        );
        assert_eq!(session.turn("echo on").await["text"], "on");
        gander.stop().await;
    }
}

#[tokio::test]
async fn a_session_can_be_deleted_and_prompted_while_it_is_let_go() {
    // The agent ends only by force, so that letting it go takes its time.
    let config = "[goose]\nend_grace = \"400ms\"\n\
        [goose.env]\nFAKE_AGENT_EOF = \"ignore\"\nFAKE_AGENT_TERM = \"ignore\"";
    let gander = Setup::fake().config(config).start().await;
    let post = |session: &Session<'_>| gander.request(Method::POST, &session.path("/hibernate"));
    let (kept, gone) = (gander.session(&json!({})).await, gander.session(&json!({})).await);
    let mut callers = JoinSet::new();
    callers.spawn(post(&kept).send());
    callers.spawn(post(&gone).send());
    // Nothing tells that it has begun. Were it late, the answers would be others, and as good.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let (turn, ()) = tokio::join!(kept.turn("echo woken"), gone.delete());
    assert_eq!(turn["text"], "woken");
    while let Some(response) = callers.join_next().await {
        let response = response.unwrap().unwrap();
        // Whichever came first: each is answered, and nothing is done twice.
        let status = response.status().as_u16();
        assert!([200, 404, 409].contains(&status), "{status}");
    }
    kept.hibernate().await;
    assert_eq!(gander.descendants(), Vec::<u32>::new());
    assert_at_rest(&gander).await;
    kept.delete().await;
    gander.stop().await;
}
