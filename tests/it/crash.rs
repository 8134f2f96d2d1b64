//! gander is killed at random moments, and the one that starts after it on the same folder knows all that was told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::{
    Chance, Event, EventStream, Gander, Session, Setup, answer, assert_at_rest, kinds, text, until_async,
};

/// Every event that anybody has seen, by session and id, without the SSE id.
type Seen = BTreeMap<(String, u64), Bytes>;

/// What of a frame is the same on every stream.
fn behind_id(event: &Event) -> Bytes {
    let end = event.frame.iter().position(|byte| *byte == b'\n').unwrap();
    event.frame.slice(end..)
}

/// One that reads events, is cut off, and goes on from the last id it has seen.
struct Subscriber {
    path: String,
    cursor: Option<String>,
    frames: Vec<Bytes>,
    /// The last id of each session.
    last: BTreeMap<String, u64>,
}

impl Subscriber {
    fn new(path: String) -> Self {
        Self { path, cursor: None, frames: Vec::new(), last: BTreeMap::new() }
    }

    async fn resume(&self, gander: &Gander, query: &str) -> EventStream {
        let mut request = gander.request(Method::GET, &format!("{}{query}", self.path));
        if let Some(cursor) = &self.cursor {
            request = request.header("last-event-id", cursor);
        }
        EventStream::open(request).await
    }

    /// Fails if an id was left out, comes twice, or was given to something else before.
    fn take(&mut self, event: Event, seen: &mut Seen) {
        assert_ne!(event.kind(), "stream.reset", "{} {:?}", event.data, self.cursor);
        let (session, id) = (text(&event.data["session_id"]), event.data["id"].as_u64().unwrap());
        let last = self.last.entry(session.clone()).or_insert(0);
        assert_eq!(id, *last + 1, "behind {:?} on {}: {}", self.cursor, self.path, event.data);
        *last = id;
        let told = behind_id(&event);
        let before = seen.entry((session, id)).or_insert_with(|| told.clone());
        assert_eq!(*before, told, "an id was used again");
        self.frames.push(event.frame);
        self.cursor = event.id;
    }

    async fn read(&mut self, stream: &mut EventStream, count: u64, seen: &mut Seen) {
        for _ in 0..count {
            self.take(stream.next().await.unwrap(), seen);
        }
    }

    async fn read_rest(&mut self, stream: &mut EventStream, seen: &mut Seen) {
        while let Some(event) = stream.next().await {
            self.take(event, seen);
        }
    }
}

/// One storage folder and the ganders that run on it, one after another.
struct Folder {
    dir: Arc<TempDir>,
    chance: Chance,
    sessions: Vec<String>,
    subscribers: Vec<Subscriber>,
    seen: Seen,
}

impl Folder {
    fn new(chance: Chance) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let subscribers = vec![Subscriber::new("/v1/events".to_owned())];
        Self { dir, chance, sessions: Vec::new(), subscribers, seen: Seen::new() }
    }

    fn setup(&self) -> Setup {
        // Some is read from memory, some from the store.
        Setup::fake().config("[storage]\ntail_bytes = 65536").dir(Arc::clone(&self.dir))
    }

    /// What an agent is told to do until gander dies.
    fn prompt(&mut self) -> String {
        let first = *self.chance.pick(&["", "call\n", "open-call\n", "think of it\n"]);
        let (burst, rate) = (1 + self.chance.below(300), 500 + self.chance.below(2500));
        format!("{first}flood {burst}\nflood 100000000 rate {rate}/s")
    }

    /// One gander: its floods, its subscriber's cuts, and its death.
    async fn round(&mut self) {
        if self.chance.percent(20) {
            let after = self.chance.span(Duration::from_millis(120));
            self.setup().killed_while_starting(after).await;
        }
        let mut gander = self.setup().start().await;
        while self.sessions.len() < 2 {
            let session = gander.session(&json!({})).await;
            self.subscribers.push(Subscriber::new(session.path("/events")));
            self.sessions.push(session.id);
        }
        let mut callers = JoinSet::new();
        for session in self.sessions.clone() {
            let body = json!({"prompt": self.prompt()});
            let path = format!("/v1/sessions/{session}/turns");
            callers.spawn(gander.request(Method::POST, &path).json(&body).send());
        }
        if self.chance.percent(10) {
            // Its answer never comes, or nearly so.
            callers.spawn(gander.request(Method::POST, "/v1/sessions").send());
        }
        let index = usize::try_from(self.chance.below(self.subscribers.len() as u64)).unwrap();
        let (subscriber, seen, chance) = (&mut self.subscribers[index], &mut self.seen, &mut self.chance);
        for _ in 0..chance.below(4) {
            let mut stream = subscriber.resume(&gander, "").await;
            subscriber.read(&mut stream, chance.below(80), seen).await;
            // Its socket is cut here.
        }
        let mut stream = subscriber.resume(&gander, "").await;
        if chance.percent(70) {
            subscriber.read(&mut stream, chance.below(300), seen).await;
        }
        tokio::time::sleep(chance.span(Duration::from_millis(30))).await;
        gander.signal("KILL");
        // Whatever had come through before is there after the restart.
        subscriber.read_rest(&mut stream, seen).await;
        gander.ended().await;
    }

    /// Everything is as it was told, for those who go on and for those who begin anew.
    async fn check(mut self) {
        let gander = self.setup().start().await;
        for subscriber in &mut self.subscribers {
            let mut stream = subscriber.resume(&gander, "?follow=false").await;
            subscriber.read_rest(&mut stream, &mut self.seen).await;
            let path = subscriber.path.clone();
            let mut anew = Subscriber::new(path);
            let mut stream = anew.resume(&gander, "?follow=false").await;
            anew.read_rest(&mut stream, &mut self.seen).await;
            assert!(anew.frames == subscriber.frames, "{} is told otherwise now", anew.path);
        }
        // All sessions are on the first one: nobody has seen more than is there.
        let total: u64 = self.subscribers[0].last.values().sum();
        assert_eq!(total, self.seen.len() as u64);
        assert_at_rest(&gander).await;
        gander.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_one_id_is_lost_doubled_or_reused_in_200_rounds_of_kills_and_cuts() {
    const FOLDERS: usize = 20;
    const ROUNDS: usize = 10;
    let mut chance = Chance::new("kills");
    let mut lanes = JoinSet::new();
    for mut lane in [chance.fork(), chance.fork()] {
        lanes.spawn(async move {
            for _ in 0..FOLDERS / 2 {
                let mut folder = Folder::new(lane.fork());
                for _ in 0..ROUNDS {
                    folder.round().await;
                }
                folder.check().await;
            }
        });
    }
    while let Some(lane) = lanes.join_next().await {
        lane.unwrap();
    }
}

/// What a session does when gander is killed, and what the next gander tells of it.
struct Case {
    state: &'static str,
    /// In the session's environment.
    agent: Value,
    prompt: Option<&'static str>,
    closed_by: &'static [&'static str],
}

const CASES: usize = 8;

fn cases() -> [Case; CASES] {
    let case = |state, agent, prompt, closed_by| Case { state, agent, prompt, closed_by };
    let plain = || json!({});
    [
        case("starting", json!({"FAKE_AGENT_NEW": "hang"}), None, &["session.state"]),
        case("idle", plain(), None, &["session.state"]),
        case(
            "running",
            plain(),
            Some("open-call\nwait"),
            &["tool_call.finished", "turn.interrupted", "session.state"],
        ),
        case(
            "awaiting_permission",
            plain(),
            Some("ask"),
            &["permission.resolved", "tool_call.finished", "turn.interrupted", "session.state"],
        ),
        case(
            "cancelling",
            plain(),
            Some("open-call\nhang"),
            &["tool_call.finished", "turn.interrupted", "session.state"],
        ),
        case("hibernated", plain(), None, &[]),
        case("failed", json!({"FAKE_AGENT_NEW": "error"}), None, &[]),
        // It wakes for its turn.
        case(
            "running",
            json!({"FAKE_AGENT_LOAD": "hang"}),
            Some("echo never"),
            &["turn.interrupted", "session.state"],
        ),
    ]
}

/// Makes a session and brings it into the state of a case.
async fn bring<'gander>(gander: &'gander Gander, case: &Case) -> Session<'gander> {
    let request = gander.request(Method::POST, "/v1/sessions").header("prefer", "respond-async");
    let made = answer(request.json(&json!({"env": case.agent})), StatusCode::ACCEPTED).await;
    let session = Session { gander, id: text(&made["id"]), snapshot: made };
    let first = match case.state {
        "starting" | "failed" => case.state,
        _ => "idle",
    };
    until_async(first, async || session.now().await["state"] == first).await;
    if case.state == "hibernated" || case.agent["FAKE_AGENT_LOAD"] == "hang" {
        gander.post(&session.path("/hibernate"), &json!({}), StatusCode::OK).await;
    }
    let Some(prompt) = case.prompt else { return session };
    let turn = session.prompt(prompt).await;
    let calls = case.closed_by.iter().filter(|kind| **kind == "tool_call.finished").count();
    until_async("its calls are open", async || {
        session.now().await["open_tool_calls"].as_array().map(Vec::len) == Some(calls)
    })
    .await;
    if case.state == "cancelling" {
        session.cancel(&turn).await;
    }
    until_async(case.state, async || session.now().await["state"] == case.state).await;
    session
}

#[tokio::test]
async fn a_kill_in_every_state_leaves_one_end_each_and_sessions_that_go_on() {
    let config = "[cancel]\ngrace = \"1h\"\n[goose]\n\
        caller_env = [\"FAKE_AGENT_NEW\", \"FAKE_AGENT_LOAD\"]";
    let mut gander = Setup::fake().config(config).start().await;
    let mut before = Vec::new();
    for case in cases() {
        let session = bring(&gander, &case).await;
        before.push((session.id.clone(), session.log().await));
    }
    let dir = Arc::clone(&gander.dir);
    gander.signal("KILL");
    gander.ended().await;
    drop(gander);

    // Twice: what is closed is not closed again.
    for _ in 0..2 {
        let mut gander = Setup::fake().config(config).dir(Arc::clone(&dir)).start().await;
        assert_at_rest(&gander).await;
        for (case, (id, old)) in cases().iter().zip(&before) {
            let session = Session { gander: &gander, id: id.clone(), snapshot: Value::Null };
            let log = session.log().await;
            assert!(log[..old.len()] == old[..], "{}: told otherwise now", case.state);
            assert_eq!(kinds(&log[old.len()..]), case.closed_by, "{}", case.state);
            let state = if case.state == "failed" { "failed" } else { "hibernated" };
            assert_eq!(session.now().await["state"], state);
        }
        gander.signal("KILL");
        gander.ended().await;
    }

    let gander = Setup::fake().config(config).dir(dir).start().await;
    for (case, (id, _)) in cases().iter().zip(before) {
        let session = Session { gander: &gander, id, snapshot: Value::Null };
        if case.agent["FAKE_AGENT_NEW"].is_null() && case.agent["FAKE_AGENT_LOAD"].is_null() {
            let turn = session.turn("echo on").await;
            assert_eq!(
                (&turn["state"], &turn["text"]),
                (&json!("completed"), &json!("on")),
                "{}",
                case.state
            );
        }
    }
    assert_at_rest(&gander).await;
    gander.stop().await;
}
