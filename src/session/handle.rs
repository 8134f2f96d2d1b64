//! What callers of a session hold: small, cheap to clone, the only way in.

mod permissions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

pub use self::permissions::AskedCall;
pub(super) use self::permissions::PermissionCommand;
use super::agent::{AgentFailure, LaunchError, Mode, Setting, Unfit};
use super::audit::By;
use super::id::{SessionId, SessionNumber, TurnId};
use super::links::LinkFault;
use super::log::{SessionLog, Store, StoreError};
use super::permission::{Permission, PolicyPatch};
use super::snapshot::{SessionState, Snapshot};
use super::turn::{Prompt, Turn, WhenBusy};
use crate::shutdown::Tasks;

/// Why a session does not do what it was asked. Nothing has changed then.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    /// The session is gone.
    #[error("the session does not exist")]
    SessionGone,
    /// It starts, changes its settings or is being deleted.
    #[error("the session is busy: {0}")]
    Busy(&'static str),
    /// Its agent did not start or is gone.
    #[error("the session has failed: {0}")]
    Failed(String),
    /// Its agent must not go on, and has been ended.
    #[error("the session has failed: {0}")]
    Unfit(Unfit),
    /// Its agent did not start for this.
    #[error(transparent)]
    StartFailed(LaunchError),
    /// Its agent has died again and again; another is started in a while.
    #[error("the session has failed: {reason}; a turn is taken again in {}", humantime::format_duration(*.retry_after))]
    CoolingDown {
        /// What has happened.
        reason: String,
        /// How long until a turn is taken again, in whole seconds.
        retry_after: Duration,
    },
    /// As many agents run, or are being started, as may.
    #[error("{0}")]
    AtCapacity(&'static str),
    /// Another turn runs, or is about to.
    #[error("a turn is in progress")]
    TurnInProgress(TurnId),
    /// As many turns wait as may.
    #[error("as many turns wait in the session as may (limits.queued_turns)")]
    QueueFull,
    /// No such turn in this session.
    #[error("the turn does not exist")]
    TurnNotFound,
    /// The turn is over, or has not begun.
    #[error("the turn is not running")]
    TurnNotRunning,
    /// What the prompt links is no file of the session's, too large, or no file at all.
    #[error("the prompt links what is not taken: {}", .0.iter().map(|fault| fault.detail.as_str()).collect::<Vec<_>>().join("; "))]
    LinkRefused(Vec<LinkFault>),
    /// The agent has to use first what was put into the turn before.
    #[error("too many prompts put into the turn wait for the agent")]
    TooManySteers,
    /// The agent cannot.
    #[error("the agent takes no words into a running turn")]
    SteeringUnsupported,
    /// The agent does not take what it was given for the running turn.
    #[error("the agent does not take it: {0}")]
    SteerRefused(AgentFailure),
    /// No such permission in this session.
    #[error("the permission does not exist")]
    PermissionNotFound,
    /// The request does not offer to remember such an answer.
    #[error("this request offers no such answer for the rest of the session")]
    OptionNotOffered,
    /// No such remembered answer in this session.
    #[error("the permission grant does not exist")]
    GrantNotFound,
    /// It was decided before, otherwise than asked now.
    #[error("the permission is already resolved")]
    PermissionAlreadyResolved(Box<Permission>),
    /// The agent did not take a setting; what was set before it is set back.
    #[error("{setting}: {failure}")]
    SettingRefused {
        /// Which.
        setting: Setting,
        /// What the agent said.
        failure: AgentFailure,
    },
    /// gander stops.
    #[error("the gateway is shutting down")]
    Draining,
    /// It could not be written down.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A change of a session: what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionPatch {
    /// The title; `Some(None)` removes it, so that the agent's is taken again.
    pub title: Option<Option<String>>,
    /// Merged into the metadata; `None` values remove.
    pub metadata: BTreeMap<String, Option<String>>,
    /// The provider.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The thinking effort; `Some(None)` goes back to the one that the session began with.
    pub thinking_effort: Option<Option<String>>,
    /// The mode.
    pub mode: Option<Mode>,
    /// Merged into the permission policy; `Some(None)` removes all of it.
    pub permission_policy: Option<Option<PolicyPatch>>,
}

impl SessionPatch {
    /// Whether it takes the agent to make it.
    #[must_use]
    pub fn needs_agent(&self) -> bool {
        self.provider.is_some()
            || self.model.is_some()
            || self.thinking_effort.is_some()
            || self.mode.is_some()
    }
}

/// How much a snapshot says of what the agent's settings can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choices {
    /// Of a long list only what is set now.
    #[default]
    Shortened,
    /// Everything; of a session without an agent no more than of any other.
    All,
}

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// What can be asked of a session. Whoever asks for a change says so (`By`), for the audit; only a session that hibernates
/// to make room is asked by nobody.
#[derive(Debug)]
pub(super) enum Command {
    Snapshot { choices: Choices, reply: Reply<Snapshot> },
    Prompt { by: By, prompt: Prompt, when_busy: WhenBusy, reply: Reply<Turn> },
    Cancel { by: By, turn: TurnId, reply: Reply<Turn> },
    Steer { by: By, turn: TurnId, prompt: Prompt, reply: Reply<()> },
    Permission(PermissionCommand),
    Patch { by: By, patch: SessionPatch, reply: Reply<Snapshot> },
    Hibernate { by: Option<By>, reply: Reply<Snapshot> },
    Delete { by: By, unless_running: bool, reply: Reply<()> },
}

impl Command {
    /// Answers without doing it.
    pub(super) fn refuse(self, refusal: Refusal) {
        // A caller that has left does not want the answer.
        let _ = match self {
            Self::Snapshot { reply, .. } | Self::Patch { reply, .. } | Self::Hibernate { reply, .. } => {
                reply.send(Err(refusal)).is_ok()
            }
            Self::Prompt { reply, .. } | Self::Cancel { reply, .. } => reply.send(Err(refusal)).is_ok(),
            Self::Permission(command) => command.refuse(refusal),
            Self::Steer { reply, .. } | Self::Delete { reply, .. } => reply.send(Err(refusal)).is_ok(),
        };
    }
}

/// What a session is doing, as far as it is committed.
#[derive(Clone, Debug)]
pub(super) struct Status {
    pub(super) state: SessionState,
    /// The running turn and those behind it.
    pub(super) turns: Arc<[TurnId]>,
    /// Why it did not start.
    pub(super) start_failure: Option<LaunchError>,
    /// Since when an agent runs and has nothing to do.
    pub(super) idle_since: Option<Instant>,
}

/// A session, for callers.
#[derive(Clone)]
pub struct SessionHandle {
    pub(super) owner: Arc<str>,
    pub(super) log: SessionLog,
    pub(super) store: Arc<dyn Store>,
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) status: watch::Receiver<Status>,
    pub(super) tasks: Tasks,
}

impl SessionHandle {
    /// The session's id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.log.session()
    }

    /// The session's number, for the store's lists.
    #[must_use]
    pub fn number(&self) -> SessionNumber {
        self.log.number()
    }

    /// The name of the caller that made it.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Its events.
    #[must_use]
    pub fn log(&self) -> &SessionLog {
        &self.log
    }

    /// Waits until the agent has started or has failed to.
    pub async fn started(&self) -> Result<Result<Snapshot, LaunchError>, Refusal> {
        let mut status = self.status.clone();
        let failure = {
            let status = status
                .wait_for(|status| status.state != SessionState::Starting)
                .await
                .map_err(|_| self.gone())?;
            status.start_failure.clone()
        };
        match failure {
            Some(failure) => Ok(Err(failure)),
            None => self.snapshot().await.map(Ok),
        }
    }

    /// The session now, never ahead of the log.
    pub async fn snapshot(&self) -> Result<Snapshot, Refusal> {
        self.snapshot_with(Choices::Shortened).await
    }

    /// The session now, with more or less of what the agent's settings can be.
    pub async fn snapshot_with(&self, choices: Choices) -> Result<Snapshot, Refusal> {
        match self.ask(|reply| Command::Snapshot { choices, reply }).await {
            // The session itself waits for room; what is written down can be read.
            Err(Refusal::Store(StoreError::Unavailable(_))) => {
                self.store.session(self.number()).await?.ok_or(Refusal::SessionGone)
            }
            result => result,
        }
    }

    /// Begins a turn, or queues it; when this returns its `turn.started` or `turn.queued` is in the log.
    pub async fn prompt(&self, by: &By, prompt: Prompt, when_busy: WhenBusy) -> Result<Turn, Refusal> {
        self.ask_patiently(|reply| Command::Prompt { by: by.clone(), prompt, when_busy, reply }).await
    }

    /// Asks the agent to end a running turn; a queued one ends at once.
    pub async fn cancel(&self, by: &By, turn: TurnId) -> Result<Turn, Refusal> {
        match self.ask(|reply| Command::Cancel { by: by.clone(), turn, reply }).await {
            // It is over, or there never was one.
            Err(Refusal::TurnNotRunning) => self.turn(turn).await.and(Err(Refusal::TurnNotRunning)),
            result => result,
        }
    }

    /// Puts words into a running turn; when this returns the agent has taken them and `turn.steered` is in the log.
    pub async fn steer(&self, by: &By, turn: TurnId, prompt: Prompt) -> Result<Turn, Refusal> {
        match self.ask_patiently(|reply| Command::Steer { by: by.clone(), turn, prompt, reply }).await {
            Ok(()) => self.turn(turn).await,
            // It is over or queued, or there never was one.
            Err(Refusal::TurnNotRunning) => self.turn(turn).await.and(Err(Refusal::TurnNotRunning)),
            Err(refusal) => Err(refusal),
        }
    }

    /// Changes the session.
    pub async fn patch(&self, by: &By, patch: SessionPatch) -> Result<Snapshot, Refusal> {
        self.ask(|reply| Command::Patch { by: by.clone(), patch, reply }).await
    }

    /// Lets the agent go and keeps the session; the next turn wakes it.
    pub async fn hibernate(&self, by: &By) -> Result<Snapshot, Refusal> {
        self.ask(|reply| Command::Hibernate { by: Some(by.clone()), reply }).await
    }

    /// Lets the agent go, since another session needs the place.
    pub(super) async fn make_room(&self) -> Result<Snapshot, Refusal> {
        self.ask(|reply| Command::Hibernate { by: None, reply }).await
    }

    /// Since when an agent runs and has nothing to do; `None` when it has, or when none runs.
    /// What the session does, as callers were last told.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.status.borrow().state
    }

    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.status.borrow().idle_since
    }

    /// Ends the agent and everything it started, and deletes the session's data.
    pub async fn delete(&self, by: &By) -> Result<(), Refusal> {
        self.ask_patiently(|reply| Command::Delete { by: by.clone(), unless_running: false, reply }).await
    }

    /// Deletes it likewise, unless a turn runs or waits ([`Refusal::TurnInProgress`]).
    pub async fn delete_unless_running(&self, by: &By) -> Result<(), Refusal> {
        self.ask_patiently(|reply| Command::Delete { by: by.clone(), unless_running: true, reply }).await
    }

    /// Where its records are.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// One turn, as committed.
    pub async fn turn(&self, turn: TurnId) -> Result<Turn, Refusal> {
        self.store.turn(self.number(), turn).await?.ok_or(Refusal::TurnNotFound)
    }

    /// Waits until a turn is over.
    pub async fn turn_ended(&self, turn: TurnId) -> Result<Turn, Refusal> {
        let mut status = self.status.clone();
        status.wait_for(|status| !status.turns.contains(&turn)).await.map_err(|_| self.gone())?;
        let turn = self.turn(turn).await?;
        if turn.ended_at.is_none() {
            return Err(Refusal::Store(StoreError::failed("the turn's end could not be written")));
        }
        Ok(turn)
    }

    /// Asks, but does not wait for a store that cannot write. What was asked may be done later all the same: for what
    /// does no harm when it is asked again.
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refusal> {
        let mut trouble = self.store.trouble();
        let error = async {
            match trouble.wait_for(Option::is_some).await.map(|error| error.clone()) {
                Ok(Some(error)) => error,
                // A store that is gone says so itself.
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            error = error => Err(Refusal::Store(error)),
            answer = self.ask_patiently(command) => answer,
        }
    }

    async fn ask_patiently<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        if self.commands.send(command(reply)).await.is_err() {
            return Err(self.gone());
        }
        answer.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Why nobody answers.
    fn gone(&self) -> Refusal {
        if self.tasks.soft().is_cancelled() { Refusal::Draining } else { Refusal::SessionGone }
    }
}
