//! Who follows what happens in sessions, and until when.

use std::sync::Arc;

use crate::config::Config;
use crate::metrics::Metrics;
use crate::observer::{Follower, TurnLog};
use crate::session::log::Store;
use crate::shutdown::Tasks;

/// The observers' tasks. They are not among all others: they end behind them, so that what is told at the very end is
/// recorded too.
pub(super) struct Observing {
    tasks: Tasks,
}

impl Observing {
    /// Follows from now on. Before the sessions come back: what is closed in them then is recorded as well.
    pub(super) fn start(config: &Config, store: Arc<dyn Store>, metrics: &Metrics) -> Self {
        let tasks = Tasks::new();
        let observers: Vec<_> = vec![metrics.observer(), Box::new(TurnLog::new(config.log.content))];
        tasks.spawn(Follower::from_now_on(store).run(observers, tasks.soft().clone()));
        Self { tasks }
    }

    /// Records what has been committed until now, and ends.
    pub(super) async fn finish(self) {
        self.tasks.soft().cancel();
        self.tasks.finished().await;
    }
}
