//! The end of a session in an agent that goes on.

use std::time::Duration;

use agent_client_protocol_schema::v1::{AGENT_METHOD_NAMES, CloseSessionRequest};

use super::Connection;
use crate::session::agent::AgentFailure;

impl Connection {
    /// ACP `session/close`: the agent lets go of the session, with the tool servers that it has started for it. It can be
    /// loaded again.
    pub async fn close_session(&self, timeout: Duration) -> Result<(), AgentFailure> {
        match self.session() {
            Some(session) => self.close_kept_session(session, timeout).await,
            None => Ok(()),
        }
    }

    /// The same for a session whose own connection is gone.
    pub async fn close_kept_session(&self, session: &str, timeout: Duration) -> Result<(), AgentFailure> {
        let params = CloseSessionRequest::new(session.to_owned());
        self.request(AGENT_METHOD_NAMES.session_close, &params, timeout).await.map(drop)
    }
}
