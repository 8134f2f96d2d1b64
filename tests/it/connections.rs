//! Connections that are broken off: nothing of them stays.

use std::fs;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::{Chance, EventStream, Gander, Setup, answer, until, until_async};

/// How many are open at once.
const AT_ONCE: usize = 50;

/// What begins a request, from nothing to a whole one that lasts.
fn beginnings(gander: &Gander, session: &str) -> Vec<String> {
    let own = format!("/v1/sessions/{session}");
    let head = |line: &str, more: &str| {
        format!("{line} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n{more}\r\n", gander.token)
    };
    let post = |more: &str, body: &str| {
        let length = format!("content-type: application/json\r\ncontent-length: {}\r\n{more}", body.len());
        head(&format!("POST {own}/turns"), &length) + body
    };
    let ask = |path: &str, accept: &str| head(&format!("GET {path}"), &format!("accept: {accept}\r\n"));
    let prompt = r#"{"prompt": "flood 40 rate 200/s"}"#;
    let chunked = head(
        &format!("POST {own}/turns"),
        "content-type: application/json\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n",
    );
    vec![
        String::new(),
        "GET /v1/se".to_owned(),
        "\u{1}\u{2}\u{3} nonsense\r\n\r\n".to_owned(),
        head("GET /v1/sessions", "x-unended: ").trim_end().to_owned(),
        post("", prompt).split_at(200).0.to_owned(),
        chunked + "8\r\n{\"promp",
        post("", prompt),
        post("prefer: wait=30\r\n", prompt),
        post("accept: text/event-stream\r\n", prompt),
        ask(&format!("{own}/events"), "text/event-stream"),
        ask(&format!("{own}/events?after=latest"), "application/x-ndjson"),
        ask("/v1/events", "text/event-stream"),
        ask("/v1/events?types=notice", "application/x-ndjson"),
        ask(&format!("{own}/events?after=latest&types=notice&wait_s=300"), "application/json"),
        ask("/v1/events?after=latest&types=notice&wait_s=300", "application/json"),
        // HTTP/2: its preface and an empty SETTINGS frame.
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0".to_owned(),
        // Several at once on one connection.
        ask("/v1/info", "*/*") + &ask(&own, "*/*") + &ask(&format!("{own}/events"), "text/event-stream"),
    ]
}

/// One connection: begins, reads a little or nothing, and is gone.
async fn broken_off(address: std::net::SocketAddr, request: String, mut chance: Chance) {
    let mut socket = TcpStream::connect(address).await.unwrap();
    // Broken off in the middle, half of the time.
    let end = if chance.percent(50) { request.len() as u64 } else { chance.below(request.len() as u64 + 1) };
    let bytes = &request.as_bytes()[..usize::try_from(end).unwrap()];
    // gander may have hung up already on what it cannot understand.
    let written = socket.write_all(bytes).await.is_ok();
    if written && chance.percent(30) {
        let mut buffer = vec![0; usize::try_from(1 + chance.below(4096)).unwrap()];
        let _ = tokio::time::timeout(chance.span(Duration::from_millis(50)), socket.read(&mut buffer)).await;
    } else {
        tokio::time::sleep(chance.span(Duration::from_millis(20))).await;
    }
    match chance.below(3) {
        // A reset in place of an end.
        0 => socket.set_zero_linger().unwrap(),
        1 => drop(socket.shutdown().await),
        _ => {}
    }
}

/// What gander has open, as `/proc` shows it.
fn open_files(gander: &Gander) -> Vec<String> {
    let links = fs::read_dir(format!("/proc/{}/fd", gander.pid())).unwrap().flatten();
    links
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect()
}

fn open_sockets(gander: &Gander) -> usize {
    open_files(gander).iter().filter(|file| file.starts_with("socket:")).count()
}

fn threads(gander: &Gander) -> usize {
    fs::read_dir(format!("/proc/{}/task", gander.pid())).unwrap().count()
}

/// Opens as many streams as a caller may have.
async fn all_streams(gander: &Gander, path: &str, count: usize) -> Vec<EventStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(EventStream::open(gander.request(Method::GET, path)).await);
    }
    streams
}

#[tokio::test]
async fn nothing_stays_of_a_thousand_connections_broken_off_at_random() {
    const STREAMS: usize = 64;
    // It stops only when every task has ended: none is cut short after a while.
    let config = format!("[server]\nshutdown_grace = \"1h\"\n[limits]\nstreams_per_caller = {STREAMS}");
    let gander = Setup::fake().config(&config).start().await;
    let session = gander.session(&json!({})).await;
    session.turn("flood 300").await;
    // Reading from the store takes threads and files, which then stay.
    let sockets = open_sockets(&gander);
    drop(all_streams(&gander, &session.path("/events"), STREAMS).await);
    until("the streams are gone", || open_sockets(&gander) <= sockets).await;
    let (files, before_threads) = (open_files(&gander).len(), threads(&gander));

    let mut chance = Chance::new("connections");
    let all = beginnings(&gander, &session.id);
    let mut connections = JoinSet::new();
    for _ in 0..1000 {
        if connections.len() == AT_ONCE {
            connections.join_next().await.unwrap().unwrap();
        }
        let request = chance.pick(&all).clone();
        connections.spawn(broken_off(gander.address, request, chance.fork()));
    }
    while let Some(connection) = connections.join_next().await {
        connection.unwrap();
    }

    // A turn that one of them began goes on without it, and ends.
    until_async("the turn has ended", async || session.now().await["current_turn"].is_null()).await;
    until("there are no more files than before", || open_files(&gander).len() <= files).await;
    until("there are no more threads than before", || threads(&gander) <= before_threads).await;
    // Every stream's place is free again, and all is well.
    let streams = all_streams(&gander, &session.path("/events"), STREAMS).await;
    assert_eq!(session.turn("echo well").await["text"], "well");
    drop(streams);
    answer(gander.request(Method::GET, "/readyz"), StatusCode::OK).await;
    assert!(!gander.log().contains("panicked"), "{}", gander.log());
    gander.stop().await;
}
