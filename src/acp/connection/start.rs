//! The requests of a start: agreeing on the protocol, and making or loading the connection's session.

use std::path::Path;
use std::sync::atomic::Ordering;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, ClientCapabilities, FileSystemCapabilities, Implementation, InitializeRequest,
    InitializeResponse, LoadSessionRequest, NewSessionRequest,
};
use tokio::sync::oneshot;
use tracing::warn;

use super::pending::Pending;
use super::servers::to_acp;
use super::{AgentSelf, Connection, NewSession, failure, understand};
use crate::acp::translate;
use crate::session::agent::AgentFailure;
use crate::session::agent::client_tools::OfferedTools;
use crate::session::agent::servers::McpServer;

impl Connection {
    /// ACP `initialize`: agrees on the protocol's version 1.
    pub async fn initialize(&self) -> Result<AgentSelf, AgentFailure> {
        // Asks goose for the session's sums, each model call's usage, and its notices.
        let mut own = serde_json::Map::new();
        own.insert("goose".to_owned(), serde_json::json!({"customNotifications": true}));
        let params = InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(self.offered().meta(own))
            .client_info(Implementation::new("gander", env!("CARGO_PKG_VERSION")));
        let reply = self.request(AGENT_METHOD_NAMES.initialize, &params, self.limits.start_timeout).await?;
        let response: InitializeResponse = understand(AGENT_METHOD_NAMES.initialize, &reply)?;
        // An agent may answer with a version it does not speak (goose echoes whatever it is asked for). One with
        // capabilities where version 1 has them speaks version 1.
        if response.protocol_version != ProtocolVersion::V1
            && !translate::fields(Some(&reply)).contains_key("agentCapabilities")
        {
            let version = response.protocol_version;
            return Err(failure(None, format!("the agent speaks version {version} of ACP, not 1")));
        }
        let about = response.agent_info.map(|about| AgentSelf { name: about.name, version: about.version });
        Ok(about.unwrap_or_else(|| AgentSelf { name: String::new(), version: String::new() }))
    }

    /// What the agent is told that it can ask for.
    fn offered(&self) -> ClientCapabilities {
        let OfferedTools { filesystem, terminal } =
            self.tools.as_ref().map(|tools| tools.offered()).unwrap_or_default();
        let files = FileSystemCapabilities::new().read_text_file(filesystem).write_text_file(filesystem);
        ClientCapabilities::new().fs(files).terminal(terminal)
    }

    /// ACP `session/new`, with the tool servers that the session is to have. A connection has one session.
    pub async fn new_session(&self, cwd: &Path, servers: &[McpServer]) -> Result<NewSession, AgentFailure> {
        let method = AGENT_METHOD_NAMES.session_new;
        let params = NewSessionRequest::new(cwd).mcp_servers(to_acp(servers));
        let reply = self.request(method, &params, self.limits.start_timeout).await?;
        let fields = translate::fields(Some(&reply));
        let Some(session) = translate::read::<String>(fields.get("sessionId").copied()) else {
            return Err(failure(None, format!("the agent's answer to {method} names no session")));
        };
        if self.session.set(session).is_err() {
            warn!("the agent started a second session on one connection");
        }
        Ok(self.understand_session(&fields))
    }

    /// ACP `session/load`: goes on with a session that an earlier process of the agent had. What the agent repeats of
    /// its history is dropped. `servers` are the tool servers that it has from now on; goose adds those that it has saved
    /// with the session, unless they have the name of one of these.
    pub async fn load_session(
        &self,
        session: &str,
        cwd: &Path,
        servers: &[McpServer],
    ) -> Result<NewSession, AgentFailure> {
        let method = AGENT_METHOD_NAMES.session_load;
        if self.session.get_or_init(|| session.to_owned()) != session {
            warn!("the agent loads a second session on one connection");
        }
        let params = LoadSessionRequest::new(session.to_owned(), cwd).mcp_servers(to_acp(servers));
        let (answer, answered) = oneshot::channel();
        // Before the agent can know of it: its first repetition may come at once.
        self.replaying.store(true, Ordering::Release);
        let Ok(id) = self.begin(method, &params, Pending::Load(answer)) else { return Err(self.gone()) };
        let reply = self.answer(id, method, answered, self.limits.start_timeout).await?;
        Ok(self.understand_session(&translate::fields(Some(&reply))))
    }

    /// The agent's own id of the session, to load it with later. `None` before there is a session.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.session.get().map(String::as_str)
    }

    /// What the agent says of a session that it made or loaded.
    fn understand_session(&self, fields: &translate::Fields<'_>) -> NewSession {
        let modes = translate::fields(fields.get("modes").copied());
        let mut extensions = translate::extension_results(fields.get("_meta").copied());
        for error in extensions.iter_mut().flatten().filter_map(|extension| extension.error.as_mut()) {
            *error = self.redactor.redact(error);
        }
        NewSession {
            mode: translate::read(modes.get("currentModeId").copied()),
            config_options: translate::config_options(fields.get("configOptions").copied()),
            extensions,
        }
    }
}
