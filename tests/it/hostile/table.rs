//! One kind of hostile output after another, each beside a session that does not notice.

use serde_json::{Value, json};

use super::{agent_pid, assert_goes_on_with_another_agent, said};
use crate::support::{Gander, Session, Setup, assert_all_ended_once, carried, lives, only};

/// By how much gander's memory may grow in all of it, in bytes: what waits for the store, one line, and what an
/// allocator keeps. The largest output is 300 MB.
const MEMORY: u64 = 48 << 20;

/// What comes of it.
enum Outcome {
    /// The turn goes on; these are the agent's messages.
    GoesOn(&'static [&'static str]),
    /// The agent is given up.
    GivenUp,
}
use Outcome::{GivenUp, GoesOn};

/// What is written, and what comes of it.
fn rows() -> Vec<(&'static str, String, Outcome)> {
    let row = |name, prompt: &str, outcome| (name, prompt.to_owned(), outcome);
    let raw = |lines: &[&str]| format!("raw {}\n", lines.join("\nraw "));
    let chunk = |session: &str, text: &str| {
        let content = json!({"type": "text", "text": text});
        let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
        json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update}})
    };
    let ours = |text| chunk("20261130_1", text);
    vec![
        row("garbage", &format!("{}echo on", "garbage\n".repeat(300)), GoesOn(&["on"])),
        row("blank lines", &format!("{}echo on", "raw\nraw   \n".repeat(300)), GoesOn(&["on"])),
        row(
            "JSON that is no JSON-RPC",
            &format!(
                "{}echo on",
                raw(&["[]", "7", "null", "true", "\"text\"", "{}", r#"{"jsonrpc":"1.0"}"#])
            ),
            GoesOn(&["on"]),
        ),
        row("invalid UTF-8", &format!("{}echo on", "invalid-utf8\n".repeat(100)), GoesOn(&["on"])),
        row(
            "a line in pieces of one byte",
            "bytewise äöü €uro 😀 ẞ\necho on",
            GoesOn(&["äöü €uro 😀 ẞ", "on"]),
        ),
        row("a line of 50 MB", "long-line 50000000\necho on", GoesOn(&["on"])),
        row("300 MB without a line's end", "no-newline 300000000", GivenUp),
        row(
            "a batch",
            &raw(&[
                &json!([ours("one"), 7, ours("two"), {"jsonrpc": "2.0", "id": 77, "result": {}}]).to_string()
            ]),
            GoesOn(&["one", "two"]),
        ),
        row(
            "answers to what was not asked",
            &format!(
                "{}echo on",
                raw(&[
                    r#"{"jsonrpc":"2.0","id":99999,"result":{"stopReason":"end_turn"}}"#,
                    r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#,
                    r#"{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"x"}}"#,
                ])
            ),
            GoesOn(&["on"]),
        ),
        row(
            "ids of every type",
            &format!(
                "{}echo on",
                raw(&[
                    r#"{"jsonrpc":"2.0","id":null,"method":"no/such"}"#,
                    r#"{"jsonrpc":"2.0","id":"","method":"no/such"}"#,
                    r#"{"jsonrpc":"2.0","id":1.5,"method":"no/such"}"#,
                    r#"{"jsonrpc":"2.0","id":true,"method":"no/such"}"#,
                    r#"{"jsonrpc":"2.0","id":{"a":[1]},"method":"no/such"}"#,
                    r#"{"jsonrpc":"2.0","id":1e400,"result":{}}"#,
                    r#"{"jsonrpc":"2.0","id":99999999999999999999999,"result":{}}"#,
                ])
            ),
            GoesOn(&["on"]),
        ),
        row(
            "news of another session",
            &format!("{}echo on", raw(&[&chunk("another", "not ours").to_string()])),
            GoesOn(&["on"]),
        ),
        row("1,000 lines on stderr in a second", "stderr 64000 rate 1000/s\necho on", GoesOn(&["on"])),
        row("a closed stdout", "close-stdout\nhang", GivenUp),
    ]
}

async fn hostile(gander: &Gander) -> (Session<'_>, u32) {
    let deaf = json!({"FAKE_AGENT_TERM": "ignore", "FAKE_AGENT_NEW": "early"});
    let session = gander.session(&json!({"env": deaf})).await;
    let pid = agent_pid(&session);
    (session, pid)
}

/// The most memory that gander has had, in bytes.
fn peak(gander: &Gander) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gander.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[tokio::test]
async fn a_healthy_session_ends_its_turns_beside_every_kind_of_hostile_output() {
    let gander = Setup::fake()
        .config(
            "[limits]\nline_bytes = 1_048_576\nfile_bytes = 400_000\n[storage]\nqueue_bytes = 8_388_608\n[cancel]\ngrace = \"1h\"\n\
             [goose]\nend_grace = \"100ms\"\ncaller_env = [\"FAKE_AGENT_TERM\", \"FAKE_AGENT_NEW\"]",
        )
        .start()
        .await;
    let healthy = gander.session(&json!({})).await;
    assert_eq!(healthy.turn("echo fine").await["text"], "fine");
    let before = peak(&gander);
    for (name, prompt, outcome) in rows() {
        let (session, pid) = hostile(&gander).await;
        let mut events = session.events_with("?after=latest").await;
        let turn = session.prompt(&format!("{prompt}\nwait")).await;
        let beside = healthy.turn("call\nsleep 50\necho fine").await;
        assert_eq!(
            (&beside["state"], &beside["text"]),
            (&json!("completed"), &json!("fine")),
            "beside {name}"
        );
        match outcome {
            GoesOn(messages) => {
                let mut told = Vec::new();
                while said(&told).len() < messages.len() {
                    told.extend(events.through("message.delta").await);
                }
                assert_eq!(said(&told), messages, "{name}");
                session.cancel(&turn).await;
                events.until("turn.cancelled").await;
                assert_eq!(session.turn("echo again").await["text"], "again", "{name}");
                assert!(lives(pid), "{name}");
                assert_all_ended_once(&session.log().await);
                session.delete().await;
            }
            GivenUp => {
                let told = events.through("turn.interrupted").await;
                let ended = &told.last().unwrap().data["turn"];
                assert_eq!(ended["error"]["class"], "agent_unresponsive", "{name}");
                assert_eq!(only(&told, "notice").data["code"], "agent-exited", "{name}");
                assert!(!lives(pid), "{name}");
                assert_all_ended_once(&session.log().await);
                events.until("session.state").await;
                assert_goes_on_with_another_agent(session).await;
            }
        }
    }
    let grown = peak(&gander) - before;
    assert!(grown < MEMORY, "gander's memory has grown by {grown}");
    assert_eq!(healthy.now().await["state"], "idle");
    gander.stop().await;
}

#[tokio::test]
async fn a_healthy_session_ends_its_turns_beside_a_million_updates() {
    let gander = Setup::fake().config("[storage]\nqueue_bytes = 8_388_608").start().await;
    let healthy = gander.session(&json!({})).await;
    healthy.turn("echo fine").await;
    let before = peak(&gander);
    let flooding = gander.session(&json!({})).await;
    let mut ended = flooding.events_with("?types=turn.cancelled").await;
    let turn = flooding.prompt("flood 1000000").await;
    for _ in 0..5 {
        assert_eq!(healthy.turn("call\necho fine").await["text"], "fine");
    }
    assert_eq!(flooding.now().await["current_turn"]["id"], turn["id"], "it is not over");
    flooding.cancel(&turn).await;
    ended.until("turn.cancelled").await;
    flooding.delete().await;
    let grown = peak(&gander) - before;
    assert!(grown < MEMORY, "gander's memory has grown by {grown}");
    gander.stop().await;
}

#[tokio::test]
async fn what_comes_before_the_sessions_start_or_after_the_turns_end_opens_nothing() {
    let gander = Setup::fake().config("[goose.env]\nFAKE_AGENT_NEW = \"early\"").start().await;
    let session = gander.session(&json!({})).await;
    for number in 0..2 {
        let mut events = session.events_with("?after=latest").await;
        let turn = session.turn(&format!("duplicate-answer\necho {number}\nlate afterwards")).await;
        assert_eq!((&turn["state"], &turn["text"]), (&json!("completed"), &json!(number.to_string())));
        while events.until("message.delta").await.data["text"] != "afterwards" {}
    }
    let log = session.log().await;
    assert_all_ended_once(&log);
    let late = log.iter().filter(|event| event.data["text"] == "afterwards");
    assert!(late.into_iter().all(|event| event.data["turn_id"] == Value::Null));
    assert_eq!(carried(&log, "turn.completed", "turn").len(), 2);
    gander.stop().await;
}

#[tokio::test]
async fn an_agent_that_closes_its_input_is_replaced() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({})).await;
    let mut events = session.events().await;
    let turn = session.prompt("ignore-eof\nclose-stdin\necho closed\nwait").await;
    events.until("message.delta").await;
    session.cancel(&turn).await;
    events.until("turn.cancelled").await;
    // Nobody reads this one.
    session.prompt("echo unheard").await;
    let told = events.through("turn.interrupted").await;
    assert_eq!(told.last().unwrap().data["turn"]["error"]["class"], "agent_unresponsive");
    events.until("session.state").await;
    assert_goes_on_with_another_agent(session).await;
    gander.stop().await;
}
