//! The ends of a session: closing it, and deleting what the agent has kept of it.

use std::time::Duration;

use agent_client_protocol_schema::v1::{AGENT_METHOD_NAMES, CloseSessionRequest};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Connection, failure};
use crate::acp::rpc::{self, Line, Message};
use crate::acp::transport::{Incoming, Outgoing};
use crate::acp::websocket::WebSocket;
use crate::session::agent::AgentFailure;

const DELETE: &str = "session/delete";
/// The id of the one request of a connection.
const ONLY: u64 = 1;

impl Connection {
    /// ACP `session/close`: the agent lets go of the session, with the tool servers that it has started for it. It can be
    /// loaded again.
    pub async fn close_session(&self, timeout: Duration) -> Result<(), AgentFailure> {
        let Some(session) = self.session() else { return Ok(()) };
        let params = CloseSessionRequest::new(session.to_owned());
        self.request(AGENT_METHOD_NAMES.session_close, &params, timeout).await.map(drop)
    }
}

/// Closes a session whose own connection is gone, over one of which it is all that happens.
pub async fn close_session(socket: WebSocket, session: &str) -> Result<(), AgentFailure> {
    ask_once(socket, AGENT_METHOD_NAMES.session_close, &CloseSessionRequest::new(session.to_owned())).await
}

/// Deletes what the agent has kept of a session, over a connection of which it is all that happens. One that it does not
/// know is as good as deleted.
pub async fn delete_session(socket: WebSocket, session: &str) -> Result<(), AgentFailure> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Delete<'a> {
        session_id: &'a str,
    }
    match ask_once(socket, DELETE, &Delete { session_id: session }).await {
        Err(failure) if failure.message.contains("not found") => Ok(()),
        deleted => deleted,
    }
}

async fn ask_once(socket: WebSocket, method: &str, params: &impl Serialize) -> Result<(), AgentFailure> {
    let lost = |error: std::io::Error| failure(None, format!("{method}: {error}"));
    let request = rpc::request_line(ONLY, method, params).map_err(std::io::Error::from).map_err(lost)?;
    let (mut incoming, mut outgoing) = socket.split();
    outgoing.send(request).await.map_err(lost)?;
    while incoming.read().await > 0 {
        let mut answer = None;
        incoming.take(|line| {
            let Line::Whole(text) = line else { return };
            rpc::read_messages(&String::from_utf8_lossy(text), |message| {
                if let Ok(Message::Response { id, outcome }) = message
                    && id.get() == ONLY.to_string()
                {
                    answer = Some(outcome.map(drop::<&RawValue>));
                }
            });
        });
        if let Some(answer) = answer {
            let refused = |error| super::pending::failure_of(&error, &crate::acp::Redactor::default());
            return answer.map_err(refused);
        }
    }
    Err(failure(None, format!("the agent did not answer {method}")))
}
