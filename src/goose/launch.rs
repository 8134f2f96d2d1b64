//! How goose is started for a session, and whether what it answers is what was asked for.
//!
//! goose's mistakes fail open (measured): an unknown mode becomes `auto`, an unreadable configuration switches
//! everything on. So nothing is taken for granted: [`check`] looks at what a new session says of itself.

use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

use super::catalogue::{find, key_of, same};
use super::extensions::{DisabledByServer, ExtensionChoice, ExtensionLevel};
use super::home;
use super::outcome::without_addresses;
use super::places::{HomeKind, Places};
use crate::session::agent::{ConfigOption, ExtensionStatus, LaunchSpec, Mode, Notice, NoticeLevel};

/// What the server's configuration says about every goose.
#[derive(Clone)]
pub struct LaunchSettings {
    /// The server's extensions.
    pub extensions: ExtensionLevel,
    /// Whether goose runs scheduled recipes.
    pub scheduler: bool,
    /// The variables that goose inherits from gander, by an allow-list.
    pub inherited: Vec<(String, String)>,
    /// The variables that are set last of all.
    pub last: Vec<(String, String)>,
    /// What goose has when it is told nothing.
    pub own: OwnSettings,
}

/// What goose has when it is told nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnSettings {
    /// Its provider.
    pub provider: Option<String>,
    /// Its model.
    pub model: Option<String>,
    /// The thinking effort of sessions that ask for none; goose leaves it out where a model does not offer it.
    pub thinking_effort: Option<String>,
}

/// How to start one goose.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The extensions to start besides goose's own defaults, by their keys.
    pub builtins: Vec<String>,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
    /// The extensions that are to be off, by their keys: in the configuration of a home of the session's own, else by
    /// unloading them.
    pub switched_off: BTreeSet<String>,
    /// Whether it is started with a placeholder for a model: goose makes no session without one, and what is set up for
    /// another provider would be wrong. The provider's own is to be set.
    pub wants_providers_model: bool,
}

/// No model's name.
const PLACEHOLDER_MODEL: &str = "default";

impl LaunchSettings {
    /// Puts the server's and the session's wishes together. goose is made to keep what is its own in `places`.
    pub fn launch(&self, spec: &LaunchSpec, places: &Places) -> Result<Launch, DisabledByServer> {
        let session =
            ExtensionLevel { builtins: spec.builtins.clone(), disabled: spec.disabled_extensions.clone() };
        let ExtensionChoice { builtins, switched_off } =
            ExtensionChoice::resolve(&self.extensions, &session)?;
        let mut arguments = vec!["acp".to_owned()];
        if !builtins.is_empty() {
            arguments.extend(["--with-builtin".to_owned(), builtins.join(",")]);
        }
        if self.scheduler {
            arguments.push("--enable-scheduler".to_owned());
        }
        let mut environment: BTreeMap<String, String> = self.inherited.iter().cloned().collect();
        let mut set = |name: &str, value: &str| environment.insert(name.to_owned(), value.to_owned());
        if places.kind() == HomeKind::Session {
            // A server has no keyring to ask. The user's own goose may keep its keys there.
            set("GOOSE_DISABLE_KEYRING", "1");
        }
        // Callers have not agreed to telemetry.
        set("GOOSE_TELEMETRY_ENABLED", "false");
        for (name, value) in places.variables() {
            set(&name, &value);
        }
        // The permission rules read shell lines as bash does (measured: goose runs `$GOOSE_SHELL -c <line>`).
        set("GOOSE_SHELL", "bash");
        set("TMPDIR", &home::temporary_folder(places.root()).to_string_lossy());
        set("GOOSE_MODE", spec.mode.as_str());
        if let Some(provider) = &spec.provider {
            set("GOOSE_PROVIDER", provider);
        }
        let wants_providers_model =
            spec.provider.is_some() && spec.model.is_none() && !self.has_model_for(spec);
        if let Some(model) = spec.model.as_deref().or(wants_providers_model.then_some(PLACEHOLDER_MODEL)) {
            set("GOOSE_MODEL", model);
        }
        if let Some(effort) = &self.own.thinking_effort {
            set("GOOSE_THINKING_EFFORT", effort);
        }
        environment.extend(spec.env.clone());
        environment.extend(self.last.iter().cloned());
        Ok(Launch { arguments, builtins, environment, switched_off, wants_providers_model })
    }

    /// The provider of sessions that name none.
    #[must_use]
    pub fn own_provider(&self) -> Option<&str> {
        self.set_last("GOOSE_PROVIDER").or(self.own.provider.as_deref())
    }

    /// Whether the model that goose has by itself is one of the session's provider.
    fn has_model_for(&self, spec: &LaunchSpec) -> bool {
        let model = self.set_last("GOOSE_MODEL").or(self.own.model.as_deref());
        model.is_some() && spec.provider.as_deref() == self.own_provider()
    }

    /// Whether the variable is one of those that are set last of all.
    #[must_use]
    pub fn sets_last(&self, name: &str) -> bool {
        self.set_last(name).is_some()
    }

    fn set_last(&self, name: &str) -> Option<&str> {
        self.last.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Launch {
    /// Lets goose ask what listens on 127.0.0.1 without a detour over the network's proxy, whatever the variables say of
    /// that. goose 1.52 heeds `NO_PROXY`, and `no_proxy` only without it (measured).
    pub fn reach_loopback_directly(&mut self) {
        let set = ["NO_PROXY", "no_proxy"]
            .iter()
            .find_map(|name| self.environment.get(*name).filter(|hosts| !hosts.trim().is_empty()).cloned());
        let hosts = set.map_or_else(|| "127.0.0.1".to_owned(), |hosts| format!("{hosts},127.0.0.1"));
        for name in ["NO_PROXY", "no_proxy"] {
            self.environment.insert(name.to_owned(), hosts.clone());
        }
    }
}

/// Why a session that goose has started is not the one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// It would ask more or less than the caller expects.
    #[error("goose runs in mode {found:?} instead of {asked:?}")]
    Mode {
        /// What was asked for.
        asked: &'static str,
        /// What goose says.
        found: String,
    },
    /// goose has no provider that it could ask anything.
    #[error("goose has no working model provider: set goose.provider and its key")]
    ProviderNotConfigured,
}

/// What a started session has, and what there is to tell about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The extensions by their catalogue keys.
    pub extensions: Vec<ExtensionStatus>,
    /// Its settings.
    pub config_options: Vec<ConfigOption>,
    /// Extensions that failed.
    pub notices: Vec<Notice>,
}

/// Compares what goose says of a new session with what was asked for.
pub fn check(
    asked: Mode,
    mode: Option<String>,
    config_options: Option<Vec<ConfigOption>>,
    extensions: Option<Vec<ExtensionStatus>>,
) -> Result<Checked, Mismatch> {
    let found = mode.unwrap_or_default();
    if found != asked.as_str() {
        return Err(Mismatch::Mode { asked: asked.as_str(), found });
    }
    // Measured: without a provider that can be made, goose leaves its settings out and is otherwise all smiles.
    let config_options =
        config_options.filter(|options| !options.is_empty()).ok_or(Mismatch::ProviderNotConfigured)?;
    let mut notices = Vec::new();
    let mut checked = Vec::new();
    for extension in extensions.unwrap_or_default() {
        if extension.loaded && extension.error.is_none() {
            checked.push(ExtensionStatus { name: key_of(&extension.name), ..extension });
        } else {
            let (extension, notice) = failed_extension(&extension);
            checked.push(extension);
            notices.push(notice);
        }
    }
    Ok(Checked { extensions: checked, config_options, notices })
}

/// An extension that did not load, as callers see it, and what there is to tell of it.
#[must_use]
pub fn failed_extension(extension: &ExtensionStatus) -> (ExtensionStatus, Notice) {
    let name = key_of(&extension.name);
    // A server's address is its owner's affair.
    let error = extension.error.as_deref().map(without_addresses);
    let message = match &error {
        Some(error) => format!("extension {name} could not be loaded: {error}"),
        None => format!("extension {name} could not be loaded"),
    };
    let notice = Notice { level: NoticeLevel::Warning, code: "extension-failed".into(), message };
    (ExtensionStatus { name, loaded: extension.loaded, error }, notice)
}

/// What there is to tell of extensions that mean something else than they say in a home of the session's own.
#[must_use]
pub fn out_of_place(extensions: &[ExtensionStatus]) -> Vec<Notice> {
    let loaded = extensions.iter().filter(|extension| extension.loaded);
    let known = loaded.filter_map(|extension| find(&extension.name));
    let out_of_place = known.filter(|extension| extension.needs_shared_home);
    out_of_place
        .map(|extension| Notice {
            level: NoticeLevel::Info,
            code: "extension-needs-shared-home".into(),
            message: format!(
                "{} is about more than one session, and this one has a goose home of its own",
                extension.name
            ),
        })
        .collect()
}

/// Which of the required extensions, by whatever name, are not there, and why.
#[must_use]
pub fn missing(required: &[String], extensions: &[ExtensionStatus]) -> Vec<ExtensionStatus> {
    let missing = |name: &String| match extensions.iter().find(|extension| same(&extension.name, name)) {
        Some(extension) if extension.loaded => None,
        Some(extension) => Some(extension.clone()),
        None => Some(absent(name, "the agent has not loaded it")),
    };
    required.iter().filter_map(missing).collect()
}

impl Launch {
    /// Which of the required extensions cannot be there.
    #[must_use]
    pub fn ruled_out(&self, required: &[String]) -> Vec<ExtensionStatus> {
        let is_off = |name: &&String| self.switched_off.contains(&key_of(name));
        required.iter().filter(is_off).map(|name| absent(name, "it is switched off")).collect()
    }
}

fn absent(name: &str, why: &str) -> ExtensionStatus {
    ExtensionStatus { name: key_of(name), loaded: false, error: Some(why.to_owned()) }
}

#[cfg(test)]
mod tests;
