//! A real gander on a port and a storage folder of its own.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use reqwest::{Method, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::subscriber::{ReadBuffer, Subscriber};
use super::{Outcome, Programs};

/// How long it may take to end.
const END: Duration = Duration::from_mins(1);
/// Sessions that are started at a time.
const STARTS_AT_ONCE: usize = 4;
/// The last event of a turn that went well.
pub(crate) const END_OF_TURN: &str = "event: turn.completed";

/// How a gander is to be started.
pub(crate) struct Setup<'a> {
    programs: &'a Programs,
    demo: bool,
    dir: Arc<TempDir>,
}

impl<'a> Setup<'a> {
    /// With these programs, on an empty folder.
    pub(crate) fn new(programs: &'a Programs) -> Outcome<Self> {
        Ok(Self { programs, demo: false, dir: Arc::new(tempfile::tempdir()?) })
    }

    /// With the built-in model, as the real goose needs one.
    pub(crate) fn demo(self) -> Self {
        Self { demo: true, ..self }
    }

    /// On the folder of one that has ended.
    pub(crate) fn dir(self, dir: Arc<TempDir>) -> Self {
        Self { dir, ..self }
    }

    /// Starts it and waits until it listens.
    pub(crate) async fn start(self) -> Outcome<Gander> {
        let storage = self.dir.path().join("storage");
        let mut process = Command::new(&self.programs.gander)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(self.demo.then_some("--demo"))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.dir.path())
            .env("GANDER_STORAGE__DIR", &storage)
            .env("GANDER_GOOSE__COMMAND", &self.programs.agent)
            .env("GANDER_SESSIONS__MAX", "10000")
            .env("GANDER_SESSIONS__MAX_RUNNING", "1000")
            .env("GANDER_LIMITS__STREAMS_PER_CALLER", "10000")
            .env("GANDER_SERVER__MAX_CONNECTIONS", "10000")
            .env("GANDER_LOG__FILTER", "error")
            .envs(self.programs.variables.iter().filter_map(|variable| variable.split_once('=')))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut welcome = BufReader::new(process.stdout.take().ok_or("no standard output")?).lines();
        let first = welcome.next_line().await?.ok_or("gander did not start")?;
        let address = first.split("http://").nth(1).ok_or("gander does not say where it listens")?.parse()?;
        let token = std::fs::read_to_string(storage.join("token"))?.trim().to_owned();
        // The client is made for TLS too; which of those there are it uses is the program's to say.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build()?;
        Ok(Gander { process, address, token, client, dir: self.dir, sessions: Vec::new(), _welcome: welcome })
    }
}

/// A gander that runs.
pub(crate) struct Gander {
    process: Child,
    address: SocketAddr,
    token: String,
    client: reqwest::Client,
    dir: Arc<TempDir>,
    sessions: Vec<String>,
    /// Kept open, so that nobody writes to a closed pipe.
    _welcome: Lines<BufReader<ChildStdout>>,
}

impl Gander {
    pub(crate) fn pid(&self) -> Outcome<u32> {
        self.process.id().ok_or_else(|| "gander has ended".into())
    }

    /// The ids of the sessions that were made here.
    pub(crate) fn sessions(&self) -> &[String] {
        &self.sessions
    }

    /// Makes so many sessions that are ready, to be named by their index.
    pub(crate) async fn add_sessions(&mut self, count: usize) -> Outcome<()> {
        let made = self.create_many(count).await?;
        self.sessions.extend(made);
        Ok(())
    }

    /// Makes so many sessions that are ready; gives their ids.
    pub(crate) async fn create_many(&self, count: usize) -> Outcome<Vec<String>> {
        let creating = futures_util::stream::iter(0..count).map(|_| self.create());
        creating.buffer_unordered(STARTS_AT_ONCE).try_collect().await
    }

    /// Makes a session that is ready; gives its id.
    pub(crate) async fn create(&self) -> Outcome<String> {
        let session = self.call(Method::POST, "/v1/sessions", Some(&json!({})), StatusCode::CREATED).await?;
        Ok(session["id"].as_str().ok_or("a session without an id")?.to_owned())
    }

    /// Deletes a session.
    pub(crate) async fn delete(&self, id: &str) -> Outcome<()> {
        self.call(Method::DELETE, &format!("/v1/sessions/{id}"), None, StatusCode::NO_CONTENT).await?;
        Ok(())
    }

    /// Lets a session's agent go.
    pub(crate) async fn hibernate(&self, id: &str) -> Outcome<()> {
        let path = format!("/v1/sessions/{id}/hibernate");
        self.call(Method::POST, &path, None, StatusCode::OK).await?;
        Ok(())
    }

    /// Begins a turn in a session that was added.
    pub(crate) async fn prompt(&self, session: usize, text: &str) -> Outcome<()> {
        self.prompt_in(&self.sessions[session], text).await
    }

    /// Begins a turn in a session.
    pub(crate) async fn prompt_in(&self, id: &str, text: &str) -> Outcome<()> {
        let path = format!("/v1/sessions/{id}/turns");
        self.call(Method::POST, &path, Some(&json!({ "prompt": text })), StatusCode::ACCEPTED).await?;
        Ok(())
    }

    /// Follows the new events of a session that was added, until a turn ends well.
    pub(crate) async fn subscribe(&self, session: usize, buffer: &ReadBuffer) -> Outcome<Subscriber> {
        self.stream(&self.sessions[session], "?after=latest", END_OF_TURN, buffer).await
    }

    /// A session's events with such a query, until the bytes of `end` come.
    pub(crate) async fn stream(
        &self,
        id: &str,
        query: &str,
        end: &'static str,
        buffer: &ReadBuffer,
    ) -> Outcome<Subscriber> {
        let head = format!(
            "GET /v1/sessions/{id}/events{query} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}",
            self.address, self.token
        );
        Subscriber::open(self.address, &head, end, buffer).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        status: StatusCode,
    ) -> Outcome<Value> {
        let url = format!("http://{}{path}", self.address);
        let mut request = self.client.request(method, url).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await?;
        let found = response.status();
        let text = response.text().await?;
        if found != status {
            return Err(format!("{path}: {found}: {text}").into());
        }
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    /// Ends it as an operator does; gives its folder.
    pub(crate) async fn stop(mut self) -> Outcome<Arc<TempDir>> {
        let pid = i32::try_from(self.pid()?)?;
        kill_process(Pid::from_raw(pid).ok_or("no process number")?, Signal::TERM)?;
        let status = timeout(END, self.process.wait()).await??;
        if !status.success() {
            return Err(format!("gander ended with {status}").into());
        }
        Ok(self.dir)
    }
}
