//! The ways to read events: over all sessions, as lines, in pages, and what becomes of those who do not read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::{Event, EventStream, Gander, PATIENCE, Session, Setup, answer, refusal, text, until};

/// A setup with a token for each name; the token is the name.
fn with_callers(setup: Setup, callers: &[(&str, &str)]) -> (Setup, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut tokens = String::new();
    for (name, roles) in callers {
        write!(tokens, "[[tokens]]\nname = \"{name}\"\nroles = [{roles}]\nsha256 = \"").unwrap();
        for byte in Sha256::digest(name) {
            write!(tokens, "{byte:02x}").unwrap();
        }
        tokens.push_str("\"\n");
    }
    let path = dir.path().join("tokens.toml");
    fs::write(&path, tokens).unwrap();
    (setup.config(&format!("[auth]\ntokens_file = \"{}\"", path.display())), dir)
}

async fn make_session(gander: &Gander, token: &str) -> String {
    let request = gander.request_as(token, Method::POST, "/v1/sessions").json(&json!({}));
    text(&answer(request, StatusCode::CREATED).await["id"])
}

async fn all_events(gander: &Gander, token: &str, query: &str, cursor: Option<&str>) -> EventStream {
    let request = gander.request_as(token, Method::GET, &format!("/v1/events{query}"));
    EventStream::open(match cursor {
        Some(cursor) => request.header("last-event-id", cursor),
        None => request,
    })
    .await
}

async fn page(gander: &Gander, path: &str) -> Value {
    answer(gander.request(Method::GET, path).header("accept", "application/json"), StatusCode::OK).await
}

/// Session and id of an event.
fn name(event: &Value) -> (String, u64) {
    (text(&event["session_id"]), event["id"].as_u64().unwrap())
}

/// Fails unless the events of each session have the ids 1, 2, 3, …
fn assert_whole(events: &[Event]) -> BTreeMap<String, u64> {
    let mut last = BTreeMap::new();
    for event in events {
        let (session, id) = name(&event.data);
        let last = last.entry(session).or_insert(0);
        assert_eq!(id, *last + 1, "in {}", event.data["session_id"]);
        *last = id;
    }
    last
}

#[tokio::test]
async fn a_cursor_over_all_sessions_resumes_exactly_under_floods_cuts_and_a_restart() {
    // Some of it from memory, some from the store.
    let config = "[storage]\ntail_bytes = 65536";
    let gander = Setup::fake().config(config).start().await;
    let mut turns = Vec::new();
    for rate in [3000, 2000, 1000] {
        let session = gander.session(&json!({})).await;
        let turn = session.prompt(&format!("flood 3000 rate {rate}/s\nflood 2000")).await;
        turns.push(text(&turn["id"]));
    }
    let mut seen: Vec<Event> = Vec::new();
    let mut chance = 29_u64;
    let mut rounds = 0;
    let mut ended = BTreeSet::new();
    while ended.len() < turns.len() {
        let cursor = seen.last().and_then(|event| event.id.clone());
        let mut stream = all_events(&gander, &gander.token, "", cursor.as_deref()).await;
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        for _ in 0..=(chance >> 33) % 700 {
            let event = stream.next().await.unwrap();
            if event.kind() == "turn.completed" {
                ended.insert(text(&event.data["turn_id"]));
            }
            seen.push(event);
            if ended.len() == turns.len() {
                break;
            }
        }
        rounds += 1;
    }
    assert!(rounds > 5, "it was cut {rounds} times");
    let last = assert_whole(&seen);
    assert_eq!(last.len(), 3);
    assert!(last.values().all(|last| *last > 5000), "{last:?}");

    // The data is each session's own, byte for byte.
    for session in last.keys() {
        let session = Session { gander: &gander, id: session.clone(), snapshot: Value::Null };
        let own: HashMap<u64, Event> =
            session.log().await.into_iter().map(|event| (name(&event.data).1, event)).collect();
        for event in seen.iter().filter(|event| event.data["session_id"] == session.id.as_str()).take(500) {
            let own = &own[&name(&event.data).1];
            let behind_id = |frame: &[u8]| frame.splitn(2, |byte| *byte == b'\n').nth(1).unwrap().to_vec();
            assert_eq!(behind_id(&event.frame), behind_id(&own.frame));
        }
    }

    let cursors: Vec<String> = seen.iter().map(|event| event.id.clone().unwrap()).collect();
    let dir = Arc::clone(&gander.dir);
    gander.stop().await;
    let gander = Setup::fake().config(config).dir(dir).start().await;
    for from in [0, seen.len() / 3, seen.len() - 1] {
        let again =
            all_events(&gander, &gander.token, "?follow=false", Some(&cursors[from])).await.rest().await;
        let frames = |events: &[Event]| events.iter().map(|event| event.frame.clone()).collect::<Vec<_>>();
        let behind = &seen[from + 1..];
        assert!(frames(&again[..behind.len()]) == frames(behind), "after the restart");
    }
    gander.stop().await;
}

#[tokio::test]
async fn everyone_sees_their_own_sessions_and_an_admin_sees_all() {
    let callers = [("alice", "\"read\", \"prompt\""), ("bob", "\"read\", \"prompt\""), ("root", "\"admin\"")];
    let (setup, _tokens) = with_callers(Setup::fake(), &callers);
    let gander = setup.start().await;
    let mut live = all_events(&gander, "alice", "?after=latest&types=session.created", None).await;
    let bobs = make_session(&gander, "bob").await;
    let alices = make_session(&gander, "alice").await;
    let second = make_session(&gander, "alice").await;
    // Made later, they joined by themselves; the first that came is hers.
    for expected in [&alices, &second] {
        let event = live.next().await.unwrap();
        assert_eq!(
            (event.kind(), event.data["session_id"].as_str()),
            ("session.created", Some(expected.as_str()))
        );
    }
    for (token, query, expected) in [
        ("alice", String::new(), vec![&alices, &second]),
        ("bob", String::new(), vec![&bobs]),
        ("root", String::new(), vec![&bobs, &alices, &second]),
        ("alice", format!("&session={second}"), vec![&second]),
        ("root", format!("&session={second}&session={bobs}"), vec![&bobs, &second]),
    ] {
        let query = format!("?follow=false&types=session.created{query}");
        let found = all_events(&gander, token, &query, None).await.rest().await;
        let found: Vec<String> = found.iter().map(|event| text(&event.data["session_id"])).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{token} {query}");
    }
    for id in [bobs.as_str(), "0198c5a0-0000-7000-8000-000000000000", "nonsense"] {
        let path = format!("/v1/events?session={alices}&session={id}");
        refusal(gander.request_as("alice", Method::GET, &path), 404, "session-not-found").await;
    }
    for query in ["?after=nonsense", "?after=17", "?types=nonsense", "?limit=5", "?sessions=a"] {
        let request = gander.request_as("alice", Method::GET, &format!("/v1/events{query}"));
        refusal(request, 400, "malformed-request").await;
    }
    gander.stop().await;
}

#[tokio::test]
async fn a_deleted_session_leaves_the_stream_with_its_last_event_also_for_who_was_away() {
    let gander = Setup::fake().start().await;
    let (kept, gone) = (gander.session(&json!({})).await, gander.session(&json!({})).await);
    let mut live = all_events(&gander, &gander.token, "?types=session.deleted", None).await;
    let mut named = all_events(&gander, &gander.token, &format!("?session={}", gone.id), None).await;
    gone.delete().await;
    let event = live.next().await.unwrap();
    assert_eq!(event.data["session_id"], gone.id.as_str());
    let of_gone = named.rest().await;
    assert_eq!(of_gone.last().unwrap().kind(), "session.deleted", "then the stream has ended");

    let dir = Arc::clone(&gander.dir);
    let (kept, gone) = (kept.id, gone.id);
    gander.stop().await;
    let gander = Setup::fake().dir(dir).start().await;
    let all = all_events(&gander, &gander.token, "?follow=false", None).await.rest().await;
    let of = |id: &str| all.iter().filter(|event| event.data["session_id"] == id).collect::<Vec<_>>();
    assert!(of(&kept).len() > 1);
    assert_eq!(of(&gone), [&event], "nothing else is left, and this is as it was");
    gander.stop().await;
}

#[tokio::test]
async fn cursors_that_cannot_be_honoured_are_reset() {
    let (first, other) = (Setup::fake().start().await, Setup::fake().start().await);
    for gander in [&first, &other] {
        gander.session(&json!({})).await;
    }
    let mut events = all_events(&first, &first.token, "?follow=false", None).await.rest().await;
    let good = events.pop().unwrap().id.unwrap();
    let beyond = format!("{}{:016x}", &good[..8], 1_000_000);
    for (gander, cursor, reason) in
        [(&first, &beyond, "cursor_beyond_head"), (&other, &good, "cursor_unknown")]
    {
        let found = all_events(gander, &gander.token, "?follow=false", Some(cursor)).await.rest().await;
        assert_eq!((found[0].kind(), found[0].data["reason"].as_str()), ("stream.reset", Some(reason)));
        assert_eq!(found[0].id, None);
        assert_eq!(found[1].data["type"], "session.created");
        let page = page(gander, &format!("/v1/events?after={cursor}&limit=1")).await;
        assert_eq!(page["events"][0], found[0].data);
        assert_eq!(page["events"][1], found[1].data);
    }
    first.stop().await;
    other.stop().await;
}

async fn lines(gander: &Gander, path: &str) -> Response {
    let request = gander.request(Method::GET, path).header("accept", "application/x-ndjson");
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    response
}

#[tokio::test]
async fn lines_are_the_events_json_byte_for_byte() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({})).await;
    session.turn("flood 300").await;
    let log = session.log().await;
    let data = |event: &Event| {
        let frame = std::str::from_utf8(&event.frame).unwrap();
        frame.lines().find_map(|line| line.strip_prefix("data: ")).unwrap().to_owned() + "\n"
    };
    let expected: String = log.iter().map(data).collect();
    let body = lines(&gander, &session.path("/events?follow=false")).await.text().await.unwrap();
    assert!(body.starts_with(&expected));
    // Over all sessions: the same, with cursors in between, each of which resumes.
    let body = lines(&gander, "/v1/events?follow=false").await.text().await.unwrap();
    let is_cursor = |line: &&str| line.starts_with(r#"{"type":"stream.cursor""#);
    let events: String = body.split_inclusive('\n').filter(|line| !is_cursor(line)).collect();
    assert!(events.starts_with(&expected));
    let cursor: Value = serde_json::from_str(body.lines().find(is_cursor).unwrap()).unwrap();
    let (_, behind) = body.split_once(&format!("{cursor}\n")).unwrap();
    let path = format!("/v1/events?follow=false&after={}", text(&cursor["next_after"]));
    let resumed = lines(&gander, &path).await.text().await.unwrap();
    let without_cursors =
        |text: &str| text.lines().filter(|line| !is_cursor(line)).map(String::from).collect::<Vec<_>>();
    assert_eq!(without_cursors(&resumed), without_cursors(behind));
    gander.stop().await;
}

#[tokio::test]
async fn pages_walk_over_everything_that_is_selected() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({})).await;
    session.turn("flood 700").await;
    let log = session.log().await;
    for (base, types) in [
        (session.path("/events"), ""),
        (session.path("/events"), "&types=session.state,turn.completed"),
        ("/v1/events".to_owned(), ""),
        ("/v1/events".to_owned(), "&types=session.state,turn.completed"),
    ] {
        let (mut after, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let page = page(&gander, &format!("{base}?limit=150&after={after}{types}")).await;
            let events = page["events"].as_array().unwrap();
            assert!(events.len() <= 150);
            found.extend(events.iter().cloned());
            let next = &page["next_after"];
            after = next.as_str().map_or_else(|| next.to_string(), str::to_owned);
            if *next == page["last_event_id"] {
                break;
            }
        }
        let expected: Vec<_> = log
            .iter()
            .filter(|event| types.is_empty() || types.contains(event.kind()))
            .map(|event| event.data.clone())
            .collect();
        assert!(expected.len() >= 2 && found[..expected.len()] == expected, "{base} {types}");
    }
    gander.stop().await;
}

#[tokio::test]
async fn a_long_poll_wakes_with_the_event_and_ends_with_its_session() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({})).await;
    for base in [session.path("/events"), "/v1/events".to_owned()] {
        let head = page(&gander, &format!("{base}?limit=1")).await["last_event_id"].clone();
        let head = head.as_str().map_or_else(|| head.to_string(), str::to_owned);
        let path = format!("{base}?after={head}&types=turn.completed&wait_s=30");
        let (page, turn) = tokio::join!(page(&gander, &path), async {
            // So that it waits by then. Were it later, it would find the event all the same.
            tokio::time::sleep(Duration::from_millis(200)).await;
            session.turn("flood 3").await
        });
        assert_eq!(page["events"].as_array().unwrap().len(), 1);
        assert_eq!(page["events"][0]["turn_id"], turn["id"], "{page}");
    }
    let path = session.path("/events?after=latest&types=notice&wait_s=30");
    let (page, ()) = tokio::join!(page(&gander, &path), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        session.delete().await;
    });
    assert_eq!(page["events"], json!([]));
    gander.stop().await;
}

#[tokio::test]
async fn every_form_ends_when_gander_stops_or_the_token_is_taken_away() {
    let (setup, tokens) =
        with_callers(Setup::fake(), &[("alice", "\"read\", \"prompt\""), ("bob", "\"read\"")]);
    let mut gander = setup.start().await;
    let session = make_session(&gander, "alice").await;
    let own = format!("/v1/sessions/{session}/events");
    let open = async |token: &str, paths: &[&str]| {
        let mut answers = JoinSet::new();
        for path in paths {
            for accept in ["text/event-stream", "application/x-ndjson", "application/json"] {
                let wait = if accept == "application/json" { "&wait_s=60" } else { "" };
                let path = format!("{path}?after=latest&types=notice{wait}");
                let request = gander.request_as(token, Method::GET, &path).header("accept", accept);
                answers.spawn(async move { request.send().await.unwrap().text().await.unwrap() });
            }
        }
        answers
    };
    let mut bobs = open("bob", &["/v1/events"]).await;
    let mut alices = open("alice", &["/v1/events", &own]).await;
    // The answers of pages tell nothing before they end: this is the time in which they begin.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let path = tokens.path().join("tokens.toml");
    let kept = fs::read_to_string(&path).unwrap();
    let (kept, _) = kept.rsplit_once("[[tokens]]").unwrap();
    fs::write(&path, kept).unwrap();
    while let Some(answer) = tokio::time::timeout(PATIENCE, bobs.join_next()).await.expect("bob still reads")
    {
        answer.unwrap();
    }
    assert!(alices.try_join_next().is_none(), "others go on");
    gander.signal("TERM");
    while let Some(answer) = tokio::time::timeout(PATIENCE, alices.join_next()).await.expect("one goes on") {
        answer.unwrap();
    }
    assert!(gander.ended().await.success());
}

/// Sends a request by hand; gives the socket, of which nothing has been read.
async fn ask(gander: &Gander, path: &str) -> TcpStream {
    let mut socket = TcpStream::connect(gander.address).await.unwrap();
    let head =
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n", gander.token);
    socket.write_all(head.as_bytes()).await.unwrap();
    socket
}

/// How many callers are connected and have not been cut off: gander's ends of established connections.
fn connected(gander: &Gander) -> usize {
    const ESTABLISHED: &str = "01";
    let ours = format!(":{:04X}", gander.address.port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|fields| fields[1].ends_with(&ours) && fields[3] == ESTABLISHED).count()
}

#[tokio::test]
async fn a_peer_that_never_reads_is_closed_and_one_that_reads_slowly_lives() {
    let gander =
        Setup::fake().config("[server]\nwrite_timeout = \"1s\"\nshutdown_grace = \"10ms\"").start().await;
    let session = gander.session(&json!({})).await;
    let _stuck = ask(&gander, &session.path("/events")).await;
    let mut slow = ask(&gander, "/v1/events").await;
    until("both are connected", || connected(&gander) == 2).await;
    session.prompt("flood 100000000").await;
    // Reads for as long as several timeouts, and until the other one is gone.
    let (mut bytes, begun) = (vec![0; 64 * 1024], Instant::now());
    while begun.elapsed() < Duration::from_secs(4) || connected(&gander) > 1 {
        slow.read_exact(&mut bytes).await.expect("it was closed though it reads");
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(begun.elapsed() < PATIENCE, "the one that never reads is still there");
    }
    drop(slow);
}
