//! `[sessions]`: how many there may be, and where they work.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::error::{Problem, Violation};
use super::limits::check_count;
use super::parse;

/// `[sessions]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSettings {
    /// Sessions that may exist at a time.
    pub max: usize,
    /// Sessions that may have a running goose at a time.
    pub max_running: usize,
    /// Gooses that may be started at a time.
    pub max_starting: usize,
    /// How long a session may be without a turn before it is deleted; zero: for ever.
    #[serde(deserialize_with = "parse::duration")]
    pub expire_after: Duration,
    /// After how long without a turn a session's goose is let go; zero: never.
    #[serde(deserialize_with = "parse::duration")]
    pub idle_hibernate: Duration,
    /// Folders below which a caller's `cwd` must lie. Empty: any existing folder while only loopback is
    /// listened on, none otherwise.
    #[serde(deserialize_with = "parse::list")]
    pub cwd_roots: Vec<PathBuf>,
    /// Folders besides its own in which every session's files may be read and written through gander.
    #[serde(deserialize_with = "parse::list")]
    pub extra_roots: Vec<PathBuf>,
}

impl SessionSettings {
    pub(super) fn validate(&self) -> Result<(), Violation> {
        check_count("sessions.max", self.max)?;
        check_count("sessions.max_running", self.max_running)?;
        check_count("sessions.max_starting", self.max_starting)?;
        for (key, roots) in
            [("sessions.cwd_roots", &self.cwd_roots), ("sessions.extra_roots", &self.extra_roots)]
        {
            if let Some(root) = roots.iter().find(|root| !root.is_absolute()) {
                let problem = Problem::NotAbsolute { found: root.to_string_lossy().into_owned() };
                return Err(Violation::new(key, problem));
            }
        }
        Ok(())
    }
}
