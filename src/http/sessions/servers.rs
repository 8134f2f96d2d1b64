//! The tool servers that a session is asked to have.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use super::bodies::Check;
use crate::http::host::HostFacts;
use crate::session::agent::servers::{McpServerChoice, McpServerParts, McpServerWish};

/// Servers of one session.
const SERVERS: usize = 32;

/// The name of one of the gateway's servers, or a server of the caller's.
#[derive(Clone, Debug)]
pub(in crate::http) struct AskedServer(McpServerWish);

/// The name of one of the gateway's servers, or a server of the caller's.
#[derive(ToSchema)]
#[serde(untagged)]
#[schema(as = McpServerWish)]
#[expect(dead_code, reason = "only describes what `AskedServer` reads")]
pub(in crate::http) enum AskedServerSchema {
    Name(String),
    Server(McpServerParts),
}

impl<'de> Deserialize<'de> for AskedServer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrServer;

        impl<'de> Visitor<'de> for NameOrServer {
            type Value = AskedServer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of one of the gateway's servers, or an object that describes one")
            }

            fn visit_str<E>(self, name: &str) -> Result<AskedServer, E> {
                Ok(AskedServer(McpServerWish::Gateway(name.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AskedServer, A::Error> {
                let parts = McpServerParts::deserialize(MapAccessDeserializer::new(map))?;
                Ok(AskedServer(McpServerWish::Caller(parts)))
            }
        }

        deserializer.deserialize_any(NameOrServer)
    }
}

impl Check {
    /// The servers asked for; all of the gateway's when nothing is said of them.
    pub(super) fn servers(
        &mut self,
        asked: Option<Vec<AskedServer>>,
        host: &dyn HostFacts,
    ) -> Vec<McpServerChoice> {
        if asked.as_ref().is_some_and(|asked| asked.len() > SERVERS) {
            self.refuse("/mcp_servers", format!("must not have more than {SERVERS} servers"));
            return Vec::new();
        }
        let wishes = asked.map(|asked| asked.into_iter().map(|AskedServer(wish)| wish).collect());
        host.choose_servers(wishes).unwrap_or_else(|faults| {
            for (place, fault) in faults {
                self.refuse(format!("/mcp_servers/{place}{}", fault.field), fault.detail);
            }
            Vec::new()
        })
    }
}
