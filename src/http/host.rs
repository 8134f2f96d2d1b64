//! The port to what the gateway knows about itself and its host; implemented where everything is wired together.

use serde::Serialize;
use utoipa::ToSchema;

use crate::metrics::Moment;
use crate::session::agent::BoxFuture;
use crate::session::agent::servers::{McpServerChoice, McpServerFault, McpServerWish};

/// The agent's program, as found on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentProgram {
    /// Its name, e.g. `goose`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Why the agent's program cannot be used. The text names no path of the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AgentUnusable(pub String);

/// One extension that the agent has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Extension {
    /// The catalogue's key, as `builtins` and `disabled_extensions` take it.
    #[schema(examples("developer"))]
    pub name: String,
    /// Whether goose 1.52 switches it on by itself; null when it is not among that goose's extensions.
    pub default: Option<bool>,
    /// What it gives the agent, for people.
    pub provides: String,
    /// Whether it means little in a home of the session's own (`goose.home`): it is about other sessions, or goes on
    /// after this one.
    pub needs_shared_home: bool,
    /// Whether a session has it that says nothing of extensions, with the goose and the configuration of this gateway;
    /// null when that is not known.
    pub effective: Option<bool>,
}

/// The extensions that the agent has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extensions {
    /// In the order to show them.
    pub extensions: Vec<Extension>,
    /// Why what is effective is not known; for people, without a path.
    pub effective_error: Option<String>,
}

/// What a session wants with an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionWish {
    /// To have it (`builtins`).
    Have,
    /// To be without it (`disabled_extensions`).
    BeWithout,
}

/// Why a session cannot have its wish.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtensionRefusal {
    /// The agent has no such extension.
    #[error("the agent has no extension of this name{}", did_you_mean(nearest))]
    Unknown {
        /// Names that look like it, the nearest first.
        nearest: Vec<&'static str>,
    },
    /// A session may only narrow what the gateway's owner allows.
    #[error("the gateway's owner has switched this extension off")]
    SwitchedOff,
    /// All sessions share a process, which is started without it.
    #[error(
        "all sessions share one agent process (goose.transport), which is not started with this extension"
    )]
    NotShared,
}

fn did_you_mean(nearest: &[&'static str]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", nearest.join(" or ")) }
}

/// What the gateway knows about itself and its host.
pub trait HostFacts: Send + Sync + 'static {
    /// gander's own version.
    fn version(&self) -> &str;

    /// How gander talks to agents: `stdio` or `websocket`.
    fn transport(&self) -> &str;

    /// Whether a session can have environment variables of its own. It cannot where all sessions share a process.
    fn sessions_have_environments(&self) -> bool;

    /// Whether the built-in scripted model stands in for a provider.
    fn demo(&self) -> bool;

    /// Looks for the agent's program. Called on every readiness check: an implementation remembers for a while.
    fn agent(&self) -> BoxFuture<Result<AgentProgram, AgentUnusable>>;

    /// Whether the store takes something now.
    fn storage_writable(&self) -> BoxFuture<bool>;

    /// What the figures say of this moment, but for what the HTTP side knows itself.
    fn moment(&self) -> BoxFuture<Moment>;

    /// The extensions that a session can have. The agent's program is asked for those that only it knows; an
    /// implementation remembers its answer.
    fn extensions(&self) -> BoxFuture<Extensions>;

    /// Whether a session can have its wish for an extension; `name` may be written in any way that the agent
    /// understands. What only the agent's program knows counts once [`HostFacts::extensions`] has asked it.
    fn check_extension(&self, name: &str, wish: ExtensionWish) -> Result<(), ExtensionRefusal>;

    /// The tool servers of a session that has these wishes; without any, all of the gateway's.
    ///
    /// # Errors
    /// What is wrong with each wish, by its place in the list.
    fn choose_servers(
        &self,
        wishes: Option<Vec<McpServerWish>>,
    ) -> Result<Vec<McpServerChoice>, Vec<(usize, McpServerFault)>>;
}
