use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// The agent's side.
type Peer = WebSocketStream<TcpStream>;

fn limits() -> WebSocketLimits {
    WebSocketLimits {
        sent_bytes: 64,
        received_bytes: 5000,
        ping_interval: 100 * SECOND,
        ping_timeout: 100 * SECOND,
    }
}

/// Both sides of a connection that is opened with the header `x-key: key`.
async fn pair(limits: WebSocketLimits) -> (Result<WebSocket, WebSocketError>, Option<Peer>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accept = async {
        let (stream, _) = listener.accept().await.unwrap();
        #[expect(clippy::result_large_err, reason = "the library's own type")]
        let check = |request: &Request, response: Response| {
            assert_eq!(request.uri().path(), "/acp");
            if request.headers().get("x-key").is_some_and(|key| key == "key") {
                return Ok(response);
            }
            Err(ErrorResponse::new(None)).map_err(|mut refusal| {
                *refusal.status_mut() = tokio_tungstenite::tungstenite::http::StatusCode::UNAUTHORIZED;
                refusal
            })
        };
        tokio_tungstenite::accept_hdr_async(stream, check).await.ok()
    };
    let key = if limits.sent_bytes == 0 { "wrong" } else { "key" };
    let open = async {
        let stream = TcpStream::connect(address).await.unwrap();
        WebSocket::open(stream, "/acp", ("x-key", key), limits).await
    };
    tokio::join!(open, accept)
}

async fn open(limits: WebSocketLimits) -> (TextFrames, FrameSink, SocketCloser, Peer) {
    let (socket, peer) = pair(limits).await;
    let socket = socket.unwrap_or_else(|error| panic!("{error}"));
    let closer = socket.closer();
    let (frames, sink) = socket.split();
    (frames, sink, closer, peer.unwrap())
}

fn taken(frames: &mut TextFrames) -> Vec<String> {
    let mut taken = Vec::new();
    frames.take(|line| match line {
        Line::Whole(text) => taken.push(String::from_utf8(text.to_vec()).unwrap()),
        Line::TooLong { head, bytes } => taken.push(format!("{} of {bytes}", head.len())),
    });
    taken
}

#[tokio::test]
async fn a_refusal_is_told_with_its_status() {
    let (socket, _) = pair(WebSocketLimits { sent_bytes: 0, ..limits() }).await;
    assert!(matches!(socket, Err(WebSocketError::Refused(401))));
}

#[tokio::test]
async fn messages_are_text_frames_in_their_order() {
    let (mut frames, mut sink, _, mut peer) = open(limits()).await;
    sink.send(b"{\"a\":1}\n".to_vec()).await.unwrap();
    assert_eq!(peer.next().await.unwrap().unwrap(), Message::text("{\"a\":1}"));
    for frame in [
        Message::text("one"),
        Message::binary(vec![1, 2]),
        Message::Ping(vec![7].into()),
        Message::text("x".repeat(6000)),
        Message::text("two"),
    ] {
        peer.send(frame).await.unwrap();
    }
    peer.close(None).await.unwrap();
    let mut heard = Vec::new();
    while frames.read().await > 0 {
        heard.extend(taken(&mut frames));
    }
    assert_eq!(heard, ["one", "4096 of 6000", "two"]);
    assert_eq!(frames.read().await, 0, "the end stays the end");
}

#[tokio::test]
async fn what_the_agent_would_not_take_is_not_sent() {
    let (_frames, mut sink, _, mut peer) = open(limits()).await;
    let error = sink.send(vec![b'x'; 65]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    // The connection is as good as before.
    sink.send(vec![b'y'; 64]).await.unwrap();
    assert_eq!(peer.next().await.unwrap().unwrap().len(), 64);
}

#[tokio::test]
async fn more_than_can_be_left_out_costs_the_connection() {
    let (mut frames, _sink, closer, mut peer) = open(limits()).await;
    // The peer may be cut off while it sends.
    let _ = peer.send(Message::text("x".repeat(TOO_LONG_FACTOR * 5000 + 1))).await;
    assert_eq!(frames.read().await, 0);
    closer.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_is_asked_for_signs_of_life_and_given_up_without_any() {
    let (mut frames, mut sink, closer, mut peer) =
        open(WebSocketLimits { ping_interval: SECOND, ping_timeout: 10 * SECOND, ..limits() }).await;
    let (heard, _, ()) = tokio::join!(
        async {
            let heard = frames.read().await;
            closer.closed().await;
            heard
        },
        async { tokio::time::timeout(60 * SECOND, sink.keep_alive()).await },
        async {
            // It reads and so answers, then it hangs.
            for _ in 0..3 {
                assert!(matches!(peer.next().await, Some(Ok(Message::Ping(_)))));
            }
            tokio::time::sleep(60 * SECOND).await;
        },
    );
    assert_eq!(heard, 0);
}

#[tokio::test]
async fn it_can_be_closed_from_outside() {
    let (mut frames, mut sink, closer, mut peer) = open(limits()).await;
    closer.close();
    assert_eq!(frames.read().await, 0);
    assert!(peer.next().await.is_none_or(|frame| frame.is_err()));
    assert!(sink.close().await.is_err() || sink.send(b"x".to_vec()).await.is_err());
}
