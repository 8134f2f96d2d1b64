//! What the actor's own tasks tell it: what they were started for is done, or not.

use tokio::sync::mpsc;

use crate::session::agent::{AgentFailure, LaunchError, LaunchedAgent, Mode, Notice, SteerFailure, Unfit};
use crate::session::audit::By;
use crate::session::handle::{Refusal, Reply, SessionPatch};
use crate::session::id::MessageId;
use crate::session::snapshot::Snapshot;

/// What the actor's own tasks tell it.
pub(super) enum Finished {
    /// The agent has started, or not.
    Launch(Result<LaunchedAgent, LaunchError>),
    /// The agent is in the mode that a turn waits for, or not.
    Mode { mode: Mode, result: ModeSet },
    /// The agent has taken new settings, with this mode if any, or not.
    Patch {
        by: By,
        patch: SessionPatch,
        agent_mode: Option<Mode>,
        reply: Reply<Snapshot>,
        result: Result<Vec<Notice>, Refusal>,
    },
    /// The agent has taken words for its turn, or not.
    Steer { message: MessageId, reply: Reply<()>, result: Result<(), SteerFailure> },
}

/// Whether the agent is in the mode it was to be set to, and if so, whether it has what gets round that.
pub(super) type ModeSet = Result<Result<Vec<Notice>, Unfit>, AgentFailure>;

/// How the actor's own tasks tell it what they have done.
pub(in crate::session) struct Reports {
    pub(super) sender: mpsc::Sender<Finished>,
    pub(super) receiver: mpsc::Receiver<Finished>,
}

impl Reports {
    pub(in crate::session) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(4);
        Self { sender, receiver }
    }
}
