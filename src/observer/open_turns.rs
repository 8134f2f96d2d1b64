//! What an observer knows of turns that have not ended.

use std::collections::BTreeMap;

use crate::session::id::{SessionNumber, TurnId};

/// How many turns an observer remembers something of at a time. Fewer agents run; of older turns over this bound less is
/// recorded.
const TURNS_REMEMBERED: usize = 4096;

/// The newest `TURNS_REMEMBERED` of the turns that have not ended. The end of a turn need not be told: its session may
/// be deleted before anybody reads of it.
#[derive(Debug)]
pub struct OpenTurns<T>(BTreeMap<TurnId, (SessionNumber, T)>);

impl<T> Default for OpenTurns<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> OpenTurns<T> {
    /// What is known of a turn, from now on. Where there are too many, the oldest is forgotten for it.
    pub fn remember(&mut self, session: SessionNumber, turn: TurnId, new: impl FnOnce() -> T) -> &mut T {
        if self.0.len() >= TURNS_REMEMBERED && !self.0.contains_key(&turn) {
            // Ids of turns are in the order in which they were asked for.
            self.0.pop_first();
        }
        &mut self.0.entry(turn).or_insert_with(|| (session, new())).1
    }

    /// What is known of a turn.
    #[must_use]
    pub fn get(&self, turn: TurnId) -> Option<&T> {
        self.0.get(&turn).map(|(_, known)| known)
    }

    /// What is known of a turn, to add to it.
    pub fn get_mut(&mut self, turn: TurnId) -> Option<&mut T> {
        self.0.get_mut(&turn).map(|(_, known)| known)
    }

    /// Forgets a turn. Gives what was known of it.
    pub fn remove(&mut self, turn: TurnId) -> Option<T> {
        self.0.remove(&turn).map(|(_, known)| known)
    }

    /// Forgets a session's turns.
    pub fn remove_session(&mut self, session: SessionNumber) {
        self.0.retain(|_, (of, _)| *of != session);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
