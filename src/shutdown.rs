//! Soft and hard shutdown, and the tracker of every task.
//!
//! *Soft* means: take nothing new, let what runs end. *Hard* means: end now.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Spawns tasks that shutdown waits for, and carries the two shutdown signals. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    soft: CancellationToken,
    hard: CancellationToken,
}

impl Tasks {
    /// A tracker with no tasks and no signal given.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Spawns a task that [`Tasks::finished`] waits for.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn(task)
    }

    /// Spawns blocking work that [`Tasks::finished`] waits for.
    pub fn spawn_blocking<F, T>(&self, work: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.tracker.spawn_blocking(work)
    }

    /// Given when gander stops taking new work.
    #[must_use]
    pub fn soft(&self) -> &CancellationToken {
        &self.soft
    }

    /// Given when whatever still runs has to end at once.
    #[must_use]
    pub fn hard(&self) -> &CancellationToken {
        &self.hard
    }

    /// Waits until every spawned task has ended. Call after the signals: it closes the tracker.
    pub async fn finished(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}
