//! `[auth]`: who may call.

use std::path::PathBuf;

use serde::Deserialize;

use super::error::{Problem, Violation};
use super::parse;
use super::server::ServerSettings;
use super::storage::absolute;

/// `[auth]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthSettings {
    /// Whether every call needs a token.
    pub required: bool,
    /// The file that lists the tokens, absolute once loaded; without one gander makes a token of its own.
    #[serde(deserialize_with = "parse::optional_path")]
    pub tokens_file: Option<PathBuf>,
}

impl AuthSettings {
    pub(super) fn resolve(&mut self) -> Result<(), Violation> {
        self.tokens_file =
            self.tokens_file.as_deref().map(|path| absolute("auth.tokens_file", path)).transpose()?;
        Ok(())
    }

    pub(super) fn validate(&self, server: &ServerSettings) -> Result<(), Violation> {
        if self.required || server.listen.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        Err(Violation::new("auth.required", Problem::OpenToTheNetwork { listen: server.listen }))
    }
}
