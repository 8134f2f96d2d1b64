//! Who follows what happens in sessions, and until when.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::StartError;
use super::settings::trace_settings;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::observer::{Follower, TurnLog};
use crate::session::log::Store;
use crate::shutdown::Tasks;
use crate::traces::Tracer;

/// The observers' tasks. They are not among all others: they end behind them, so that what is told at the very end is
/// recorded too.
pub(super) struct Observing {
    follower: Tasks,
    exporter: Tasks,
    stop_exporting: CancellationToken,
    pub(super) tracer: Tracer,
}

impl Observing {
    /// Follows from now on. Before the sessions come back: what is closed in them then is recorded as well.
    pub(super) fn start(
        config: &Config,
        store: Arc<dyn Store>,
        metrics: &Metrics,
    ) -> Result<Self, StartError> {
        let (follower, exporter, stop_exporting) = (Tasks::new(), Tasks::new(), CancellationToken::new());
        let tracer = match trace_settings(config) {
            Some(settings) => Tracer::start(&settings, metrics, &exporter, stop_exporting.clone())?,
            None => Tracer::off(),
        };
        let mut observers = vec![metrics.observer(), Box::new(TurnLog::new(config.log.content))];
        observers.extend(tracer.observer());
        follower.spawn(Follower::from_now_on(store).run(observers, follower.soft().clone()));
        Ok(Self { follower, exporter, stop_exporting, tracer })
    }

    /// Records what has been committed until now, sends what waits, and ends.
    pub(super) async fn finish(self) {
        self.follower.soft().cancel();
        self.follower.finished().await;
        self.stop_exporting.cancel();
        self.exporter.finished().await;
    }
}
