//! Sessions in the home that goose shares with its user: which of them are gander's, and deleting those.
//!
//! They are in goose's own database, so only a goose can delete them. One is started for that, for a few requests, also
//! when the session's own goose would still run: one way is enough.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::folders::GONE;
use super::guard::Guard;
use super::settle::NotReady;
use super::{GooseLauncher, failed};
use crate::acp::{Connection, KeptSession};
use crate::goose::belonging::Belonging;
use crate::goose::noted::{self, GooseSession};
use crate::goose::places::{HomeKind, Places};
use crate::process::ProcessSpec;
use crate::session::agent::{Agent, AgentFailure, LaunchError, LaunchSpec, Mode};

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
            (KeptSession::MadeAt(now), Some(ours)) if now == ours.created_at => Ok(()),
            _ => Err(NotReady::Refused(failed(GONE))),
        }
    }

    /// Deletes the sessions in the shared home that are noted in the folder `root`.
    pub(super) async fn forget(&self, root: &Path) -> io::Result<()> {
        let noted = self.noted(root).await?;
        if noted.is_empty() {
            return Ok(());
        }
        let places = self.shared_places(root).map_err(io::Error::other)?;
        let deleting = async {
            let _place = self.shared.deleting.acquire().await.map_err(|error| error.to_string())?;
            self.delete(&places, &noted).await
        };
        let limit = self.shared.settings.start_timeout;
        let deleted = tokio::time::timeout(limit, deleting).await;
        deleted.unwrap_or_else(|_| Err("it took too long".into())).map_err(|reason| {
            tracing::error!(
                reason,
                "a deleted session is left in goose's shared home: the next start tries again"
            );
            io::Error::other(reason)
        })
    }

    async fn noted(&self, root: &Path) -> io::Result<Vec<GooseSession>> {
        let root = root.to_owned();
        let noted = self.shared.tasks.spawn_blocking(move || noted::noted(&root)).await;
        noted.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Has a goose delete those of the sessions that are still the ones that were noted. The error is for the log.
    async fn delete(&self, places: &Places, sessions: &[GooseSession]) -> Result<(), String> {
        let said = |error: LaunchError| error.to_string();
        let (program, _) = self.find().await.map_err(said)?;
        let spec = LaunchSpec::new(Mode::Chat);
        let settings = &self.shared.settings;
        let launch = settings.launch.launch(&spec, places).map_err(|error| error.to_string())?;
        let process = ProcessSpec {
            program,
            arguments: vec![OsString::from("acp")],
            environment: launch
                .environment
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            cwd: PathBuf::from("/"),
        };
        let guard = Guard {
            places: places.clone(),
            belonging: Belonging::default(),
            tasks: self.shared.tasks.clone(),
        };
        let (events, mut said_by_goose) = mpsc::channel(1);
        // What it says has to be taken for it to go on.
        self.shared.tasks.spawn(async move { while said_by_goose.recv().await.is_some() {} });
        let started = self.run(process, spec.mode, Arc::new(guard), &settings.redactor, events).await;
        let (agent, _) = started.map_err(said)?;
        let deleted = delete_with(&agent.connection, sessions).await;
        agent.end(Duration::ZERO).await;
        deleted.map_err(|failure| failure.message)
    }
}

async fn delete_with(connection: &Connection, sessions: &[GooseSession]) -> Result<(), AgentFailure> {
    connection.initialize().await?;
    for GooseSession { id, created_at } in sessions {
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
            KeptSession::MadeAt(Some(_)) | KeptSession::Gone => {}
        }
    }
    Ok(())
}
