//! The tool servers that a session's agent is to use (MCP, Model Context Protocol), besides its own extensions.
//!
//! What a server is started or asked with has secrets in it: `Debug` shows its name and kind alone, and so does
//! what callers see of a session.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How the agent talks to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpServerKind {
    /// A program that the agent starts.
    Stdio,
    /// By streamable HTTP.
    Http,
}

/// A server, and how to reach it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpServer {
    /// The name of its tools' extension.
    pub name: String,
    /// How to reach it.
    #[serde(flatten)]
    pub transport: McpTransport,
}

/// How to reach a server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum McpTransport {
    /// A program that the agent starts in the session's directory, with the agent's environment.
    Stdio {
        /// An absolute path.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables besides the agent's own.
        env: BTreeMap<String, String>,
    },
    /// Streamable HTTP.
    Http {
        /// `http:` or `https:`.
        url: String,
        /// Headers of every request to it.
        headers: BTreeMap<String, String>,
    },
}

impl McpServer {
    /// How the agent talks to it.
    #[must_use]
    pub fn kind(&self) -> McpServerKind {
        match self.transport {
            McpTransport::Stdio { .. } => McpServerKind::Stdio,
            McpTransport::Http { .. } => McpServerKind::Http,
        }
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("McpServer")
            .field("name", &self.name)
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

/// A server as somebody describes it, by a command or by a URL.
#[derive(Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = McpServer)]
pub struct McpServerParts {
    /// The name of its tools' extension: letters, digits, `_`, `-` and spaces. Case and spaces do not tell names apart.
    #[schema(examples("files"))]
    pub name: String,
    /// `stdio` or `http`; follows from the other fields when it is left out.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The absolute path of a program that the agent starts in the session's directory.
    #[schema(examples("/usr/local/bin/files-server"))]
    pub command: Option<String>,
    /// The program's arguments.
    pub args: Option<Vec<String>>,
    /// Variables of the program, besides the agent's own. No answer and no event shows them.
    pub env: Option<BTreeMap<String, String>>,
    /// The address of a server that speaks streamable HTTP.
    #[schema(examples("https://tools.example.org/mcp"))]
    pub url: Option<String>,
    /// Headers of every request to the server. No answer and no event shows them.
    pub headers: Option<BTreeMap<String, String>>,
}

impl fmt::Debug for McpServerParts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("McpServerParts").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A server that a caller asks for.
#[derive(Clone, Debug)]
pub enum McpServerWish {
    /// One of the gateway's own, by its name.
    Gateway(String),
    /// The caller's.
    Caller(McpServerParts),
}

/// Why a server cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {detail}")]
pub struct McpServerFault {
    /// The JSON pointer of what is wrong within the server's description; empty for the whole.
    pub field: String,
    /// For people. Shows no value but names.
    pub detail: String,
}

/// A server that a session has. Kept with the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum McpServerChoice {
    /// One of the gateway's own, as its configuration has it whenever an agent is started.
    Gateway(McpServerSummary),
    /// The caller's, as it was given.
    Caller(McpServer),
}

impl McpServerChoice {
    /// What callers may see of it.
    #[must_use]
    pub fn summary(&self) -> McpServerSummary {
        match self {
            Self::Gateway(summary) => summary.clone(),
            Self::Caller(server) => McpServerSummary { name: server.name.clone(), kind: server.kind() },
        }
    }
}

/// What callers may see of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct McpServerSummary {
    /// The name of its tools' extension.
    #[schema(examples("files"))]
    pub name: String,
    /// How the agent talks to it.
    #[schema(inline)]
    pub kind: McpServerKind,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_name_and_kind_is_shown() {
        let map = |name: &str| BTreeMap::from([(name.to_owned(), "hush".to_owned())]);
        for (transport, kind) in [
            (McpTransport::Http { url: "http://hush/".into(), headers: map("authorization") }, "http"),
            (
                McpTransport::Stdio { command: "/hush".into(), args: vec!["hush".into()], env: map("KEY") },
                "stdio",
            ),
        ] {
            let choice = McpServerChoice::Caller(McpServer { name: "web".into(), transport });
            let shown = format!("{choice:?} {}", serde_json::to_string(&choice.summary()).unwrap());
            assert!(!shown.contains("hush"), "{shown}");
            assert!(shown.contains("web") && shown.contains(kind), "{shown}");
            // As it is stored it is whole.
            let stored = serde_json::to_string(&choice).unwrap();
            assert_eq!(serde_json::from_str::<McpServerChoice>(&stored).unwrap(), choice, "{stored}");
        }
    }
}
