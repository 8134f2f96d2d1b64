//! A real gander on a port of its own, with the real goose and the scripted model, and the means to talk to it.
//!
//! Every [`Gander`] has its own storage folder, which vanishes with it. When a test ends, gander is stopped as an
//! operator would stop it; [`Gander::stop`] also checks that it ended well and left no process.

mod chance;
mod collector;
mod command;
mod events;
mod processes;
mod records;
mod rest;
mod session;
mod tool_server;
mod variant;

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gander::demo::ScriptedModel;
use gander::shutdown::Tasks;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use chance::Chance;
pub(crate) use collector::{CollectedSpan, Collector, Takes};
pub(crate) use command::{command, output};
pub(crate) use events::{Event, EventStream, assert_all_ended_once, carried, kinds, of_turn, only};
pub(crate) use processes::{descendants, lives, signal};
pub(crate) use records::{WORD, figure, prompt_with_word};
pub(crate) use rest::assert_at_rest;
pub(crate) use session::Session;
pub(crate) use tool_server::{Discover, RealToolServer, ToolServer, authority, node, real_tool_server};
pub(crate) use variant::shares_goose;

/// How long a test waits for what must come. Nothing is asserted about the time itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The goose that the main-path tests run: always the real one.
pub(crate) fn real_goose() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "scripts/test tells the tests where it has put goose")]
    let named = std::env::var_os("GANDER_TEST_GOOSE").map(PathBuf::from);
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join(".goose/goose-1.52.0");
    let goose = named.unwrap_or(installed);
    assert!(goose.is_file(), "no goose at {}: run scripts/goose, or scripts/test", goose.display());
    goose
}

/// The agent that does what the real goose will not do on demand. Cargo builds it with the tests.
pub(crate) fn fake_agent() -> PathBuf {
    let agent = Path::new(env!("CARGO_BIN_EXE_gander")).parent().unwrap().join("examples/fake_agent");
    assert!(agent.is_file(), "no fake agent at {}: build it with `cargo build --examples`", agent.display());
    agent
}

/// How a [`Gander`] is to be started.
pub(crate) struct Setup {
    goose: PathBuf,
    config: String,
    environment: BTreeMap<String, String>,
    dir: Option<Arc<TempDir>>,
}

impl Setup {
    /// The real goose with the scripted model.
    pub(crate) fn real() -> Self {
        variant::environment()
            .iter()
            .fold(Self::with_agent(real_goose()), |setup, (name, value)| setup.env(name, value))
    }

    /// The fake agent.
    pub(crate) fn fake() -> Self {
        Self::with_agent(fake_agent())
    }

    /// Any program in goose's place.
    pub(crate) fn with_agent(goose: PathBuf) -> Self {
        Self { goose, config: String::new(), environment: BTreeMap::new(), dir: None }
    }

    /// Adds to the configuration file (TOML). A section may be begun once only.
    pub(crate) fn config(mut self, toml: &str) -> Self {
        self.config.push_str(toml);
        self.config.push('\n');
        self
    }

    /// Sets a variable in gander's own environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Uses the storage folder of a gander that has ended.
    pub(crate) fn dir(mut self, dir: Arc<TempDir>) -> Self {
        self.dir = Some(dir);
        self
    }

    /// The command that starts it, in its storage folder.
    fn command(&self, dir: &TempDir, model: &ScriptedModel) -> Command {
        let config = dir.path().join("gander.toml");
        std::fs::write(&config, &self.config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gander"));
        command
            .args(["serve", "--config"])
            .arg(&config)
            .args(["--listen", "127.0.0.1:0"])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", dir.path().join("home"))
            .env("GANDER_STORAGE__DIR", dir.path().join("storage"))
            .env("GANDER_GOOSE__COMMAND", &self.goose)
            .envs(model.environment())
            // Another call to the model for every title would only blur what the tests look at.
            .env("GOOSE_DISABLE_SESSION_NAMING", "true")
            .env("GOOSE_PROVIDER_SKIP_BACKOFF", "true")
            .envs(&self.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts it and kills it so long after, wherever it has got to.
    pub(crate) async fn killed_while_starting(self, after: Duration) {
        let tasks = Tasks::new();
        let model = ScriptedModel::start_with_pace(&tasks, Duration::ZERO).await.unwrap();
        let mut command = self.command(self.dir.as_ref().unwrap(), &model);
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        tokio::time::sleep(after).await;
        process.kill().unwrap();
        process.wait().unwrap();
        tasks.hard().cancel();
    }

    /// Starts it and waits until it listens.
    pub(crate) async fn start(self) -> Gander {
        let tasks = Tasks::new();
        // The demo job's pauses are for people.
        let model = ScriptedModel::start_with_pace(&tasks, Duration::ZERO).await.unwrap();
        let dir = self.dir.clone().unwrap_or_else(|| Arc::new(tempfile::tempdir().unwrap()));
        let mut process = self.command(&dir, &model).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        keep(process.stderr.take().unwrap(), Arc::clone(&log));
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        let Some(address) = first.trim_end().split("http://").nth(1).and_then(|text| text.parse().ok())
        else {
            let status = process.wait().unwrap();
            panic!("gander does not listen ({status}): {first}{}", log.lock().unwrap())
        };
        let welcome = Arc::new(Mutex::new(first));
        keep(lines, Arc::clone(&welcome));
        let token =
            std::fs::read_to_string(dir.path().join("storage/token")).unwrap_or_default().trim().to_owned();
        // The client is made for TLS too; which of those there are it uses is the program's to say.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // gander closes connections that are idle for long: one of them must not be taken for the next request.
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        Gander { process, address, token, client, dir, log, welcome, model, tasks }
    }
}

/// Reads a pipe to its end, so that its writer never waits.
fn keep(mut pipe: impl Read + Send + 'static, into: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    });
}

/// A running gander.
pub(crate) struct Gander {
    process: Child,
    pub(crate) address: SocketAddr,
    /// The token that gander made; empty with a tokens file.
    pub(crate) token: String,
    pub(crate) client: reqwest::Client,
    pub(crate) dir: Arc<TempDir>,
    log: Arc<Mutex<String>>,
    welcome: Arc<Mutex<String>>,
    pub(crate) model: ScriptedModel,
    tasks: Tasks,
}

impl Gander {
    /// Its storage folder.
    pub(crate) fn storage(&self) -> PathBuf {
        self.dir.path().join("storage")
    }

    /// gander's own process number.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// What it has printed so far.
    pub(crate) fn welcome(&self) -> String {
        self.welcome.lock().unwrap().clone()
    }

    /// A request with gander's own token.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.request_as(&self.token, method, path)
    }

    /// A request with any token.
    pub(crate) fn request_as(&self, token: &str, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address)).bearer_auth(token)
    }

    /// GET; the status must be 200.
    pub(crate) async fn get(&self, path: &str) -> Value {
        answer(self.request(Method::GET, path), StatusCode::OK).await
    }

    /// POST of JSON; the status must be `status`.
    pub(crate) async fn post(&self, path: &str, body: &Value, status: StatusCode) -> Value {
        answer(self.request(Method::POST, path).json(body), status).await
    }

    /// Makes a session that is ready.
    pub(crate) async fn session(&self, body: &Value) -> Session<'_> {
        let session = self.post("/v1/sessions", body, StatusCode::CREATED).await;
        Session { gander: self, id: text(&session["id"]), snapshot: session }
    }

    /// The processes that live below gander, and those that bear its mark though they have left it. Without the goose
    /// that all sessions share, and its shim, which stay.
    pub(crate) fn descendants(&self) -> Vec<u32> {
        let mut found = descendants(self.pid());
        found.retain(|pid| !variant::is_of_all(*pid));
        found
    }

    /// Ends it as an operator does; it must end well.
    pub(crate) async fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        let status = self.ended().await;
        assert!(status.success(), "gander ended with {status}:\n{}", self.log());
        status
    }

    /// Sends a signal to gander alone.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits until its process has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("gander ends", || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }
}

impl Drop for Gander {
    fn drop(&mut self) {
        self.tasks.hard().cancel();
        if self.process.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        signal(self.pid(), "TERM");
        let deadline = Instant::now() + PATIENCE;
        while self.process.try_wait().is_ok_and(|status| status.is_none()) {
            if Instant::now() > deadline {
                let _ = self.process.kill();
                let _ = self.process.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if std::thread::panicking() {
            #[expect(clippy::print_stdout, reason = "cargo shows it with the failed test")]
            {
                println!("--- gander's log\n{}", self.log());
            }
        }
    }
}

/// A prompt that carries a script for the model: a list of replies, each a list of steps.
pub(crate) fn script(replies: &Value) -> String {
    format!("```script\n{replies}\n```")
}

/// Sends a request; the answer must have this status. Gives its JSON, or null without a body.
pub(crate) async fn answer(request: RequestBuilder, status: StatusCode) -> Value {
    let response = request.send().await.unwrap();
    let found = response.status();
    let body = response.bytes().await.unwrap();
    assert_eq!(found, status, "{}", String::from_utf8_lossy(&body));
    if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() }
}

/// Sends a request that must be refused: a problem with this status and code. Gives the problem.
pub(crate) async fn refusal(request: RequestBuilder, status: u16, code: &str) -> Value {
    let response = request.send().await.unwrap();
    let found = response.status().as_u16();
    let content_type = response.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
    let request_id = response.headers().get("x-request-id").map(|value| value.to_str().unwrap().to_owned());
    let body = response.bytes().await.unwrap();
    let shown = String::from_utf8_lossy(&body);
    assert_eq!(found, status, "{shown}");
    assert_eq!(content_type.as_deref(), Some("application/problem+json"), "{shown}");
    let problem: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["code"], code, "{shown}");
    assert_eq!(problem["type"], format!("urn:gander:problem:{code}"));
    assert_eq!(problem["status"], status);
    assert_eq!(problem["request_id"].as_str(), request_id.as_deref());
    problem
}

/// A JSON string's text.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// Waits until something is so. For what no event tells, such as the end of a process.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_async(what, || std::future::ready(condition())).await;
}

/// Waits until something that has to be asked for is so.
pub(crate) async fn until_async<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The names of the tools that goose offered in a call to the model.
pub(crate) fn offered_tools(model_call: &Value) -> Vec<String> {
    let tools = model_call["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| text(&tool["function"]["name"])).collect()
}
