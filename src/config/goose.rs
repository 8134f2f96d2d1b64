//! `[goose]`: how goose is started.

mod serve;
mod variables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

pub use self::serve::{GooseTransport, ServeSettings};
use super::Environment;
use super::error::{Problem, Violation};
use super::parse;
use super::secret::Secret;
use super::server::check_positive;
use super::storage::absolute;
use crate::goose::catalogue;
use crate::goose::places::{HomeKind, SharedHome};
use crate::session::agent::Mode;

/// `[goose]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GooseSettings {
    /// The program: a name to look for on `PATH`, or a path.
    pub command: String,
    /// How gander talks to goose.
    #[serde(deserialize_with = "parse::word")]
    pub transport: GooseTransport,
    /// The goose that all sessions share, with that transport.
    pub serve: ServeSettings,
    /// Extensions to start besides goose's own defaults, by their catalogue keys.
    #[serde(deserialize_with = "parse::list")]
    pub builtins: Vec<String>,
    /// Extensions to switch off, by their catalogue keys.
    #[serde(deserialize_with = "parse::list")]
    pub disabled_extensions: Vec<String>,
    /// Names of extensions that the catalogue does not have, and that can be named all the same.
    #[serde(deserialize_with = "parse::list")]
    pub extra_extensions: Vec<String>,
    /// Whether goose runs scheduled recipes, and has the extension for them.
    pub scheduler: bool,
    /// Whose home sessions work in.
    #[serde(deserialize_with = "parse::word")]
    pub home: HomeKind,
    /// Whether goose's tools read and write files through gander.
    pub filesystem: bool,
    /// Whether goose's shell runs its commands through gander.
    pub terminal: bool,
    /// Names and prefixes of gander's own variables, and of those in `env`, that these commands have.
    #[serde(deserialize_with = "parse::list")]
    pub terminal_env: Vec<String>,
    /// The mode of a session whose caller names none.
    #[serde(deserialize_with = "parse::word")]
    pub mode: Mode,
    /// The modes that callers may ask for.
    #[serde(deserialize_with = "parse::list")]
    pub allow_modes: Vec<Mode>,
    /// The provider of a session whose caller names none; `None` leaves it to goose.
    #[serde(deserialize_with = "parse::optional_text")]
    pub provider: Option<String>,
    /// The model of a session whose caller names none; `None` leaves it to goose.
    #[serde(deserialize_with = "parse::optional_text")]
    pub model: Option<String>,
    /// The thinking effort of a session that asks for none, where its model offers it; `None` leaves it to goose.
    #[serde(deserialize_with = "parse::optional_text")]
    pub thinking_effort: Option<String>,
    /// Variables set for goose after all others. Mode, provider and model are no longer in it once loaded:
    /// they have become the defaults above, which a caller's choice replaces.
    #[serde(deserialize_with = "parse::variables")]
    pub env: BTreeMap<String, Secret>,
    /// Names and prefixes (`LC_*`) of gander's own variables that goose inherits.
    #[serde(deserialize_with = "parse::list")]
    pub pass_env: Vec<String>,
    /// Names of the variables that a session's `env` may set.
    #[serde(deserialize_with = "parse::list")]
    pub caller_env: Vec<String>,
    /// The folder that a session's goose configuration starts from, absolute once loaded; `None` starts it
    /// empty. In the shared home the folder of goose's own.
    #[serde(deserialize_with = "parse::optional_path")]
    pub config_dir: Option<PathBuf>,
    /// Where goose writes its log, absolute once loaded; `None`: where it does so by itself.
    #[serde(deserialize_with = "parse::optional_path")]
    pub log_dir: Option<PathBuf>,
    /// How long goose may take until a session is ready.
    #[serde(deserialize_with = "parse::duration")]
    pub start_timeout: Duration,
    /// How long goose may take to answer any other request than a prompt, before it is killed.
    #[serde(deserialize_with = "parse::duration")]
    pub request_timeout: Duration,
    /// How long goose may take to end by itself once its input is closed.
    #[serde(deserialize_with = "parse::duration")]
    pub end_grace: Duration,
}

impl GooseSettings {
    pub(super) fn resolve(&mut self, environment: &Environment) -> Result<(), Violation> {
        if let Some(word) = self.env.remove("GOOSE_MODE") {
            // goose takes an unknown mode for `auto`, hence it is checked here.
            self.mode = Mode::from_name(word.expose().trim()).ok_or_else(|| {
                let expected = "auto or approve or smart_approve or chat".to_owned();
                let found = format!("{:?}", word.expose());
                Violation::new("goose.env.GOOSE_MODE", Problem::Unexpected { expected, found })
            })?;
            if !self.allow_modes.contains(&self.mode) {
                let problem = Problem::ModeNotAllowed { mode: self.mode.as_str() };
                return Err(Violation::new("goose.env.GOOSE_MODE", problem));
            }
        }
        if let Some(provider) = self.env.remove("GOOSE_PROVIDER") {
            self.provider = Some(provider.expose().trim().to_owned()).filter(|text| !text.is_empty());
        }
        if let Some(model) = self.env.remove("GOOSE_MODEL") {
            self.model = Some(model.expose().trim().to_owned()).filter(|text| !text.is_empty());
        }
        for names in [&mut self.builtins, &mut self.disabled_extensions] {
            *names = keys_of(names);
        }
        if let Some(folder) = &self.log_dir {
            self.log_dir = Some(absolute("goose.log_dir", folder)?);
        }
        self.config_dir = match &self.config_dir {
            Some(_) if self.home == HomeKind::Shared => {
                return Err(Violation::new("goose.config_dir", Problem::SharedHomeHasItsOwn));
            }
            None if self.home == HomeKind::Shared => {
                let home = self.shared_home(environment);
                let problem = Problem::NoDefaultFolder { variable: "XDG_CONFIG_HOME" };
                Some(home.ok_or_else(|| Violation::new("goose.home", problem))?.configuration)
            }
            Some(folder) => Some(absolute("goose.config_dir", folder)?),
            None => environment
                .xdg_folder("XDG_CONFIG_HOME", ".config")
                .ok()
                .map(|folder| folder.join("goose"))
                .filter(|folder| folder.is_dir()),
        };
        Ok(())
    }

    pub(super) fn validate(&self) -> Result<(), Violation> {
        if self.command.trim().is_empty() {
            return Err(Violation::new("goose.command", Problem::Empty));
        }
        self.check_extensions("goose.builtins", &self.builtins)?;
        self.check_extensions("goose.disabled_extensions", &self.disabled_extensions)?;
        if !self.scheduler && self.builtins.iter().any(|name| name == "scheduler") {
            return Err(Violation::new("goose.builtins", Problem::SchedulerIsOff));
        }
        if self.allow_modes.is_empty() {
            return Err(Violation::new("goose.allow_modes", Problem::Empty));
        }
        if !self.allow_modes.contains(&self.mode) {
            let problem = Problem::ModeNotAllowed { mode: self.mode.as_str() };
            return Err(Violation::new("goose.mode", problem));
        }
        variables::validate(self)?;
        self.serve.validate()?;
        check_positive("goose.start_timeout", self.start_timeout)?;
        check_positive("goose.request_timeout", self.request_timeout)
    }

    fn check_extensions(&self, key: &str, names: &[String]) -> Result<(), Violation> {
        let is_extra = |name: &str| self.extra_extensions.iter().any(|extra| catalogue::same(extra, name));
        match names.iter().find(|name| catalogue::find(name).is_none() && !is_extra(name)) {
            None => Ok(()),
            Some(name) => {
                let nearest = catalogue::nearest(name);
                Err(Violation::new(key, Problem::UnknownExtension { name: name.clone(), nearest }))
            }
        }
    }

    /// The home that goose shares with its user, as goose finds it by its variables; `None`: they do not tell.
    pub(super) fn shared_home(&self, environment: &Environment) -> Option<SharedHome> {
        SharedHome::find(|name| match self.env.get(name) {
            Some(value) => Some(value.expose().to_owned()),
            None => environment.get(name)?.to_str().map(ToOwned::to_owned),
        })
    }

    /// What goose's own configuration file says of provider and model. An unusable file says nothing.
    pub(super) fn own_configuration(&self) -> OwnConfiguration {
        let read = || {
            let text = std::fs::read_to_string(self.config_dir.as_ref()?.join("config.yaml")).ok()?;
            serde_yaml_ng::from_str(&text).ok()
        };
        read().unwrap_or_default()
    }
}

/// The part of goose's own configuration that says who answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct OwnConfiguration {
    /// The provider.
    #[serde(rename = "GOOSE_PROVIDER")]
    pub provider: Option<String>,
    /// The model.
    #[serde(rename = "GOOSE_MODEL")]
    pub model: Option<String>,
}

/// The catalogue's keys for names as people write them, each once.
fn keys_of(names: &[String]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for key in names.iter().map(|name| catalogue::key_of(name)) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}
