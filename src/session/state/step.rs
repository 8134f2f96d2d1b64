//! What one input of the machine leads to.

use crate::session::agent::{AgentCommand, Mode};
use crate::session::audit::By;
use crate::session::event::{EventBody, EventKind};
use crate::session::id::{Timestamp, TurnId};
use crate::session::permission::Permission;
use crate::session::turn::Turn;

/// What one input leads to.
#[derive(Debug)]
pub(in crate::session) struct Step {
    /// When it happens.
    pub(in crate::session) now: Timestamp,
    /// To be appended, in order.
    pub(in crate::session) events: Vec<(EventKind, Option<TurnId>, EventBody)>,
    /// To be written with them; at most one for each record.
    pub(super) turns: Vec<Turn>,
    pub(super) permissions: Vec<Permission>,
    pub(super) session_changed: bool,
    /// Who asked for the state that the session comes to.
    pub(in crate::session) by: Option<By>,
    /// An agent is to be started when the events are committed.
    pub(in crate::session) start_agent: bool,
    /// The agent is to be set to this mode when the events are committed; its prompt waits for that.
    pub(in crate::session) set_mode: Option<Mode>,
    /// To be sent to the agent when the events are committed.
    pub(in crate::session) commands: Vec<AgentCommand>,
}

impl Step {
    pub(in crate::session) fn new(now: Timestamp) -> Self {
        Self {
            now,
            events: Vec::new(),
            turns: Vec::new(),
            permissions: Vec::new(),
            session_changed: false,
            by: None,
            start_agent: false,
            set_mode: None,
            commands: Vec::new(),
        }
    }

    pub(super) fn put_turn(&mut self, turn: Turn) {
        self.turns.retain(|other| other.id != turn.id);
        self.turns.push(turn);
    }

    pub(super) fn put_permission(&mut self, permission: Permission) {
        self.permissions.retain(|other| other.id != permission.id);
        self.permissions.push(permission);
    }
}
