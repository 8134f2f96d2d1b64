//! The clock by which an agent is late with an answer.
//!
//! It runs while the reader waits for the agent and stands while the agent waits for gander: an answer behind a flood
//! that the core has not taken yet is late by gander's doing, and is still wanted.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct AgentClock(Mutex<Reading>);

#[derive(Debug, Default)]
struct Reading {
    /// What it had run when it last stood.
    before: Duration,
    /// Since when it has run again.
    since: Option<Instant>,
}

impl AgentClock {
    pub(super) fn run(&self) {
        self.reading().since.get_or_insert_with(Instant::now);
    }

    pub(super) fn stand(&self) {
        let mut reading = self.reading();
        if let Some(since) = reading.since.take() {
            reading.before += since.elapsed();
        }
    }

    /// How long it has run.
    pub(super) fn elapsed(&self) -> Duration {
        let reading = self.reading();
        reading.before + reading.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        // Two values that any moment is right for.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
