//! What a goose has loaded that does not say so in its answers: from its list and its log.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::GooseLauncher;
use crate::acp::{Connection, NewSession, Redactor};
use crate::goose::catalogue::same;
use crate::goose::places::Places;
use crate::goose::{launch, log};
use crate::session::agent::{AgentEvent, AgentEvents, ExtensionStatus};
use crate::session::id::SessionId;
use crate::shutdown::Tasks;

/// How long after the start the log is read again: an extension may take its time to fail.
const AGAIN_AFTER: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

/// Listens to one goose.
#[derive(Clone)]
pub(super) struct Hearing {
    session: SessionId,
    /// Where it writes its log.
    logs: PathBuf,
    /// When it was started.
    since: SystemTime,
    redactor: Redactor,
    tasks: Tasks,
    events: mpsc::Sender<AgentEvents>,
}

impl GooseLauncher {
    /// To listen to a goose that is about to be started.
    pub(super) fn hearing(
        &self,
        session: SessionId,
        places: &Places,
        redactor: &Redactor,
        events: &mpsc::Sender<AgentEvents>,
    ) -> Hearing {
        Hearing {
            session,
            logs: self.shared.settings.log_dir.clone().unwrap_or_else(|| places.logs()),
            since: SystemTime::now(),
            redactor: redactor.clone(),
            tasks: self.shared.tasks.clone(),
            events: events.clone(),
        }
    }
}

impl Hearing {
    /// Adds the extensions to what goose says of its session, when it says nothing of them. What fails later is told as
    /// it shows.
    pub(super) async fn complete(&self, connection: &Connection, mut said: NewSession) -> NewSession {
        if said.extensions.is_some() {
            return said;
        }
        let loaded = connection.loaded_extensions().await.unwrap_or_else(|failure| {
            tracing::warn!(session = %self.session, %failure, "goose does not list its extensions");
            None
        });
        let mut failed = self.failures().await;
        // Other sessions' gooses may write the same log: what is there has not failed here.
        let is_loaded = |name: &String| loaded.iter().flatten().any(|loaded| same(loaded, name));
        failed.retain(|failure| !is_loaded(&failure.name));
        let heard = self.clone();
        let told = failed.iter().map(|failure| failure.name.clone()).collect();
        self.tasks.spawn(heard.go_on(told));
        if loaded.is_some() || !failed.is_empty() {
            let loaded = loaded.unwrap_or_default().into_iter();
            let loaded = loaded.map(|name| ExtensionStatus { name, loaded: true, error: None });
            said.extensions = Some(loaded.chain(failed).collect());
        }
        said
    }

    /// Tells the operator which extensions did not load.
    pub(super) fn warn_of(&self, extensions: &[ExtensionStatus]) {
        for ExtensionStatus { name, error, .. } in extensions.iter().filter(|extension| !extension.loaded) {
            tracing::warn!(session = %self.session, extension = name, error, "an extension did not load");
        }
    }

    /// Reads the log again for a while.
    async fn go_on(self, mut told: Vec<String>) {
        let mut passed = Duration::ZERO;
        for after in AGAIN_AFTER {
            tokio::select! {
                biased;
                () = self.tasks.hard().cancelled() => return,
                () = self.events.closed() => return,
                () = sleep(after.saturating_sub(passed)) => passed = after,
            }
            for failure in self.failures().await {
                if told.contains(&failure.name) {
                    continue;
                }
                told.push(failure.name.clone());
                let (extension, notice) = launch::failed_extension(&failure);
                self.warn_of(std::slice::from_ref(&extension));
                let news = vec![AgentEvent::ExtensionChanged(extension), AgentEvent::Notice(notice)];
                // The session may have let its agent go meanwhile.
                let _ = self.events.send(news).await;
            }
        }
    }

    /// What goose has written to its log since it was started of extensions that did not load.
    pub(super) async fn failures(&self) -> Vec<ExtensionStatus> {
        let (logs, since) = (self.logs.clone(), self.since);
        let read = self.tasks.spawn_blocking(move || log::failures_below(&logs, since)).await;
        let mut failures = match read {
            Ok(Ok(failures)) => failures,
            Ok(Err(error)) => {
                tracing::warn!(session = %self.session, %error, "goose's log cannot be read");
                Vec::new()
            }
            Err(error) => {
                tracing::error!(session = %self.session, %error, "reading goose's log failed");
                Vec::new()
            }
        };
        for error in failures.iter_mut().filter_map(|failure| failure.error.as_mut()) {
            *error = self.redactor.redact(error);
        }
        failures
    }
}
