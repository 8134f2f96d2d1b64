//! What the agent asks of its client, ACP's `fs/*` and `terminal/*`: read, handed to the port that does it, answered.
//!
//! Each request is done in a task of its own, so that a long one, such as the wait for a command's end, holds up nothing.
//! Refusals are JSON-RPC's "internal error" with the reason as text: goose shows it to its model. (The code for "resource
//! not found" would do for a file, but goose makes other words of it; -32000 it takes for "authentication required".)

use std::path::PathBuf;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, CreateTerminalRequest, CreateTerminalResponse, ReadTextFileRequest,
    ReadTextFileResponse, TerminalExitStatus, TerminalOutputResponse, WaitForTerminalExitResponse,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tracing::{debug, warn};

use super::Connection;
use super::reader::INVALID_PARAMS;
use crate::acp::{rpc, translate};
use crate::session::agent::client_tools::{
    ClientToolRefusal, ClientToolReply, ClientToolRequest, TerminalExit, TerminalSpec,
};

/// JSON-RPC's code for what fails in the one who was asked.
pub(super) const INTERNAL_ERROR: i64 = -32603;
/// ACP's code for a request that was withdrawn.
const REQUEST_CANCELLED: i64 = -32800;

impl Connection {
    /// Whether a method is one of those that the agent was offered.
    pub(super) fn is_client_tool(&self, method: &str) -> bool {
        let Some(offered) = self.tools.as_ref().map(|tools| tools.offered()) else { return false };
        (offered.filesystem && method.starts_with("fs/"))
            || (offered.terminal && method.starts_with("terminal/"))
    }

    /// Does a request and answers it, in a task of its own.
    pub(super) fn client_request(self: &Arc<Self>, id: &RawValue, method: &str, params: Option<&RawValue>) {
        let session = self.session.get().map(String::as_str);
        let is_ours = translate::is_ours(&translate::fields(params), session);
        let request = params.filter(|_| is_ours).and_then(|params| read_request(method, params.get()));
        let (Some(request), Some(tools)) = (request, self.tools.clone()) else {
            debug!(method, "a request of the agent that cannot be read, or is of another session");
            let _ = self.enqueue(rpc::error_line(id, INVALID_PARAMS, "Invalid params"));
            return;
        };
        let begun = self.state().begin_client_request(id, self.limits.client_requests);
        let Some((number, withdrawn)) = begun else {
            warn!("the agent has too many open requests");
            let _ = self.enqueue(rpc::error_line(id, INTERNAL_ERROR, "too many requests are open"));
            return;
        };
        let (connection, id) = (Arc::clone(self), id.to_owned());
        // Only a wait can be given up without leaving something half done.
        let is_wait = matches!(request, ClientToolRequest::WaitForExit(_));
        self.tasks.spawn(async move {
            let outcome = tokio::select! {
                biased;
                () = withdrawn.cancelled(), if is_wait => None,
                outcome = tools.call(request) => Some(outcome),
            };
            connection.state().end_client_request(number);
            let line = match outcome {
                None => rpc::error_line(&id, REQUEST_CANCELLED, "Request cancelled"),
                Some(Ok(reply)) => reply_line(&id, reply),
                Some(Err(ClientToolRefusal(reason))) => rpc::error_line(&id, INTERNAL_ERROR, &reason),
            };
            // An agent that is gone needs no answer.
            let _ = connection.enqueue(fitting(&id, line, connection.sent_bytes));
        });
    }
}

/// A request whose text can be read. `None` for any other, and for a method that there is not.
fn read_request(method: &str, params: &str) -> Option<ClientToolRequest> {
    #[derive(Deserialize)]
    struct Write {
        path: PathBuf,
        content: String,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Terminal {
        terminal_id: String,
    }
    let names = CLIENT_METHOD_NAMES;
    let terminal = || serde_json::from_str(params).ok().map(|Terminal { terminal_id }| terminal_id);
    Some(match method {
        _ if method == names.fs_read_text_file => {
            let ReadTextFileRequest { path, line, limit, .. } = serde_json::from_str(params).ok()?;
            ClientToolRequest::ReadTextFile { path, line, limit }
        }
        _ if method == names.fs_write_text_file => {
            let Write { path, content } = serde_json::from_str(params).ok()?;
            ClientToolRequest::WriteTextFile { path, content }
        }
        _ if method == names.terminal_create => {
            let CreateTerminalRequest { command, args, env, cwd, output_byte_limit, .. } =
                serde_json::from_str(params).ok()?;
            let environment = env.into_iter().map(|variable| (variable.name, variable.value)).collect();
            ClientToolRequest::CreateTerminal(TerminalSpec {
                command,
                arguments: args,
                environment,
                cwd,
                output_byte_limit,
            })
        }
        _ if method == names.terminal_output => ClientToolRequest::TerminalOutput(terminal()?),
        _ if method == names.terminal_wait_for_exit => ClientToolRequest::WaitForExit(terminal()?),
        _ if method == names.terminal_kill => ClientToolRequest::Kill(terminal()?),
        _ if method == names.terminal_release => ClientToolRequest::Release(terminal()?),
        _ => return None,
    })
}

fn reply_line(id: &RawValue, reply: ClientToolReply) -> serde_json::Result<Vec<u8>> {
    fn line(id: &RawValue, result: &impl Serialize) -> serde_json::Result<Vec<u8>> {
        rpc::result_line(id, result)
    }
    match reply {
        ClientToolReply::Content(content) => line(id, &ReadTextFileResponse::new(content)),
        ClientToolReply::Done => line(id, &json!({})),
        ClientToolReply::Created(terminal) => line(id, &CreateTerminalResponse::new(terminal)),
        ClientToolReply::Output { output, truncated, exit } => {
            line(id, &TerminalOutputResponse::new(output, truncated).exit_status(exit.map(status)))
        }
        ClientToolReply::Exited(exit) => line(id, &WaitForTerminalExitResponse::new(status(exit))),
    }
}

/// The answer, or why it cannot be sent: one that is too long would cost the agent its connection.
fn fitting(id: &RawValue, line: serde_json::Result<Vec<u8>>, longest: usize) -> serde_json::Result<Vec<u8>> {
    match line {
        // The line end is not sent where there is a limit.
        Ok(line) if line.len() - 1 > longest => {
            let reason = format!("the answer has {} bytes: at most {longest} can be sent", line.len() - 1);
            rpc::error_line(id, INTERNAL_ERROR, &reason)
        }
        line => line,
    }
}

fn status(TerminalExit { exit_code, signal }: TerminalExit) -> TerminalExitStatus {
    TerminalExitStatus::new().exit_code(exit_code).signal(signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_longer_than_the_agent_takes_is_refused_in_its_place() {
        let id = serde_json::value::to_raw_value("i").unwrap();
        let line = || reply_line(&id, ClientToolReply::Content("\n".repeat(200)));
        let bytes = line().unwrap().len() - 1;
        assert_eq!(fitting(&id, line(), bytes).unwrap(), line().unwrap());
        let refused: serde_json::Value =
            serde_json::from_slice(&fitting(&id, line(), bytes - 1).unwrap()).unwrap();
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("i"), &json!(INTERNAL_ERROR)));
    }

    #[test]
    fn requests_are_read_as_goose_writes_them() {
        let read = |method: &str, params: &str| read_request(method, params);
        assert_eq!(
            read("fs/read_text_file", r#"{"sessionId":"s","path":"/w/a","line":2,"limit":1}"#),
            Some(ClientToolRequest::ReadTextFile { path: "/w/a".into(), line: Some(2), limit: Some(1) })
        );
        let create = r#"{"sessionId":"s","command":"ls | wc","env":[{"name":"A","value":"b"}],"cwd":"/w",
            "outputByteLimit":50000}"#;
        assert_eq!(
            read("terminal/create", create),
            Some(ClientToolRequest::CreateTerminal(TerminalSpec {
                command: "ls | wc".into(),
                arguments: Vec::new(),
                environment: vec![("A".into(), "b".into())],
                cwd: Some("/w".into()),
                output_byte_limit: Some(50_000),
            }))
        );
        assert_eq!(
            read("terminal/kill", r#"{"sessionId":"s","terminalId":"t"}"#),
            Some(ClientToolRequest::Kill("t".into()))
        );
        for (method, params) in [
            ("fs/delete", r#"{"path":"/w"}"#),
            ("fs/write_text_file", r#"{"sessionId":"s","path":"/w/a"}"#),
            ("terminal/output", r#"{"sessionId":"s","terminalId":3}"#),
            ("terminal/create", "null"),
        ] {
            assert_eq!(read(method, params), None, "{method} {params}");
        }
    }
}
