use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::*;
use crate::http::fake_settings::settings;

/// A running server whose `/held` requests can be held up.
struct Bench {
    address: SocketAddr,
    tasks: Tasks,
    closing: CancellationToken,
    serving: JoinHandle<()>,
    /// One permit for each held request that has begun.
    begun: Arc<Semaphore>,
    /// One permit lets one held request go on.
    go: Arc<Semaphore>,
}

impl Bench {
    async fn new(change: impl FnOnce(&mut HttpSettings)) -> Self {
        let mut settings = settings();
        change(&mut settings);
        let (begun, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (tell, wait) = (Arc::clone(&begun), Arc::clone(&go));
        let held = move || async move {
            tell.add_permits(1);
            wait.acquire().await.unwrap().forget();
            "held"
        };
        let router = Router::new().route("/", get(async || "hello")).route("/held", get(held));
        let tasks = Tasks::new();
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.address();
        let closing = CancellationToken::new();
        let (on, until) = (tasks.clone(), closing.clone());
        let serving = tasks.spawn(async move { serve(listener, router, &settings, &on, &until).await });
        Self { address, tasks, closing, serving, begun, go }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn stopped(self) {
        self.closing.cancel();
        self.tasks.finished().await;
    }
}

async fn ask(stream: &mut TcpStream, path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await.unwrap();
}

/// Reads until `end` has come.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let mut bytes = [0; 512];
        let count = stream.read(&mut bytes).await.unwrap();
        assert!(count > 0, "ended after {text:?}");
        text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    text
}

/// Everything up to the end of the connection; also when it ends by a reset.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes)).await;
    let _ = read.expect("the connection does not end");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_connection_serves_one_request_after_another() {
    let bench = Bench::new(|_| {}).await;
    let mut stream = bench.connect().await;
    for _ in 0..2 {
        ask(&mut stream, "/").await;
        assert!(read_until(&mut stream, "hello").await.starts_with("HTTP/1.1 200 OK\r\n"));
    }
    bench.stopped().await;
}

#[tokio::test]
async fn http_2_is_spoken_on_the_same_socket() {
    let bench = Bench::new(|_| {}).await;
    let mut stream = bench.connect().await;
    // The preface and an empty SETTINGS frame (RFC 9113, sections 3.4 and 6.5).
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).await.unwrap();
    assert_eq!(frame[3], 4, "the server's SETTINGS");
    drop(stream);
    bench.stopped().await;
}

#[tokio::test]
async fn a_peer_that_does_not_say_what_it_wants_is_cut_off() {
    let bench = Bench::new(|settings| settings.header_timeout = Duration::from_millis(50)).await;
    let silent: [&[u8]; 5] = [
        b"",
        b"G",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx-slow: ",
        b"PRI * HTTP/2.0\r",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ];
    for said in silent {
        let mut stream = bench.connect().await;
        stream.write_all(said).await.unwrap();
        let answer = read_to_end(&mut stream).await;
        assert!(!answer.contains("200 OK"), "{answer}");
    }
    // Neither may one that asked once stay for ever.
    let mut stream = bench.connect().await;
    ask(&mut stream, "/").await;
    assert!(read_to_end(&mut stream).await.ends_with("hello"));
    bench.stopped().await;
}

#[tokio::test]
async fn a_slow_handler_is_not_cut_off() {
    let bench = Bench::new(|settings| settings.header_timeout = Duration::from_millis(20)).await;
    let mut stream = bench.connect().await;
    ask(&mut stream, "/held").await;
    bench.begun.acquire().await.unwrap().forget();
    // Another connection that is cut off in the meantime shows that the time has passed.
    let mut silent = bench.connect().await;
    read_to_end(&mut silent).await;
    bench.go.add_permits(1);
    assert!(read_until(&mut stream, "held").await.contains("200 OK"));
    bench.stopped().await;
}

#[tokio::test]
async fn a_long_head_is_refused() {
    let bench = Bench::new(|_| {}).await;
    let mut stream = bench.connect().await;
    let head = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx-long: {}", "x".repeat(READ_BUFFER_BYTES));
    stream.write_all(head.as_bytes()).await.unwrap();
    assert!(read_to_end(&mut stream).await.starts_with("HTTP/1.1 431 "));
    bench.stopped().await;
}

#[tokio::test]
async fn over_the_bound_a_connection_waits_for_another_to_end() {
    let bench = Bench::new(|settings| settings.max_connections = 1).await;
    let mut first = bench.connect().await;
    ask(&mut first, "/held").await;
    bench.begun.acquire().await.unwrap().forget();
    let mut second = bench.connect().await;
    ask(&mut second, "/held").await;
    // One-sided: a second place would be taken well within this time.
    assert!(timeout(Duration::from_millis(100), bench.begun.acquire()).await.is_err());
    bench.go.add_permits(2);
    read_until(&mut first, "held").await;
    drop(first);
    assert!(read_until(&mut second, "held").await.contains("200 OK"));
    bench.stopped().await;
}

#[tokio::test]
async fn closing_ends_idle_connections_and_lets_requests_finish() {
    let bench = Bench::new(|_| {}).await;
    let (mut idle, mut silent, mut busy) =
        (bench.connect().await, bench.connect().await, bench.connect().await);
    ask(&mut idle, "/").await;
    read_until(&mut idle, "hello").await;
    ask(&mut busy, "/held").await;
    bench.begun.acquire().await.unwrap().forget();
    // As long as turns may still run, callers are served.
    bench.tasks.soft().cancel();
    ask(&mut idle, "/").await;
    read_until(&mut idle, "hello").await;
    drop(bench.connect().await);
    bench.closing.cancel();
    assert_eq!(read_to_end(&mut idle).await, "");
    assert_eq!(read_to_end(&mut silent).await, "");
    assert!(!bench.serving.is_finished(), "a request is held");
    assert!(TcpStream::connect(bench.address).await.is_err());
    bench.go.add_permits(1);
    assert!(read_to_end(&mut busy).await.ends_with("held"));
    bench.serving.await.unwrap();
    bench.tasks.finished().await;
}

#[tokio::test]
async fn a_hard_shutdown_ends_requests() {
    let bench = Bench::new(|_| {}).await;
    let mut busy = bench.connect().await;
    ask(&mut busy, "/held").await;
    bench.begun.acquire().await.unwrap().forget();
    bench.closing.cancel();
    bench.tasks.hard().cancel();
    assert_eq!(read_to_end(&mut busy).await, "");
    bench.tasks.finished().await;
}

/// More than sockets take ahead of their readers.
const FLOOD_BYTES: usize = 64 * 1024 * 1024;

/// A server that sends a flood to whoever asks, and gives up those who take nothing for `write_timeout`.
async fn flooding(write_timeout: Duration) -> (SocketAddr, Tasks) {
    let flood = async || {
        let chunk = axum::body::Bytes::from(vec![b'x'; 64 * 1024]);
        let chunks = std::iter::repeat_n(chunk, FLOOD_BYTES / (64 * 1024)).map(Ok::<_, io::Error>);
        Body::from_stream(futures_util::stream::iter(chunks))
    };
    let silent = async || Body::from_stream(futures_util::stream::pending::<io::Result<axum::body::Bytes>>());
    let router = Router::new().route("/flood", get(flood)).route("/silent", get(silent));
    let settings = HttpSettings { write_timeout, ..settings() };
    let tasks = Tasks::new();
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.address();
    let on = tasks.clone();
    tasks.spawn(async move { serve(listener, router, &settings, &on, on.soft()).await });
    (address, tasks)
}

#[tokio::test]
async fn a_peer_that_takes_nothing_is_cut_off_and_one_that_reads_slowly_is_not() {
    let (address, tasks) = flooding(Duration::from_millis(300)).await;
    let mut reading = TcpStream::connect(address).await.unwrap();
    ask(&mut reading, "/flood").await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    ask(&mut idle, "/silent").await;
    read_until(&mut idle, "\r\n\r\n").await;
    let mut stuck = TcpStream::connect(address).await.unwrap();
    ask(&mut stuck, "/flood").await;

    // Slow enough to be waited for all the while, for as long as several timeouts.
    let mut bytes = vec![0; 128 * 1024];
    for _ in 0..100 {
        reading.read_exact(&mut bytes).await.unwrap();
        sleep(Duration::from_millis(15)).await;
    }
    // What comes is what was in flight; then the connection is over.
    let got = read_to_end(&mut stuck).await.len();
    assert!(got < FLOOD_BYTES, "it got everything, so nobody waited for it");
    // The one that reads gets everything.
    let mut rest = 0;
    while let count @ 1.. = reading.read(&mut bytes).await.unwrap() {
        rest += count;
        if rest + 100 * bytes.len() >= FLOOD_BYTES {
            break;
        }
    }
    assert!(rest + 100 * bytes.len() >= FLOOD_BYTES, "it was cut off");
    // Nobody waits for the one that has read everything.
    let mut one = [0; 1];
    assert!(timeout(Duration::from_millis(10), idle.read(&mut one)).await.is_err(), "it was cut off");
    tasks.soft().cancel();
    tasks.hard().cancel();
    tasks.finished().await;
}
