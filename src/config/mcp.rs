//! `[mcp]`: the tool servers that sessions get, and those that callers may bring.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer};

use super::error::{Problem, Violation};
use super::parse;
use crate::goose::servers::{self, Allowance, HostPattern, Servers, ToolServer};
use crate::session::agent::servers::{McpServer, McpServerFault, McpServerKind, McpServerParts};

/// `[mcp]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpSettings {
    /// Whether goose's first question to a server is answered for it.
    answer_discover: bool,
    /// What callers may bring.
    allow_caller: AllowCaller,
    /// The gateway's servers.
    servers: Vec<ServerEntry>,
}

/// `mcp.allow_caller`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowCaller {
    stdio: bool,
    #[serde(deserialize_with = "parse::list")]
    hosts: Vec<String>,
}

/// `[[mcp.servers]]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerEntry {
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    args: Option<Vec<String>>,
    #[serde(default, deserialize_with = "variables")]
    env: Option<BTreeMap<String, String>>,
    url: Option<String>,
    #[serde(default, deserialize_with = "variables")]
    headers: Option<BTreeMap<String, String>>,
    answer_discover: Option<bool>,
}

fn variables<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    let variables = parse::variables(deserializer)?.into_iter();
    Ok(Some(variables.map(|(name, value)| (name, value.expose().to_owned())).collect()))
}

/// Without what may be secret.
impl fmt::Debug for ServerEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ServerEntry").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ServerEntry {
    fn read(&self) -> Result<McpServer, McpServerFault> {
        let Self { name, kind, command, args, env, url, headers, .. } = self.clone();
        servers::read(McpServerParts { name, kind, command, args, env, url, headers })
    }
}

impl McpSettings {
    pub(super) fn validate(&self) -> Result<(), Violation> {
        self.read().map(drop)
    }

    /// The servers, as sessions get them. Complete once the configuration is loaded, which checks every one.
    #[must_use]
    pub fn servers(&self) -> Servers {
        self.read().unwrap_or_default()
    }

    fn read(&self) -> Result<Servers, Violation> {
        let mut hosts = Vec::new();
        for entry in &self.allow_caller.hosts {
            let host = HostPattern::parse(entry).ok_or_else(|| {
                Violation::new("mcp.allow_caller.hosts", Problem::NotAServersHost { found: entry.clone() })
            })?;
            hosts.push(host);
        }
        let mut configured: Vec<ToolServer> = Vec::new();
        for entry in &self.servers {
            let violation = |detail: String| {
                Violation::new("mcp.servers", Problem::McpServer { name: entry.name.clone(), detail })
            };
            let server = entry.read().map_err(|fault| violation(text_of(&fault)))?;
            if configured.iter().any(|other| other.server.name == server.name) {
                let detail = format!("name is taken by another server: both are {} to goose", server.name);
                return Err(violation(detail));
            }
            if entry.answer_discover.is_some() && server.kind() == McpServerKind::Stdio {
                return Err(violation("answer_discover belongs to a server with a url".to_owned()));
            }
            let answer_discover = entry.answer_discover.unwrap_or(self.answer_discover);
            configured.push(ToolServer { server, answer_discover });
        }
        let allowance = Allowance { stdio: self.allow_caller.stdio, hosts };
        Ok(Servers { configured, allowance, answer_discover: self.answer_discover })
    }
}

/// A fault's words, with the pointer as the keys that stand in a file.
fn text_of(McpServerFault { field, detail }: &McpServerFault) -> String {
    let keys = field.trim_start_matches('/').replace('/', ".").replace("~1", "/").replace("~0", "~");
    if keys.is_empty() { detail.clone() } else { format!("{keys} {detail}") }
}
