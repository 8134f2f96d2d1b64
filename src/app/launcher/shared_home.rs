//! Sessions in the home that goose shares with its user: which of them are gander's, and deleting those.
//!
//! They are in goose's own database, so only a goose can delete them: the one that all sessions share, when it runs, else
//! one that is started for a few requests.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::folders::GONE;
use super::guard::Guard;
use super::part::home_of_all;
use super::process::Run;
use super::process::process_spec;
use super::settle::NotReady;
use super::{GooseLauncher, failed};
use crate::acp::{Connection, KeptSession};
use crate::goose::belonging::Belonging;
use crate::goose::noted::{self, GooseSession};
use crate::goose::places::{HomeKind, Places, SharedHome};
use crate::session::agent::{Agent, AgentEvents, AgentFailure, LaunchError, LaunchSpec, Mode};

/// Why a session in a shared home cannot be gone on with though it may well be there.
const NOT_TOLD: &str = "this goose does not tell when it made a session, so that one in a home that sessions share cannot \
                        be told from a later one of the same name";

/// How many gooses may be started at a time to delete something.
pub(super) const DELETING: usize = 2;

impl GooseLauncher {
    /// Notes the session that goose has just made, when it is in the shared home.
    pub(super) async fn note_made(&self, connection: &Connection, places: &Places) -> Result<(), NotReady> {
        let Some(id) = connection.session().filter(|_| places.kind() == HomeKind::Shared) else {
            return Ok(());
        };
        let created_at = match connection.kept_session(id).await? {
            KeptSession::MadeAt(time) => time,
            KeptSession::Gone => None,
        };
        let (root, session) = (places.root().to_owned(), GooseSession { id: id.to_owned(), created_at });
        let noted = self.shared.tasks.spawn_blocking(move || noted::note(&root, &session)).await;
        noted.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|error| {
            tracing::error!(%error, "a session in goose's shared home cannot be noted");
            NotReady::Refused(super::not_made("the session's folder cannot be written", &error))
        })
    }

    /// Looks whether the session `id` in the shared home is still the one that gander had goose make.
    pub(super) async fn check_still_ours(
        &self,
        connection: &Connection,
        places: &Places,
        id: &str,
    ) -> Result<(), NotReady> {
        if places.kind() == HomeKind::Session {
            return Ok(());
        }
        let noted = self.noted(places.root()).await.map_err(|error| {
            tracing::error!(%error, "a session's notes cannot be read");
            NotReady::Refused(failed(GONE))
        })?;
        let ours = noted.into_iter().rfind(|session| session.id == id);
        match (connection.kept_session(id).await?, ours) {
            (KeptSession::MadeAt(Some(now)), Some(ours)) if Some(&now) == ours.created_at.as_ref() => Ok(()),
            (KeptSession::MadeAt(None), Some(_)) | (_, Some(GooseSession { created_at: None, .. })) => {
                Err(NotReady::Refused(failed(NOT_TOLD)))
            }
            _ => Err(NotReady::Refused(failed(GONE))),
        }
    }

    /// Deletes the sessions in a shared home that are noted in the folder `root`.
    pub(super) async fn forget(&self, root: &Path) -> io::Result<()> {
        let noted = self.noted(root).await?;
        if noted.is_empty() {
            return Ok(());
        }
        let deleting = async {
            let _place = self.shared.deleting.acquire().await.map_err(|error| error.to_string())?;
            let mut left = noted;
            for places in self.shared_homes(root) {
                if !left.is_empty() {
                    left = self.delete(&places, left).await?;
                }
            }
            Ok(())
        };
        let limit = self.shared.settings.start_timeout;
        let deleted = tokio::time::timeout(limit, deleting).await;
        deleted.unwrap_or_else(|_| Err("it took too long".into())).map_err(|reason: String| {
            tracing::error!(
                reason,
                "a deleted session is left in goose's shared home: the next start tries again"
            );
            io::Error::other(reason)
        })
    }

    /// Somebody who takes what goose says, so that it goes on.
    pub(super) fn nobody_listens(&self) -> mpsc::Sender<AgentEvents> {
        let (events, mut said) = mpsc::channel(1);
        self.shared.tasks.spawn(async move { while said.recv().await.is_some() {} });
        events
    }

    async fn noted(&self, root: &Path) -> io::Result<Vec<GooseSession>> {
        let root = root.to_owned();
        let noted = self.shared.tasks.spawn_blocking(move || noted::noted(&root)).await;
        noted.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// The homes that a session with such notes may be in: the setting may have changed since. The likely one first.
    fn shared_homes(&self, root: &Path) -> Vec<Places> {
        let settings = &self.shared.settings;
        let of_all = home_of_all(&settings.homes);
        let of_all = SharedHome::in_folder(&of_all).filter(|_| of_all.is_dir());
        // Looking for it in a home that is not there would make one.
        let now = self.shared_places(root).ok().filter(|_| self.sessions_share_a_home());
        let mut homes: Vec<Places> = now.into_iter().collect();
        for home in of_all.into_iter().chain(settings.shared_home.clone()) {
            let places = Places::shared(root, home);
            if !homes.contains(&places) {
                homes.push(places);
            }
        }
        homes
    }

    /// Has a goose delete those of the sessions that are still the ones that were noted. Gives those that it does not
    /// have. The error is for the log.
    async fn delete(
        &self,
        places: &Places,
        sessions: Vec<GooseSession>,
    ) -> Result<Vec<GooseSession>, String> {
        let is_served = self.shared_places(places.root()).is_ok_and(|now| now == *places);
        if is_served && let Some(connection) = self.connect_to_delete().await {
            return delete_with(&connection, sessions).await.map_err(|failure| failure.message);
        }
        let said = |error: LaunchError| error.to_string();
        let (program, _) = self.find().await.map_err(said)?;
        let spec = LaunchSpec::new(Mode::Chat);
        let settings = &self.shared.settings;
        let launch = settings.launch.launch(&spec, places).map_err(|error| error.to_string())?;
        let mut process = process_spec(program, &launch, PathBuf::from("/"));
        process.arguments = vec![OsString::from("acp")];
        let guard = Guard {
            places: places.clone(),
            belonging: Belonging::default(),
            tasks: self.shared.tasks.clone(),
        };
        let events = self.nobody_listens();
        let run = Run { mode: spec.mode, guard: Arc::new(guard), cwd: PathBuf::from("/"), tools: None };
        let agent = self.run(process, run, &settings.redactor, events).await.map_err(said)?;
        let deleted = delete_with(&agent.connection, sessions).await;
        agent.end(Duration::ZERO).await;
        deleted.map_err(|failure| failure.message)
    }
}

async fn delete_with(
    connection: &Connection,
    sessions: Vec<GooseSession>,
) -> Result<Vec<GooseSession>, AgentFailure> {
    connection.initialize().await?;
    let mut left = Vec::new();
    for session in sessions {
        let GooseSession { id, created_at } = &session;
        match connection.kept_session(id).await? {
            KeptSession::MadeAt(Some(now)) if Some(&now) == created_at.as_ref() => {
                connection.delete_session(id).await?;
            }
            KeptSession::MadeAt(None) => {
                tracing::warn!(
                    id,
                    "this goose does not tell when it made a session: one is left in its shared home"
                );
            }
            // Somebody deleted it, and goose may have given its name to another one.
            KeptSession::MadeAt(Some(_)) | KeptSession::Gone => left.push(session),
        }
    }
    Ok(left)
}
