//! What goose must not have or remember, lest it does things unasked.

use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use crate::acp::Connection;
use crate::goose::belonging::{self, Belonging};
use crate::goose::launch;
use crate::goose::places::{HomeKind, Places};
use crate::goose::remembered::{self, Memory};
use crate::session::agent::{ExtensionStatus, Mode, Notice, Unfit};
use crate::shutdown::Tasks;

/// The longest tick of the clock that files are stamped with.
const TICK: Duration = Duration::from_millis(20);
/// How many times it is looked whether what goose remembers is left alone.
const LOOKS: usize = 50;
/// Why a session does not start meanwhile.
pub(super) const RESTLESS: &str = "what goose remembers of permissions (permission.yaml) is being changed";

/// Watches over one session's goose.
pub(super) struct Guard {
    /// Where its goose keeps what is its own.
    pub(super) places: Places,
    pub(super) belonging: Belonging,
    pub(super) tasks: Tasks,
}

impl Guard {
    /// goose remembers nothing that it would allow by itself.
    pub(super) async fn check_memory(&self) -> Result<(), Unfit> {
        self.memory().await.map(drop)
    }

    /// The same, once nobody has touched it for a moment: of two changes within one tick of the system's clock the second
    /// cannot be told.
    pub(super) async fn memory_at_rest(&self) -> Result<Memory, Unfit> {
        for _ in 0..LOOKS {
            let memory = self.memory().await?;
            if memory.untouched_for(SystemTime::now()) >= TICK {
                return Ok(memory);
            }
            sleep(TICK).await;
        }
        Err(Unfit(RESTLESS.into()))
    }

    /// goose remembers nothing that it would allow by itself; how its memory stands.
    pub(super) async fn memory(&self) -> Result<Memory, Unfit> {
        let places = self.places.clone();
        let checked = self.tasks.spawn_blocking(move || remembered::check(&places)).await;
        match checked {
            Ok(checked) => checked.map_err(|error| Unfit(error.to_string())),
            Err(error) => {
                tracing::error!(%error, "what goose remembers of permissions could not be looked at");
                Err(Unfit("what goose remembers of permissions could not be looked at".into()))
            }
        }
    }

    /// What callers should know of the extensions that a session has been started with, and of those that were removed.
    pub(super) fn notices(
        &self,
        removed: &[String],
        started: &[ExtensionStatus],
        mode: Mode,
        is_new: bool,
    ) -> Vec<Notice> {
        let is_own = self.places.kind() == HomeKind::Session;
        // In the shared home that is how extensions are switched off.
        let unexpected = removed.iter().filter(|name| is_own || !self.belonging.is_off(name));
        let mut notices: Vec<Notice> = unexpected.map(|name| belonging::removed(name)).collect();
        if is_new && is_own {
            notices.extend(launch::out_of_place(started));
        }
        if is_new {
            notices.extend(self.belonging.warnings(mode));
        }
        notices
    }

    /// Unloads what does not belong to the session, and looks whether it is gone. Gives the names of what was removed.
    /// `said`: what goose has said of the extensions itself, for one that cannot list them.
    pub(super) async fn tidy(
        &self,
        connection: &Connection,
        said: Option<&[ExtensionStatus]>,
    ) -> Result<Vec<String>, Unfit> {
        let Some(loaded) = self.loaded(connection).await? else {
            let loaded = said.unwrap_or_default().iter().filter(|extension| extension.loaded);
            let loaded: Vec<String> = loaded.map(|extension| extension.name.clone()).collect();
            return match self.belonging.intruders(&loaded) {
                intruders if intruders.is_empty() => Ok(intruders),
                intruders => Err(stays(&intruders)),
            };
        };
        let intruders = self.belonging.intruders(&loaded);
        if intruders.is_empty() {
            return Ok(intruders);
        }
        for name in &intruders {
            if let Err(failure) = connection.remove_extension(name).await {
                tracing::warn!(extension = name, %failure, "goose does not unload an extension");
            }
        }
        // Not its word counts, but what is there.
        let left = self.loaded(connection).await?.map(|loaded| self.belonging.intruders(&loaded));
        match left {
            Some(left) if left.is_empty() => Ok(intruders),
            left => Err(stays(&left.unwrap_or(intruders))),
        }
    }

    async fn loaded(&self, connection: &Connection) -> Result<Option<Vec<String>>, Unfit> {
        let loaded = connection.loaded_extensions().await;
        loaded.map_err(|failure| Unfit(format!("goose does not tell which extensions are loaded: {failure}")))
    }
}

fn stays(names: &[String]) -> Unfit {
    Unfit(format!(
        "goose has loaded what does not belong to the session and does not let go of it: {}",
        names.join(", ")
    ))
}
