//! Floods: readers that stop, and sessions beside the one that floods.

use std::fs;
use std::io::{BufRead, BufReader, Write};

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::{ENDLESS, cancel};
use crate::support::{Gander, PATIENCE, Session, Setup, kinds, text};

/// `VmRSS` of a process, in KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A subscriber that asks for a session's events and never reads a byte.
async fn stopped_reader(gander: &Gander, session: &Session<'_>) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut connection = socket.connect(gander.address).await.unwrap();
    let request = format!(
        "GET {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
        session.path("/events"),
        gander.address,
        gander.token
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

/// A subscriber that is quick enough for a million events: it looks at their ids and types and at nothing else.
struct PlainReader {
    connection: std::net::TcpStream,
    token: String,
}

impl PlainReader {
    async fn connect(gander: &Gander) -> Self {
        let connection = TcpStream::connect(gander.address).await.unwrap().into_std().unwrap();
        connection.set_nonblocking(false).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { connection, token: gander.token.clone() }
    }

    /// Reads until an event of this type; every id must be one more than the last. Gives its id and all bytes read.
    fn read_through(mut self, path: &str, kind: &str, mut last: u64) -> (u64, usize) {
        // HTTP/1.0, so that the body comes as it is.
        let head =
            format!("GET {path} HTTP/1.0\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n", self.token);
        self.connection.write_all(head.as_bytes()).unwrap();
        let mut lines = BufReader::with_capacity(64 * 1024, self.connection);
        let (mut line, mut id, mut bytes) = (Vec::new(), 0, 0);
        loop {
            line.clear();
            let count = lines.read_until(b'\n', &mut line).unwrap();
            assert_ne!(count, 0, "the stream ended behind {last}");
            bytes += count;
            if let Some(number) = line.strip_prefix(b"id: ") {
                id = std::str::from_utf8(number).unwrap().trim_end().parse().unwrap();
            } else if let Some(name) = line.strip_prefix(b"event: ") {
                assert_eq!(id, last + 1);
                last = id;
                if name.trim_ascii_end() == kind.as_bytes() {
                    return (last, bytes);
                }
            }
        }
    }
}

#[tokio::test]
async fn readers_that_stop_hold_up_nobody_and_cost_no_memory() {
    const EVENTS: u64 = 1_000_000;
    // The queue to the store is the one large buffer there is; this test has to tell it from a leak.
    let gander = Setup::fake().config("[storage]\nqueue_bytes = 4194304").start().await;
    let session = gander.session(&json!({})).await;
    session.turn("flood 2000").await;
    let mut stopped = Vec::new();
    for _ in 0..20 {
        stopped.push(stopped_reader(&gander, &session).await);
    }
    let mut reading = JoinSet::new();
    let before = resident_kib(gander.pid());
    let head = session.now().await["last_event_id"].as_u64().unwrap();
    // Behind a named event: the latest one may already be of the turn that follows.
    let (reader, path) =
        (PlainReader::connect(&gander).await, session.path(&format!("/events?after={head}")));
    reading.spawn_blocking(move || reader.read_through(&path, "turn.completed", head));
    let turn = session.prompt(&format!("flood {EVENTS}")).await;
    let (last, bytes) = reading.join_next().await.unwrap().unwrap();
    let ended = session.gander.get(&session.path(&format!("/turns/{}", text(&turn["id"])))).await;
    assert_eq!((&ended["state"], &ended["last_event_id"]), (&json!("completed"), &json!(last)));
    // Its start, the change of state, the chunks, and its end at least.
    assert!(last - head >= EVENTS + 3, "{last}");
    // What may be held: 4 MiB in the queue and about as much on its way through it, 2 MiB of tail and as much of the
    // order of all events, 8 shared reads (usually 256 KiB each), the batches of one read (256 KiB of lines, 8 may
    // wait), the database's caches and its log's index, and what the allocator keeps of all that. A leak of the events would be `bytes`; one for each stopped reader 20 times that.
    let grown = resident_kib(gander.pid()).saturating_sub(before) * 1024;
    let bound = 40 * 1024 * 1024;
    assert!(bytes > bound + bound / 4, "{bytes} bytes of events prove nothing");
    assert!(grown < bound as u64, "{grown} bytes more after {bytes} bytes of events");
    drop(stopped);
    session.delete().await;
}

#[tokio::test]
async fn a_session_that_floods_does_not_delay_anothers_events() {
    let gander = Setup::fake().start().await;
    let (loud, quiet) = (gander.session(&json!({})).await, gander.session(&json!({})).await);
    let mut noise = loud.events_with("?after=latest&types=turn.cancelled").await;
    let mut first = loud.events_with("?after=latest&types=message.delta").await;
    let flood = loud.prompt(ENDLESS).await;
    first.next().await.unwrap();
    drop(first);
    let mut events = quiet.events_with("?after=latest").await;
    for round in 0..5 {
        quiet.prompt(&format!("echo {round}\ncall")).await;
        let told = events.through("turn.completed").await;
        let told: Vec<&str> = kinds(&told).into_iter().filter(|kind| kind.starts_with("tool_call")).collect();
        assert_eq!(told, ["tool_call.started", "tool_call.finished"]);
    }
    // The order is the proof: the flood, which only a cancel ends, was there all the time.
    let now = loud.now().await;
    assert_eq!((&now["state"], &now["current_turn"]["id"]), (&json!("running"), &flood["id"]));
    cancel(&loud, &flood).await;
    assert_eq!(noise.until("turn.cancelled").await.data["turn_id"], flood["id"]);
}
