//! Tools that leave a process behind in every way there is: it ends with its session, whatever ends that, and nobody
//! else's does. Each writes the time into a file of its own, over and over, so that the file tells whether it lives.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::json;
use tempfile::TempDir;

use crate::process::machine::field;
use crate::support::{Gander, Session, Setup, lives, script, signal, until_async};

/// How a process is left behind; `BEAT` is the loop that writes into the file that its `$0` names.
const WAYS: [(&str, &str); 5] = [
    ("plain", "sh -c 'BEAT &' plain"),
    ("setsid", "setsid sh -c 'BEAT' setsid &"),
    ("cleared", "env -i setsid sh -c 'BEAT' cleared &"),
    ("nohup", "nohup sh -c 'BEAT' nohup &"),
    (
        "forked",
        "python3 -c 'import os,sys; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); \
         os.execvp(\"sh\", [\"sh\", \"-c\", sys.argv[1], \"forked\"])' 'BEAT'",
    ),
];
const BEAT: &str = "while :; do date >> $0; sleep 0.1; done";
/// Several beats.
const WHILE: Duration = Duration::from_millis(500);

/// The files that a session's tools write.
struct Beats {
    dir: TempDir,
    ways: Vec<&'static str>,
}

impl Beats {
    /// Has a turn of the session leave a process in each of these ways; the turn runs on if it is to.
    async fn begin(session: &Session<'_>, ways: &[(&'static str, &str)], runs_on: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let lines: Vec<String> = ways.iter().map(|(_, way)| way.replace("BEAT", BEAT)).collect();
        let lines = format!("cd '{}'\n{}\n", dir.path().display(), lines.join("\n"));
        fs::write(dir.path().join("leave"), lines).unwrap();
        let then = if runs_on { "; sleep 600" } else { "" };
        let command = format!("sh '{}/leave' >/dev/null 2>&1 </dev/null{then}", dir.path().display());
        let call = json!({"call": {"tool": "shell", "input": {"command": command}}});
        let prompt = script(&json!([[call], [{"text": "done"}]]));
        if runs_on {
            session.prompt(&prompt).await;
        } else {
            assert_eq!(session.turn(&prompt).await["text"], "done");
        }
        let beats = Self { dir, ways: ways.iter().map(|(name, _)| *name).collect() };
        beats.go_on().await;
        beats
    }

    fn lengths(&self) -> Vec<u64> {
        let length = |name: &&str| fs::metadata(self.dir.path().join(name)).map_or(0, |about| about.len());
        self.ways.iter().map(length).collect()
    }

    /// Waits until each has grown.
    async fn go_on(&self) {
        let before = self.lengths();
        until_async("all beat", async || {
            self.lengths().iter().zip(&before).all(|(now, before)| now > before)
        })
        .await;
    }

    /// None grows any more, from now on.
    async fn have_stopped(&self, after: &str) {
        let before = self.lengths();
        tokio::time::sleep(WHILE).await;
        assert_eq!(self.lengths(), before, "{:?} after {after}", self.ways);
    }

    /// Waits until none grows any more.
    async fn stop(&self, after: &str) {
        until_async(after, async || {
            let before = self.lengths();
            tokio::time::sleep(WHILE).await;
            self.lengths() == before
        })
        .await;
    }
}

/// What ends a session's processes while gander goes on.
#[derive(Clone, Copy, Debug)]
enum End {
    Cancel,
    CancelOfAStoppedGoose,
    Delete,
    Hibernate,
    KilledGoose,
    KilledShim,
}

async fn end_in(gander: &Gander, end: End) {
    let session = gander.session(&json!({"mode": "auto"})).await;
    let in_turn = matches!(end, End::Cancel | End::CancelOfAStoppedGoose);
    let mut events = session.events().await;
    let beats = Beats::begin(&session, &WAYS, in_turn).await;
    let goose = u32::try_from(session.now().await["agent"]["pid"].as_u64().unwrap()).unwrap();
    let after = format!("{end:?}");
    match end {
        End::Cancel | End::CancelOfAStoppedGoose => {
            if matches!(end, End::CancelOfAStoppedGoose) {
                signal(goose, "STOP");
            }
            let turn = session.now().await["current_turn"].clone();
            session.cancel(&turn).await;
            events.until("turn.cancelled").await;
            // Told when it is so, not before.
            beats.have_stopped(&after).await;
        }
        End::Delete => {
            session.delete().await;
            beats.have_stopped(&after).await;
        }
        End::Hibernate => {
            gander.post(&session.path("/hibernate"), &json!({}), StatusCode::OK).await;
            beats.have_stopped(&after).await;
        }
        End::KilledGoose => {
            signal(goose, "KILL");
            // The first one is for the turn, the second for the agent's end.
            while events.until("session.state").await.data["state"] != "hibernated" {}
            beats.have_stopped(&after).await;
        }
        End::KilledShim => {
            signal(field(goose, 4).unwrap(), "KILL");
            beats.stop(&after).await;
            assert!(!lives(goose));
        }
    }
}

#[tokio::test]
async fn what_tools_leave_behind_ends_with_its_session_and_no_other_ones_does() {
    let gander = Setup::real().config("[cancel]\ngrace = \"500ms\"").start().await;
    let bystander = gander.session(&json!({"mode": "auto"})).await;
    let kept = Beats::begin(&bystander, &WAYS, false).await;
    for ends in [
        [End::Cancel, End::CancelOfAStoppedGoose, End::Delete],
        [End::Hibernate, End::KilledGoose, End::KilledShim],
    ] {
        join_all(ends.map(|end| end_in(&gander, end))).await;
        kept.go_on().await;
    }
    assert_eq!(bystander.now().await["state"], "idle");
    gander.stop().await;
    kept.have_stopped("the orderly end of gander").await;
}

#[tokio::test]
async fn what_tools_leave_behind_ends_with_a_gander_that_is_killed_also_when_goose_is_stopped() {
    join_all([false, true].map(async |stopped| {
        let mut gander = Setup::real().start().await;
        let session = gander.session(&json!({"mode": "auto"})).await;
        let beats = Beats::begin(&session, &WAYS, true).await;
        let goose = u32::try_from(session.now().await["agent"]["pid"].as_u64().unwrap()).unwrap();
        if stopped {
            signal(goose, "STOP");
        }
        gander.signal("KILL");
        gander.ended().await;
        beats.stop("the kill of gander").await;
        assert!(!lives(goose));
    }))
    .await;
}

#[tokio::test]
async fn what_lost_gander_and_its_shim_at_once_ends_when_the_next_gander_starts() {
    // What has also cleared its environment cannot be told from anybody else's process.
    let ways: Vec<_> = WAYS.into_iter().filter(|(name, _)| *name != "cleared").collect();
    let mut gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let beats = Beats::begin(&session, &ways, true).await;
    // goose's own, and that of the command that has left the beats.
    let mut shims = gander.descendants();
    shims.retain(|pid| field(*pid, 4) == Some(gander.pid()));
    for shim in &shims {
        signal(*shim, "STOP");
    }
    gander.signal("KILL");
    gander.ended().await;
    for shim in &shims {
        signal(*shim, "KILL");
    }
    beats.go_on().await;
    let gander = Setup::real().dir(Arc::clone(&gander.dir)).start().await;
    beats.have_stopped("the next start").await;
    gander.stop().await;
}
