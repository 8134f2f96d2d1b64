//! A session's tool servers, in ACP's words.

use agent_client_protocol_schema::v1::{EnvVariable, HttpHeader, McpServer, McpServerHttp, McpServerStdio};

use crate::session::agent::servers::{self, McpTransport};

/// The servers as `session/new` and `session/load` take them.
pub(super) fn to_acp(servers: &[servers::McpServer]) -> Vec<McpServer> {
    let to_acp = |server: &servers::McpServer| match &server.transport {
        McpTransport::Stdio { command, args, env } => {
            let env = env.iter().map(|(name, value)| EnvVariable::new(name, value)).collect();
            McpServer::Stdio(McpServerStdio::new(&server.name, command).args(args.clone()).env(env))
        }
        McpTransport::Http { url, headers } => {
            let headers = headers.iter().map(|(name, value)| HttpHeader::new(name, value)).collect();
            McpServer::Http(McpServerHttp::new(&server.name, url).headers(headers))
        }
    };
    servers.iter().map(to_acp).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    /// As goose 1.52 takes them; anything that it cannot read it drops in silence.
    #[test]
    fn servers_are_described_as_goose_reads_them() {
        let entry = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let servers = [
            McpTransport::Stdio {
                command: "/bin/files".into(),
                args: vec!["-v".into()],
                env: entry("TOKEN", "t"),
            },
            McpTransport::Http { url: "http://web/mcp".into(), headers: entry("Authorization", "Bearer t") },
        ]
        .map(|transport| servers::McpServer { name: "a".into(), transport });
        assert_eq!(
            serde_json::to_value(to_acp(&servers)).unwrap(),
            json!([
                {"name": "a", "command": "/bin/files", "args": ["-v"], "env": [{"name": "TOKEN", "value": "t"}]},
                {"type": "http", "name": "a", "url": "http://web/mcp",
                    "headers": [{"name": "Authorization", "value": "Bearer t"}]},
            ])
        );
    }
}
