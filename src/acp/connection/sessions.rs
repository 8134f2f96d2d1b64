//! Sessions that goose keeps, beyond the one of the connection.

use agent_client_protocol_schema::v1::AGENT_METHOD_NAMES;
use serde::Serialize;

use super::{Connection, METHOD_NOT_FOUND};
use crate::acp::translate::{fields, read};
use crate::session::agent::AgentFailure;

/// goose's own (measured on goose 1.52).
const INFO: &str = "_goose/unstable/session/info";
/// ACP: there is no such session.
const RESOURCE_NOT_FOUND: i64 = -32002;

/// What an agent says of a session that it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptSession {
    /// It has made it then, in its words; `None` when it does not tell.
    MadeAt(Option<String>),
    /// It has none of that name.
    Gone,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    session_id: &'a str,
}

impl Connection {
    /// When the agent made a session.
    ///
    /// # Errors
    /// When it does not answer, or refuses for another reason than that it has no such session or no such method.
    pub async fn kept_session(&self, session: &str) -> Result<KeptSession, AgentFailure> {
        let params = Params { session_id: session };
        let reply = match self.request(INFO, &params, self.limits.request_timeout).await {
            Err(failure) if failure.code == Some(METHOD_NOT_FOUND) => return Ok(KeptSession::MadeAt(None)),
            Err(failure) if is_gone(&failure) => return Ok(KeptSession::Gone),
            reply => reply?,
        };
        let info = fields(fields(Some(&reply)).get("session").copied());
        let meta = fields(info.get("_meta").copied());
        Ok(KeptSession::MadeAt(read(meta.get("createdAt").copied())))
    }

    /// ACP `session/delete`. A session that is not there is as good as deleted.
    ///
    /// # Errors
    /// When the agent refuses, or does not answer.
    pub async fn delete_session(&self, session: &str) -> Result<(), AgentFailure> {
        let method = AGENT_METHOD_NAMES.session_delete;
        match self.request(method, &Params { session_id: session }, self.limits.request_timeout).await {
            Err(failure) if !is_gone(&failure) => Err(failure),
            _ => Ok(()),
        }
    }
}

/// goose says it in one way or another, by the method.
fn is_gone(failure: &AgentFailure) -> bool {
    failure.code == Some(RESOURCE_NOT_FOUND) || failure.message.to_lowercase().contains("session not found")
}
