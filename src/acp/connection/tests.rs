use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};

use super::*;
use crate::session::agent::{AgentEvents, AgentExit, EventFilter, Mode, Notice, NoticeLevel};
use crate::session::id::TurnId;

mod answers;
mod ends;
mod limits;
mod tools;

/// Passes everything on.
struct NoFilter;

impl EventFilter for NoFilter {
    fn filter(&mut self, event: AgentEvent, events: &mut AgentEvents) {
        events.push(event);
    }
}

/// The agent's side, played by the test.
struct Peer {
    connection: Arc<Connection>,
    stdin: Lines<BufReader<DuplexStream>>,
    stdout: DuplexStream,
    events: mpsc::Receiver<AgentEvents>,
    /// Events that came with others and were not looked at.
    waiting: std::collections::VecDeque<AgentEvent>,
    exit: Option<oneshot::Sender<AgentExit>>,
    kills: Arc<AtomicUsize>,
    tasks: Tasks,
}

impl Peer {
    fn open(limits: Limits) -> Self {
        Self::open_with(limits, 1 << 16, 1 << 10)
    }

    fn open_with(limits: Limits, pipe_bytes: usize, queued_batches: usize) -> Self {
        Self::open_offering(None, limits, pipe_bytes, queued_batches)
    }

    fn open_offering(
        tools: Option<ToolPort>,
        limits: Limits,
        pipe_bytes: usize,
        queued_batches: usize,
    ) -> Self {
        let (stdin, gander_stdin) = tokio::io::duplex(pipe_bytes);
        let (gander_stdout, stdout) = tokio::io::duplex(pipe_bytes);
        let (events_in, events) = mpsc::channel(queued_batches);
        let (exit, exited) = oneshot::channel();
        let (kills, killed) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        let (counted, kill) = (kills.clone(), killed.clone());
        let tasks = Tasks::new();
        let pipes = AgentPipes {
            stdout: gander_stdout,
            stdin: gander_stdin,
            exit: Box::pin(async move {
                tokio::select! {
                    Ok(exit) = exited => exit,
                    () = killed.cancelled() => exit_of("signal 9"),
                }
            }),
            kill: Arc::new(move || {
                counted.fetch_add(1, Ordering::SeqCst);
                kill.cancel();
            }),
            redactor: Redactor::new(["sk-secret".to_owned()], ["/home/of/host".to_owned()]),
            tools,
        };
        let connection = Connection::open(pipes, Box::new(NoFilter), events_in, limits, &tasks);
        let stdin = BufReader::new(stdin).lines();
        let (exit, waiting) = (Some(exit), std::collections::VecDeque::new());
        Self { connection, stdin, stdout, events, waiting, exit, kills, tasks }
    }

    /// With a session `s`.
    async fn with_session(limits: Limits) -> Self {
        let mut peer = Self::open(limits);
        peer.start_session().await;
        peer
    }

    async fn start_session(&mut self) {
        let connection = self.connection.clone();
        let started = self.tasks.spawn(async move { connection.new_session(Path::new("/ws"), &[]).await });
        let request = self.sent().await;
        self.say(
            &json!({"id": request["id"], "result": {"sessionId": "s", "modes": {"currentModeId": "auto"}}}),
        )
        .await;
        started.await.unwrap().unwrap();
    }

    /// The next line that gander sends.
    async fn sent(&mut self) -> Value {
        serde_json::from_str(&self.stdin.next_line().await.unwrap().unwrap()).unwrap()
    }

    async fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes()).await;
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.stdout.write_all(bytes).await.unwrap();
    }

    async fn update(&mut self, text: &str) {
        self.say(&chunk("s", text)).await;
    }

    /// The next event. `None` after the last.
    async fn event(&mut self) -> Option<AgentEvent> {
        while self.waiting.is_empty() {
            self.waiting.extend(self.events.recv().await?);
        }
        self.waiting.pop_front()
    }

    async fn text(&mut self) -> String {
        match self.event().await {
            Some(AgentEvent::MessageChunk { text, .. }) => text,
            other => panic!("no text but {other:?}"),
        }
    }

    fn exits(&mut self, how: &str) {
        self.exit.take().unwrap().send(exit_of(how)).unwrap();
    }

    fn kills(&self) -> usize {
        self.kills.load(Ordering::SeqCst)
    }

    fn set_mode(&self, mode: Mode) -> oneshot::Receiver<Result<(), AgentFailure>> {
        let (done, answer) = oneshot::channel();
        self.connection.send(AgentCommand::SetMode { mode, done }).unwrap();
        answer
    }

    /// The last event came, nothing follows, and no task is left.
    async fn ended(mut self, how: &str, class: TurnErrorClass) {
        match self.event().await {
            Some(AgentEvent::Exited(exit)) => assert_eq!((exit.how.as_str(), exit.class), (how, class)),
            other => panic!("no exit but {other:?}"),
        }
        assert_eq!(self.event().await, None);
        assert_eq!(self.connection.send(AgentCommand::Cancel), Err(AgentGone));
        self.tasks.finished().await;
    }
}

fn exit_of(how: &str) -> AgentExit {
    AgentExit { how: how.to_owned(), stderr_tail: "tail".to_owned(), class: TurnErrorClass::AgentExited }
}

fn chunk(session: &str, text: &str) -> Value {
    let content = json!({"type": "text", "text": text});
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session,
        "update": {"sessionUpdate": "agent_message_chunk", "content": content}}})
}

fn permission(id: &Value, call: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": {"sessionId": "s",
        "toolCall": {"toolCallId": call}, "options": [{"optionId": "yes", "name": "Yes", "kind": "new_kind"}]}})
}

#[tokio::test]
async fn initialize_asks_for_version_one() {
    let mut peer = Peer::open(Limits::default());
    let connection = peer.connection.clone();
    let initialized = peer.tasks.spawn(async move { connection.initialize().await });
    let request = peer.sent().await;
    assert_eq!(
        request,
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": 1,
            "clientCapabilities": {"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false,
                "auth": {"terminal": false}, "_meta": {"goose": {"customNotifications": true}}},
            "clientInfo": {"name": "gander", "version": env!("CARGO_PKG_VERSION")}}})
    );
    peer.say(&json!({"id": 1, "result": {"protocolVersion": 1, "agentInfo": {"name": "a", "version": "9"}}}))
        .await;
    let about = AgentSelf { name: "a".to_owned(), version: "9".to_owned() };
    assert_eq!(initialized.await.unwrap(), Ok(about));
}

#[tokio::test]
async fn another_version_is_refused_unless_it_looks_like_version_one() {
    for (result, is_taken) in [
        (json!({"protocolVersion": 2, "capabilities": {}}), false),
        (json!({"protocolVersion": 2, "agentCapabilities": {}}), true),
        (json!({"agentCapabilities": {}}), false),
        (json!(null), false),
    ] {
        let mut peer = Peer::open(Limits::default());
        let connection = peer.connection.clone();
        let initialized = peer.tasks.spawn(async move { connection.initialize().await });
        peer.sent().await;
        peer.say(&json!({"id": 1, "result": result})).await;
        assert_eq!(initialized.await.unwrap().is_ok(), is_taken, "{result}");
    }
}

#[tokio::test]
async fn a_new_session_tells_what_the_agent_says_of_it() {
    let mut peer = Peer::open(Limits::default());
    let connection = peer.connection.clone();
    let started = peer.tasks.spawn(async move { connection.new_session(Path::new("/ws"), &[]).await });
    assert_eq!(peer.sent().await["params"], json!({"cwd": "/ws", "mcpServers": []}));
    let options = json!([
        {"id": "provider", "name": "Provider", "type": "select", "currentValue": "p", "options": [{"value": "p", "name": "P"}]},
        {"id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": "m",
            "options": [{"group": "g", "name": "G", "options": [{"value": "m", "name": "M"}]}]},
        {"id": "fast", "name": "Fast", "category": "own", "type": "boolean", "currentValue": true},
        {"id": "new", "name": "New", "type": "slider", "currentValue": 3},
    ]);
    let extensions = json!([{"name": "a b", "success": true}, {"name": "c", "success": false, "error": "no sk-secret"}, {"name": "d"}, 3]);
    peer.say(&json!({"id": 1, "result": {"sessionId": "s", "modes": {"currentModeId": "new_mode"},
        "configOptions": options, "_meta": {"extensionResults": extensions}}}))
        .await;
    let option =
        |id: &str, name: &str, category: Option<&str>, value: &str, choices: &[(&str, &str)]| ConfigOption {
            id: id.to_owned(),
            name: name.to_owned(),
            category: category.map(ToOwned::to_owned),
            current_value: Some(value.to_owned()),
            choices: choices
                .iter()
                .map(|(value, name)| crate::session::agent::ConfigChoice {
                    value: (*value).to_owned(),
                    name: (*name).to_owned(),
                })
                .collect(),
            omitted_choices: 0,
        };
    let extension = |name: &str, loaded, error: Option<&str>| ExtensionStatus {
        name: name.to_owned(),
        loaded,
        error: error.map(ToOwned::to_owned),
    };
    assert_eq!(
        started.await.unwrap().unwrap(),
        NewSession {
            mode: Some("new_mode".to_owned()),
            config_options: Some(vec![
                option("provider", "Provider", None, "p", &[("p", "P")]),
                option("model", "Model", Some("model"), "m", &[("m", "M")]),
                option("fast", "Fast", Some("own"), "true", &[]),
            ]),
            extensions: Some(vec![
                extension("a b", true, None),
                extension("c", false, Some("no [redacted]")),
                extension("d", false, None)
            ]),
        }
    );
}

#[tokio::test]
async fn a_prompt_ends_after_what_it_brought() {
    let mut peer = Peer::with_session(Limits::default()).await;
    for (outcome, expected) in [
        (json!({"result": {"stopReason": "a_new_reason"}}), Ok("a_new_reason")),
        (
            json!({"result": {}}),
            Err((TurnErrorClass::AgentError, "the agent's answer to the prompt has no stop reason")),
        ),
        (
            json!({"error": {"code": -32603, "message": "Internal error", "data": "the cause"}}),
            Err((TurnErrorClass::AgentError, "Internal error: the cause")),
        ),
        (
            json!({"error": {"code": -32602, "message": "Bad", "data": {"message": "sk-secret in /home/of/host/x"}}}),
            Err((TurnErrorClass::AgentError, "Bad: [redacted] in [home]/x")),
        ),
        (
            json!({"error": {"code": -32000, "message": "Authentication required"}}),
            Err((TurnErrorClass::ProviderAuth, "Authentication required")),
        ),
    ] {
        let turn = TurnId::new();
        let content = vec![json!({"type": "from_the_future", "x": 1})];
        peer.connection.send(AgentCommand::Prompt { turn, content: content.clone() }).unwrap();
        let request = peer.sent().await;
        assert_eq!(request["method"], "session/prompt");
        assert_eq!(request["params"], json!({"sessionId": "s", "prompt": content}));
        peer.update("text").await;
        let mut answer = outcome;
        answer["id"] = request["id"].clone();
        peer.say(&answer).await;
        assert_eq!(peer.text().await, "text");
        let Some(AgentEvent::PromptFinished { turn: finished, result }) = peer.event().await else {
            panic!()
        };
        assert_eq!(finished, turn);
        let result =
            result.as_ref().map(String::as_str).map_err(|failure| (failure.class, failure.message.as_str()));
        assert_eq!(result, expected);
    }
}

#[tokio::test]
async fn settings_and_cancel_are_sent() {
    let mut peer = Peer::with_session(Limits::default()).await;
    peer.connection.send(AgentCommand::Cancel).unwrap();
    assert_eq!(
        peer.sent().await,
        json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}})
    );
    let (done, answer) = oneshot::channel();
    let (id, value) = ("model".to_owned(), "m".to_owned());
    peer.connection.send(AgentCommand::SetConfigOption { id, value, done }).unwrap();
    let request = peer.sent().await;
    assert_eq!(request["method"], "session/set_config_option");
    assert_eq!(request["params"], json!({"sessionId": "s", "configId": "model", "value": "m"}));
    peer.say(&json!({"id": request["id"], "result": {"configOptions": []}})).await;
    assert_eq!(answer.await.unwrap(), Ok(Vec::new()));
}

#[tokio::test]
async fn a_permission_request_is_answered_once_with_its_own_id() {
    let mut peer = Peer::with_session(Limits::default()).await;
    // An agent may use any id, and one twice.
    for id in [json!("ä\n"), json!(7), json!(7), json!(null), json!({"odd": [1.5]})] {
        peer.say(&permission(&id, "call")).await;
        let Some(AgentEvent::PermissionRequested(request)) = peer.event().await else { panic!() };
        assert_eq!(request.options[0].kind, "new_kind");
        assert!(!request.plan_write);
        let answer = PermissionReply::Selected("yes".to_owned());
        for _ in 0..2 {
            let (reply, answer) = (request.reply.clone(), answer.clone());
            peer.connection.send(AgentCommand::AnswerPermission { reply, answer }).unwrap();
        }
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"outcome": {"outcome": "selected", "optionId": "yes"}}});
        assert_eq!(peer.sent().await, answer);
    }
    let reply = ReplyToken("made up".to_owned());
    peer.connection
        .send(AgentCommand::AnswerPermission { reply, answer: PermissionReply::Cancelled })
        .unwrap();
    peer.connection.send(AgentCommand::Cancel).unwrap();
    assert_eq!(peer.sent().await["method"], "session/cancel", "nothing was answered twice");
}

#[tokio::test]
async fn a_withdrawn_permission_request_is_answered_and_told() {
    let mut peer = Peer::with_session(Limits::default()).await;
    peer.say(&permission(&json!("p"), "call")).await;
    peer.say(&json!({"method": "$/cancel_request", "params": {"requestId": "other"}})).await;
    peer.say(&json!({"method": "$/cancel_request", "params": {"requestId": "p"}})).await;
    let Some(AgentEvent::PermissionRequested(request)) = peer.event().await else { panic!() };
    assert_eq!(peer.event().await, Some(AgentEvent::PermissionWithdrawn(request.reply.clone())));
    let cancelled = json!({"jsonrpc": "2.0", "id": "p", "result": {"outcome": {"outcome": "cancelled"}}});
    assert_eq!(peer.sent().await, cancelled);
    let answer = PermissionReply::Selected("yes".to_owned());
    peer.connection.send(AgentCommand::AnswerPermission { reply: request.reply, answer }).unwrap();
    peer.connection.send(AgentCommand::Cancel).unwrap();
    assert_eq!(peer.sent().await["method"], "session/cancel", "a late answer is not sent");
}

#[tokio::test]
async fn every_request_of_the_agent_is_answered() {
    let mut peer = Peer::with_session(Limits::default()).await;
    let mut foreign = permission(&json!("f"), "call");
    foreign["params"]["sessionId"] = json!("other");
    for (request, code) in [
        (json!({"id": "1", "method": "fs/read_text_file", "params": {"path": "/etc/passwd"}}), -32601),
        (json!({"id": 1.0, "method": "_goose/new"}), -32601),
        (json!({"id": null, "method": "session/update", "params": {}}), -32601),
        (json!({"id": 2, "method": "session/request_permission"}), -32602),
        (
            json!({"id": 3, "method": "session/request_permission", "params": {"toolCall": {"toolCallId": "c"}, "options": []}}),
            -32602,
        ),
        (foreign, -32602),
    ] {
        peer.say(&request).await;
        let answer = peer.sent().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&request["id"], &json!(code)));
    }
    peer.update("and goes on").await;
    assert_eq!(peer.text().await, "and goes on");
}

#[tokio::test]
async fn updates_of_another_session_are_dropped() {
    let mut peer = Peer::open(Limits::default());
    peer.update("before the session is known").await;
    assert_eq!(peer.text().await, "before the session is known");
    peer.start_session().await;
    peer.say(&chunk("other", "not ours")).await;
    peer.say(&json!({"method": "_new/thing", "params": {"sessionId": "other"}})).await;
    peer.say(&json!({"method": "_new/thing", "params": {"sessionId": "s", "x": 1}})).await;
    let unknown = json!({"method": "_new/thing", "params": {"x": 1}});
    assert_eq!(peer.event().await, Some(AgentEvent::Unknown(unknown)));
}
