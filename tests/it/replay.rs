//! Recorded conversations with goose 1.52, replayed through a connection: what goose wrote is fed to it line by line,
//! what gander asks is checked against what was asked then. The snapshots are the core's view of each session.
//!
//! `tests/wire/*.jsonl`: lines `{"dir": "in" | "out", "msg"}`, `out` is what goose wrote.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gander::acp::{AgentPipes, Connection, Limits, Redactor};
use gander::goose::updates::GooseUpdates;
use gander::session::agent::{
    AgentCommand, AgentEvent, AgentEvents, AgentExit, Mode, PermissionReply, ReplyToken,
};
use gander::session::id::TurnId;
use gander::session::turn::TurnErrorClass;
use gander::shutdown::Tasks;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use uuid::Uuid;

macro_rules! transcripts {
    ($($test:ident = $file:literal,)*) => {
        $(#[tokio::test]
        async fn $test() {
            insta::assert_snapshot!($file, replay($file).await);
        })*

        /// Every transcript in the folder is replayed.
        #[test]
        fn no_transcript_is_left_out() {
            let mut files: Vec<String> = std::fs::read_dir(folder())
                .unwrap()
                .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            files.sort();
            assert_eq!(files, [$($file),*]);
        }
    };
}

transcripts! {
    two_sessions_in_one_process = "01-two-sessions-one-process",
    cancel_mid_stream = "02-cancel-mid-stream",
    cancel_mid_tool = "02-cancel-mid-tool",
    cancel_while_asked = "02-cancel-pending-permission",
    custom_notifications = "02-custom-notifications",
    second_prompt_while_running = "02-second-prompt-while-running",
    allow_always = "03-approve-allow_always",
    allow_once = "03-approve-allow_once",
    reject_always = "03-approve-reject_always",
    reject_once = "03-approve-reject_once",
    chat_mode = "03-chat-mode",
    new_process_after_allow_always = "03-new-process-after-allow_always",
    new_process_after_reject_always = "03-new-process-after-reject_always",
    smart_approve = "03-smart-approve",
    two_tool_calls = "03-two-tool-calls",
    unknown_option = "03-unknown-option",
    todo_approve = "04-todo-approve",
    todo_auto = "04-todo-auto",
    todo_load = "04-todo-load",
    modes_and_settings = "06-modes-config",
    provider_without_a_key = "07-anthropic-no-key",
    answer_cut = "07-drop-mid-stream",
    provider_hangs = "07-hang-before-headers",
    answer_hangs = "07-hang-mid-stream",
    provider_rejects_the_request = "07-http-400",
    provider_refuses_the_key = "07-http-401",
    provider_knows_no_such_model = "07-http-404",
    provider_limits_the_rate = "07-http-429-retry-after",
    provider_fails = "07-http-500",
    provider_unavailable = "07-http-503",
    answer_malformed = "07-malformed-sse",
    misspelled_builtin = "07-misspelled-builtin",
    no_provider = "07-no-provider",
    answer_no_stream = "07-not-sse",
    provider_down = "07-server-down",
    unknown_provider = "07-unknown-provider",
    tools_without_capabilities = "09-no-caps",
    answers_to_invalid_input = "11-invalid-input",
    auto_compact = "13-auto-compact",
    auto_compact_with_notices = "13-auto-compact-custom",
    stop_reasons_and_late_updates = "13-stop-reasons-and-late-updates",
    delegate_in_approve = "15-delegate-approve",
    delegate_in_auto = "15-delegate-auto",
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire")
}

/// A transcript's sessions, one after the other: gander has one session per agent.
async fn replay(file: &str) -> String {
    let text = std::fs::read_to_string(folder().join(file).with_extension("jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut sessions: Vec<Option<&Value>> = lines
        .iter()
        .filter(|line| line["dir"] == "out" && line["msg"]["result"]["sessionId"].is_string())
        .map(|line| Some(&line["msg"]))
        .collect();
    if sessions.is_empty() {
        sessions.push(None);
    }
    let mut seen = String::new();
    for started in sessions {
        writeln!(seen, "--- session").unwrap();
        Replay::open(started).run(&lines, &mut seen).await;
    }
    seen
}

struct Replay {
    /// The id of the session in the transcript, and of the request that starts it.
    session: Option<(String, Value)>,
    /// Whether that request was sent. What goose said before is of other sessions.
    is_begun: bool,
    connection: Arc<Connection>,
    stdin: Lines<BufReader<DuplexStream>>,
    stdout: DuplexStream,
    events: mpsc::Receiver<AgentEvents>,
    exit: oneshot::Sender<AgentExit>,
    tasks: Tasks,
    /// The transcript's request ids and gander's.
    ids: HashMap<String, Value>,
    /// The permission requests, by their ids in the transcript, that gander has not told of yet.
    fed: VecDeque<Value>,
    /// Those that it has told of, and whether they are answered.
    asked: HashMap<String, (ReplyToken, bool)>,
    /// How the requests of the start went, in their order.
    starts: VecDeque<JoinHandle<String>>,
    /// How the other requests went, in their order.
    answers: VecDeque<JoinHandle<String>>,
}

impl Replay {
    fn open(started: Option<&Value>) -> Self {
        let mode = started.and_then(|started| started["result"]["modes"]["currentModeId"].as_str());
        let mode = mode.and_then(Mode::from_name).unwrap_or(Mode::Auto);
        let (stdin, gander_stdin) = tokio::io::duplex(1 << 20);
        let (gander_stdout, stdout) = tokio::io::duplex(1 << 20);
        let (events_in, events) = mpsc::channel(1 << 10);
        let (exit, exited) = oneshot::channel();
        let tasks = Tasks::new();
        let pipes = AgentPipes {
            stdout: gander_stdout,
            stdin: gander_stdin,
            exit: Box::pin(async move { exited.await.unwrap() }),
            kill: Arc::new(|| panic!("the agent was given up")),
            redactor: Redactor::default(),
            tools: None,
        };
        let filter = Box::new(GooseUpdates::new(mode).in_folder("/ws".into(), 1 << 20));
        let connection = Connection::open(pipes, filter, events_in, Limits::default(), &tasks);
        let session = started.map(|started| {
            (started["result"]["sessionId"].as_str().unwrap().to_owned(), started["id"].clone())
        });
        Self {
            is_begun: session.is_none(),
            session,
            connection,
            stdin: BufReader::new(stdin).lines(),
            stdout,
            events,
            exit,
            tasks,
            ids: HashMap::new(),
            fed: VecDeque::new(),
            asked: HashMap::new(),
            starts: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    async fn run(mut self, lines: &[Value], seen: &mut String) {
        for line in lines {
            // What was no JSON was the recording's own test of goose.
            let Some(message) = line.get("msg") else { continue };
            if line["dir"] == "out" {
                self.feed(message).await;
            } else if message.get("method").is_some() {
                self.ask(message, seen).await;
            } else if message.is_object() {
                self.answer_permission(message, seen).await;
            }
        }
        self.stdout.shutdown().await.unwrap();
        let how = "exit code 0".to_owned();
        let exit = AgentExit { how, stderr_tail: String::new(), class: TurnErrorClass::AgentExited };
        self.exit.send(exit.clone()).unwrap();
        let mut last = None;
        while let Some(batch) = self.events.recv().await {
            last = batch.last().cloned();
            show(&batch, &mut self.fed, &mut self.asked, seen);
        }
        assert_eq!(last, Some(AgentEvent::Exited(exit)));
        for answer in self.starts.into_iter().chain(self.answers) {
            writeln!(seen, "{}", answer.await.unwrap()).unwrap();
        }
        drop(self.connection);
        self.tasks.finished().await;
    }

    fn is_ours(&self, message: &Value) -> bool {
        let session = message["params"]["sessionId"].as_str();
        session.is_none_or(|session| self.session.as_ref().is_none_or(|(ours, _)| ours == session))
    }

    /// Gives what goose wrote to gander, with the ids of gander's requests.
    async fn feed(&mut self, message: &Value) {
        let mut message = message.clone();
        if message.get("method").is_none() {
            if message["id"].is_number() {
                // Answers to what gander never asks are fed too: it ignores them.
                let unknown = json!(1_000_000);
                message["id"] = self.ids.get(&message["id"].to_string()).cloned().unwrap_or(unknown);
            }
        } else if !self.is_begun {
            return;
        } else if message["method"] == "session/request_permission" && self.is_ours(&message) {
            self.fed.push_back(message["id"].clone());
        }
        self.stdout.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Sends with gander what was sent when this was recorded.
    async fn ask(&mut self, message: &Value, seen: &mut String) {
        let (connection, params) = (self.connection.clone(), &message["params"]);
        let method = message["method"].as_str().unwrap();
        if method == "initialize" {
            self.starts
                .push_back(self.tasks.spawn(async move { format!("{:?}", connection.initialize().await) }));
            return self.check_sent(message).await;
        }
        // goose's answer was fed before; gander knows its session when it has read it.
        while let Some(start) = self.starts.pop_front() {
            writeln!(seen, "{}", start.await.unwrap()).unwrap();
        }
        if method == "session/new" && self.session.as_ref().is_none_or(|(_, id)| *id == message["id"]) {
            self.is_begun = true;
            let cwd = PathBuf::from(params["cwd"].as_str().unwrap());
            let start = async move { format!("{:?}", connection.new_session(&cwd, &[]).await) };
            self.starts.push_back(self.tasks.spawn(start));
            return self.check_sent(message).await;
        }
        if !self.is_begun || self.session.is_none() || !self.is_ours(message) {
            return;
        }
        match method {
            "session/prompt" => {
                let turn = TurnId::from(Uuid::from_u128(message["id"].as_u64().unwrap().into()));
                let content = params["prompt"].as_array().unwrap().clone();
                connection.send(AgentCommand::Prompt { turn, content }).unwrap();
            }
            "session/cancel" => connection.send(AgentCommand::Cancel).unwrap(),
            "session/set_mode" => {
                // A mode that gander does not know cannot be asked for.
                let Some(mode) = Mode::from_name(params["modeId"].as_str().unwrap()) else { return };
                let (done, answer) = oneshot::channel();
                connection.send(AgentCommand::SetMode { mode, done }).unwrap();
                let answer = async move { format!("set_mode {mode:?}: {:?}", answer.await.unwrap()) };
                self.answers.push_back(self.tasks.spawn(answer));
            }
            "session/set_config_option" => {
                let id = params["configId"].as_str().unwrap().to_owned();
                let Some(value) = params["value"].as_str().map(ToOwned::to_owned) else { return };
                let name = format!("set_config_option {id} {value}");
                let (done, answer) = oneshot::channel();
                connection.send(AgentCommand::SetConfigOption { id, value, done }).unwrap();
                let answer = async move { format!("{name}: {:?}", answer.await.unwrap()) };
                self.answers.push_back(self.tasks.spawn(answer));
            }
            _ => return,
        }
        self.check_sent(message).await;
    }

    /// Gander sends what was sent when this was recorded, but for the ids, which are its own.
    async fn check_sent(&mut self, recorded: &Value) {
        let sent: Value = serde_json::from_str(&self.stdin.next_line().await.unwrap().unwrap()).unwrap();
        assert_eq!(sent["jsonrpc"], "2.0");
        assert_eq!(sent["method"], recorded["method"]);
        if recorded["method"] == "initialize" {
            assert_eq!(sent["params"]["protocolVersion"], 1);
            assert_eq!(sent["params"]["clientCapabilities"]["_meta"]["goose"]["customNotifications"], true);
        } else {
            assert_eq!(sent["params"], recorded["params"]);
        }
        assert_eq!(sent.get("id").is_some(), recorded.get("id").is_some());
        self.ids.insert(recorded["id"].to_string(), sent["id"].clone());
    }

    async fn answer_permission(&mut self, message: &Value, seen: &mut String) {
        let outcome = &message["result"]["outcome"];
        let answer = match outcome["outcome"].as_str() {
            Some("selected") => PermissionReply::Selected(outcome["optionId"].as_str().unwrap().to_owned()),
            Some("cancelled") => PermissionReply::Cancelled,
            // Gander sends no errors and nothing malformed.
            _ => return,
        };
        if !self.fed.contains(&message["id"]) && !self.asked.contains_key(&message["id"].to_string()) {
            return;
        }
        let (reply, is_answered) = loop {
            if let Some(asked) = self.asked.get_mut(&message["id"].to_string()) {
                break (asked.0.clone(), std::mem::replace(&mut asked.1, true));
            }
            let batch = self.events.recv().await.unwrap();
            show(&batch, &mut self.fed, &mut self.asked, seen);
        };
        self.connection.send(AgentCommand::AnswerPermission { reply, answer }).unwrap();
        // A second answer is not sent: the next line is another message then.
        if !is_answered {
            let sent: Value = serde_json::from_str(&self.stdin.next_line().await.unwrap().unwrap()).unwrap();
            assert_eq!(sent, *message, "the answer carries the agent's own id");
        }
    }
}

/// Writes a line for each event; tokens are random, so the transcript's ids are shown instead.
fn show(
    batch: &[AgentEvent],
    fed: &mut VecDeque<Value>,
    asked: &mut HashMap<String, (ReplyToken, bool)>,
    seen: &mut String,
) {
    assert!(!batch.is_empty());
    for event in batch {
        let mut line = format!("{event:?}");
        if let AgentEvent::PermissionRequested(request) = event {
            let id = fed.pop_front().unwrap();
            line = line.replace(&request.reply.0, id.as_str().unwrap());
            asked.insert(id.to_string(), (request.reply.clone(), false));
        }
        writeln!(seen, "{line}").unwrap();
    }
}
