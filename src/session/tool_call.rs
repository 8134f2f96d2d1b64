//! Tool calls of the agent.

pub mod content;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use self::content::ToolCallContent;

/// How far a tool call is. Open: callers ignore values they do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolCallStatus {
    /// Announced, not begun.
    Pending,
    /// Running.
    InProgress,
    /// Ended well.
    Completed,
    /// Ended badly.
    Failed,
    /// A permission was refused, so it did not run.
    Rejected,
    /// Not run, since the agent only chats.
    Skipped,
    /// Not finished when its turn ended.
    Cancelled,
}

impl ToolCallStatus {
    /// Whether nothing follows.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Pending | Self::InProgress)
    }
}

/// A tool call as callers see it; in `tool_call.updated` and `tool_call.finished` what did not change is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolCall {
    /// The agent's id of the call (made by the model, may repeat in a session).
    pub id: String,
    /// The tool's name as the model calls it, e.g. `shell`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The extension that provides the tool, e.g. `developer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<String>,
    /// For people, e.g. `shell · ls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// ACP's tool kind (`read`, `edit`, `execute`, …), as open text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ToolCallStatus>,
    /// The tool's arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Files it touches: `{path, line}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locations: Option<Vec<Value>>,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<ToolCallContent>>)]
    pub content: Option<Vec<Value>>,
    /// What it gave, in the tool's own structure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

impl ToolCall {
    /// Takes over what `update` carries. ACP: what is absent is unchanged, lists are replaced whole.
    pub fn merge(&mut self, update: ToolCall) {
        fn take<T>(into: &mut Option<T>, from: Option<T>) {
            if from.is_some() {
                *into = from;
            }
        }
        take(&mut self.tool, update.tool);
        take(&mut self.extension, update.extension);
        take(&mut self.title, update.title);
        take(&mut self.kind, update.kind);
        take(&mut self.status, update.status);
        take(&mut self.input, update.input);
        take(&mut self.locations, update.locations);
        take(&mut self.content, update.content);
        take(&mut self.output, update.output);
    }

    /// Whether an update says nothing but the call's id.
    #[must_use]
    pub fn is_empty_update(&self) -> bool {
        *self == Self { id: self.id.clone(), ..Self::default() }
    }
}
