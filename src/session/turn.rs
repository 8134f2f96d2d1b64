//! Prompt turns: what a caller asked, how it ended, what it used.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::id::{EventId, SessionId, Timestamp, TurnId};

/// What a caller asks the agent: plain text, or ACP content blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Prompt {
    /// One block of text.
    Text(String),
    /// ACP content blocks (`{"type": "text", "text": "…"}`, …), passed on as they are, but for links to files of the session,
    /// which get their real paths.
    Blocks(Vec<Value>),
}

impl Prompt {
    /// About how many bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Blocks(blocks) => serde_json::to_vec(blocks).map_or(0, |json| json.len()),
        }
    }

    /// The content blocks that ACP's `session/prompt` takes.
    #[must_use]
    pub fn into_blocks(self) -> Vec<Value> {
        match self {
            Self::Text(text) => vec![serde_json::json!({"type": "text", "text": text})],
            Self::Blocks(blocks) => blocks,
        }
    }
}

/// What becomes of a prompt while the session works on another, starts, or finds no place among the running agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenBusy {
    /// It is refused.
    #[default]
    Reject,
    /// Its turn waits for those before it.
    Queue,
}

/// How far a turn is. Open: callers ignore values they do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnState {
    /// It waits for those before it.
    Queued,
    /// The agent works on it.
    Running,
    /// The agent finished it.
    Completed,
    /// The agent or its model failed.
    Failed,
    /// A caller cancelled it.
    Cancelled,
    /// The agent or the gateway died.
    Interrupted,
}

impl TurnState {
    /// As in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Why a turn failed, for programs. Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnErrorClass {
    /// The model's provider refused the key.
    ProviderAuth,
    /// The model's provider takes no more requests for now.
    ProviderRateLimit,
    /// The model's provider cannot be reached, fails, or breaks off its answer.
    ProviderUnavailable,
    /// The model's provider does not take the request: an unknown model, too long a conversation, no credit left.
    ProviderRejected,
    /// The model's answer is empty.
    ProviderEmpty,
    /// No provider is set up.
    ProviderNotConfigured,
    /// The agent's process ended.
    AgentExited,
    /// The agent does not take what it is sent.
    AgentUnresponsive,
    /// The agent answered the prompt with an error.
    AgentError,
    /// The gateway was restarted.
    GatewayRestarted,
    /// Nothing could be written when the turn was begun; the agent was not asked.
    StorageUnavailable,
    /// What the prompt links was not what it had been when the prompt was taken, or could not be looked at, which may
    /// be otherwise later; the agent was not asked.
    PromptRefused,
    /// The agent did not start.
    StartFailed,
    /// The turn took longer than a turn may.
    Deadline,
}

impl TurnErrorClass {
    /// All there are.
    pub const ALL: [Self; 14] = [
        Self::ProviderAuth,
        Self::ProviderRateLimit,
        Self::ProviderUnavailable,
        Self::ProviderRejected,
        Self::ProviderEmpty,
        Self::ProviderNotConfigured,
        Self::AgentExited,
        Self::AgentUnresponsive,
        Self::AgentError,
        Self::GatewayRestarted,
        Self::StorageUnavailable,
        Self::PromptRefused,
        Self::StartFailed,
        Self::Deadline,
    ];

    /// Whether the same prompt may work later without anybody changing something.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        match self {
            Self::ProviderRateLimit
            | Self::ProviderUnavailable
            | Self::ProviderEmpty
            | Self::AgentExited
            | Self::AgentUnresponsive
            | Self::GatewayRestarted
            | Self::StartFailed
            | Self::StorageUnavailable => true,
            Self::ProviderAuth
            | Self::ProviderRejected
            | Self::ProviderNotConfigured
            | Self::AgentError
            | Self::PromptRefused
            | Self::Deadline => false,
        }
    }
}

/// Why a turn failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TurnError {
    /// For programs.
    pub class: TurnErrorClass,
    /// For people.
    pub message: String,
    /// Whether the same prompt may work later.
    pub retryable: bool,
}

/// Tokens and cost. What is not known is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TurnUsage {
    /// Tokens sent to the model, summed over the turn's model calls, those for a summary of the conversation among them.
    pub input_tokens: Option<u64>,
    /// Tokens the model made.
    pub output_tokens: Option<u64>,
    /// Both.
    pub total_tokens: Option<u64>,
    /// The agent's estimate.
    pub cost: Option<Cost>,
}

/// An amount of money.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cost {
    /// In units of the currency.
    pub amount: f64,
    /// ISO 4217.
    pub currency: String,
}

/// A prompt turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Turn {
    /// gander's id.
    pub id: TurnId,
    /// The session it belongs to.
    pub session_id: SessionId,
    /// How far it is.
    pub state: TurnState,
    /// What was asked. Among a turn's events only the first has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Prompt>,
    /// The agent's last message; null until the turn has ended.
    pub text: Option<String>,
    /// ACP's stop reason, as open text.
    pub stop_reason: Option<String>,
    /// Why it failed or was interrupted.
    pub error: Option<TurnError>,
    /// The sum over the turn's model calls, when the agent tells.
    pub usage: Option<TurnUsage>,
    /// When the caller asked.
    pub created_at: Timestamp,
    /// When the agent was given it; null while it is queued.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Its first event: `turn.queued` when it had to wait, else `turn.started`.
    pub first_event_id: EventId,
    /// Its last event, once it has ended.
    pub last_event_id: Option<EventId>,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub request_id: Option<String>,
    /// The W3C trace context of that request, when it is traced: the turn's span is a child of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, examples("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))]
    pub traceparent: Option<String>,
}
