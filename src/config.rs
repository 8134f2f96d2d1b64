//! Configuration in layers: the embedded `gander.default.toml`, a file, `GANDER_…` variables, flags.
//!
//! A later layer wins key by key. `GANDER_GOOSE__COMMAND` sets `goose.command`: the first `__` parts the
//! section from the key, a second one a table's own key (`GANDER_GOOSE__ENV__OPENAI_HOST`). Lists may be
//! TOML arrays or comma-separated text.
//!
//! One section is one file with a `validate()`. Every error is one line that names the key and where its
//! value came from.
//!
//! Architecture invariant: no other module reads the environment. What others need from it is offered
//! here (`Config::agent_environment`, `Config::goose_command`), read from an `Environment` that was
//! handed in, so that tests never touch the process.

mod auth;
mod environment;
mod error;
mod goose;
mod layers;
mod limits;
mod log;
mod mcp;
mod parse;
mod permissions;
mod secret;
mod server;
mod sessions;
mod storage;
#[cfg(test)]
mod tests;
mod traces;
mod turns;

use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use auth::AuthSettings;
pub use environment::Environment;
use environment::pattern_names;
pub use error::{ConfigError, Origin, Problem, Violation};
pub use goose::{GooseSettings, GooseTransport, OwnConfiguration, ServeSettings};
pub use layers::Flag;
pub use limits::LimitSettings;
pub use log::{LogFormat, LogSettings};
pub use mcp::McpSettings;
pub use permissions::PermissionSettings;
pub use secret::{Secret, is_secret_name};
pub use server::{ProxyHeaders, ServerSettings};
pub use sessions::SessionSettings;
pub use storage::{StorageSettings, StorageSync};
pub use traces::TraceSettings;
pub use turns::{CancelSettings, CrashSettings, TurnSettings};

use layers::Layers;

use crate::goose::places::{HomeKind, SharedHome};

/// The commented defaults: the lowest layer, and what `gander config` prints.
pub const DEFAULTS: &str = include_str!("../gander.default.toml");

/// The exit code for an unusable configuration (`EX_USAGE` of sysexits).
pub const EXIT_CODE: u8 = 64;

/// The whole configuration, checked and with its default folders filled in.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where gander listens and how it serves.
    pub server: ServerSettings,
    /// What gander keeps on disk.
    pub storage: StorageSettings,
    /// Who may call.
    pub auth: AuthSettings,
    /// How goose is started.
    pub goose: GooseSettings,
    /// The tool servers that sessions get.
    pub mcp: McpSettings,
    /// What happens to goose's permission requests.
    pub permissions: PermissionSettings,
    /// How many sessions there may be, and where they work.
    pub sessions: SessionSettings,
    /// How long turns may take.
    pub turns: TurnSettings,
    /// How turns are stopped.
    pub cancel: CancelSettings,
    /// What becomes of a session whose goose dies again and again.
    pub crash: CrashSettings,
    /// Bounds on everything that callers and agents send.
    pub limits: LimitSettings,
    /// gander's own log.
    pub log: LogSettings,
    /// Traces for OpenTelemetry collectors.
    pub traces: TraceSettings,
    /// What the variables were when the configuration was read.
    #[serde(skip)]
    environment: Environment,
}

impl Config {
    /// Reads all layers and checks them: the defaults, `file`, the `GANDER_…` variables of `environment`,
    /// and last the command line's `flags`.
    ///
    /// # Errors
    /// When the file cannot be read or is no TOML, when a key is unknown or has a value of the wrong type,
    /// when a value breaks a rule of its section, and when a default folder cannot be told.
    pub fn load(file: Option<&Path>, environment: Environment, flags: &[Flag]) -> Result<Self, ConfigError> {
        let layers = Layers::read(file, &environment, flags)?;
        let mut config: Self = layers.extract()?;
        config.environment = environment;
        config.resolve().and_then(|()| config.validate()).map_err(|violation| layers.locate(violation))?;
        Ok(config)
    }

    /// Fills in what depends on the machine: default folders, and the defaults that `goose.env` sets.
    fn resolve(&mut self) -> Result<(), Violation> {
        self.server.resolve();
        self.storage.resolve(&self.environment)?;
        self.auth.resolve()?;
        self.traces.resolve()?;
        self.goose.resolve(&self.environment)
    }

    fn validate(&self) -> Result<(), Violation> {
        self.server.validate()?;
        self.storage.validate()?;
        self.auth.validate(&self.server)?;
        self.goose.validate()?;
        self.mcp.validate()?;
        self.permissions.validate()?;
        self.sessions.validate()?;
        self.crash.validate()?;
        self.limits.validate()?;
        self.log.validate()?;
        self.traces.validate()
    }

    /// What goose inherits: gander's own variables that `goose.pass_env` names, sorted by name.
    ///
    /// `GANDER_…` variables, `GOOSE_PATH_ROOT` and `GOOSE_SERVER__SECRET_KEY` never pass, whatever is
    /// listed; a value that is not UTF-8 is left out. `goose.env` is not in it: it is applied last of all.
    #[must_use]
    pub fn agent_environment(&self) -> Vec<(String, String)> {
        self.environment.passed(&self.goose.pass_env)
    }

    /// The variables of commands that goose's shell runs through gander: those of gander's own, and of `goose.env`, that
    /// `goose.terminal_env` names. What goose itself has besides, its provider's key above all, is not among them: no
    /// pattern names a secret.
    #[must_use]
    pub fn terminal_environment(&self) -> Vec<(String, String)> {
        let patterns = &self.goose.terminal_env;
        let is_named = |name: &str| patterns.iter().any(|pattern| pattern_names(pattern, name));
        let set = self.goose.env.iter().filter(|(name, _)| is_named(name));
        let set = set.map(|(name, value)| (name.clone(), value.expose().to_owned()));
        let named = self.environment.passed(patterns).into_iter().chain(set);
        named.filter(|(name, _)| !is_secret_name(name)).collect()
    }

    /// The home that goose shares with its user: where it keeps what is its own when nobody gives it another one, by
    /// `goose.env`, else by gander's own variables. `None`: they do not tell.
    #[must_use]
    pub fn shared_home(&self) -> Option<SharedHome> {
        self.goose.shared_home(&self.environment)
    }

    /// The same, when sessions work in it.
    #[must_use]
    pub fn shared_home_in_use(&self) -> Option<SharedHome> {
        self.shared_home().filter(|_| self.goose.home == HomeKind::Shared)
    }

    /// The executable that `goose.command` means, or `None` when there is none: a bare name is looked for
    /// on `PATH`, anything with a slash in it is a path.
    #[must_use]
    pub fn goose_command(&self) -> Option<PathBuf> {
        self.environment.find_command(&self.goose.command)
    }

    /// The provider that goose will use when a caller names none: `goose.provider`, else its own.
    #[must_use]
    pub fn provider(&self) -> Option<String> {
        self.goose
            .provider
            .clone()
            .filter(|provider| !provider.is_empty())
            .or_else(|| self.own_configuration().provider)
    }

    /// What goose has when it is told nothing: by the inherited variables, else by `config.yaml` of `goose.config_dir`.
    #[must_use]
    pub fn own_configuration(&self) -> OwnConfiguration {
        let OwnConfiguration { provider, model } = self.goose.own_configuration();
        let inherited = self.agent_environment();
        let own = |variable: &str, in_file: Option<String>| {
            let value = inherited.iter().find(|(name, _)| name == variable).map(|(_, value)| value.clone());
            value.or(in_file).filter(|value| !value.is_empty())
        };
        OwnConfiguration { provider: own("GOOSE_PROVIDER", provider), model: own("GOOSE_MODEL", model) }
    }

    /// The socket on which a service manager wants to hear how far gander is (`NOTIFY_SOCKET`, see `sd_notify(3)`).
    #[must_use]
    pub fn notify_socket(&self) -> Option<PathBuf> {
        self.environment.get("NOTIFY_SOCKET").map(PathBuf::from)
    }

    /// Whether goose has a provider set up. Whether its key works, only a model call can tell.
    #[must_use]
    pub fn provider_configured(&self) -> bool {
        self.provider().is_some()
    }
}
