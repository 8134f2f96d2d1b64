//! The environment as a value: read once at start, handed in everywhere else.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::error::Problem;

/// The prefix of gander's own variables.
pub(super) const PREFIX: &str = "GANDER_";

/// What goose may not inherit even when a pattern names it: where its home is, who may talk to its server,
/// and which extensions its home has is gander's business. Measured on goose 1.52: either of the last two
/// switches extensions on that the home's `config.yaml` has switched off.
const NEVER_PASSED: [&str; 4] =
    ["GOOSE_PATH_ROOT", "GOOSE_SERVER__SECRET_KEY", "GOOSE_ADDITIONAL_CONFIG_FILES", "EXTENSIONS"];

/// A copy of the environment variables. `Debug` shows names only.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// This process's variables.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub fn of_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// The value of a variable as it is. An empty one counts as absent, as the XDG specification wants.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// The variables whose name starts with the prefix `GANDER_`: the name as text and the value.
    pub(super) fn own(&self) -> impl Iterator<Item = (String, &OsStr)> {
        self.0.iter().filter_map(|(name, value)| {
            let name = name.to_string_lossy();
            name.starts_with(PREFIX).then(|| (name.into_owned(), value.as_os_str()))
        })
    }

    /// The variables that one of the patterns names.
    pub(super) fn passed(&self, patterns: &[String]) -> Vec<(String, String)> {
        let text = |(name, value): (&OsString, &OsString)| {
            Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()))
        };
        self.0
            .iter()
            .filter_map(text)
            .filter(|(name, _)| !name.starts_with(PREFIX) && !NEVER_PASSED.contains(&name.as_str()))
            .filter(|(name, _)| patterns.iter().any(|pattern| pattern_names(pattern, name)))
            .collect()
    }

    /// The executable file that a command means.
    pub(super) fn find_command(&self, command: &str) -> Option<PathBuf> {
        if command.contains('/') {
            return std::path::absolute(command).ok().filter(|path| is_executable(path));
        }
        // A relative entry of PATH would mean another program in another working directory.
        std::env::split_paths(self.get("PATH")?)
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(command))
            .find(|path| is_executable(path))
    }

    /// A folder of the XDG base directory specification: the variable when it holds an absolute path,
    /// else `in_home` below `HOME`.
    pub(super) fn xdg_folder(&self, variable: &'static str, in_home: &str) -> Result<PathBuf, Problem> {
        let absolute = |name| self.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        absolute(variable)
            .or_else(|| absolute("HOME").map(|home| home.join(in_home)))
            .ok_or(Problem::NoDefaultFolder { variable })
    }
}

/// Whether a name or a prefix such as `OPENAI_*` names the variable.
pub(super) fn pattern_names(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}
