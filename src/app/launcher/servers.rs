//! The tool servers that a session's goose is started with.

use std::collections::BTreeMap;

use crate::acp::{NewSession, Redactor};
use crate::goose::servers::{Resolved, Servers};
use crate::session::agent::servers::{McpServer, McpTransport};
use crate::session::agent::{LaunchSpec, Notice, NoticeLevel};

/// No program, on every system.
const NOTHING: &str = "/dev/null";

/// The tool servers that a session's goose is started with.
pub(super) struct SessionServers {
    /// As goose is told of them.
    pub(super) servers: Vec<McpServer>,
    /// Those that the session had and has no more, and why.
    left_out: Vec<(String, String)>,
}

impl SessionServers {
    /// The session's servers as the configuration has them now.
    pub(super) fn of(spec: &LaunchSpec, configured: &Servers) -> Self {
        let Resolved { servers, left_out } = configured.resolve(&spec.mcp_servers);
        Self { servers, left_out }
    }

    /// Their names.
    pub(super) fn names(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.name.clone()).collect()
    }

    /// The names of those that the session had and has no more.
    pub(super) fn left_out(&self) -> Vec<String> {
        self.left_out.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Takes what the servers are reached with out of what goose says of them.
    pub(super) fn redactor(&self, redactor: &Redactor) -> Redactor {
        redactor.with_secrets(self.servers.iter().flat_map(secrets))
    }

    /// The servers for a session that is loaded.
    ///
    /// goose has saved the session's servers, with the addresses and secrets of then, and starts them again, but for
    /// those that `session/load` names: what it is given of these takes the place of what it has saved (measured on goose
    /// 1.52; taking a server from the saved session by `_goose/unstable/session/extensions/remove` starts all the others
    /// first). Hence one that the session is no longer to have is named as a program that cannot be started.
    pub(super) fn to_load(&self) -> Vec<McpServer> {
        let nothing = |(name, _): &(String, String)| McpServer {
            name: name.clone(),
            transport: McpTransport::Stdio {
                command: NOTHING.to_owned(),
                args: Vec::new(),
                env: BTreeMap::new(),
            },
        };
        self.servers.iter().cloned().chain(self.left_out.iter().map(nothing)).collect()
    }

    /// Takes what goose says of the servers that cannot be started out of what it says of the extensions.
    pub(super) fn without_left_out(&self, mut session: NewSession) -> NewSession {
        if let Some(extensions) = &mut session.extensions {
            extensions.retain(|extension| !self.left_out.iter().any(|(name, _)| *name == extension.name));
        }
        session
    }

    /// What callers should know.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        self.left_out.iter().map(|(name, why)| Notice {
            level: NoticeLevel::Warning,
            code: "mcp-server-left-out".into(),
            message: format!("the session no longer has the server {name}: {why}"),
        })
    }
}

/// What must not show up in errors: the values of headers and variables, and the address's query.
fn secrets(server: &McpServer) -> Vec<String> {
    match &server.transport {
        McpTransport::Stdio { env, .. } => env.values().cloned().collect(),
        McpTransport::Http { url, headers } => {
            // The secret itself, without the scheme before it ("Bearer …").
            let parts = headers.values().filter_map(|value| value.split_once(' '));
            let parts: Vec<String> = parts.map(|(_, secret)| secret.to_owned()).collect();
            let query = url.split_once('?').map(|(_, query)| query.to_owned());
            headers.values().cloned().chain(parts).chain(query).collect()
        }
    }
}
