//! The places among the agents: among those that run, and among those that are being started.
//!
//! A start takes a processor for a while and a running agent takes memory, so each has a limit of its own. Whoever wants
//! to start an agent needs a place of both kinds, and gives the second back when the agent has started.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::Registry;

/// How often a place among the running agents is looked for.
const PLACE_ATTEMPTS: usize = 16;

const ALL_BUSY: &str = "as many agents run as there may (sessions.max_running), and none is idle";
const MANY_START: &str = "as many agents are being started as may be at once (sessions.max_starting)";

/// An agent's place. Given back when it is dropped.
#[derive(Debug)]
pub(in crate::session) struct Place {
    _running: OwnedSemaphorePermit,
    starting: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// The agent has started, or will not.
    pub(in crate::session) fn started(&mut self) {
        self.starting = None;
    }
}

/// What places there are.
pub(super) struct Places {
    /// One permit for each agent that may run.
    running: Arc<Semaphore>,
    /// One permit for each agent that may be in its start.
    starting: Arc<Semaphore>,
    /// Told when an agent has become idle: those who wait for a place can have it let go.
    idle: watch::Sender<()>,
}

impl Places {
    pub(super) fn new(running: usize, starting: usize) -> Self {
        Self {
            running: Arc::new(Semaphore::new(running)),
            starting: Arc::new(Semaphore::new(starting)),
            idle: watch::Sender::new(()),
        }
    }

    /// How many more agents may run.
    pub(super) fn free(&self) -> usize {
        self.running.available_permits()
    }
}

impl Registry {
    /// A place for an agent that is to be started, or why there is none.
    pub(in crate::session) async fn place_for_agent(&self) -> Result<Place, &'static str> {
        // First, so that nobody's agent is let go in vain.
        let starting =
            Arc::clone(&self.shared.places.starting).try_acquire_owned().map_err(|_| MANY_START)?;
        let running = self.running_place().await.ok_or(ALL_BUSY)?;
        Ok(Place { _running: running, starting: Some(starting) })
    }

    /// A place for an agent that is to be started, as soon as there is one.
    pub(in crate::session) async fn wait_for_place(self) -> Place {
        let running = self.wait_for_running_place().await;
        // Second, since it is soon free: who waits for the other must not keep it from those who need only this one.
        let starting = Arc::clone(&self.shared.places.starting).acquire_owned().await;
        // The semaphore is never closed.
        Place { _running: running, starting: starting.ok() }
    }

    /// A place among the running agents: a free one, else the longest idle agent's, which is let go. `None` when all
    /// are busy.
    async fn running_place(&self) -> Option<OwnedSemaphorePermit> {
        let mut asked = HashSet::new();
        for _ in 0..PLACE_ATTEMPTS {
            if let Ok(place) = Arc::clone(&self.shared.places.running).try_acquire_owned() {
                return Some(place);
            }
            let idle = {
                let sessions = self.lock();
                let idle = sessions.values().filter(|session| !asked.contains(&session.id()));
                let idle = idle.filter_map(|session| Some((session.idle_since()?, session)));
                idle.min_by_key(|(since, _)| *since).map(|(_, session)| session.clone())
            }?;
            asked.insert(idle.id());
            // It may refuse, being busy meanwhile, or another may be faster with the place: then the next one.
            if let Err(refusal) = idle.make_room().await {
                tracing::debug!(%refusal, "an idle agent was not let go");
            }
        }
        None
    }

    async fn wait_for_running_place(&self) -> OwnedSemaphorePermit {
        // Before the first look, so that an agent that becomes idle during it is not missed.
        let mut idle = self.shared.places.idle.subscribe();
        loop {
            if let Some(place) = self.running_place().await {
                return place;
            }
            tokio::select! {
                // Biased: a free place is better than another agent's.
                biased;
                Ok(place) = Arc::clone(&self.shared.places.running).acquire_owned() => return place,
                _ = idle.changed() => {}
            }
        }
    }

    /// An agent has become idle.
    pub(in crate::session) fn tell_idle(&self) {
        self.shared.places.idle.send_replace(());
    }
}
