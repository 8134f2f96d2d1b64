//! What the agent asks of its client: who does it, how it is answered, and where its events stand.

use std::sync::Mutex as StdMutex;

use crate::acp::ToolPort;
use crate::session::agent::BoxFuture;
use crate::session::agent::client_tools::{
    ClientToolEvent, ClientToolRefusal, ClientToolReply, ClientToolRequest, ClientTools, OfferedTools,
    TerminalExit,
};
use crate::session::tool_call::{ToolCall, ToolCallStatus};

use super::*;

/// Does nothing, tells what the test says, and remembers what was asked of it.
struct Told {
    events: mpsc::Sender<ClientToolEvent>,
    calls: Arc<StdMutex<Vec<String>>>,
}

impl Told {
    fn note(&self, call: impl Into<String>) {
        self.calls.lock().unwrap().push(call.into());
    }
}

fn output(terminal: &str, text: &str) -> ClientToolEvent {
    ClientToolEvent::Output {
        terminal: terminal.to_owned(),
        stream: "stdout",
        text: text.to_owned(),
        truncated: false,
    }
}

impl ClientTools for Told {
    fn offered(&self) -> OfferedTools {
        OfferedTools { filesystem: false, terminal: true }
    }

    fn turn_begun(&self) {
        self.note("begun");
    }

    fn turn_over(&self) {
        self.note("over");
    }

    fn call(&self, request: ClientToolRequest) -> BoxFuture<Result<ClientToolReply, ClientToolRefusal>> {
        let events = self.events.clone();
        Box::pin(async move {
            match request {
                ClientToolRequest::CreateTerminal(_) => {
                    events.send(output("t", "early ")).await.unwrap();
                    Ok(ClientToolReply::Created("t".to_owned()))
                }
                ClientToolRequest::WaitForExit(id) if id == "t" => {
                    events.send(output("t", "late")).await.unwrap();
                    let content = json!({"type": "terminal", "output": "all"});
                    events.send(ClientToolEvent::Ended { terminal: id, content }).await.unwrap();
                    Ok(ClientToolReply::Exited(TerminalExit { exit_code: Some(3), signal: None }))
                }
                ClientToolRequest::WaitForExit(_) => std::future::pending().await,
                _ => Err(ClientToolRefusal("no such thing".to_owned())),
            }
        })
    }
}

async fn peer() -> (Peer, Arc<StdMutex<Vec<String>>>) {
    let (events, told) = mpsc::channel(1);
    let calls = Arc::<StdMutex<Vec<String>>>::default();
    let tools = Arc::new(Told { events, calls: calls.clone() });
    let mut peer =
        Peer::open_offering(Some(ToolPort { tools, events: told }), Limits::default(), 1 << 16, 1 << 10);
    peer.start_session().await;
    (peer, calls)
}

fn ask(id: &str, method: &str, params: &Value) -> Value {
    let mut params = params.clone();
    params["sessionId"] = json!("s");
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn of_call(call: &Value) -> Value {
    let mut update = call.clone();
    update["sessionUpdate"] = json!("tool_call_update");
    update["toolCallId"] = json!("c");
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
}

fn wrote(text: &str) -> AgentEvent {
    AgentEvent::ToolOutput {
        tool_call_id: "c".to_owned(),
        stream: "stdout".to_owned(),
        text: text.to_owned(),
        truncated: false,
    }
}

#[tokio::test]
async fn a_command_s_output_is_told_of_its_call_and_its_end_is_the_call_s_content() {
    let (mut peer, _) = peer().await;
    peer.say(&ask("1", "terminal/create", &json!({"command": "ls"}))).await;
    assert_eq!(peer.sent().await["result"], json!({"terminalId": "t"}));
    peer.update("what it wrote waits until the call is known").await;
    peer.text().await;
    peer.say(&of_call(&json!({"content": [{"type": "terminal", "terminalId": "t"}]}))).await;
    let runs =
        ToolCall { id: "c".to_owned(), status: Some(ToolCallStatus::InProgress), ..ToolCall::default() };
    assert_eq!(peer.event().await, Some(AgentEvent::ToolCallUpdated(runs)));
    assert_eq!(peer.event().await, Some(wrote("early ")));
    peer.say(&ask("2", "terminal/wait_for_exit", &json!({"terminalId": "t"}))).await;
    assert_eq!(peer.sent().await["result"], json!({"exitCode": 3}));
    let words = json!({"type": "content", "content": {"type": "text", "text": "exit code: 3"}});
    peer.say(&of_call(&json!({"status": "failed", "content": [words]}))).await;
    assert_eq!(peer.event().await, Some(wrote("late")), "before the end");
    let expected = ToolCall {
        id: "c".to_owned(),
        status: Some(ToolCallStatus::Failed),
        content: Some(vec![json!({"type": "terminal", "output": "all"}), words]),
        ..ToolCall::default()
    };
    assert_eq!(peer.event().await, Some(AgentEvent::ToolCallUpdated(expected)));
}

#[tokio::test]
async fn refusals_are_internal_errors_and_a_wait_can_be_withdrawn() {
    let (mut peer, _) = peer().await;
    peer.say(&ask("w", "terminal/wait_for_exit", &json!({"terminalId": "for ever"}))).await;
    for (id, method, params, code) in [
        ("1", "terminal/kill", json!({"terminalId": "x"}), -32603),
        ("2", "terminal/kill", json!({}), -32602),
        ("3", "terminal/paint", json!({}), -32602),
        ("4", "fs/read_text_file", json!({"path": "/ws/a"}), -32601),
    ] {
        peer.say(&ask(id, method, &params)).await;
        let answer = peer.sent().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(code)), "{answer}");
    }
    let mut other = ask("5", "terminal/kill", &json!({"terminalId": "x"}));
    other["params"]["sessionId"] = json!("another");
    peer.say(&other).await;
    assert_eq!(peer.sent().await["error"]["code"], -32602);
    peer.say(&json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": "w"}})).await;
    let answer = peer.sent().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("w"), &json!(-32800)));
}

#[tokio::test]
async fn only_so_many_requests_are_open_at_a_time() {
    let (mut peer, _) = peer().await;
    for number in 0..Limits::default().client_requests {
        let wait = ask(&number.to_string(), "terminal/wait_for_exit", &json!({"terminalId": "for ever"}));
        peer.say(&wait).await;
    }
    peer.say(&ask("more", "terminal/kill", &json!({"terminalId": "x"}))).await;
    let answer = peer.sent().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["message"]),
        (&json!("more"), &json!("too many requests are open"))
    );
    peer.exits("exit code 0");
    peer.ended("exit code 0", TurnErrorClass::AgentExited).await;
}

#[tokio::test]
async fn a_turn_is_open_from_its_prompt_to_its_cancel_or_end() {
    let (mut peer, calls) = peer().await;
    let prompt = || AgentCommand::Prompt { turn: TurnId::new(), content: vec![] };
    let seen = || std::mem::take(&mut *calls.lock().unwrap());
    peer.connection.send(prompt()).unwrap();
    let id = peer.sent().await["id"].clone();
    assert_eq!(seen(), ["begun"]);
    peer.say(&json!({"jsonrpc": "2.0", "id": id, "result": {"stopReason": "end_turn"}})).await;
    peer.event().await;
    assert_eq!(seen(), ["over"]);
    peer.connection.send(prompt()).unwrap();
    peer.connection.send(AgentCommand::Cancel).unwrap();
    assert_eq!(seen(), ["begun", "over"]);
}

#[tokio::test]
async fn a_request_that_is_too_long_is_refused_and_the_agent_goes_on() {
    let (mut peer, _) = peer().await;
    let limit = Limits::default().line_bytes;
    let command = "x".repeat(limit);
    peer.say(&ask("long", "terminal/create", &json!({"command": command}))).await;
    let answer = peer.sent().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("long"), &json!(-32603)));
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(why.ends_with(&format!("at most {limit} are taken")), "{why}");
    peer.say(&ask("next", "terminal/create", &json!({"command": "ls"}))).await;
    assert_eq!(peer.sent().await["result"], json!({"terminalId": "t"}));
    assert_eq!(peer.kills(), 0);
}
