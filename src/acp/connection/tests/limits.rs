//! Nothing an agent writes, or does not read, grows without bound or stops anyone else.

use super::*;
use std::path::Path;

#[tokio::test]
async fn an_agent_that_does_not_read_is_given_up() {
    let mut peer = Peer::open_with(Limits::default(), 256, 16);
    peer.start_session().await;
    let mut sent = 0;
    while peer.connection.send(AgentCommand::Cancel).is_ok() {
        sent += 1;
        assert!(sent <= 2 * QUEUED_LINES, "the queue has an end");
    }
    assert!(sent >= QUEUED_LINES);
    assert_eq!(peer.connection.send(AgentCommand::Cancel), Err(AgentGone));
    assert_eq!(peer.kills(), 1);
    peer.ended("the agent does not read what it is sent", TurnErrorClass::AgentUnresponsive).await;
}

#[tokio::test]
async fn an_agent_that_asks_and_never_reads_stops_nobody() {
    let mut peer = Peer::open_with(Limits::default(), 256, 16);
    peer.start_session().await;
    // Each asks for an answer; the reader must not wait for room for them.
    for _ in 0..10 * QUEUED_LINES {
        let _ = peer.stdout.write_all(b"{\"id\":1,\"method\":\"fs/unknown\"}\n").await;
    }
    assert_eq!(peer.kills(), 1);
    peer.ended("the agent does not read what it is sent", TurnErrorClass::AgentUnresponsive).await;
}

#[tokio::test]
async fn a_flood_presses_back_and_loses_nothing() {
    const LINES: usize = 20_000;
    let mut peer = Peer::open_with(Limits::default(), 4096, 2);
    let connection = peer.connection.clone();
    let started = peer.tasks.spawn(async move { connection.new_session(Path::new("/ws"), &[]).await });
    peer.sent().await;
    peer.say(&json!({"id": 1, "result": {"sessionId": "s"}})).await;
    started.await.unwrap().unwrap();

    let written = Arc::new(AtomicUsize::new(0));
    let (mut stdout, count) = (peer.stdout, written.clone());
    let flood = peer.tasks.spawn(async move {
        for number in 0..LINES {
            stdout.write_all(format!("{}\n", chunk("s", &number.to_string())).as_bytes()).await.unwrap();
            count.store(number + 1, Ordering::SeqCst);
        }
        stdout
    });
    // Nobody takes the events: after a while nothing moves any more.
    let mut before = usize::MAX;
    while before != written.load(Ordering::SeqCst) {
        before = written.load(Ordering::SeqCst);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    assert!(before < LINES / 10, "{before} lines went somewhere");
    // What goes to the agent does not wait behind the flood.
    peer.connection.send(AgentCommand::Cancel).unwrap();
    assert!(peer.stdin.next_line().await.unwrap().unwrap().contains("session/cancel"));

    let mut expected = 0;
    let mut batches = 0;
    while expected < LINES {
        batches += 1;
        for event in peer.events.recv().await.unwrap() {
            let AgentEvent::MessageChunk { text, .. } = event else { panic!("{event:?}") };
            assert_eq!(text, expected.to_string());
            expected += 1;
        }
    }
    assert!(batches < LINES, "all that a read brought is one batch");
    drop(flood.await.unwrap());
}

/// Writes a line of so many megabytes that begins so.
async fn write_huge_line(peer: &mut Peer, beginning: &str, megabytes: usize) {
    let filling = vec![b'x'; 1_000_000];
    let _ = peer.stdout.write_all(beginning.as_bytes()).await;
    for _ in 0..megabytes {
        // It may be given up meanwhile.
        let _ = peer.stdout.write_all(&filling).await;
    }
    let _ = peer.stdout.write_all(b"\"}\n").await;
}

#[tokio::test]
async fn a_huge_update_is_left_out_and_told() {
    let mut peer = Peer::with_session(Limits { line_bytes: 100_000, ..Limits::default() }).await;
    peer.update("before").await;
    write_huge_line(&mut peer, r#"{"jsonrpc":"2.0","method":"session/update","params":{"x":""#, 50).await;
    peer.update("after").await;
    assert_eq!(peer.text().await, "before");
    let message = "an update of 50000060 bytes was left out: a line may have 100000".to_owned();
    let notice = Notice { level: NoticeLevel::Warning, code: "update-dropped".to_owned(), message };
    assert_eq!(peer.event().await, Some(AgentEvent::Notice(notice)));
    assert_eq!(peer.text().await, "after");
}

#[tokio::test]
async fn any_other_huge_line_ends_the_agent() {
    for beginning in
        ["", r#"{"jsonrpc":"2.0","id":1,"result":{"x":""#, r#"{"id":1,"method":"session/update","x":""#]
    {
        let mut peer = Peer::with_session(Limits { line_bytes: 100_000, ..Limits::default() }).await;
        peer.update("before").await;
        write_huge_line(&mut peer, beginning, 2).await;
        assert_eq!(peer.text().await, "before");
        let kills = peer.kills.clone();
        peer.ended("the agent wrote a line of more than 100000 bytes", TurnErrorClass::AgentUnresponsive)
            .await;
        assert_eq!(kills.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn garbage_is_survived_up_to_a_limit() {
    let mut peer = Peer::with_session(Limits { bad_lines: 6, ..Limits::default() }).await;
    peer.write(b"\n").await;
    peer.write(b"panicked at main.rs\r\n").await;
    peer.write(b"\xff\xfe\x00{}\n").await;
    peer.write(b"{\"id\":1}\n[]\n").await;
    let mut text = chunk("s", "bad byte: ?").to_string().into_bytes();
    let bad = text.iter().position(|byte| *byte == b'?').unwrap();
    text[bad] = 0xff;
    peer.write(&text).await;
    peer.write(b"\n").await;
    peer.write(format!("[{}, {}, 17]\n", chunk("s", "in"), chunk("s", "a batch")).as_bytes()).await;
    assert_eq!(peer.text().await, "bad byte: \u{fffd}");
    assert_eq!(peer.text().await, "in");
    assert_eq!(peer.text().await, "a batch");
    assert_eq!(peer.kills(), 0);
    peer.write(b"one too many\n").await;
    peer.ended("the agent wrote 7 lines that are no JSON-RPC", TurnErrorClass::AgentUnresponsive).await;
}

#[tokio::test]
async fn more_permission_requests_than_are_held_are_cancelled() {
    let mut peer = Peer::with_session(Limits { pending_permissions: 2, ..Limits::default() }).await;
    for number in 0..3 {
        peer.say(&permission(&json!(number), "call")).await;
    }
    let answer = json!({"jsonrpc": "2.0", "id": 2, "result": {"outcome": {"outcome": "cancelled"}}});
    assert_eq!(peer.sent().await, answer);
    for _ in 0..2 {
        assert!(matches!(peer.event().await, Some(AgentEvent::PermissionRequested(_))));
    }
    peer.exits("exit code 0");
    peer.ended("exit code 0", TurnErrorClass::AgentExited).await;
}
