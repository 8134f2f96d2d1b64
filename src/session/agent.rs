//! The port to the agent: what the core tells it and what it tells the core.
//!
//! Architecture invariant: nothing here names JSON-RPC, a transport or goose. An adapter turns a running agent
//! into an [`Agent`] and a channel of [`AgentEvent`] batches.

pub mod client_tools;
mod commands;
mod event;
pub mod servers;
pub mod settings;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

pub use self::commands::{Skill, SlashCommand};
pub use self::event::{
    AgentEvent, AgentEvents, AgentExit, AgentFailure, AgentOption, AgentPermissionRequest, ContextUsage,
    ModelCallUsage, ReplyToken, SteerFailure,
};
use self::servers::McpServerChoice;
pub use self::settings::{ConfigChoice, ConfigOption, Setting};
use super::id::{MessageId, SessionId, TurnId};

/// A future that a trait object can return.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// The mode the agent decides in (ACP's session mode).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Runs every tool unasked.
    Auto,
    /// Asks before every tool call.
    Approve,
    /// Asks unless the agent, or its model, holds the tool for harmless.
    SmartApprove,
    /// Runs no tool.
    Chat,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Approve, Self::SmartApprove, Self::Chat];

    /// As in ACP and in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Approve => "approve",
            Self::SmartApprove => "smart_approve",
            Self::Chat => "chat",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }
}

/// How a session's agent is to be started. Kept with the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// Where the agent works: an absolute, existing folder. `None`: a folder of the session's own, made by the adapter.
    pub cwd: Option<PathBuf>,
    /// The mode asked for.
    pub mode: Mode,
    /// The provider asked for; `None`: what the agent's own configuration says.
    pub provider: Option<String>,
    /// The model asked for; `None`: the agent's choice.
    pub model: Option<String>,
    /// The thinking effort asked for; `None`: the agent's choice.
    #[serde(default)]
    pub thinking_effort: Option<String>,
    /// The session's own list of extensions to add; `None`: the server's.
    pub builtins: Option<Vec<String>>,
    /// Extensions to switch off, besides the server's.
    pub disabled_extensions: Vec<String>,
    /// The caller's environment variables, allowed ones only.
    pub env: BTreeMap<String, String>,
    /// The extensions without which the agent does not start.
    #[serde(default)]
    pub require_extensions: Vec<String>,
    /// The tool servers to have.
    #[serde(default)]
    pub mcp_servers: Vec<McpServerChoice>,
}

impl LaunchSpec {
    /// In a folder of the session's own, with the agent's provider and the server's extensions.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self {
            cwd: None,
            mode,
            provider: None,
            model: None,
            thinking_effort: None,
            builtins: None,
            disabled_extensions: Vec::new(),
            env: BTreeMap::new(),
            require_extensions: Vec::new(),
            mcp_servers: Vec::new(),
        }
    }
}

/// The agent's own id of a session, by which another of its processes goes on with it. For the adapter only: callers
/// never see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResumeToken(pub String);

/// How an agent goes on with a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// Which session.
    pub token: ResumeToken,
    /// The extensions that its last agent had, by their names in [`ExtensionStatus`].
    pub extensions: Vec<String>,
}

/// One extension and whether it loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExtensionStatus {
    /// The catalogue's key.
    pub name: String,
    /// Whether its tools are there.
    pub loaded: bool,
    /// Why not.
    pub error: Option<String>,
}

/// What a started agent says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentFacts {
    /// Its name, e.g. `goose`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `stdio`.
    pub transport: &'static str,
    /// Its own process id.
    pub pid: Option<u32>,
    /// Where it works.
    pub cwd: PathBuf,
    /// The mode it is in; checked by the adapter to be the one asked for.
    pub mode: Mode,
    /// The extensions and whether they loaded.
    pub extensions: Vec<ExtensionStatus>,
    /// Its settings.
    pub config_options: Vec<ConfigOption>,
    /// The thinking effort that a new session has when nobody asks for one; `None` of one that goes on.
    pub default_effort: Option<String>,
}

/// How serious a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoticeLevel {
    /// Good to know.
    Info,
    /// Something does not work as asked.
    Warning,
    /// Something failed.
    Error,
}

/// Something a caller should know that is neither an answer nor an error of theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Notice {
    /// How serious.
    pub level: NoticeLevel,
    /// For programs, e.g. `extension-failed`.
    pub code: String,
    /// For people.
    pub message: String,
}

/// How a permission request of the agent is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionReply {
    /// One of the agent's options.
    Selected(String),
    /// The turn is over.
    Cancelled,
}

/// What the core tells the agent.
#[derive(Debug)]
pub enum AgentCommand {
    /// Begins a turn; answered by [`AgentEvent::PromptFinished`].
    Prompt {
        /// The turn.
        turn: TurnId,
        /// ACP content blocks.
        content: Vec<Value>,
    },
    /// Ends the running turn.
    Cancel,
    /// Answers a permission request.
    AnswerPermission {
        /// Which.
        reply: ReplyToken,
        /// How.
        answer: PermissionReply,
    },
    /// Puts words into the running turn. When the agent takes them, [`AgentEvent::Steered`] comes at that place among
    /// what it says, and `done` is told behind it.
    Steer {
        /// The turn.
        turn: TurnId,
        /// gander's id of the words.
        message: MessageId,
        /// ACP content blocks.
        content: Vec<Value>,
        /// Told when the agent has answered.
        done: oneshot::Sender<Result<(), SteerFailure>>,
    },
    /// Changes the mode.
    SetMode {
        /// To what.
        mode: Mode,
        /// Told when the agent has answered, behind the events it sent before.
        done: oneshot::Sender<Result<(), AgentFailure>>,
    },
    /// Changes a setting.
    SetConfigOption {
        /// The option's id.
        id: String,
        /// To what.
        value: String,
        /// Told when the agent has answered, behind the events it sent before, with all settings as they are now.
        done: oneshot::Sender<Result<Vec<ConfigOption>, AgentFailure>>,
    },
}

/// The agent does not take commands: it is gone, or its bounded queue is full because it reads nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent takes no commands")]
pub struct AgentGone;

/// Why an agent must not go on: it would do things unasked. For people, without a path of the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(pub String);

/// What a sweep did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// How many processes were killed.
    pub killed: usize,
    /// Whether nothing was left to kill at its end.
    pub complete: bool,
}

/// A running agent.
pub trait Agent: Send + Sync + 'static {
    /// Queues a command. Never waits: the caller is the one who empties the agent's events, and waiting for a full
    /// queue could then wait for itself.
    fn send(&self, command: AgentCommand) -> Result<(), AgentGone>;

    /// Gets ready for a turn: looks whether the agent would ask as it should, and remembers what runs now, so that
    /// [`Agent::sweep`] spares it.
    fn prepare_turn(&self) -> BoxFuture<Result<(), Unfit>>;

    /// After it was set to `mode`: unloads extensions that do not belong to the session. Gives what callers should know.
    fn check_extensions(&self, mode: Mode) -> BoxFuture<Result<Vec<Notice>, Unfit>>;

    /// Kills what tools started since the mark.
    fn sweep(&self) -> BoxFuture<Sweep>;

    /// How many processes that tools started run on by themselves, e.g. a server that a shell left in the background.
    fn background(&self) -> BoxFuture<usize>;

    /// Ends the agent and everything it started: by itself within `grace`, else by force. Done when nothing is left.
    fn end(&self, grace: Duration) -> BoxFuture<()>;
}

/// A started agent.
pub struct LaunchedAgent {
    /// To talk to it.
    pub agent: Arc<dyn Agent>,
    /// What it said of itself.
    pub facts: AgentFacts,
    /// By which it can be gone on with later.
    pub resume: ResumeToken,
    /// What a caller should know of the start.
    pub notices: Vec<Notice>,
}

/// Why an agent did not start. None of the texts names a path or a secret of the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// It could not be run, ended, answered wrongly, or is too old.
    #[error("{detail}")]
    Failed {
        /// For people.
        detail: String,
        /// The end of its standard error.
        stderr_tail: Option<String>,
    },
    /// It did not get ready in time.
    #[error("the agent was not ready within {}: {waiting_for}", humantime::format_duration(*.after))]
    Timeout {
        /// The limit.
        after: Duration,
        /// What it did not answer.
        waiting_for: String,
        /// The tool servers that it may be waiting for itself.
        extensions: Vec<ExtensionStatus>,
    },
    /// It does not take a setting.
    #[error("{setting}: {detail}")]
    SettingRefused {
        /// Which.
        setting: Setting,
        /// Why, for people.
        detail: String,
    },
    /// It has no model provider.
    #[error("{detail}")]
    ProviderNotConfigured {
        /// For people.
        detail: String,
    },
    /// An extension that the session requires did not load.
    #[error("required extensions did not load: {}", named(extensions))]
    ExtensionRequired {
        /// Those that are missing, and why.
        extensions: Vec<ExtensionStatus>,
    },
    /// The host has no room for it: no free file descriptor, process or memory.
    #[error("{detail}")]
    NoRoom {
        /// For people.
        detail: String,
    },
    /// The session was deleted, or gander stops.
    #[error("the start was given up")]
    Cancelled,
}

fn named(extensions: &[ExtensionStatus]) -> String {
    let named = extensions.iter().map(|extension| match &extension.error {
        Some(error) => format!("{} ({error})", extension.name),
        None => extension.name.clone(),
    });
    named.collect::<Vec<_>>().join(", ")
}

/// Starts agents and removes what they leave on disk.
pub trait AgentLauncher: Send + Sync + 'static {
    /// Starts an agent and gets it ready for prompts. When `cancel` is given the start ends early, with nothing left
    /// running. `events` gets everything the agent says from then on, also before this returns.
    ///
    /// With `resume` it goes on with the session that an earlier process had, in the mode and with the provider, model
    /// and effort of `spec`, whatever the agent has kept; what it repeats of the session's history is no event.
    fn launch(
        &self,
        session: SessionId,
        spec: LaunchSpec,
        resume: Option<Resume>,
        events: mpsc::Sender<AgentEvents>,
        cancel: CancellationToken,
    ) -> BoxFuture<Result<LaunchedAgent, LaunchError>>;

    /// Removes what belongs to a deleted session: the agent's home and the session's own folder.
    fn discard(&self, session: SessionId) -> BoxFuture<std::io::Result<()>>;
}

/// Reads more from an agent's events than ACP says, e.g. that a certain tool call is the plan.
/// The agent's adapter calls it on every event before the core sees it.
pub trait EventFilter: Send + 'static {
    /// Passes `event` on to `events`, changed, split or left out.
    fn filter(&mut self, event: AgentEvent, events: &mut AgentEvents);

    /// Says what the agent means by refusing a request.
    fn explain(&self, failure: AgentFailure) -> AgentFailure {
        failure
    }
}
