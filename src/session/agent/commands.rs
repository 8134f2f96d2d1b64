//! What a prompt can call by name.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A slash command that the agent offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlashCommand {
    /// Without the slash.
    pub name: String,
    /// For people.
    pub description: String,
    /// What it is, as open text: `builtin`, `skill`, …; null when the agent does not say.
    #[serde(default)]
    pub kind: Option<String>,
}

/// A skill that the agent has found: it uses it by itself where the description fits, and when a prompt calls it as a
/// slash command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Skill {
    /// Also the slash command's.
    pub name: String,
    /// When to use it.
    pub description: String,
    /// Its folder, relative to the session's directory; null of one that is the agent's own, or not in the directory.
    pub path: Option<String>,
}
