//! What a session tells its subscribers.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::agent::{ConfigOption, ExtensionStatus, Mode, NoticeLevel, Skill, SlashCommand};
use super::audit::By;
use super::id::{MessageId, SessionId};
use super::permission::{Permission, PermissionGrant};
use super::plan::Plan;
use super::policy::PermissionPolicy;
use super::snapshot::{AgentSummary, SessionState, SessionUsage};
use super::tool_call::ToolCall;
use super::turn::{Prompt, Turn};

macro_rules! event_kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal $text:literal,)*) => {
        /// The type of an event. The number is how the store keeps it: never give one out twice.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum EventKind {
            $($(#[$doc])* $name = $code,)*
        }

        impl EventKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As in the API, e.g. `message.delta`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// The kind kept as `code`.
            #[must_use]
            pub fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// How the store keeps it.
            #[must_use]
            pub fn code(self) -> u8 {
                self as u8
            }
        }
    };
}

event_kinds! {
    /// The session exists.
    SessionCreated = 1 "session.created",
    /// A field of the session changed.
    SessionUpdated = 2 "session.updated",
    /// The session is gone; the last event of its log.
    SessionDeleted = 3 "session.deleted",
    /// The session's state changed.
    SessionState = 4 "session.state",
    /// A turn began.
    TurnStarted = 5 "turn.started",
    /// A turn ended as the agent says.
    TurnCompleted = 6 "turn.completed",
    /// A turn failed.
    TurnFailed = 7 "turn.failed",
    /// A turn was cancelled.
    TurnCancelled = 8 "turn.cancelled",
    /// A turn was cut off.
    TurnInterrupted = 9 "turn.interrupted",
    /// A piece of a message.
    MessageDelta = 10 "message.delta",
    /// A piece of reasoning.
    ThoughtDelta = 11 "thought.delta",
    /// Text of the user that the agent echoes.
    MessageUser = 12 "message.user",
    /// A tool call began.
    ToolCallStarted = 13 "tool_call.started",
    /// A tool call changed.
    ToolCallUpdated = 14 "tool_call.updated",
    /// A tool writes.
    ToolCallOutput = 15 "tool_call.output",
    /// A tool call ended.
    ToolCallFinished = 16 "tool_call.finished",
    /// The plan changed.
    PlanUpdated = 17 "plan.updated",
    /// The agent asks.
    PermissionRequested = 18 "permission.requested",
    /// A request was decided.
    PermissionResolved = 19 "permission.resolved",
    /// Tokens and cost changed.
    UsageUpdated = 20 "usage.updated",
    /// The slash commands or the skills changed.
    CommandsUpdated = 21 "commands.updated",
    /// Something to know.
    Notice = 22 "notice",
    /// An update this gander does not know.
    AgentUpdate = 23 "agent.update",
    /// A turn waits for those before it; `turn.started` or the turn's end follows.
    TurnQueued = 24 "turn.queued",
    /// The agent has taken words for a running turn.
    TurnSteered = 25 "turn.steered",
}

impl EventKind {
    /// The kind of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }

    /// Whether it is a turn's last event.
    #[must_use]
    pub fn ends_turn(self) -> bool {
        matches!(self, Self::TurnCompleted | Self::TurnFailed | Self::TurnCancelled | Self::TurnInterrupted)
    }
}

/// The fields of a session that changed; the rest is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct SessionChange {
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<SessionId>,
    /// Who made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Where the agent works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The title; null when it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub title: Option<Option<String>>,
    /// The metadata, whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// The mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The thinking effort; null when the model offers no choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub thinking_effort: Option<Option<String>>,
    /// The session's permission policy, whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_policy: Option<PermissionPolicy>,
    /// What "always" has remembered, whole, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_grants: Option<Vec<PermissionGrant>>,
    /// The extensions, whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Vec<ExtensionStatus>>,
    /// The agent's settings, whole but for long lists of choices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_options: Option<Vec<ConfigOption>>,
    /// The agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentSummary>,
    /// Who caused the change: a caller's name; absent when the agent did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub by: Option<By>,
}

/// What an event carries besides `id`, `type`, `session_id`, `turn_id` and `time`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum EventBody {
    /// `session.created`, `session.updated`, `session.deleted`.
    Session {
        /// What changed.
        session: Box<SessionChange>,
    },
    /// `session.state`.
    State {
        /// The new state.
        state: SessionState,
        /// Why, for people.
        reason: Option<String>,
        /// The caller who asked for it: on `hibernated` and `cancelling`.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<By>,
    },
    /// `turn.*` but `turn.steered`.
    Turn {
        /// The turn.
        turn: Box<Turn>,
        /// The caller who caused it, on the turn's first event and on a cancelled turn's end.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<By>,
    },
    /// `turn.steered`.
    Steered {
        /// The turn, as it is.
        turn: Box<Turn>,
        /// The `message_id` of the `message.user` that comes when the agent uses the words.
        message_id: MessageId,
        /// The words.
        prompt: Prompt,
        /// The caller whose words they are.
        by: By,
    },
    /// `message.delta`, `thought.delta`, `message.user`.
    Text {
        /// All pieces of one message carry the same id.
        message_id: MessageId,
        /// The piece.
        text: String,
    },
    /// `tool_call.started`, `.updated`, `.finished`.
    ToolCall {
        /// The call.
        tool_call: Box<ToolCall>,
    },
    /// `tool_call.output`.
    Output {
        /// The call.
        tool_call_id: String,
        /// `stdout` or `stderr`.
        stream: String,
        /// What it wrote.
        text: String,
        /// Present and true on the last one when there was more than is kept.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        truncated: bool,
    },
    /// `plan.updated`.
    Plan {
        /// The plan, whole.
        plan: Plan,
    },
    /// `permission.requested`, `permission.resolved`.
    Permission {
        /// The permission.
        permission: Box<Permission>,
        /// Who answered it; in JSON it is in the permission's outcome.
        #[serde(skip)]
        by: Option<By>,
    },
    /// `usage.updated`.
    Usage {
        /// The session's usage.
        usage: SessionUsage,
    },
    /// `commands.updated`.
    Commands {
        /// The slash commands, whole.
        commands: Vec<SlashCommand>,
        /// The skills, whole.
        skills: Vec<Skill>,
    },
    /// `notice`.
    Notice {
        /// How serious.
        level: NoticeLevel,
        /// For programs.
        code: String,
        /// For people.
        message: String,
    },
    /// `agent.update`.
    Raw {
        /// The agent's update as it came.
        raw: Value,
    },
}
