//! The commands of a prompt.

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::process::{Command, Stdio, exit};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::shapes::chunk;
use super::{Agent, Ending, State, forever, lock};

const DECLINED: &str = "The user has declined to run this tool. DO NOT attempt to call this tool again.";
const FLOOD_WRITE_BYTES: usize = 256 * 1024;
const PIECE_BYTES: usize = 1024 * 1024;
/// Stands for the text in the flood's line.
const FLOOD_TEXT: &str = "<text>";

impl Agent {
    /// Runs one command of a prompt.
    pub(super) fn obey(&self, session_id: &str, line: &str, ending: &mut Ending) {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number =
            || rest.split(' ').next().and_then(|word| word.parse::<usize>().ok()).unwrap_or_default();
        let echo = |text: &str| self.say(session_id, "agent_message_chunk", text);
        match command {
            "echo" => echo(rest),
            "think" => self.say(session_id, "agent_thought_chunk", rest),
            "flood" => self.flood(session_id, number(), rate(rest)),
            "call" => {
                let call = self.tool_call(session_id);
                self.finish_call(session_id, &call, "completed", "f.txt");
            }
            "open-call" => drop(self.tool_call(session_id)),
            "ask" => echo(&self.ask(session_id)),
            "plan" => {
                let status = |index| if index == 0 { "in_progress" } else { "pending" };
                let entries = rest.split(',').enumerate();
                let entries = entries.map(
                    |(index, text)| json!({ "content": text, "priority": "medium", "status": status(index) }),
                );
                let entries: Vec<Value> = entries.collect();
                self.update(session_id, &json!({ "sessionUpdate": "plan", "entries": entries }));
            }
            "update" => self.update(session_id, &serde_json::from_str(rest).unwrap_or(Value::Null)),
            "unknown-update" => {
                self.update(
                    session_id,
                    &json!({ "sessionUpdate": "brand_new_update", "detail": { "depth": [1, 2] } }),
                );
            }
            "request" => {
                let (method, params) = rest.split_once(' ').unwrap_or((rest, "{}"));
                let mut params: Value = serde_json::from_str(params).unwrap_or_default();
                params["sessionId"] = json!(session_id);
                echo(&self.request(method, &params).to_string());
            }
            "env" => echo(&env::var(rest).unwrap_or_else(|_| "(not set)".to_owned())),
            "pid" => echo(&std::process::id().to_string()),
            "sleep" => self.wait_for_cancel(session_id, Some(Duration::from_millis(number() as u64))),
            "wait" => self.wait_for_cancel(session_id, None),
            "hang" => forever(),
            "stop" => ending.answer = json!({ "stopReason": rest }),
            "error" => {
                let (code, text) = rest.split_once(' ').unwrap_or((rest, "as the prompt says"));
                ending.answer = json!({ "code": code.parse().unwrap_or(-32603), "message": text });
            }
            "duplicate-answer" => ending.twice = true,
            "late" => ending.late = Some(rest.to_owned()),
            "garbage" => self.write(b"}{ this is no JSON\n"),
            "invalid-utf8" => self.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\xfe\"}\n"),
            "raw" => self.write(format!("{rest}\n").as_bytes()),
            "long-line" => echo(&"x".repeat(number())),
            "bytewise" => {
                for byte in chunk(session_id, "agent_message_chunk", rest).as_bytes() {
                    self.write(&[*byte]);
                    // Long enough for the other side to see it alone.
                    thread::sleep(Duration::from_millis(1));
                }
            }
            "no-newline" => {
                let piece = "x".repeat(PIECE_BYTES);
                let mut left = number();
                while left > 0 {
                    let length = left.min(PIECE_BYTES);
                    self.write(&piece.as_bytes()[..length]);
                    left -= length;
                }
                forever();
            }
            "stderr" => stderr(number().div_ceil(64), rate(rest)),
            "fork" => echo(&fork(rest == "setsid")),
            "ignore-term" => echo(&format!("{:?}", ignore_term())),
            "ignore-eof" => lock(&self.state).ignore_eof = true,
            "close-stdout" => self.close_stdout(),
            "close-stdin" => {
                // Whoever sends what is read next does not know yet.
                let _ = File::open("/dev/null").map(rustix::stdio::dup2_stdin);
            }
            "crash" => exit(i32::try_from(number()).unwrap_or(1)),
            "abort" => std::process::abort(),
            _ => echo(line),
        }
    }

    fn flood(&self, session_id: &str, count: usize, per_second: Option<u32>) {
        let start = Instant::now();
        let mut lines = Vec::with_capacity(FLOOD_WRITE_BYTES + 512);
        // A flood is to cost the agent little: only the text is made anew, and has nothing that JSON escapes.
        let line = chunk(session_id, "agent_message_chunk", FLOOD_TEXT);
        let (before, after) = line.split_once(FLOOD_TEXT).unwrap_or_default();
        for sequence in 0..count {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let clock_ns = now.tv_sec * 1_000_000_000 + now.tv_nsec;
            lines.extend_from_slice(before.as_bytes());
            // Writing to memory does not fail.
            let _ = write!(lines, "{sequence:09} {clock_ns:019} ");
            lines.extend_from_slice(after.as_bytes());
            if per_second.is_some() || lines.len() >= FLOOD_WRITE_BYTES || sequence + 1 == count {
                self.write(&lines);
                lines.clear();
                if self.is_cancelled(session_id) {
                    return;
                }
            }
            if let Some(per_second) = per_second {
                let due = Duration::from_secs(sequence as u64 + 1) / per_second;
                thread::sleep(due.saturating_sub(start.elapsed()));
            }
        }
    }

    fn tool_call(&self, session_id: &str) -> String {
        let call = format!("call_{}", self.next_id());
        self.update(session_id, &json!({ "sessionUpdate": "tool_call", "toolCallId": call, "title": "shell · ls",
            "rawInput": { "command": "ls" }, "_meta": { "goose": { "created": 1_796_045_937, "messageId": "chatcmpl-1",
            "toolCall": { "toolName": "shell", "extensionName": "developer" } } } }));
        call
    }

    fn finish_call(&self, session_id: &str, call: &str, status: &str, text: &str) {
        let mut update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "status": status,
            "content": [{ "type": "content", "content": { "type": "text", "text": text } }] });
        if status == "completed" {
            update["rawOutput"] = json!({ "stdout": text, "stderr": "", "exit_code": 0 });
        }
        self.update(session_id, &update);
    }

    fn ask(&self, session_id: &str) -> String {
        let call = self.tool_call(session_id);
        let options: Vec<Value> = ["allow_always", "allow_once", "reject_once", "reject_always"]
            .iter()
            .map(|id| json!({ "optionId": id, "name": id, "kind": id }))
            .collect();
        let tool_call = json!({ "toolCallId": call, "kind": "other", "status": "pending", "title": "shell · ls",
            "rawInput": { "command": "ls" } });
        let params = json!({ "sessionId": session_id, "toolCall": tool_call, "options": options });
        let answer = self.request("session/request_permission", &params);
        let outcome = &answer["result"]["outcome"];
        let chosen = outcome["optionId"].as_str().or(outcome["outcome"].as_str()).unwrap_or("no outcome");
        if chosen.starts_with("allow") {
            self.finish_call(session_id, &call, "completed", "f.txt");
        } else if !self.is_cancelled(session_id) {
            self.finish_call(session_id, &call, "failed", DECLINED);
        }
        chosen.to_owned()
    }

    fn wait_for_cancel(&self, session_id: &str, at_most: Option<Duration>) {
        let goes_on =
            |state: &mut State| state.sessions.get(session_id).is_some_and(|session| !session.cancelled);
        let state = lock(&self.state);
        let at_most = at_most.unwrap_or(Duration::MAX);
        drop(self.cancelled.wait_timeout_while(state, at_most, goes_on));
    }

    /// Puts the null device in the place of stdout; with the agent's own handle gone the pipe is closed.
    fn close_stdout(&self) {
        let replaced = File::options().write(true).open("/dev/null").map(rustix::stdio::dup2_stdout);
        if matches!(replaced, Ok(Ok(()))) {
            lock(&self.output).take();
        }
    }
}

/// Lines on stderr, all at once or so many in a second.
fn stderr(lines: usize, per_second: Option<u32>) {
    let line = format!("{}\n", "e".repeat(63));
    let Some(per_second) = per_second else {
        // Whoever closes our stderr does not want to read it.
        let _ = io::stderr().write_all(line.repeat(lines).as_bytes());
        return;
    };
    for _ in 0..lines {
        let _ = io::stderr().write_all(line.as_bytes());
        thread::sleep(Duration::from_secs(1) / per_second);
    }
}

/// `rate 20/s` in a command's words.
fn rate(words: &str) -> Option<u32> {
    let (_, rate) = words.split_once("rate ")?;
    rate.trim().trim_end_matches("/s").parse().ok().filter(|per_second| *per_second > 0)
}

fn fork(in_own_session: bool) -> String {
    let mut command = Command::new(if in_own_session { "setsid" } else { "sleep" });
    if in_own_session {
        command.arg("sleep");
    }
    match command.arg("3600").stdin(Stdio::null()).spawn() {
        Ok(child) => child.id().to_string(),
        Err(error) => error.to_string(),
    }
}

/// Listening for the signal once takes its deadly effect away for good.
pub(super) fn ignore_term() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _context = runtime.enter();
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map(drop)
}
