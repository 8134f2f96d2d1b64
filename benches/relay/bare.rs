//! The bare relay: runs agents, and writes each line of one as a server-sent event to its subscribers.
//!
//! It is a process of its own, as gander is. `prompt` lines on its standard input begin turns; the end of its standard
//! input ends it.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use clap::Parser;
use memchr::memmem::find;
use memchr::{memchr_iter, memrchr};
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::Outcome;
use super::subscriber::{ReadBuffer, Subscriber};

/// As gander reads.
const READ_BYTES: usize = 256 * 1024;
/// As gander's pipes are.
const PIPE_BYTES: usize = 1 << 20;
/// Reads that may wait for a subscriber; then everybody waits.
const QUEUED_READS: usize = 4;
/// What the agent's answer to a prompt contains, and nothing before it.
const END_OF_TURN: &str = "\"stopReason\"";

/// What the relay is started with.
#[derive(Parser)]
pub(crate) struct Options {
    agent: PathBuf,
    sessions: usize,
}

/// Who gets an agent's lines.
type Subscribers = Arc<Mutex<Vec<mpsc::Sender<Bytes>>>>;

/// The relay's process.
pub(crate) async fn run(options: &Options) -> Outcome<()> {
    let tasks = TaskTracker::new();
    let mut agents = Vec::with_capacity(options.sessions);
    let mut subscribers = Vec::with_capacity(options.sessions);
    for _ in 0..options.sessions {
        let mut agent = Agent::start(&options.agent).await?;
        let served = Subscribers::default();
        subscribers.push(Arc::clone(&served));
        tasks.spawn(relay(agent.stdout.take().ok_or("no standard output")?, served));
        agents.push(agent);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    let prompts = pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let mut prompts = BufReader::new(prompts).lines();
    loop {
        tokio::select! {
            line = prompts.next_line() => {
                let Some(line) = line? else { return Ok(()) };
                let (index, text) = line.split_once(' ').ok_or("a prompt without a session")?;
                agents.get_mut(index.parse::<usize>()?).ok_or("no such session")?.prompt(text).await?;
            }
            connection = listener.accept() => {
                tasks.spawn(serve(connection?.0, subscribers.clone()));
            }
        }
    }
}

struct Agent {
    stdin: ChildStdin,
    stdout: Option<ChildStdout>,
    session_id: String,
    /// Killed when it is dropped.
    _process: Child,
}

impl Agent {
    async fn start(program: &Path) -> Outcome<Self> {
        let mut process = Command::new(program)
            .arg("acp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = process.stdin.take().ok_or("no standard input")?;
        let mut stdout = process.stdout.take().ok_or("no standard output")?;
        // As gander does; the system may allow less.
        let _smaller = fcntl_setpipe_size(&stdout, PIPE_BYTES);
        stdin
            .write_all(
                b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{}}\n\
                  {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"session/new\",\"params\":{}}\n",
            )
            .await?;
        let session_id = session_id(&mut BufReader::new(&mut stdout).lines()).await?;
        Ok(Self { stdin, stdout: Some(stdout), session_id, _process: process })
    }

    async fn prompt(&mut self, text: &str) -> Outcome<()> {
        let prompt = serde_json::json!({ "jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": {
            "sessionId": self.session_id, "prompt": [{ "type": "text", "text": text }] } });
        Ok(self.stdin.write_all(format!("{prompt}\n").as_bytes()).await?)
    }
}

/// What follows the answer in the reader's buffer is lost: updates that nobody waits for.
async fn session_id(lines: &mut Lines<BufReader<&mut ChildStdout>>) -> Outcome<String> {
    while let Some(line) = lines.next_line().await? {
        if let Some((_, rest)) = line.split_once("\"sessionId\":\"") {
            return Ok(rest.split('"').next().unwrap_or_default().to_owned());
        }
    }
    Err("the agent ended before it had a session".into())
}

/// Every line of the agent becomes an event.
async fn relay(mut stdout: ChildStdout, subscribers: Subscribers) {
    let mut read = BytesMut::with_capacity(READ_BYTES);
    while let Ok(1..) = stdout.read_buf(&mut read).await {
        let Some(last) = memrchr(b'\n', &read) else { continue };
        let lines = read.split_to(last + 1);
        let mut events = BytesMut::with_capacity(lines.len() + lines.len() / 16);
        let mut begin = 0;
        for end in memchr_iter(b'\n', &lines) {
            events.put_slice(b"data: ");
            events.put_slice(&lines[begin..=end]);
            events.put_u8(b'\n');
            begin = end + 1;
        }
        let events = events.freeze();
        let served = subscribers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for subscriber in served {
            // One that has left is not missed.
            let _ = subscriber.send(events.clone()).await;
        }
        read.reserve(READ_BYTES);
    }
}

/// One subscriber: `GET /<index>`.
async fn serve(mut stream: TcpStream, subscribers: Vec<Subscribers>) -> Outcome<()> {
    stream.set_nodelay(true)?;
    let mut head = Vec::new();
    while find(&head, b"\r\n\r\n").is_none() {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&head);
    let index = head.split(' ').nth(1).and_then(|path| path[1..].parse::<usize>().ok());
    let served = index.and_then(|index| subscribers.get(index)).ok_or("no such session")?;
    let (sender, mut events) = mpsc::channel(QUEUED_READS);
    served.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await?;
    while let Some(events) = events.recv().await {
        stream.write_all(&events).await?;
    }
    Ok(())
}

/// A relay that runs.
pub(crate) struct BareRelay {
    process: Child,
    address: SocketAddr,
    prompts: ChildStdin,
}

impl BareRelay {
    /// Starts one with so many agents.
    pub(crate) async fn start(agent: &Path, sessions: usize) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("bare-relay")
            .arg(agent)
            .arg(sessions.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let prompts = process.stdin.take().ok_or("no standard input")?;
        let mut lines = BufReader::new(process.stdout.take().ok_or("no standard output")?).lines();
        let address = lines.next_line().await?.ok_or("the relay did not start")?.parse()?;
        Ok(Self { process, address, prompts })
    }

    pub(crate) fn pid(&self) -> Outcome<u32> {
        self.process.id().ok_or_else(|| "the relay has ended".into())
    }

    pub(crate) async fn subscribe(&self, session: usize, buffer: &ReadBuffer) -> Outcome<Subscriber> {
        let head = format!("GET /{session} HTTP/1.1\r\nhost: {}", self.address);
        Subscriber::open(self.address, &head, END_OF_TURN, buffer).await
    }

    pub(crate) async fn prompt(&mut self, session: usize, text: &str) -> Outcome<()> {
        Ok(self.prompts.write_all(format!("{session} {text}\n").as_bytes()).await?)
    }

    /// Ends it, and waits until it has.
    pub(crate) async fn stop(mut self) -> Outcome<()> {
        drop(self.prompts);
        self.process.wait().await?;
        Ok(())
    }
}
