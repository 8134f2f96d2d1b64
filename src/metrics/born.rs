//! Series that are there before anything has happened: a rule that watches a counter grow (`increase`) misses the first
//! time of a series that begins with it.

use super::{Figures, PermissionLabels, StartLabels, TurnLabels};
use crate::session::permission::{DecidedBy, Decision};
use crate::session::turn::{TurnErrorClass, TurnState};

/// As events have it.
fn name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
}

impl Figures {
    /// Begins every series with few labels at 0.
    pub(super) fn begin_at_zero(&self) {
        for state in [TurnState::Completed, TurnState::Cancelled] {
            self.turn(state, String::new());
        }
        for state in [TurnState::Failed, TurnState::Interrupted] {
            for class in TurnErrorClass::ALL {
                self.turn(state, name(&class));
            }
        }
        for by in DecidedBy::KINDS {
            for decision in [Decision::Allow, Decision::Reject] {
                let labels = PermissionLabels { by: by.to_owned(), decision: name(&decision) };
                self.permissions.get_or_create(&labels).inc_by(0);
            }
        }
        for kind in ["new", "wake"] {
            self.agent_starts.get_or_create(&StartLabels { kind }).inc_by(0);
        }
    }

    fn turn(&self, state: TurnState, class: String) {
        self.turns.get_or_create(&TurnLabels { state: state.as_str(), class }).inc_by(0);
    }
}
