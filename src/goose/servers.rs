//! The tool servers (MCP) that a session's goose gets: the gateway's own, and what the gateway's owner lets callers
//! bring.
//!
//! Measured on goose 1.52: goose makes an extension of each server, whose name it folds (lower case, no white space,
//! anything but ASCII letters, digits, `_` and `-` becomes `_`). Two servers that fold alike become one, and a server
//! that folds to the name of one of goose's extensions takes its place: one called `developer` would be the shell. A
//! server's name is hence its folded name everywhere in gander, and goose is given no other.

mod check;
mod hosts;

use std::collections::BTreeSet;

pub use self::check::read;
pub use self::hosts::HostPattern;
use crate::session::agent::servers::{
    McpServer, McpServerChoice, McpServerFault, McpServerSummary, McpServerWish, McpTransport,
};

/// Which servers of their own callers may bring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Whether they may name commands, which goose then runs on this host.
    pub stdio: bool,
    /// The hosts that their URLs may name.
    pub hosts: Vec<HostPattern>,
}

/// A server, and how goose is helped with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolServer {
    /// The server.
    pub server: McpServer,
    /// Whether goose's first question to it, `server/discover`, is answered for it. Has no meaning for a program.
    pub answer_discover: bool,
}

/// The servers of this gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    /// Those that the configuration names, in its order; no two have the same name.
    pub configured: Vec<ToolServer>,
    /// What callers may bring.
    pub allowance: Allowance,
    /// [`ToolServer::answer_discover`] of those that callers bring.
    pub answer_discover: bool,
}

/// The servers that a session's goose is to have now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// With all that it takes to reach them.
    pub servers: Vec<ToolServer>,
    /// The names of those that the session had, and why it has them no more. For people.
    pub left_out: Vec<(String, String)>,
}

impl Servers {
    /// The servers of a new session; without a wish all that are configured.
    ///
    /// # Errors
    /// What is wrong with each wish, by its place in the list.
    pub fn choose(
        &self,
        wishes: Option<Vec<McpServerWish>>,
    ) -> Result<Vec<McpServerChoice>, Vec<(usize, McpServerFault)>> {
        let Some(wishes) = wishes else {
            return Ok(self.configured.iter().map(|configured| of_gateway(&configured.server)).collect());
        };
        let mut taken = BTreeSet::new();
        let (mut choices, mut faults) = (Vec::new(), Vec::new());
        for (place, wish) in wishes.into_iter().enumerate() {
            match self.chosen(wish, &mut taken) {
                Ok(choice) => choices.push(choice),
                Err(fault) => faults.push((place, fault)),
            }
        }
        if faults.is_empty() { Ok(choices) } else { Err(faults) }
    }

    fn chosen(
        &self,
        wish: McpServerWish,
        taken: &mut BTreeSet<String>,
    ) -> Result<McpServerChoice, McpServerFault> {
        match wish {
            McpServerWish::Gateway(name) => {
                let ToolServer { server, .. } =
                    self.named(&folded(&name)).ok_or_else(|| self.unknown(&name))?;
                if !taken.insert(server.name.clone()) {
                    return Err(fault("", "is there twice"));
                }
                Ok(of_gateway(server))
            }
            McpServerWish::Caller(parts) => {
                let server = read(parts)?;
                self.permit(&server)?;
                if !taken.insert(server.name.clone()) {
                    let detail = format!("another server of the session is called {} too", server.name);
                    return Err(fault("/name", detail));
                }
                Ok(McpServerChoice::Caller(server))
            }
        }
    }

    /// The servers of a session that goose is started for now. What the configuration says of them counts as it is
    /// now, also what callers may bring.
    #[must_use]
    pub fn resolve(&self, choices: &[McpServerChoice]) -> Resolved {
        let mut resolved = Resolved::default();
        for choice in choices {
            let found = match choice {
                McpServerChoice::Gateway(McpServerSummary { name, .. }) => self
                    .named(name)
                    .cloned()
                    .ok_or_else(|| "the gateway has no such server any more".to_owned()),
                McpServerChoice::Caller(server) => self
                    .permit(server)
                    .map_err(|fault| fault.detail)
                    .map(|()| ToolServer { server: server.clone(), answer_discover: self.answer_discover }),
            };
            match found {
                Ok(server) => resolved.servers.push(server),
                Err(why) => resolved.left_out.push((choice.summary().name, why)),
            }
        }
        resolved
    }

    /// Whether a caller may bring the server.
    fn permit(&self, server: &McpServer) -> Result<(), McpServerFault> {
        // Whoever allowed a tool of the gateway's server has not allowed the caller's of the same name.
        if self.named(&server.name).is_some() {
            let detail =
                format!("{} is one of the gateway's servers: ask for it by its name alone", server.name);
            return Err(fault("/name", detail));
        }
        match &server.transport {
            McpTransport::Stdio { .. } if !self.allowance.stdio => Err(fault(
                "/command",
                "callers may not name commands here (mcp.allow_caller.stdio); the gateway's servers can be asked for by \
                 their names",
            )),
            McpTransport::Http { url, .. } if !self.allowance.hosts.iter().any(|host| host.matches(url)) => {
                let hosts: Vec<String> = self.allowance.hosts.iter().map(ToString::to_string).collect();
                let allowed = if hosts.is_empty() { "none".to_owned() } else { hosts.join(", ") };
                let detail =
                    format!("callers may name servers on these hosts (mcp.allow_caller.hosts): {allowed}");
                Err(fault("/url", detail))
            }
            McpTransport::Stdio { .. } | McpTransport::Http { .. } => Ok(()),
        }
    }

    fn named(&self, name: &str) -> Option<&ToolServer> {
        self.configured.iter().find(|configured| configured.server.name == name)
    }

    fn unknown(&self, name: &str) -> McpServerFault {
        let names: Vec<&str> =
            self.configured.iter().map(|configured| configured.server.name.as_str()).collect();
        let known =
            if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
        // What was asked for may be anything, and long.
        let name: String = name.chars().take(64).collect();
        fault("", format!("the gateway has no server {name:?}; {known}"))
    }
}

/// A name as goose folds it.
#[must_use]
pub fn folded(name: &str) -> String {
    let kept = name.chars().filter(|letter| !letter.is_whitespace()).map(|letter| {
        if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-') {
            letter.to_ascii_lowercase()
        } else {
            '_'
        }
    });
    kept.collect()
}

fn of_gateway(server: &McpServer) -> McpServerChoice {
    McpServerChoice::Gateway(McpServerSummary { name: server.name.clone(), kind: server.kind() })
}

fn fault(field: impl Into<String>, detail: impl Into<String>) -> McpServerFault {
    McpServerFault { field: field.into(), detail: detail.into() }
}

#[cfg(test)]
mod tests;
