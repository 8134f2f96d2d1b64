//! What events tell, checked against what may be told: begun once, ended once, nothing outside its turn.

use std::collections::{HashMap, HashSet, VecDeque};

use super::super::*;
use crate::session::id::MessageId;

/// What is open according to the events alone.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) turns: HashMap<TurnId, TurnState>,
    pub(super) queue: VecDeque<TurnId>,
    pub(super) calls: HashMap<String, bool>,
    pub(super) permissions: HashMap<PermissionId, bool>,
    /// What was put into turns, ever.
    steered: HashSet<MessageId>,
    /// What was put into the running turn and is not used.
    unused: HashSet<MessageId>,
    /// Whether that was said.
    told_unused: bool,
    /// Whether the session is deleted in the end.
    is_deleted: bool,
}

impl Ledger {
    /// An empty one, of a session that is deleted in the end or not.
    pub(super) fn of(is_deleted: bool) -> Self {
        Self { is_deleted, ..Self::default() }
    }

    /// Reads the next event on.
    pub(super) fn read(&mut self, kind: EventKind, turn: Option<TurnId>, body: &EventBody) {
        match (kind, body) {
            (EventKind::TurnQueued, EventBody::Turn { turn, .. }) => {
                assert!(turn.prompt.is_some() && turn.state == TurnState::Queued);
                assert!(self.turns.insert(turn.id, TurnState::Queued).is_none());
                self.queue.push_back(turn.id);
            }
            (EventKind::TurnStarted, EventBody::Turn { turn, .. }) => {
                assert_eq!(self.in_state(TurnState::Running), [], "two turns run");
                match self.turns.insert(turn.id, TurnState::Running) {
                    None => assert!(turn.prompt.is_some() && self.queue.is_empty(), "none overtakes another"),
                    before => {
                        assert_eq!(
                            (before, self.queue.pop_front()),
                            (Some(TurnState::Queued), Some(turn.id))
                        );
                        assert!(turn.prompt.is_none() && turn.started_at.is_some());
                    }
                }
            }
            (EventKind::TurnSteered, EventBody::Steered { message_id, .. }) => {
                assert!(self.steered.insert(*message_id), "words are put into a turn once");
                self.unused.insert(*message_id);
            }
            (EventKind::MessageUser, EventBody::Text { message_id, .. }) => {
                self.unused.remove(message_id);
            }
            (EventKind::Notice, EventBody::Notice { code, .. }) if code == "steer-unused" => {
                assert!(!self.told_unused && !self.unused.is_empty());
                self.told_unused = true;
            }
            (kind, EventBody::Turn { turn, .. }) => {
                assert!(kind.ends_turn() && turn.prompt.is_none() && turn.ended_at.is_some());
                let before = self.turns.insert(turn.id, turn.state);
                assert!(matches!(before, Some(TurnState::Running | TurnState::Queued)), "a turn ends once");
                assert_eq!(before == Some(TurnState::Queued), turn.started_at.is_none());
                self.queue.retain(|queued| *queued != turn.id);
                if before == Some(TurnState::Running) {
                    assert!(
                        self.told_unused != self.unused.is_empty() || self.is_deleted,
                        "nothing is lost unsaid"
                    );
                    self.told_unused = false;
                    self.unused.clear();
                }
            }
            (EventKind::ToolCallStarted, EventBody::ToolCall { tool_call }) => {
                assert_ne!(self.calls.insert(tool_call.id.clone(), true), Some(true), "a call begins once");
            }
            (EventKind::ToolCallFinished, EventBody::ToolCall { tool_call }) => {
                assert_eq!(self.calls.insert(tool_call.id.clone(), false), Some(true), "a call ends once");
            }
            (EventKind::PermissionRequested, EventBody::Permission { permission, .. }) => {
                assert!(self.permissions.insert(permission.id, true).is_none());
            }
            (EventKind::PermissionResolved, EventBody::Permission { permission, .. }) => {
                assert_eq!(
                    self.permissions.insert(permission.id, false),
                    Some(true),
                    "a question is decided once"
                );
            }
            _ => {}
        }
        if let Some(turn) = turn
            && !kind.ends_turn()
            && kind != EventKind::TurnQueued
        {
            assert_eq!(self.turns.get(&turn), Some(&TurnState::Running), "{kind:?} outside its turn");
        }
    }

    pub(super) fn in_state(&self, state: TurnState) -> Vec<TurnId> {
        self.turns.iter().filter(|(_, found)| **found == state).map(|(id, _)| *id).collect()
    }
}
