//! Which events a subscriber gets, and in which form.

use crate::session::event::EventKind;
use crate::session::id::TurnId;
use crate::session::run::Frame;

/// A set of event kinds: one bit for each kind's code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::http) struct EventKinds(u64);

impl EventKinds {
    /// Adds a kind.
    pub(in crate::http) fn insert(&mut self, kind: EventKind) {
        self.0 |= Self::bit(kind);
    }

    /// Whether a kind is in it.
    pub(in crate::http) fn contains(self, kind: EventKind) -> bool {
        self.0 & Self::bit(kind) != 0
    }

    fn bit(kind: EventKind) -> u64 {
        1_u64.checked_shl(u32::from(kind.code())).unwrap_or(0)
    }
}

/// What a stream is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::http) enum Form {
    /// Server-sent events, for `EventSource.addEventListener`.
    #[default]
    Named,
    /// Server-sent events without their `event:` field, for `EventSource.onmessage`.
    Unnamed,
    /// A line of JSON for each event.
    Lines,
}

/// Which events a subscriber gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::http) struct Selection {
    /// Only this turn's; `None`: also what is outside any turn.
    pub(in crate::http) turn: Option<TurnId>,
    /// Only these kinds; `None`: every kind.
    pub(in crate::http) kinds: Option<EventKinds>,
}

impl Selection {
    /// Whether nothing is left out.
    pub(in crate::http) fn is_everything(self) -> bool {
        self.turn.is_none() && self.kinds.is_none()
    }

    /// Whether what agents ask is selected.
    pub(in crate::http) fn has_questions(self) -> bool {
        self.kinds.is_none_or(|kinds| kinds.contains(EventKind::PermissionRequested))
    }

    /// Whether an event is selected.
    pub(in crate::http) fn takes(self, frame: &Frame<'_>) -> bool {
        self.turn.is_none_or(|turn| frame.turn == Some(turn))
            && self.kinds.is_none_or(|kinds| kinds.contains(frame.kind))
    }
}
