//! Permission requests: asked by the agent, decided exactly once.

mod change;
mod grant;
mod settings;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use self::change::PolicyPatch;
pub use self::grant::PermissionGrant;
pub use self::settings::PermissionSettings;
use super::id::{PermissionId, SessionId, Timestamp, TurnId};
use super::policy::Action;

/// How far a permission request is. Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PermissionState {
    /// Nobody has decided yet.
    Pending,
    /// A caller or a rule decided.
    Resolved,
    /// Its time ran out.
    Expired,
    /// The turn, the agent or the gateway ended first.
    Cancelled,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The tool may run.
    Allow,
    /// The tool may not run; the turn goes on.
    Reject,
}

/// For how long a decision holds. Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// For this tool call.
    #[default]
    Once,
    /// For this and for such calls in the rest of the session, until it is taken back.
    Session,
}

/// Who or what decided. In JSON: `caller:<name>`, `policy`, `timeout`, `cancel`, `agent_exit`, `restart`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DecidedBy {
    /// The caller of that name.
    Caller(String),
    /// The rules, an earlier answer, the mode, or that nobody would see the question.
    Policy,
    /// `expires_at` passed.
    Timeout,
    /// The turn was cancelled or ended.
    Cancel,
    /// The agent's process ended.
    AgentExit,
    /// The gateway was restarted.
    Restart,
}

impl DecidedBy {
    /// What of it is before the colon, all there are.
    pub const KINDS: [&str; 6] = ["caller", "policy", "timeout", "cancel", "agent_exit", "restart"];
}

impl From<DecidedBy> for String {
    fn from(by: DecidedBy) -> Self {
        match by {
            DecidedBy::Caller(name) => format!("caller:{name}"),
            DecidedBy::Policy => "policy".into(),
            DecidedBy::Timeout => "timeout".into(),
            DecidedBy::Cancel => "cancel".into(),
            DecidedBy::AgentExit => "agent_exit".into(),
            DecidedBy::Restart => "restart".into(),
        }
    }
}

impl TryFrom<String> for DecidedBy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.as_str() {
            "policy" => Ok(Self::Policy),
            "timeout" => Ok(Self::Timeout),
            "cancel" => Ok(Self::Cancel),
            "agent_exit" => Ok(Self::AgentExit),
            "restart" => Ok(Self::Restart),
            other => match other.strip_prefix("caller:") {
                Some(name) => Ok(Self::Caller(name.to_owned())),
                None => Err(format!("unknown decider {other:?}")),
            },
        }
    }
}

/// How a permission request ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// What was decided; whatever was not decided in time is a reject.
    pub decision: Decision,
    /// For how long.
    pub scope: Scope,
    /// By whom.
    #[schema(value_type = String, examples("caller:alice", "policy", "timeout", "cancel"))]
    pub by: DecidedBy,
    /// What of the policy decided: a rule (`server.rules[2]`, `session.rules[0]`), a default (`server.default`) or an
    /// earlier answer (`grant:<id>`); null when it was the mode, or not the policy.
    #[serde(default)]
    #[schema(examples("server.rules[2]"))]
    pub rule: Option<String>,
    /// In the decider's words.
    pub reason: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// The tool call a permission is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PermissionToolCall {
    /// The tool call's id, as in `tool_call.started`.
    pub id: String,
    /// The tool's name.
    pub tool: Option<String>,
    /// The extension that provides it.
    pub extension: Option<String>,
    /// For people.
    pub title: Option<String>,
    /// ACP's tool kind.
    pub kind: Option<String>,
    /// The tool's arguments.
    pub input: Option<Value>,
    /// Where it would run.
    pub cwd: String,
}

/// One way to answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PermissionOption {
    /// What `option_id` takes.
    pub id: String,
    /// For people.
    pub name: String,
    /// ACP's kind of option.
    pub kind: String,
}

impl PermissionOption {
    /// The option of ACP's `kind`, which is its id too.
    #[must_use]
    pub fn new(kind: &str, name: impl Into<String>) -> Self {
        Self { id: kind.into(), name: name.into(), kind: kind.into() }
    }
}

/// What kind of thing is asked for. Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PermissionKind {
    /// To run a tool.
    #[default]
    Tool,
}

/// A permission request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Permission {
    /// gander's id.
    pub id: PermissionId,
    /// The session it belongs to.
    pub session_id: SessionId,
    /// The turn whose tool call it is about.
    pub turn_id: TurnId,
    /// What is asked for.
    pub kind: PermissionKind,
    /// How far it is.
    pub state: PermissionState,
    /// The tool call.
    pub tool_call: PermissionToolCall,
    /// The ways to answer.
    pub options: Vec<PermissionOption>,
    /// When the agent asked.
    pub requested_at: Timestamp,
    /// When it is rejected by itself.
    pub expires_at: Timestamp,
    /// How it ended; null while pending.
    pub outcome: Option<Outcome>,
}

/// A caller's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What the caller decides.
    pub decision: Decision,
    /// For how long.
    pub scope: Scope,
    /// Why, in the caller's words.
    pub reason: Option<String>,
}

/// What would become of a tool call, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Explanation {
    /// What would become of it.
    #[schema(inline)]
    pub decision: Action,
    /// What of the policy decides, as in a permission's outcome.
    #[schema(examples("server.rules[2]"))]
    pub rule: Option<String>,
    /// Why, for people.
    pub reason: String,
}
