//! The tool servers that a session's goose is started with.

use std::collections::BTreeMap;
use std::io;

use tokio::sync::OnceCell;

use super::{GooseLauncher, not_made};
use crate::acp::{NewSession, Redactor};
use crate::goose::launch::Launch;
use crate::goose::serve::SECRET_VARIABLE;
use crate::goose::servers::{Resolved, Servers, ToolServer};
use crate::mcp_proxy::{McpProxy, ProxiedServer, ProxyClient, ProxyError};
use crate::session::agent::servers::{McpServer, McpTransport};
use crate::session::agent::{LaunchError, LaunchSpec, Notice, NoticeLevel};
use crate::shutdown::Tasks;

/// No program, on every system.
const NOTHING: &str = "/dev/null";

/// Opens the proxies before tool servers whose first question gander answers.
pub(super) struct Proxies {
    /// The variables that say how to get out of this host's network.
    environment: Vec<(String, String)>,
    /// Made when the first session needs it: most gateways have no such server.
    client: OnceCell<ProxyClient>,
    tasks: Tasks,
}

impl Proxies {
    pub(super) fn new(environment: Vec<(String, String)>, tasks: Tasks) -> Self {
        Self { environment, client: OnceCell::new(), tasks }
    }

    async fn open(&self, servers: &[ProxiedServer]) -> Result<McpProxy, ProxyError> {
        let environment = self.environment.clone();
        // It reads the host's certificates.
        let make = || async {
            let made = self.tasks.spawn_blocking(move || ProxyClient::new(&environment)).await;
            Ok::<_, ProxyError>(made.map_err(io::Error::other)??)
        };
        McpProxy::open(servers, self.client.get_or_try_init(make).await?, &self.tasks).await
    }
}

impl GooseLauncher {
    /// The session's tool servers as the configuration has them now, and what `launch` needs for them.
    pub(super) async fn servers_for(
        &self,
        spec: &LaunchSpec,
        launch: &mut Launch,
    ) -> Result<SessionServers, LaunchError> {
        let opened = SessionServers::open(spec, self.servers(), &self.shared.proxies).await;
        let mut servers = opened.map_err(|error| {
            tracing::error!(%error, "a session's tool servers cannot be reached");
            not_made("the session's tool servers cannot be reached", &error)
        })?;
        if servers.proxy.is_some() {
            launch.reach_loopback_directly();
        }
        if self.one_serves_all() {
            servers.withhold_secret();
        }
        Ok(servers)
    }
}

/// The tool servers that a session's goose is started with.
pub(super) struct SessionServers {
    /// As goose is told of them.
    pub(super) servers: Vec<McpServer>,
    /// What some of them are reached through. To be kept for as long as goose.
    pub(super) proxy: Option<McpProxy>,
    /// Those that the session had and has no more, and why.
    left_out: Vec<(String, String)>,
    /// What must not show up in errors.
    secrets: Vec<String>,
}

impl SessionServers {
    async fn open(spec: &LaunchSpec, configured: &Servers, proxies: &Proxies) -> Result<Self, ProxyError> {
        let Resolved { servers, left_out } = configured.resolve(&spec.mcp_servers);
        let secrets = servers.iter().flat_map(|found| secrets(&found.server)).collect();
        let mut told: Vec<McpServer> = Vec::new();
        let mut hidden = Vec::new();
        for ToolServer { mut server, answer_discover } in servers {
            if let McpTransport::Http { url, headers } = &mut server.transport
                && answer_discover
            {
                let behind = ProxiedServer { url: std::mem::take(url), headers: std::mem::take(headers) };
                hidden.push((told.len(), behind));
            }
            told.push(server);
        }
        let proxy = if hidden.is_empty() {
            None
        } else {
            let (places, behind): (Vec<usize>, Vec<ProxiedServer>) = hidden.into_iter().unzip();
            let proxy = proxies.open(&behind).await?;
            for (place, url) in places.into_iter().zip(&proxy.urls) {
                // The proxy adds the headers.
                let headers = BTreeMap::new();
                told[place].transport = McpTransport::Http { url: url.clone(), headers };
            }
            Some(proxy)
        };
        Ok(Self { servers: told, proxy, left_out, secrets })
    }

    /// Has the programs among them not get the secret of the goose that starts them, with which one could work in every
    /// session: they inherit goose's environment, and what is said here wins over that (measured on goose 1.52).
    fn withhold_secret(&mut self) {
        for server in &mut self.servers {
            if let McpTransport::Stdio { env, .. } = &mut server.transport {
                env.insert(SECRET_VARIABLE.to_owned(), String::new());
            }
        }
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
        redactor.with_secrets(self.secrets.iter().cloned())
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
