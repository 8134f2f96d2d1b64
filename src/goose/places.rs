//! Where a goose keeps what is its own: in a home of its session's own, or in the user's, which all sessions share.
//!
//! Measured on goose 1.52: with `GOOSE_PATH_ROOT` everything is below that folder. Without it the configuration and the
//! memory of permissions are in `$XDG_CONFIG_HOME/goose`, the sessions in `$XDG_DATA_HOME/goose` and the logs in
//! `$XDG_STATE_HOME/goose/logs`, or below `~/.config`, `~/.local/share` and `~/.local/state`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::home;

const ROOT: &str = "GOOSE_PATH_ROOT";
/// The variables by which goose finds the user's home.
const VARIABLES: [&str; 5] = [ROOT, "HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"];

/// Whose home sessions work in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HomeKind {
    /// Each has one of its own.
    Session,
    /// All have that of the user whom gander runs as.
    Shared,
}

/// The home that goose has when nobody gives it another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedHome {
    /// The folder of its configuration and of what it remembers of permissions; it may not exist.
    pub configuration: PathBuf,
    /// The folder of its sessions.
    pub data: PathBuf,
    /// Where it writes its logs.
    pub logs: PathBuf,
    /// The variables by which goose finds all of it.
    variables: Vec<(String, String)>,
}

impl SharedHome {
    /// One that is all below a folder. `None` when its path is not absolute, or not UTF-8.
    #[must_use]
    pub fn in_folder(root: &Path) -> Option<Self> {
        let root = root.to_str()?;
        Self::find(|name| (name == ROOT).then(|| root.to_owned()))
    }

    /// Finds it as goose does, by variables. `None`: they do not tell. Relative paths do not count.
    pub fn find(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let absolute = |name: &&str| {
            let value = variable(name).filter(|value| Path::new(value).is_absolute())?;
            Some(((*name).to_owned(), value))
        };
        let variables: Vec<(String, String)> = VARIABLES.iter().filter_map(absolute).collect();
        let folder = |name: &str| {
            let found = variables.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| PathBuf::from(value))
        };
        if let Some(root) = folder(ROOT) {
            let (configuration, logs) = (home::configuration_folder(&root), home::logs(&root));
            return Some(Self { configuration, data: root.join("data"), logs, variables });
        }
        let in_home = |name, below| folder(name).or_else(|| folder("HOME").map(|home| home.join(below)));
        Some(Self {
            configuration: in_home("XDG_CONFIG_HOME", ".config")?.join("goose"),
            data: in_home("XDG_DATA_HOME", ".local/share")?.join("goose"),
            logs: in_home("XDG_STATE_HOME", ".local/state")?.join("goose/logs"),
            variables,
        })
    }
}

/// Where one session's goose keeps what is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    root: PathBuf,
    shared: Option<SharedHome>,
}

impl Places {
    /// The home `root` of a session's own.
    #[must_use]
    pub fn own(root: &Path) -> Self {
        Self { root: root.to_owned(), shared: None }
    }

    /// The shared home. `root` is a folder of the session's own, for what goes with the session all the same.
    #[must_use]
    pub fn shared(root: &Path, home: SharedHome) -> Self {
        Self { root: root.to_owned(), shared: Some(home) }
    }

    /// Whose home it is.
    #[must_use]
    pub fn kind(&self) -> HomeKind {
        if self.shared.is_some() { HomeKind::Shared } else { HomeKind::Session }
    }

    /// The session's own folder, which goes with it.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of `config.yaml` and `permission.yaml`.
    #[must_use]
    pub fn configuration(&self) -> PathBuf {
        let shared = self.shared.as_ref().map(|home| home.configuration.clone());
        shared.unwrap_or_else(|| home::configuration_folder(&self.root))
    }

    /// The folder below which goose writes its logs.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.shared.as_ref().map_or_else(|| home::logs(&self.root), |home| home.logs.clone())
    }

    /// The variables that make goose look there.
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        match &self.shared {
            Some(home) => home.variables.clone(),
            None => vec![(ROOT.to_owned(), self.root.to_string_lossy().into_owned())],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(set: &[(&str, &str)]) -> Option<SharedHome> {
        SharedHome::find(|name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_shared_home_is_where_goose_has_it() {
        for (set, configuration, logs) in [
            (&[("HOME", "/h")][..], "/h/.config/goose", "/h/.local/state/goose/logs"),
            (
                &[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "/s")],
                "/c/goose",
                "/s/goose/logs",
            ),
            (
                &[("HOME", "/h"), ("XDG_CONFIG_HOME", "c"), ("GOOSE_PATH_ROOT", "r")],
                "/h/.config/goose",
                "/h/.local/state/goose/logs",
            ),
            (&[("GOOSE_PATH_ROOT", "/r"), ("XDG_CONFIG_HOME", "/c")], "/r/config", "/r/state/logs"),
        ] {
            let home = find(set).unwrap();
            assert_eq!((home.configuration.to_str(), home.logs.to_str()), (Some(configuration), Some(logs)));
            let passed = home.variables.iter().all(|(name, value)| {
                Path::new(value).is_absolute() && set.contains(&(name.as_str(), value.as_str()))
            });
            assert!(passed, "{home:?}");
        }
        assert_eq!(find(&[("XDG_CONFIG_HOME", "/c")]), None);
        assert_eq!(find(&[]), None);
    }

    #[test]
    fn a_home_of_its_own_is_all_below_one_folder() {
        let own = Places::own(Path::new("/homes/one"));
        assert_eq!(own.configuration(), Path::new("/homes/one/config"));
        assert_eq!(own.logs(), Path::new("/homes/one/state/logs"));
        assert_eq!(own.variables(), [("GOOSE_PATH_ROOT".to_owned(), "/homes/one".to_owned())]);
        let home = find(&[("HOME", "/h"), ("XDG_DATA_HOME", "/d")]).unwrap();
        let shared = Places::shared(Path::new("/homes/one"), home);
        assert_eq!(shared.configuration(), Path::new("/h/.config/goose"));
        let names: Vec<String> = shared.variables().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["HOME", "XDG_DATA_HOME"]);
    }
}
