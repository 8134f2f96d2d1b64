//! What a session has on disk: goose's home, or what is beside the shared one, and the folder that it works in when its
//! caller names none.

use std::io;
use std::path::{Path, PathBuf};

use super::{GooseLauncher, failed, not_made, part};
use crate::goose::launch::Launch;
use crate::goose::places::{HomeKind, Places, SharedHome};
use crate::goose::{home, memory, noted};
use crate::session::agent::{LaunchError, LaunchSpec};
use crate::session::id::SessionId;

impl GooseLauncher {
    /// Where the goose of a new session keeps what is its own.
    pub(super) fn new_places(&self, session: SessionId) -> Result<Places, LaunchError> {
        let root = self.shared.settings.homes.join(session.to_string());
        if self.sessions_share_a_home() { self.shared_places(&root) } else { Ok(Places::own(&root)) }
    }

    pub(super) fn sessions_share_a_home(&self) -> bool {
        self.one_serves_all() || self.shared.settings.home == HomeKind::Shared
    }

    /// Where the goose of a session that goes on has kept what is its own: a session stays in the home it was made in.
    pub(super) async fn kept_places(&self, session: SessionId) -> Result<Places, LaunchError> {
        let root = self.shared.settings.homes.join(session.to_string());
        let looked = self.shared.tasks.spawn_blocking({
            let root = root.clone();
            move || (home::configuration_folder(&root).is_dir(), noted::noted(&root))
        });
        let (is_own, noted) = looked.await.map_err(|error| {
            tracing::error!(%error, "looking for a session's home failed");
            failed("the session's folders cannot be read")
        })?;
        let noted = noted.map_err(|error| {
            tracing::error!(%error, "a session's notes cannot be read");
            not_made("the session's folders cannot be read", &error)
        })?;
        match (is_own, self.sessions_share_a_home()) {
            (true, _) if self.one_serves_all() => Err(failed(
                "the session has a goose home of its own and goes on with goose.transport = \"stdio\" only",
            )),
            (true, _) => Ok(Places::own(&root)),
            (false, _) if noted.is_empty() => Err(failed(GONE)),
            (false, true) => self.shared_places(&root),
            // Nobody has looked whether it is for one caller alone.
            (false, false) => Err(failed(
                "the session was made in a home that sessions share, and goes on with the setting that it was made \
                 with only: goose.home = \"shared\" or goose.transport = \"websocket\"",
            )),
        }
    }

    pub(super) fn shared_places(&self, root: &Path) -> Result<Places, LaunchError> {
        let settings = &self.shared.settings;
        let home = match settings.home {
            HomeKind::Shared => settings.shared_home.clone(),
            HomeKind::Session => SharedHome::in_folder(&part::home_of_all(&settings.homes)),
        };
        home.map(|home| Places::shared(root, home))
            .ok_or_else(|| failed("goose's shared home cannot be told"))
    }

    /// Makes what the session is to have on disk, keeps in its home what goose remembers, and finds where the session
    /// works. `earlier`: the extensions of the session's last agent, when it goes on with that one's session.
    pub(super) async fn prepare(
        &self,
        session: SessionId,
        spec: &LaunchSpec,
        earlier: Option<&[String]>,
        places: &Places,
        launch: &mut Launch,
    ) -> Result<PathBuf, LaunchError> {
        let config_dir = self.shared.settings.config_dir.clone();
        let cwd = spec.cwd.clone();
        let workspace = self.shared.settings.workspaces.join(session.to_string());
        let earlier = earlier.map(ToOwned::to_owned);
        let (asked, places) = (launch.clone(), places.clone());
        let prepared = self.shared.tasks.spawn_blocking(move || {
            // goose goes on from what it has saved; the configuration counted when the session was made.
            if earlier.is_none() {
                make_places(&places, config_dir.as_deref(), &asked)?;
            }
            let may_remember = places.kind() == HomeKind::Session
                && memory::may_load(&asked, places.root(), earlier.as_deref());
            let memory = may_remember.then(|| keep_memory(places.root(), &asked)).transpose()?;
            Ok((working_folder(cwd, workspace, earlier.is_some())?, memory))
        });
        let (cwd, memory) = prepared.await.unwrap_or_else(|error| {
            tracing::error!(%error, "preparing a session's folders failed");
            Err(failed("the session's folders cannot be made"))
        })?;
        self.name_memory(memory, launch);
        Ok(cwd)
    }

    /// Makes the home of the goose that all sessions share, and what that is to be started with but for its arguments.
    pub(super) async fn prepare_serving(&self, spec: &LaunchSpec) -> Result<Launch, LaunchError> {
        let settings = &self.shared.settings;
        let root = part::home_of_all(&settings.homes);
        let places = match settings.home {
            HomeKind::Session => Places::own(&root),
            HomeKind::Shared => self.shared_places(&root)?,
        };
        let mut launch = settings.launch.launch(spec, &places).map_err(|error| failed(error.to_string()))?;
        // Servers that are reached through gander are on loopback.
        launch.reach_loopback_directly();
        let (config_dir, asked) = (settings.config_dir.clone(), launch.clone());
        let prepared = self.shared.tasks.spawn_blocking(move || {
            if places.kind() == HomeKind::Shared {
                // Nothing runs that could still use them.
                home::empty_temporary_folder(places.root()).map_err(|error| no_home(&error))?;
                return go_beside_the_shared_home(&places).map(|()| None);
            }
            let renewed = home::renew(places.root(), config_dir.as_deref(), &asked.switched_off);
            renewed.map_err(|error| no_home(&error))?;
            // Always, since sessions that had it come back with it, until it is taken from them.
            keep_memory(places.root(), &asked).map(Some)
        });
        let memory = prepared.await.unwrap_or_else(|error| {
            tracing::error!(%error, "preparing goose's home failed");
            Err(failed("goose's home cannot be made"))
        })?;
        self.name_memory(memory, &mut launch);
        Ok(launch)
    }

    fn name_memory(&self, memory: Option<PathBuf>, launch: &mut Launch) {
        if let Some(folder) = memory
            && !self.shared.settings.launch.sets_last(memory::VARIABLE)
        {
            let folder = folder.to_string_lossy().into_owned();
            launch.environment.insert(memory::VARIABLE.to_owned(), folder);
        }
    }

    /// Removes what a deleted session had on disk, and its sessions in the shared home. What cannot be removed stays for
    /// another attempt.
    pub(super) async fn remove_folders(self, session: SessionId) -> io::Result<()> {
        let home = self.shared.settings.homes.join(session.to_string());
        let workspace = self.shared.settings.workspaces.join(session.to_string());
        let forgotten = self.forget(&home).await;
        let is_forgotten = forgotten.is_ok();
        let removed = self.shared.tasks.spawn_blocking(move || {
            let home = if is_forgotten { home::remove(&home).map_err(io::Error::other) } else { Ok(()) };
            match std::fs::remove_dir_all(&workspace) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => home,
            }
        });
        let removed = removed.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        forgotten.and(removed)
    }

    /// Removes the folders of sessions that do not exist. Those with sessions in the shared home go in the background,
    /// since that takes a goose.
    pub(in crate::app) async fn remove_orphans(&self, exists: impl Fn(SessionId) -> bool + Send + 'static) {
        let settings = &self.shared.settings;
        let folders = [settings.homes.clone(), settings.workspaces.clone()];
        let homes = settings.homes.clone();
        let found = self.shared.tasks.spawn_blocking(move || {
            let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
            let ids =
                entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<SessionId>().ok());
            let orphans = ids.filter(|id| !exists(*id)).collect::<std::collections::BTreeSet<_>>();
            let in_shared_home = |id: &SessionId| {
                !noted::noted(&homes.join(id.to_string())).is_ok_and(|noted| noted.is_empty())
            };
            orphans.into_iter().partition::<Vec<_>, _>(in_shared_home)
        });
        let (in_shared_home, others) = found.await.unwrap_or_else(|error| {
            tracing::error!(%error, "looking for deleted sessions' folders failed");
            Default::default()
        });
        let remove = async |launcher: Self, session: SessionId| {
            if let Err(error) = launcher.remove_folders(session).await {
                tracing::warn!(%session, %error, "a deleted session's folder is left");
            }
        };
        for session in others {
            remove(self.clone(), session).await;
        }
        let launcher = self.clone();
        self.shared.tasks.spawn(async move {
            for session in in_shared_home {
                remove(launcher.clone(), session).await;
            }
        });
    }
}

/// There is nothing to go on from.
pub(super) const GONE: &str = "what goose remembers of the session is gone";

/// Makes what a new session has on disk of goose's.
pub(super) fn make_places(
    places: &Places,
    config_dir: Option<&Path>,
    launch: &Launch,
) -> Result<(), LaunchError> {
    match places.kind() {
        HomeKind::Session => make_home(places.root(), config_dir, launch),
        HomeKind::Shared => go_beside_the_shared_home(places),
    }
}

fn make_home(home: &Path, config_dir: Option<&Path>, launch: &Launch) -> Result<(), LaunchError> {
    // A start that failed has left one. What that made in the shared home is deleted with the session.
    noted::remove_all_else(home).map_err(|error| {
        tracing::error!(%error, "a session's old goose home cannot be removed");
        not_made("the session's goose home cannot be made", &error)
    })?;
    home::renew(home, config_dir, &launch.switched_off).map_err(|error| no_home(&error))
}

/// Makes the session's own folder, and looks whether goose would read its user's configuration. What is noted of an
/// earlier start stays; a configuration that it has left, in a home of the session's own, goes: it would say that the
/// session is at home there.
fn go_beside_the_shared_home(places: &Places) -> Result<(), LaunchError> {
    home::remove(&home::configuration_folder(places.root())).map_err(|error| no_home(&error))?;
    make_private_folder(&home::temporary_folder(places.root())).map_err(|error| {
        tracing::error!(%error, "a session's folder cannot be made");
        not_made("the session's folder cannot be made", &error)
    })?;
    home::check_configuration(&places.configuration()).map_err(|error| no_home(&error))
}

fn no_home(error: &home::HomeError) -> LaunchError {
    tracing::error!(%error, "a session's goose home cannot be made");
    match error {
        home::HomeError::Malformed { .. } => {
            failed("goose's config.yaml is malformed: goose would skip it and switch every extension on")
        }
        error => not_made("the session's goose home cannot be made", error),
    }
}

/// Where goose's `memory` is to look for what it remembers.
fn keep_memory(home: &Path, launch: &Launch) -> Result<PathBuf, LaunchError> {
    let kept = memory::keep_within(home, memory::users_folder(&launch.environment).as_deref());
    kept.map_err(|error| {
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
