//! What the agent tells the core.

use serde_json::Value;

use super::{ConfigOption, ExtensionStatus, Notice, Skill, SlashCommand};
use crate::session::id::{MessageId, TurnId};
use crate::session::plan::PlanEntry;
use crate::session::tool_call::ToolCall;
use crate::session::turn::{Cost, TurnErrorClass};

/// What one read from the agent brought, in order. Never empty.
pub type AgentEvents = Vec<AgentEvent>;

/// What it takes to answer a request of the agent: made by the adapter, given back with the answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplyToken(pub String);

/// One of the answers the agent offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentOption {
    /// What the agent wants back.
    pub id: String,
    /// ACP's kind: `allow_once`, `reject_once`, … as open text.
    pub kind: String,
}

/// The agent asks whether a tool may run.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentPermissionRequest {
    /// For the answer.
    pub reply: ReplyToken,
    /// The call, as far as the request tells; the rest was told before under the same id.
    pub tool_call: ToolCall,
    /// The answers the agent takes.
    pub options: Vec<AgentOption>,
    /// Whether this is only the agent writing its own plan.
    pub plan_write: bool,
}

/// Why the agent did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AgentFailure {
    /// For programs.
    pub class: TurnErrorClass,
    /// The agent's JSON-RPC error code, where there was one.
    pub code: Option<i64>,
    /// For people, without secrets.
    pub message: String,
}

/// Why the agent did not take words for the running turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SteerFailure {
    /// The turn is over, or just about to be.
    #[error("the turn is over")]
    TurnOver,
    /// The agent has not begun to work on the turn.
    #[error("the agent has not begun the turn yet")]
    NotBegun,
    /// It takes none.
    #[error("the agent takes no words into a running turn")]
    Unsupported,
    /// It does not take these, or did not answer.
    #[error(transparent)]
    Failed(AgentFailure),
}

/// What one model call used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelCallUsage {
    /// The agent's id of the message that the call made.
    pub message_id: Option<String>,
    /// How long the model took to its first token; `None` when there was none, or the agent does not tell.
    pub first_token_ms: Option<u64>,
    /// Tokens sent.
    pub input_tokens: Option<u64>,
    /// Tokens made.
    pub output_tokens: Option<u64>,
    /// Both.
    pub total_tokens: Option<u64>,
    /// The agent's estimate.
    pub cost: Option<f64>,
}

/// What the agent says about the session's context and totals. Absent is unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContextUsage {
    /// Tokens in the context now.
    pub context_used: Option<u64>,
    /// The context's size.
    pub context_size: Option<u64>,
    /// Sum over the session.
    pub input_tokens: Option<u64>,
    /// Sum over the session.
    pub output_tokens: Option<u64>,
    /// Sum over the session.
    pub cost: Option<Cost>,
}

/// How the agent's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentExit {
    /// For people: `exit code 3`, `signal 9`, or why the gateway gave it up.
    pub how: String,
    /// The end of what it wrote to its standard error, without secrets.
    pub stderr_tail: String,
    /// `AgentExited`, or `AgentUnresponsive` when the gateway gave it up.
    pub class: TurnErrorClass,
}

/// What the agent tells.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentEvent {
    /// A piece of a message.
    MessageChunk {
        /// The agent's id of the message: a change of it begins a new message.
        message_id: Option<String>,
        /// The piece.
        text: String,
    },
    /// A piece of the model's reasoning.
    ThoughtChunk {
        /// As above.
        message_id: Option<String>,
        /// The piece.
        text: String,
    },
    /// Text of the user that the agent echoes: a slash command, or words put into the turn when it uses them.
    UserMessage {
        /// As above.
        message_id: Option<String>,
        /// The text.
        text: String,
    },
    /// The agent has taken words for the running turn and will use them with its next model call.
    Steered {
        /// gander's id of the words.
        message: MessageId,
        /// The agent's id of the message that they become; `None` when it names none.
        agents_id: Option<String>,
    },
    /// A tool call begins.
    ToolCallStarted(ToolCall),
    /// A tool call changes, or ends (by its status).
    ToolCallUpdated(ToolCall),
    /// A tool writes while it runs.
    ToolOutput {
        /// The call.
        tool_call_id: String,
        /// `stdout` or `stderr`.
        stream: String,
        /// What it wrote.
        text: String,
        /// Whether the agent left some out.
        truncated: bool,
    },
    /// The agent asks.
    PermissionRequested(AgentPermissionRequest),
    /// The agent no longer needs the answer.
    PermissionWithdrawn(ReplyToken),
    /// The plan, whole.
    PlanUpdated(Vec<PlanEntry>),
    /// One model call's usage.
    ModelCallUsed(ModelCallUsage),
    /// The session's totals.
    UsageUpdated(ContextUsage),
    /// What a prompt can call, whole.
    CommandsUpdated {
        /// The slash commands, skills among them.
        commands: Vec<SlashCommand>,
        /// The skills.
        skills: Vec<Skill>,
    },
    /// A title the agent made.
    TitleChanged(String),
    /// The agent is in another mode now.
    ModeChanged(String),
    /// The agent's settings, whole.
    ConfigOptionsUpdated(Vec<ConfigOption>),
    /// One extension, as it is now.
    ExtensionChanged(ExtensionStatus),
    /// Something to know.
    Notice(Notice),
    /// What the agent adds to its session's information beyond ACP. For its adapter alone: the core does not read it.
    SessionMeta(Value),
    /// An update this gander does not know: passed on as it is.
    Unknown(Value),
    /// The prompt's answer.
    PromptFinished {
        /// The turn it was sent for.
        turn: TurnId,
        /// ACP's stop reason, or why it failed.
        result: Result<String, AgentFailure>,
    },
    /// The agent is gone; nothing follows.
    Exited(AgentExit),
}
