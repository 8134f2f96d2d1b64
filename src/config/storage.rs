//! `[storage]`: what gander keeps on disk.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::Environment;
use super::error::{Problem, Violation};
use super::limits::check_bytes;
use super::parse;
use super::server::check_positive;

/// `[storage]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageSettings {
    /// The folder of database, token, session homes and workspaces; absolute once loaded.
    #[serde(deserialize_with = "storage_folder")]
    pub dir: PathBuf,
    /// What a committed event survives.
    #[serde(deserialize_with = "parse::word")]
    pub sync: StorageSync,
    /// Bytes of recent events that each session keeps in memory.
    pub tail_bytes: usize,
    /// Bytes of events and records that may wait to be committed, over all sessions.
    pub queue_bytes: u32,
    /// The most bytes that the database may have; 0 for no limit.
    pub max_bytes: u64,
    /// Bytes of the disk held in reserve for deletions; 0 for none.
    pub reserve_bytes: u64,
    /// How long the answer to an idempotency key is kept.
    #[serde(deserialize_with = "parse::duration")]
    pub idempotency_keep: Duration,
    /// How long it is kept who did what; zero: for good.
    #[serde(deserialize_with = "parse::duration")]
    pub keep_audit: Duration,
}

/// What a committed event survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageSync {
    /// The end of the process, however it comes.
    Normal,
    /// Loss of power too: every commit waits for the disk.
    Full,
}

impl StorageSettings {
    pub(super) fn resolve(&mut self, environment: &Environment) -> Result<(), Violation> {
        const KEY: &str = "storage.dir";
        if self.dir.as_os_str().is_empty() {
            let state = environment.xdg_folder("XDG_STATE_HOME", ".local/state");
            self.dir = state.map_err(|problem| Violation::new(KEY, problem))?.join("gander");
        }
        self.dir = absolute(KEY, &self.dir)?;
        // goose is told of its home in text.
        self.dir.to_str().map(drop).ok_or_else(|| Violation::new(KEY, Problem::NotUtf8))
    }

    pub(super) fn validate(&self) -> Result<(), Violation> {
        check_bytes("storage.tail_bytes", self.tail_bytes)?;
        check_bytes("storage.queue_bytes", self.queue_bytes as usize)?;
        check_positive("storage.idempotency_keep", self.idempotency_keep)
    }
}

/// A path seen from where gander was started; children are started elsewhere.
pub(super) fn absolute(key: &str, path: &std::path::Path) -> Result<PathBuf, Violation> {
    std::path::absolute(path).map_err(|_| {
        Violation::new(key, Problem::UnusablePath { found: path.to_string_lossy().into_owned() })
    })
}

fn storage_folder<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Ok(parse::optional_path(deserializer)?.unwrap_or_default())
}
