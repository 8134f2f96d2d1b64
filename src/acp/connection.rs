//! One agent: requests out, answers correlated, everything it says turned into events.
//!
//! ```text
//! send, initialize, … ─▶ bounded queue ─▶ writer task ─▶ agent's stdin
//! core ◀─ bounded channel of batches ◀─ reader task ◀─ agent's stdout
//! ```
//!
//! The reader waits for the core (so that a flood presses back into the agent's pipe) and never for the writer's queue:
//! an agent that writes and does not read would else stop both sides for ever. A full queue means that the agent does
//! not take what it is sent; it is given up.

mod client_requests;
mod clock;
mod closing;
mod commands;
mod extensions;
mod link;
mod pending;
mod providers;
mod reader;
mod servers;
mod sessions;
mod start;
mod ties;
mod writer;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, CancelNotification, RequestPermissionOutcome, RequestPermissionResponse,
    SelectedPermissionOutcome, SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::clock::AgentClock;
pub use self::link::{AgentPipes, AgentSocket, ToolPort};
use self::pending::{Pending, State};
pub use self::providers::ProviderFacts;
pub use self::sessions::KeptSession;
use super::stdio::Redactor;
use super::{rpc, translate};
use crate::session::agent::client_tools::ClientTools;
use crate::session::agent::{
    AgentCommand, AgentEvent, AgentFailure, AgentGone, ConfigOption, ExtensionStatus, PermissionReply,
    ReplyToken, SteerFailure,
};
use crate::session::turn::TurnErrorClass;
use crate::shutdown::Tasks;

/// JSON-RPC: there is no such method.
const METHOD_NOT_FOUND: i64 = -32601;
/// How many lines may wait for an agent to read them.
const QUEUED_LINES: usize = 64;
/// How often an answer is looked for at most that is late by gander's own doing.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// What bounds a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest line an agent may write, in bytes. A longer update is left out; anything else longer ends the agent.
    pub line_bytes: usize,
    /// How many lines may be no JSON-RPC before the agent is given up.
    pub bad_lines: u64,
    /// How many permission requests of the agent may wait for an answer; one more is answered `cancelled`. goose asks
    /// one at a time.
    pub pending_permissions: usize,
    /// How many requests of the agent for files and commands may be under way; one more is refused. Each command that
    /// runs has one, the wait for its end.
    pub client_requests: usize,
    /// How long the requests of a start, `initialize` and `session/new`, may take each.
    pub start_timeout: Duration,
    /// How long any other request may take; an agent that takes longer is given up. Prompts have no limit.
    pub request_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line_bytes: 16 * 1024 * 1024,
            bad_lines: 1000,
            pending_permissions: 64,
            client_requests: 32,
            start_timeout: Duration::from_mins(1),
            request_timeout: Duration::from_secs(30),
        }
    }
}

/// What an agent says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSelf {
    /// Its name, e.g. `goose`; empty when it does not say.
    pub name: String,
    /// Its version; empty when it does not say.
    pub version: String,
}

/// What an agent says of a session that it started. Its own id of it stays inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// The mode the session is in, in the agent's word.
    pub mode: Option<String>,
    /// Its settings; `None` when the agent offers none at all.
    pub config_options: Option<Vec<ConfigOption>>,
    /// Which extensions loaded, in the agent's names; `None` when it does not say.
    pub extensions: Option<Vec<ExtensionStatus>>,
}

/// A running agent that speaks ACP.
pub struct Connection {
    limits: Limits,
    /// To the writer task.
    outgoing: mpsc::Sender<Vec<u8>>,
    /// The longest message that it takes, in bytes.
    sent_bytes: usize,
    /// What is open in either direction. Locked for a few lines at a time, never across an await.
    state: Mutex<State>,
    /// By which its answers are late.
    clock: AgentClock,
    /// The agent's id of its one session.
    session: OnceLock<String>,
    /// What it is offered; `None`: nothing.
    tools: Option<Arc<dyn ClientTools>>,
    kill: Arc<dyn Fn() + Send + Sync>,
    redactor: Redactor,
    /// Why the agent is given up; set once, before `given_up` is.
    reason: OnceLock<String>,
    given_up: CancellationToken,
    /// Whether the agent repeats a session's history: from a request to load it until the answer. The core has it.
    replaying: AtomicBool,
    /// The agent's standard input is to be closed when the queue is empty.
    closing: CancellationToken,
    tasks: Tasks,
}

impl Connection {
    /// Tells the agent something. Never waits; an agent whose queue is full is given up.
    pub fn send(self: &Arc<Self>, command: AgentCommand) -> Result<(), AgentGone> {
        let session = || self.session.get().cloned().ok_or(AgentGone);
        match command {
            AgentCommand::Prompt { turn, content } => {
                #[derive(Serialize)]
                #[serde(rename_all = "camelCase")]
                struct Prompt {
                    session_id: String,
                    // Blocks of a kind that the schema does not know reach the agent too.
                    prompt: Vec<Value>,
                }
                let params = Prompt { session_id: session()?, prompt: content };
                if let Some(tools) = &self.tools {
                    tools.turn_begun();
                }
                self.begin(AGENT_METHOD_NAMES.session_prompt, &params, Pending::Prompt(turn)).map(drop)
            }
            AgentCommand::Cancel => {
                let params = CancelNotification::new(session()?);
                self.turn_over();
                self.enqueue(rpc::notification_line(AGENT_METHOD_NAMES.session_cancel, &params))
            }
            AgentCommand::AnswerPermission { reply, answer } => self.answer_permission(&reply, answer),
            AgentCommand::Steer { done, .. } => {
                // ACP has no such thing; agents that can have a method of their own. Whoever asked may have gone.
                let _ = done.send(Err(SteerFailure::Unsupported));
                Ok(())
            }
            AgentCommand::SetMode { mode, done } => {
                let params = SetSessionModeRequest::new(session()?, mode.as_str());
                self.ask(AGENT_METHOD_NAMES.session_set_mode, params, done, |_| Ok(()))
            }
            AgentCommand::SetConfigOption { id, value, done } => {
                let params = SetSessionConfigOptionRequest::new(session()?, id, value.as_str());
                let method = AGENT_METHOD_NAMES.session_set_config_option;
                self.ask(method, params, done, move |reply| {
                    let fields = translate::fields(Some(reply));
                    translate::config_options(fields.get("configOptions").copied()).ok_or_else(|| {
                        failure(None, format!("the agent's answer to {method} lists no settings"))
                    })
                })
            }
        }
    }

    /// What the agent still asks of the machine is refused, until the next turn.
    fn turn_over(&self) {
        if let Some(tools) = &self.tools {
            tools.turn_over();
        }
    }

    /// Closes the agent's standard input once it has taken what is queued: an agent ends then by itself. Nothing can
    /// be sent any more.
    pub fn close_stdin(&self) {
        self.closing.cancel();
    }

    /// Answers a held permission request; one that is not held (any more) is left alone: another answer won.
    fn answer_permission(&self, reply: &ReplyToken, answer: PermissionReply) -> Result<(), AgentGone> {
        let Some(id) = self.state().take_held(reply) else {
            debug!("a permission request is answered that is not open");
            return Ok(());
        };
        let outcome = match answer {
            PermissionReply::Selected(option) => {
                RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option))
            }
            PermissionReply::Cancelled => RequestPermissionOutcome::Cancelled,
        };
        self.enqueue(rpc::result_line(&id, &RequestPermissionResponse::new(outcome)))
    }

    /// Sends a request and tells `done` how it went, whenever that is.
    fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        method: &'static str,
        params: impl Serialize,
        done: oneshot::Sender<Result<T, AgentFailure>>,
        understand: impl FnOnce(&RawValue) -> Result<T, AgentFailure> + Send + 'static,
    ) -> Result<(), AgentGone> {
        let (answer, answered) = oneshot::channel();
        let id = self.begin(method, &params, Pending::Request(answer))?;
        let (connection, timeout) = (self.clone(), self.limits.request_timeout);
        self.tasks.spawn(async move {
            let reply = connection.answer(id, method, answered, timeout).await;
            // Whoever asked may have gone meanwhile.
            let _ = done.send(reply.and_then(|reply| understand(&reply)));
        });
        Ok(())
    }

    /// Sends a request of a method that is the agent's own. When it succeeds, `event` is told at the answer's place among
    /// what the agent says, before this returns.
    pub async fn request_told(
        &self,
        method: &'static str,
        params: &impl Serialize,
        event: impl FnOnce(&RawValue) -> AgentEvent + Send + 'static,
    ) -> Result<(), AgentFailure> {
        let (answer, answered) = oneshot::channel();
        let pending = Pending::Told { answer, event: Box::new(event) };
        let Ok(id) = self.begin(method, params, pending) else { return Err(self.gone()) };
        self.answer(id, method, answered, self.limits.request_timeout).await.map(drop)
    }

    /// Sends a request and waits for its answer.
    async fn request(
        &self,
        method: &'static str,
        params: &impl Serialize,
        timeout: Duration,
    ) -> Result<Box<RawValue>, AgentFailure> {
        let (answer, answered) = oneshot::channel();
        let Ok(id) = self.begin(method, params, Pending::Request(answer)) else {
            return Err(self.gone());
        };
        self.answer(id, method, answered, timeout).await
    }

    async fn answer(
        &self,
        id: u64,
        method: &'static str,
        mut answered: oneshot::Receiver<Result<Box<RawValue>, AgentFailure>>,
        timeout: Duration,
    ) -> Result<Box<RawValue>, AgentFailure> {
        // Also when the caller stops waiting.
        let _forget = Forget { connection: self, id };
        let (begun, mut left) = (self.clock.elapsed(), timeout);
        while !left.is_zero() {
            match tokio::time::timeout(left.max(SHORTEST_WAIT), &mut answered).await {
                Ok(Ok(reply)) => return reply,
                Ok(Err(_)) => return Err(self.gone()),
                Err(_) => left = timeout.saturating_sub(self.clock.elapsed().saturating_sub(begun)),
            }
        }
        let message =
            format!("the agent did not answer {method} within {}", humantime::format_duration(timeout));
        // Whatever it would still say, nobody knows what state it is in.
        self.give_up(message.clone());
        Err(AgentFailure { class: TurnErrorClass::AgentUnresponsive, code: None, message })
    }

    /// Sends a request; its answer goes to `pending`.
    fn begin(&self, method: &str, params: &impl Serialize, pending: Pending) -> Result<u64, AgentGone> {
        let id = self.state().open(pending).ok_or(AgentGone)?;
        let sent = self.enqueue(rpc::request_line(id, method, params));
        if sent.is_err() {
            self.state().take_pending(id);
        }
        sent.map(|()| id)
    }

    /// Queues a line for the agent. Never waits.
    fn enqueue(&self, line: serde_json::Result<Vec<u8>>) -> Result<(), AgentGone> {
        let line = line.map_err(|error| {
            warn!(%error, "a message to the agent cannot be written as JSON");
            AgentGone
        })?;
        if self.closing.is_cancelled() || self.given_up.is_cancelled() {
            return Err(AgentGone);
        }
        match self.outgoing.try_send(line) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.give_up("the agent does not read what it is sent");
                Err(AgentGone)
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(AgentGone),
        }
    }

    /// Ends the agent by force, since it does not do its part.
    fn give_up(&self, reason: impl Into<String>) {
        let reason = reason.into();
        if self.reason.set(reason).is_ok() {
            warn!(reason = self.reason.get(), "the agent is given up");
            (self.kill)();
            self.given_up.cancel();
        }
    }

    fn gone(&self) -> AgentFailure {
        self.state().ended.clone().unwrap_or_else(|| AgentFailure {
            class: TurnErrorClass::AgentUnresponsive,
            code: None,
            message: self.reason.get().cloned().unwrap_or_else(|| AgentGone.to_string()),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock panics, and each change of the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets a request when nobody waits for its answer any more.
struct Forget<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.connection.state().take_pending(self.id);
    }
}

fn failure(code: Option<i64>, message: String) -> AgentFailure {
    AgentFailure { class: TurnErrorClass::AgentError, code, message }
}

fn understand<T: serde::de::DeserializeOwned>(method: &str, reply: &RawValue) -> Result<T, AgentFailure> {
    serde_json::from_str(reply.get()).map_err(|error| {
        debug!(%error, method, "an answer of the agent cannot be read");
        failure(None, format!("the agent's answer to {method} cannot be read"))
    })
}

#[cfg(test)]
mod tests;
