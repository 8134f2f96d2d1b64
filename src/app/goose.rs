//! goose as the configuration wants it.

use super::extensions::ExtensionFacts;
use super::launcher::{GooseLauncher, GooseSettings};
use crate::acp::Redactor;
use crate::config::Config;
use crate::demo::ScriptedModel;
use crate::goose::extensions::ExtensionLevel;
use crate::goose::launch::LaunchSettings;
use crate::process::Spawner;
use crate::shutdown::Tasks;

/// Starts goose as the configuration says; `model` stands in for a provider.
pub(super) fn launcher(
    config: &Config,
    model: Option<&ScriptedModel>,
    spawner: Spawner,
    tasks: &Tasks,
) -> GooseLauncher {
    let mut inherited = config.agent_environment();
    let mut last: Vec<(String, String)> =
        config.goose.env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect();
    // goose's own files may name another provider than the built-in model.
    let config_dir = config.goose.config_dir.clone().filter(|_| model.is_none());
    if let Some(model) = model {
        inherited.retain(|(name, _)| !is_secret(name));
        last.extend(model.environment());
    }
    let secrets =
        inherited.iter().chain(&last).filter(|(name, _)| is_secret(name)).map(|(_, value)| value.clone());
    let homes = inherited.iter().filter(|(name, _)| name == "HOME").map(|(_, value)| value.clone());
    let dir = &config.storage.dir;
    let redactor = Redactor::new(
        secrets.collect::<Vec<_>>(),
        homes.chain([dir.to_string_lossy().into_owned()]).collect::<Vec<_>>(),
    );
    let finder = config.clone();
    let settings = GooseSettings {
        find_program: Box::new(move || finder.goose_command()),
        launch: LaunchSettings {
            extensions: server_extensions(config),
            scheduler: config.goose.scheduler,
            inherited,
            last,
        },
        config_dir,
        homes: dir.join("homes"),
        workspaces: dir.join("workspaces"),
        start_timeout: config.goose.start_timeout,
        line_bytes: config.limits.line_bytes,
        stderr_bytes: config.limits.stderr_bytes,
        pending_permissions: config.limits.pending_permissions,
        redactor,
    };
    GooseLauncher::new(settings, spawner, tasks.clone())
}

/// Whether a variable's value is kept from everyone's eyes, by its name.
fn is_secret(name: &str) -> bool {
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"]
        .iter()
        .any(|word| name.to_ascii_uppercase().contains(word))
}

/// What can be said of extensions before a session is started.
pub(super) fn extension_facts(config: &Config, launcher: GooseLauncher) -> ExtensionFacts {
    ExtensionFacts {
        launcher,
        server: server_extensions(config),
        extra: config.goose.extra_extensions.clone(),
    }
}

fn server_extensions(config: &Config) -> ExtensionLevel {
    let mut disabled = config.goose.disabled_extensions.clone();
    if !config.goose.scheduler {
        // Without its flag goose reports it as loaded, but gives the agent none of its tools (measured).
        disabled.push("scheduler".into());
    }
    ExtensionLevel { builtins: Some(config.goose.builtins.clone()), disabled }
}
