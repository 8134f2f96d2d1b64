//! A session at one moment: all a page needs to draw itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::agent::servers::{McpServerChoice, McpServerSummary};
use super::agent::{ConfigOption, ExtensionStatus, LaunchSpec, Mode, Notice, Skill, SlashCommand};
use super::id::{EventId, SessionId, Timestamp};
use super::permission::Permission;
use super::plan::Plan;
use super::policy::PermissionPolicy;
use super::tool_call::ToolCall;
use super::turn::{Cost, Turn};

/// What a session is doing. Open: callers ignore values they do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// The agent gets ready.
    Starting,
    /// Ready for a prompt.
    Idle,
    /// A turn runs.
    Running,
    /// A turn waits for a caller's answer.
    AwaitingPermission,
    /// A turn is being cancelled.
    Cancelling,
    /// No agent runs; the next turn wakes one that goes on where the last one was.
    Hibernated,
    /// The agent did not start; the next turn tries again.
    Failed,
}

impl SessionState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Starting,
        Self::Idle,
        Self::Running,
        Self::AwaitingPermission,
        Self::Cancelling,
        Self::Hibernated,
        Self::Failed,
    ];

    /// As in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Idle => "idle",
            Self::Running => "running",
            Self::AwaitingPermission => "awaiting_permission",
            Self::Cancelling => "cancelling",
            Self::Hibernated => "hibernated",
            Self::Failed => "failed",
        }
    }
}

/// Tokens and cost of a session. What is not known is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SessionUsage {
    /// Tokens in the context now.
    pub context_used: Option<u64>,
    /// The context's size.
    pub context_size: Option<u64>,
    /// Tokens sent to the model, over the session.
    pub input_tokens: Option<u64>,
    /// Tokens the model made, over the session.
    pub output_tokens: Option<u64>,
    /// Both.
    pub total_tokens: Option<u64>,
    /// The agent's estimate.
    pub cost: Option<Cost>,
}

/// The agent behind a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentSummary {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// How gander talks to it: `stdio`.
    pub transport: String,
    /// The mode it runs in: stricter than the session's own where rules ask or reject.
    pub mode: String,
    /// Its own process id; null when none runs.
    pub pid: Option<u32>,
    /// Counts the processes this session has had.
    pub generation: u32,
}

/// A session at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// gander's id.
    pub id: SessionId,
    /// The caller that made it.
    pub owner: String,
    /// What it is doing.
    pub state: SessionState,
    /// Why, when it failed.
    pub state_reason: Option<String>,
    /// Where the agent works; null until a folder of the session's own is made.
    pub cwd: Option<String>,
    /// Set by a caller, else made by the agent.
    pub title: Option<String>,
    /// The caller's own notes.
    pub metadata: BTreeMap<String, String>,
    /// The mode callers asked for.
    pub mode: Mode,
    /// The model's provider.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// How much the model thinks; null when it offers no choice.
    #[serde(default)]
    pub thinking_effort: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The last event this snapshot includes: read on with `?after=`.
    pub last_event_id: EventId,
    /// The running turn.
    pub current_turn: Option<Turn>,
    /// The turns that wait for it, the next one first, without their prompts.
    #[serde(default)]
    pub queued_turns: Vec<Turn>,
    /// The plan.
    pub plan: Plan,
    /// What waits for an answer.
    pub pending_permissions: Vec<Permission>,
    /// What the session's callers have set beside the gateway's own rules.
    #[serde(default)]
    pub permission_policy: PermissionPolicy,
    /// What runs or waits to.
    pub open_tool_calls: Vec<ToolCall>,
    /// Tokens and cost.
    pub usage: SessionUsage,
    /// The extensions and whether they loaded, tool servers among them.
    pub extensions: Vec<ExtensionStatus>,
    /// The tool servers asked for; whether they loaded is in `extensions`.
    #[serde(default)]
    pub mcp_servers: Vec<McpServerSummary>,
    /// The skills that the agent has found.
    #[serde(default)]
    pub skills: Vec<Skill>,
    /// The latest notices, oldest first.
    pub notices: Vec<Notice>,
    /// The slash commands.
    pub commands: Vec<SlashCommand>,
    /// The agent's settings.
    pub config_options: Vec<ConfigOption>,
    /// The agent; null until one has started.
    pub agent: Option<AgentSummary>,
}

impl Snapshot {
    /// A session that begins: what `launch` asks for, and nothing else yet.
    #[must_use]
    pub fn new(owner: impl Into<String>, launch: &LaunchSpec, now: Timestamp) -> Self {
        Self {
            id: SessionId::new(),
            owner: owner.into(),
            state: SessionState::Starting,
            state_reason: None,
            cwd: launch.cwd.as_ref().map(|cwd| cwd.to_string_lossy().into_owned()),
            title: None,
            metadata: BTreeMap::new(),
            mode: launch.mode,
            provider: launch.provider.clone(),
            model: launch.model.clone(),
            thinking_effort: launch.thinking_effort.clone(),
            created_at: now,
            updated_at: now,
            last_event_id: EventId(0),
            current_turn: None,
            queued_turns: Vec::new(),
            plan: Plan::default(),
            pending_permissions: Vec::new(),
            permission_policy: PermissionPolicy::default(),
            open_tool_calls: Vec::new(),
            usage: SessionUsage::default(),
            extensions: Vec::new(),
            mcp_servers: launch.mcp_servers.iter().map(McpServerChoice::summary).collect(),
            skills: Vec::new(),
            notices: Vec::new(),
            commands: Vec::new(),
            config_options: Vec::new(),
            agent: None,
        }
    }
}
