//! A scripted ACP agent on stdio that does on demand what the real goose does only by accident: it floods, hangs,
//! crashes, writes garbage. Its answers are shaped like those of goose 1.52.
//!
//! ```text
//! fake_agent --version        prints " 1.52.0"
//! fake_agent acp [--with-builtin a,b]…   serves; other flags are ignored
//! ```
//!
//! # Commands
//! Each line of a prompt is a command; a line that is none is echoed. After the last one the turn ends.
//!
//! | command | does |
//! |---|---|
//! | `echo TEXT`, `think TEXT` | one message or thought chunk |
//! | `flood N [rate R/s]` | N message chunks of about 290 bytes, in large writes, or R in a second; each text is a sequence number and the monotonic clock in ns |
//! | `call`, `open-call` | a tool call that completes, one that never ends |
//! | `ask` | a tool call that asks for permission and goes on by the answer; then says which |
//! | `plan A,B` | an ACP plan update with these entries, the first in progress |
//! | `update JSON` | this session update as it is |
//! | `unknown-update` | a session update of a kind that nobody knows |
//! | `request METHOD [PARAMS]` | a request of this method to the client, with these params as JSON and the session's id; then says the answer |
//! | `env NAME`, `pid` | says the variable or the process id |
//! | `sleep MS`, `wait` | waits so long, or until it is cancelled |
//! | `hang` | never answers, cancelled or not |
//! | `stop REASON`, `error CODE TEXT` | how the prompt will be answered, else `end_turn` |
//! | `duplicate-answer` | the prompt will be answered twice |
//! | `late TEXT` | a message chunk that comes after the answer |
//! | `garbage`, `invalid-utf8`, `raw TEXT` | a line that is no JSON, one that is no UTF-8, this line |
//! | `long-line N` | a message chunk of N bytes |
//! | `bytewise TEXT` | a message chunk whose line comes byte by byte |
//! | `no-newline N` | N bytes of a line that never ends, then hangs |
//! | `stderr N [rate R/s]` | about N bytes of lines of 64 bytes on stderr, or R lines in a second |
//! | `fork [setsid]` | starts a `sleep` that holds stdout open and outlives the agent; says its pid |
//! | `ignore-term`, `ignore-eof` | from now on SIGTERM, or the end of stdin, does not end the process |
//! | `close-stdout` | closes stdout and lives on |
//! | `close-stdin` | closes stdin, behind the line that is being waited for |
//! | `crash CODE`, `abort` | ends at once |
//!
//! # Environment
//! `GOOSE_MODE`, `GOOSE_PROVIDER`, `GOOSE_MODEL` and `GOOSE_PATH_ROOT` (its `config.yaml` switches extensions off)
//! are read as goose reads them. Beside them:
//!
//! | variable | values |
//! |---|---|
//! | `FAKE_AGENT_VERSION` | in place of 1.52.0 |
//! | `FAKE_AGENT_INITIALIZE`, `FAKE_AGENT_NEW`, `FAKE_AGENT_LOAD` | `hang`, `error`, `exit`, `garbage` in place of the answer |
//! | `FAKE_AGENT_NEW`, `FAKE_AGENT_LOAD` | also `wrong-mode`, `no-config-options`, `no-extension-results`, `failed-extension`, `early` (updates before the answer) |
//! | `FAKE_AGENT_EXTRA` | extensions that are loaded besides, whatever is switched off |
//! | `FAKE_AGENT_LIST` | `hang`, `unknown`, `garbage` in place of the list of loaded extensions |
//! | `FAKE_AGENT_REMOVE` | `error`; `ignore`: says that it has removed an extension |
//! | `FAKE_AGENT_CANCEL` | `ignore` |
//! | `FAKE_AGENT_EOF`, `FAKE_AGENT_TERM` | `ignore` |

#![expect(clippy::disallowed_methods, reason = "an agent of its own: gander's configuration is not in it")]

mod commands;
mod extensions;
mod shapes;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::process::exit;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::{env, thread};

use serde_json::{Value, json};

use commands::ignore_term;
use shapes::{MODES, chunk, config_options, initialize_result, modes};

/// One agent process.
struct Agent {
    /// A handle of its own on stdout, so that closing it closes the pipe. `None` once it is closed.
    output: Mutex<Option<File>>,
    state: Mutex<State>,
    /// Told when a session is cancelled.
    cancelled: Condvar,
    builtins: Vec<String>,
}

#[derive(Default)]
struct State {
    sessions: BTreeMap<String, Session>,
    /// Requests to the client that wait for their answer, by id.
    requests: BTreeMap<String, mpsc::Sender<Value>>,
    last_id: u64,
    ignore_eof: bool,
}

#[derive(Clone)]
struct Session {
    mode: String,
    provider: String,
    model: String,
    /// What is loaded.
    extensions: Vec<String>,
    running: bool,
    cancelled: bool,
}

impl Session {
    fn config_options(&self) -> Value {
        config_options(&self.mode, &self.provider, &self.model)
    }
}

/// How a prompt will be answered.
struct Ending {
    answer: Value,
    twice: bool,
    late: Option<String>,
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--version") {
        return writeln!(io::stdout(), " {}", version());
    }
    let follows_flag = |pair: &[String]| (pair[0] == "--with-builtin").then(|| pair[1].clone());
    let builtins = arguments.windows(2).filter_map(follows_flag).collect::<Vec<_>>().join(",");
    let state = State { ignore_eof: setting("FAKE_AGENT_EOF") == "ignore", ..State::default() };
    let agent = Arc::new(Agent {
        output: Mutex::new(Some(File::from(io::stdout().as_fd().try_clone_to_owned()?))),
        state: Mutex::new(state),
        cancelled: Condvar::new(),
        builtins: builtins
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
    });
    if setting("FAKE_AGENT_TERM") == "ignore" {
        ignore_term()?;
    }
    for line in io::stdin().lock().lines() {
        // Invalid UTF-8 ends goose too.
        let line = line?;
        match serde_json::from_str::<Value>(&line) {
            Ok(message) => Agent::receive(&agent, &message),
            Err(_) => agent.send(&json!({ "jsonrpc": "2.0", "id": null,
                "error": { "code": -32700, "message": "Parse error", "data": { "line": line } } })),
        }
    }
    if lock(&agent.state).ignore_eof {
        forever();
    }
    exit(0);
}

impl Agent {
    fn receive(agent: &Arc<Self>, message: &Value) {
        let id = message["id"].clone();
        let params = &message["params"];
        let Some(method) = message["method"].as_str() else {
            let waiting = lock(&agent.state).requests.remove(id.as_str().unwrap_or_default());
            if let Some(waiting) = waiting {
                // The turn that asked may be gone; then nobody needs the answer.
                let _ = waiting.send(message.clone());
            }
            return;
        };
        let session_id = params["sessionId"].as_str().unwrap_or_default().to_owned();
        match method {
            "initialize" => agent.answer(&id, "FAKE_AGENT_INITIALIZE", |_| initialize_result(&version())),
            "session/new" => agent.answer(&id, "FAKE_AGENT_NEW", |fault| agent.new_session(None, fault)),
            "session/load" => {
                agent.say(&session_id, "user_message_chunk", "an earlier prompt");
                agent.say(&session_id, "agent_message_chunk", "an earlier answer");
                agent.answer(&id, "FAKE_AGENT_LOAD", |fault| agent.new_session(Some(&session_id), fault));
            }
            "session/prompt" => Self::prompt(agent, id, &session_id, params),
            "session/cancel" if setting("FAKE_AGENT_CANCEL") == "ignore" => {}
            "session/cancel" => {
                agent.with_session(&session_id, |session| session.cancelled = session.running);
                agent.cancelled.notify_all();
            }
            "session/set_mode" => {
                let mode = params["modeId"].as_str().unwrap_or_default();
                if !MODES.iter().any(|(known, _)| *known == mode) {
                    return agent.fail(
                        &id,
                        -32602,
                        "Invalid params",
                        &json!(format!("Invalid mode: {mode}")),
                    );
                }
                agent.with_session(&session_id, |session| mode.clone_into(&mut session.mode));
                agent.update(
                    &session_id,
                    &json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode }),
                );
                agent.succeed(&id, &json!({}));
            }
            "session/set_config_option" => agent.set_config_option(&id, &session_id, params),
            "_goose/unstable/session/extensions/list" => agent.list_extensions(&id, &session_id),
            "_goose/unstable/session/extensions/remove" => agent.remove_extension(&id, &session_id, params),
            "session/close" | "session/delete" => {
                lock(&agent.state).sessions.remove(&session_id);
                agent.cancelled.notify_all();
                agent.succeed(&id, &json!({}));
            }
            "authenticate" => agent.succeed(&id, &json!({})),
            _ if id.is_null() => {}
            _ => agent.fail(&id, -32601, "Method not found", &Value::Null),
        }
    }

    /// Answers a request, or does what the variable of this name says instead.
    fn answer(&self, id: &Value, variable: &str, result: impl FnOnce(&str) -> Value) {
        let fault = setting(variable);
        match fault.as_str() {
            "hang" => {}
            "exit" => exit(1),
            "garbage" => self.write(b"this is no JSON\n"),
            "error" => self.fail(id, -32603, "Internal error", &json!("as FAKE_AGENT_… says")),
            fault => {
                let result = result(fault);
                self.succeed(id, &result);
                if let Some(session_id) = result["sessionId"].as_str() {
                    self.usage(session_id, 0);
                    let commands =
                        json!([{ "name": "compact", "description": "Compact the conversation history" }]);
                    self.update(session_id, &json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands }));
                }
            }
        }
    }

    fn new_session(&self, loaded: Option<&str>, fault: &str) -> Value {
        let mode = setting("GOOSE_MODE");
        // A mode that it does not know becomes `auto`, as in goose.
        let known = MODES.iter().find(|(id, _)| *id == mode).map_or("auto", |(id, _)| id);
        let wrong = if known == "auto" { "chat" } else { "auto" };
        let session = Session {
            mode: if fault == "wrong-mode" { wrong } else { known }.to_owned(),
            provider: setting("GOOSE_PROVIDER"),
            model: setting("GOOSE_MODEL"),
            extensions: self.first_extensions(),
            running: false,
            cancelled: false,
        };
        let id = loaded.map_or_else(|| format!("20261130_{}", self.next_id()), str::to_owned);
        lock(&self.state).sessions.insert(id.clone(), session.clone());
        let mut result = json!({ "modes": modes(&session.mode), "_meta": {} });
        if loaded.is_none() {
            result["sessionId"] = json!(id);
        }
        if fault == "early" {
            self.say(&id, "agent_message_chunk", "too early");
            self.usage(&id, 1);
        }
        if fault != "no-config-options" {
            result["configOptions"] = session.config_options();
        }
        if fault != "no-extension-results" {
            result["_meta"]["extensionResults"] =
                Self::extension_results(&session.extensions, fault == "failed-extension");
        }
        result
    }

    fn set_config_option(&self, id: &Value, session_id: &str, params: &Value) {
        let option = params["configId"].as_str().unwrap_or_default();
        let value = params["value"].as_str().unwrap_or_default();
        let changed = self.with_session(session_id, |session| {
            let place = match option {
                "mode" => &mut session.mode,
                "provider" => &mut session.provider,
                "model" => &mut session.model,
                _ => return None,
            };
            value.clone_into(place);
            Some(session.config_options())
        });
        let Some(options) = changed.flatten() else {
            let data = json!(format!("Unsupported config option: {option}"));
            return self.fail(id, -32602, "Invalid params", &data);
        };
        self.update(
            session_id,
            &json!({ "sessionUpdate": "config_option_update", "configOptions": options }),
        );
        self.succeed(id, &json!({ "configOptions": options }));
    }

    fn prompt(agent: &Arc<Self>, id: Value, session_id: &str, params: &Value) {
        let begun = agent.with_session(session_id, |session| {
            let busy = std::mem::replace(&mut session.running, true);
            session.cancelled &= busy;
            !busy
        });
        match begun {
            None => {
                let data = json!(format!("Session not found: {session_id}"));
                return agent.fail(&id, -32002, "Resource not found", &data);
            }
            Some(false) => {
                let data = json!("session already has active run `run_1`; use _goose/unstable/session/steer");
                return agent.fail(&id, -32602, "Invalid params", &data);
            }
            Some(true) => {}
        }
        let blocks = params["prompt"].as_array().cloned().unwrap_or_default();
        let text = blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n");
        let (agent, session_id) = (Arc::clone(agent), session_id.to_owned());
        // A thread for each turn: the main thread goes on reading, so that a turn can be cancelled.
        thread::spawn(move || agent.run_turn(&id, &session_id, &text));
    }

    fn run_turn(&self, id: &Value, session_id: &str, text: &str) {
        let run = |run: Value| json!({ "sessionUpdate": "session_info_update", "_meta": { "goose": { "activeRunId": run } } });
        self.update(session_id, &run(json!(format!("run_{}", self.next_id()))));
        let mut ending = Ending { answer: json!({ "stopReason": "end_turn" }), twice: false, late: None };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.obey(session_id, line, &mut ending);
            if self.is_cancelled(session_id) {
                ending.answer = json!({ "stopReason": "cancelled" });
                break;
            }
        }
        self.usage(session_id, 16);
        self.update(session_id, &run(Value::Null));
        self.with_session(session_id, |session| session.running = false);
        for _ in 0..=u8::from(ending.twice) {
            if ending.answer["code"].is_null() {
                let usage = json!({ "totalTokens": 16, "inputTokens": 10, "outputTokens": 6 });
                self.succeed(id, &json!({ "stopReason": ending.answer["stopReason"], "usage": usage }));
            } else {
                self.send(&json!({ "jsonrpc": "2.0", "id": id, "error": ending.answer }));
            }
        }
        if let Some(text) = ending.late {
            self.say(session_id, "agent_message_chunk", &text);
        }
    }

    /// Sends a request to the client and waits for its answer, however long that takes.
    fn request(&self, method: &str, params: &Value) -> Value {
        let id = format!("00000000-0000-4000-8000-{:012}", self.next_id());
        let (sender, answer) = mpsc::channel();
        lock(&self.state).requests.insert(id.clone(), sender);
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        answer.recv().unwrap_or_default()
    }

    fn is_cancelled(&self, session_id: &str) -> bool {
        lock(&self.state).sessions.get(session_id).is_none_or(|session| session.cancelled)
    }

    fn with_session<T>(&self, session_id: &str, change: impl FnOnce(&mut Session) -> T) -> Option<T> {
        lock(&self.state).sessions.get_mut(session_id).map(change)
    }

    fn next_id(&self) -> u64 {
        let mut state = lock(&self.state);
        state.last_id += 1;
        state.last_id
    }

    fn usage(&self, session_id: &str, used: u64) {
        self.update(session_id, &json!({ "sessionUpdate": "usage_update", "used": used, "size": 128_000 }));
    }

    fn say(&self, session_id: &str, kind: &str, text: &str) {
        self.write(chunk(session_id, kind, text).as_bytes());
    }

    fn update(&self, session_id: &str, update: &Value) {
        let params = json!({ "sessionId": session_id, "update": update });
        self.send(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }));
    }

    fn succeed(&self, id: &Value, result: &Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }

    fn fail(&self, id: &Value, code: i64, message: &str, data: &Value) {
        let error = json!({ "code": code, "message": message, "data": data });
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
    }

    fn send(&self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    /// Nobody reads any more: the agent ends, as goose does.
    fn write(&self, bytes: &[u8]) {
        if let Some(output) = lock(&self.output).as_mut()
            && output.write_all(bytes).is_err()
        {
            exit(1);
        }
    }
}

fn version() -> String {
    Some(setting("FAKE_AGENT_VERSION"))
        .filter(|version| !version.is_empty())
        .unwrap_or_else(|| "1.52.0".to_owned())
}

fn setting(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

fn forever() -> ! {
    loop {
        thread::park();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
