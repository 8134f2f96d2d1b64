//! What a session has on disk: goose's home, and the folder that it works in when its caller names none.

use std::io;
use std::path::{Path, PathBuf};

use super::{GooseLauncher, failed, not_made};
use crate::goose::launch::Launch;
use crate::goose::{home, memory};
use crate::session::agent::{LaunchError, LaunchSpec};
use crate::session::id::SessionId;

impl GooseLauncher {
    /// Makes the session's home, keeps in it what goose remembers, and finds where the session works. `earlier`: the
    /// extensions of the session's last agent, when it goes on with that one's session.
    pub(super) async fn prepare(
        &self,
        session: SessionId,
        spec: &LaunchSpec,
        earlier: Option<&[String]>,
        home: PathBuf,
        launch: &mut Launch,
    ) -> Result<PathBuf, LaunchError> {
        let config_dir = self.shared.settings.config_dir.clone();
        let cwd = spec.cwd.clone();
        let workspace = self.shared.settings.workspaces.join(session.to_string());
        let earlier = earlier.map(ToOwned::to_owned);
        let asked = launch.clone();
        let prepared = self.shared.tasks.spawn_blocking(move || {
            match &earlier {
                // goose goes on from what it has saved there; its configuration counted when the session was made.
                Some(_) if home.is_dir() => {}
                Some(_) => return Err(failed("what goose remembers of the session is gone")),
                None => make_home(&home, config_dir.as_deref(), &asked)?,
            }
            let memory = keep_memory(&home, &asked, earlier.as_deref())?;
            Ok((working_folder(cwd, workspace, earlier.is_some())?, memory))
        });
        let (cwd, memory) = prepared.await.unwrap_or_else(|error| {
            tracing::error!(%error, "preparing a session's folders failed");
            Err(failed("the session's folders cannot be made"))
        })?;
        if let Some(folder) = memory
            && !self.shared.settings.launch.sets_last(memory::VARIABLE)
        {
            let folder = folder.to_string_lossy().into_owned();
            launch.environment.insert(memory::VARIABLE.to_owned(), folder);
        }
        Ok(cwd)
    }

    /// Removes what a deleted session had on disk.
    pub(super) async fn remove_folders(self, session: SessionId) -> io::Result<()> {
        let home = self.shared.settings.homes.join(session.to_string());
        let workspace = self.shared.settings.workspaces.join(session.to_string());
        let removed = self.shared.tasks.spawn_blocking(move || {
            let home = home::remove(&home).map_err(io::Error::other);
            match std::fs::remove_dir_all(&workspace) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => home,
            }
        });
        removed.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

fn make_home(home: &Path, config_dir: Option<&Path>, launch: &Launch) -> Result<(), LaunchError> {
    // A start that failed has left one.
    home::remove(home).map_err(|error| {
        tracing::error!(%error, "a session's old goose home cannot be removed");
        not_made("the session's goose home cannot be made", &error)
    })?;
    home::prepare(home, config_dir, &launch.switched_off).map_err(|error| {
        tracing::error!(%error, "a session's goose home cannot be made");
        match error {
            home::HomeError::Malformed { .. } => {
                failed("goose's config.yaml is malformed: goose would skip it and switch every extension on")
            }
            error => not_made("the session's goose home cannot be made", &error),
        }
    })
}

/// Where goose's `memory` is to look for what it remembers, when the session may have it.
fn keep_memory(
    home: &Path,
    launch: &Launch,
    earlier: Option<&[String]>,
) -> Result<Option<PathBuf>, LaunchError> {
    if !memory::may_load(launch, home, earlier) {
        return Ok(None);
    }
    let kept = memory::keep_within(home, memory::users_folder(&launch.environment).as_deref());
    kept.map(Some).map_err(|error| {
        tracing::error!(%error, "a folder for what goose remembers cannot be made");
        not_made("the session's goose home cannot be made", &error)
    })
}

fn working_folder(cwd: Option<PathBuf>, workspace: PathBuf, is_there: bool) -> Result<PathBuf, LaunchError> {
    if let Some(cwd) = cwd {
        return Ok(cwd);
    }
    if !is_there {
        make_private_folder(&workspace).map_err(|error| {
            tracing::error!(%error, "a session's folder cannot be made");
            not_made("the session's folder cannot be made", &error)
        })?;
    }
    Ok(workspace)
}

/// Makes a folder that only this user can enter, with the folders above it.
pub(in crate::app) fn make_private_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
