//! What the actor holds of its agent.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::session::agent::{Agent, AgentEvents, AgentExit};
use crate::session::registry::Place;

/// The agent's side of the actor.
pub(in crate::session) struct Child {
    pub(in crate::session) agent: Option<Arc<dyn Agent>>,
    pub(in crate::session) events: mpsc::Receiver<AgentEvents>,
    /// Ends a start that is under way.
    pub(in crate::session) cancel: CancellationToken,
    /// The agent's end, when it came before the news of its start.
    pub(in crate::session) early_exit: Option<AgentExit>,
    /// The place among the running agents.
    pub(in crate::session) place: Option<Place>,
    /// Whether the start is under way.
    pub(in crate::session) launching: bool,
    /// Whether the agent may still say something.
    pub(in crate::session) listening: bool,
}

impl Child {
    /// No agent, and none to come.
    pub(in crate::session) fn none() -> Self {
        let (_, events) = mpsc::channel(1);
        Self {
            agent: None,
            events,
            cancel: CancellationToken::new(),
            early_exit: None,
            place: None,
            launching: false,
            listening: false,
        }
    }
}
