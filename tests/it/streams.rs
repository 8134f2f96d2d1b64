//! Event streams: what subscribers see, in which order, and what they do not do to each other.

mod floods;

use std::collections::BTreeMap;

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    Event, EventStream, PATIENCE, Session, Setup, kinds, refusal, script, text, until_async,
};

/// More than any test waits for: such a flood ends by being cancelled.
const ENDLESS: &str = "flood 100000000";

/// The frames, byte for byte.
fn frames(events: &[Event]) -> Vec<&[u8]> {
    events.iter().map(|event| event.frame.as_ref()).collect()
}

/// The ids; every event must have one, and the same in its JSON.
fn ids(events: &[Event]) -> Vec<u64> {
    let id = |event: &Event| {
        let id = event.data["id"].as_u64().unwrap();
        assert_eq!(event.id.as_deref(), Some(id.to_string().as_str()));
        id
    };
    events.iter().map(id).collect()
}

/// Fails unless the events are whole: ids from `first` on that go up by one.
fn assert_whole(events: &[Event], first: u64) {
    let expected: Vec<u64> = (first..first + events.len() as u64).collect();
    assert_eq!(ids(events), expected);
}

async fn resume(session: &Session<'_>, after: u64) -> EventStream {
    let request = session.gander.request(Method::GET, &session.path("/events"));
    EventStream::open(request.header("last-event-id", after.to_string())).await
}

async fn cancel(session: &Session<'_>, turn: &Value) {
    let path = session.path(&format!("/turns/{}/cancel", text(&turn["id"])));
    session.gander.post(&path, &json!({}), StatusCode::ACCEPTED).await;
}

/// The first bytes of an answer up to and with `needle`.
async fn read_until(response: &mut Response, needle: &str) -> String {
    let reading = async {
        let mut read = String::new();
        while !read.contains(needle) {
            let chunk =
                response.chunk().await.unwrap().unwrap_or_else(|| panic!("no {needle:?} in {read:?}"));
            read.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        read
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| panic!("{needle:?} did not come"))
}

/// A session's stream as it comes.
async fn raw(session: &Session<'_>, query: &str) -> Response {
    let path = session.path(&format!("/events{query}"));
    session.gander.request(Method::GET, &path).send().await.unwrap()
}

#[tokio::test]
async fn every_subscriber_sees_the_same_ids_and_bytes_live_late_and_from_the_store() {
    // A tail of one byte keeps no run but the last: what comes late comes from the store.
    let gander = Setup::real().config("[storage]\ntail_bytes = 1").start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let (mut one, mut two) = (session.events().await, session.events().await);
    let plan = "- [x] Look\n- [ ] Tell";
    let reply = json!([
        [{"reasoning": "Which files?"}, {"text": "I look."}, {"call": {"tool": "shell", "input": {"command": "ls"}}}],
        [{"call": {"tool": "todo__todo_write", "input": {"content": plan}}}],
        [{"text": "Nothing"}, {"text": " there: ü€𝄞.\n"}],
    ]);
    let turn = session.prompt(&script(&reply)).await;
    let mut first = one.through("permission.requested").await;
    session.answer(&first.last().unwrap().data["permission"], "allow").await;
    first.extend(one.through("turn.completed").await);
    let second = two.through("turn.completed").await;
    assert_eq!(frames(&first), frames(&second));
    assert_whole(&first, 1);

    let late = session.log().await;
    assert_eq!(frames(&late[..first.len()]), frames(&first));
    let mut later = session.events().await;
    assert_eq!(frames(&later.through("turn.completed").await), frames(&first));

    for event in &first {
        let data = &event.data;
        assert_eq!(event.name.as_deref(), data["type"].as_str());
        assert_eq!(data["session_id"], session.id);
        let time = text(&data["time"]);
        assert!(time.len() == "2026-01-01T00:00:00.000Z".len() && time.ends_with('Z'), "{time}");
        assert!(data["turn_id"].is_null() || data["turn_id"] == turn["id"], "{data}");
        let carried: &[&str] = match event.kind() {
            "session.created" | "session.updated" => &["session"],
            "session.state" => &["state", "reason"],
            "turn.started" | "turn.completed" => &["turn"],
            "message.delta" | "thought.delta" => &["message_id", "text"],
            "tool_call.started" | "tool_call.updated" | "tool_call.finished" => &["tool_call"],
            "tool_call.output" => &["tool_call_id", "stream", "text"],
            "permission.requested" | "permission.resolved" => &["permission"],
            "plan.updated" => &["plan"],
            "usage.updated" => &["usage"],
            "commands.updated" => &["commands"],
            other => panic!("what should {other} carry?"),
        };
        for field in carried {
            assert!(data.get(field).is_some(), "{field} in {data}");
        }
    }
    let told = kinds(&first);
    let all = [
        "session.created",
        "session.state",
        "turn.started",
        "thought.delta",
        "message.delta",
        "tool_call.started",
        "permission.requested",
        "permission.resolved",
        "tool_call.finished",
        "plan.updated",
        "turn.completed",
    ];
    for kind in all {
        assert!(told.contains(&kind), "{kind} in {told:?}");
    }
    let started = first.iter().find(|event| event.kind() == "turn.started").unwrap();
    assert!(started.data["turn"]["prompt"].is_string(), "{}", started.data);
    assert!(first.last().unwrap().data["turn"].get("prompt").is_none_or(Value::is_null));
}

#[tokio::test]
async fn whoever_drops_and_resumes_misses_nothing_and_sees_nothing_twice() {
    // Some of it from memory, some from the store.
    let gander = Setup::fake().config("[storage]\ntail_bytes = 65536").start().await;
    let session = gander.session(&json!({})).await;
    let turn = session.prompt("flood 12000 rate 6000/s\nflood 8000").await;
    let mut seen: Vec<Event> = Vec::new();
    let mut rounds = 0_u32;
    let mut chance = 17_u64;
    while seen.last().map(Event::kind) != Some("turn.completed") {
        let mut stream = resume(&session, seen.len() as u64).await;
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        for _ in 0..(chance >> 33) % 600 {
            seen.push(stream.next().await.unwrap());
            if seen.last().unwrap().kind() == "turn.completed" {
                break;
            }
        }
        rounds += 1;
    }
    assert!(rounds > 30, "{rounds}");
    assert_whole(&seen, 1);
    let log = session.log().await;
    assert_eq!(frames(&seen), frames(&log[..seen.len()]));
    assert_eq!(seen.last().unwrap().data["turn_id"], turn["id"]);
    let deltas: Vec<String> = seen
        .iter()
        .filter(|event| event.kind() == "message.delta")
        .map(|event| text(&event.data["text"]))
        .collect();
    let numbers: Vec<usize> = deltas.iter().map(|text| text[..9].parse().unwrap()).collect();
    assert_eq!(numbers, (0..12_000).chain(0..8_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_subscriber_chooses_where_to_start_what_to_see_and_where_to_end() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({})).await;
    session.turn("echo one\ncall\nthink two").await;
    let log = session.log().await;
    let head = log.len() as u64;
    assert_whole(&log, 1);

    let all = |query: &'static str| {
        let session = &session;
        async move { session.events_with(query).await.rest().await }
    };
    assert_eq!(frames(&all("?after=0&follow=false").await), frames(&log));
    assert_eq!(frames(&all("?after=3&follow=false").await), frames(&log[3..]));
    assert_eq!(all("?after=latest&follow=false").await, []);
    let typed = all("?types=message.delta,tool_call.finished&follow=false").await;
    assert_eq!(kinds(&typed), ["message.delta", "tool_call.finished"]);
    let of_kind = |event: &&Event| ["message.delta", "tool_call.finished"].contains(&event.kind());
    assert_eq!(typed, log.iter().filter(of_kind).cloned().collect::<Vec<_>>());

    let unnamed = all("?named=false&follow=false").await;
    assert_eq!(unnamed.len(), log.len());
    for (bare, event) in unnamed.iter().zip(&log) {
        assert_eq!((bare.name.as_ref(), &bare.id, &bare.data), (None, &event.id, &event.data));
    }

    // The header is what a browser that connects again sends beside the URL it began with.
    let request = gander.request(Method::GET, &session.path("/events?after=1&follow=false"));
    let resumed = EventStream::open(request.header("last-event-id", "5")).await.rest().await;
    assert_eq!(frames(&resumed), frames(&log[5..]));

    let mut latest = session.events_with("?after=latest").await;
    session.prompt("echo three").await;
    let new = latest.through("turn.completed").await;
    assert_whole(&new, head + 1);

    for bad in [
        "after=x",
        "after=-1",
        "after=",
        "after=99999999999999999999",
        "follow=maybe",
        "types=",
        "types=turn",
        "named=1",
        "nonsense=1",
        "after=1&after=2",
    ] {
        let request = gander.request(Method::GET, &session.path(&format!("/events?{bad}")));
        refusal(request, 400, "malformed-request").await;
    }
    for bad in ["x", "", "-1"] {
        let request = gander.request(Method::GET, &session.path("/events")).header("last-event-id", bad);
        refusal(request, 400, "malformed-request").await;
    }
}

#[tokio::test]
async fn a_cursor_beyond_the_head_is_told_and_everything_follows() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({})).await;
    session.turn("echo one").await;
    let log = session.log().await;
    for request in [
        gander.request(Method::GET, &session.path("/events?after=1000&follow=false")),
        gander.request(Method::GET, &session.path("/events?follow=false")).header("last-event-id", "1000"),
        // A filter is for the log's events, not for what is about the stream.
        gander.request(Method::GET, &session.path("/events?after=1000&follow=false&types=notice")),
    ] {
        let events = EventStream::open(request).await.rest().await;
        let reset = &events[0];
        assert_eq!(
            (reset.kind(), &reset.id, reset.name.as_deref()),
            ("stream.reset", &None, Some("stream.reset"))
        );
        assert_eq!(reset.data["last_event_id"], log.len());
        assert!(reset.data["reason"].is_string());
        if events.len() > 1 {
            assert_eq!(frames(&events[1..]), frames(&log));
        }
    }
}

#[tokio::test]
async fn a_stream_begins_at_once_and_its_cursor_moves_over_what_is_left_out() {
    let gander = Setup::fake().config("[server]\nheartbeat = \"20ms\"").start().await;
    let session = gander.session(&json!({})).await;
    let mut quiet = raw(&session, "?after=latest").await;
    let headers = quiet.headers();
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
    assert_eq!(header("content-type"), Some("text/event-stream"));
    assert_eq!(header("cache-control"), Some("no-cache"));
    assert_eq!(header("x-accel-buffering"), Some("no"));
    let first = quiet.chunk().await.unwrap().unwrap();
    assert!(first.starts_with(b":") && first.windows(7).any(|window| window == b"retry: "), "{first:?}");
    // Nothing happens, and something comes all the same.
    read_until(&mut quiet, ":\n\n").await;

    let mut filtered = raw(&session, "?types=notice").await;
    let head = session.now().await["last_event_id"].clone();
    read_until(&mut filtered, &format!("id: {head}\n\n")).await;
    let turn = session.turn("echo one").await;
    let last = turn["last_event_id"].as_u64().unwrap();
    // The state's change to idle comes behind the turn's last event.
    let read = read_until(&mut filtered, &format!("id: {}\n\n", last + 1)).await;
    assert!(!read.contains("data:"), "{read}");
    let ended = raw(&session, "?types=notice&follow=false").await.text().await.unwrap();
    assert!(ended.ends_with(&format!("id: {}\n\n", last + 1)), "{ended}");
}

#[tokio::test]
async fn a_snapshot_and_what_follows_it_have_no_gap_and_no_double() {
    let gander = Setup::fake().config("[storage]\ntail_bytes = 65536").start().await;
    let session = gander.session(&json!({})).await;
    let flood = session.prompt(ENDLESS).await;
    let mut seen: BTreeMap<u64, Event> = BTreeMap::new();
    let mut before = 0;
    for _ in 0..8 {
        let head = session.now().await["last_event_id"].as_u64().unwrap();
        assert!(head >= before);
        before = head;
        // Never ahead of the log: what the snapshot knows is there to be read.
        let mut up_to = session.events_with(&format!("?after={}&follow=false", head - 1)).await;
        assert_eq!(up_to.next().await.unwrap().id, Some(head.to_string()));
        let mut stream = session.events_with(&format!("?after={head}")).await;
        for id in head + 1..=head + 40 {
            let event = stream.next().await.unwrap();
            assert_eq!(event.id, Some(id.to_string()));
            let again = seen.entry(id).or_insert_with(|| event.clone());
            assert_eq!(again.frame, event.frame);
        }
    }
    let mut end = session.events_with("?after=latest&types=turn.cancelled").await;
    cancel(&session, &flood).await;
    end.until("turn.cancelled").await;
    session.delete().await;
}

#[tokio::test]
async fn a_caller_has_so_many_streams_and_no_more() {
    let gander = Setup::fake().config("[limits]\nstreams_per_caller = 2").start().await;
    let session = gander.session(&json!({})).await;
    let one = session.events().await;
    let two = session.events().await;
    let request = || gander.request(Method::GET, &session.path("/events"));
    let response = request().send().await.unwrap();
    assert!(response.headers().contains_key("retry-after"));
    refusal(request(), 503, "at-capacity").await;
    // A turn's own stream is one of them.
    let turn = gander.request(Method::POST, &session.path("/turns")).header("accept", "text/event-stream");
    refusal(turn.json(&json!({"prompt": "echo no"})), 503, "at-capacity").await;
    assert!(session.now().await["current_turn"].is_null());
    drop(one);
    until_async("the place is free again", async || {
        request().send().await.unwrap().status() == StatusCode::OK
    })
    .await;
    drop(two);
}

#[tokio::test]
async fn streams_end_with_their_session_and_with_gander() {
    let gander = Setup::fake().start().await;
    let (session, other) = (gander.session(&json!({})).await, gander.session(&json!({})).await);
    let mut events = session.events().await;
    let mut filtered = session.events_with("?types=session.deleted").await;
    let mut others = other.events().await;
    session.delete().await;
    let told = events.rest().await;
    assert_whole(&told, 1);
    assert_eq!(told.last().unwrap().kind(), "session.deleted");
    assert_eq!(kinds(&filtered.rest().await), ["session.deleted"]);
    refusal(gander.request(Method::GET, &session.path("/events")), 404, "session-not-found").await;

    other.turn("echo still here").await;
    others.until("turn.completed").await;
    // A stream that never ends by itself must not hold up the stop.
    gander.stop().await;
    assert!(others.rest().await.iter().all(|event| event.kind() != "session.deleted"));
}
