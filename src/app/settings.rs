//! The configuration, as the other modules' own settings say it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::extensions::ExtensionFacts;
use super::launcher::{GooseLauncher, GooseSettings, Serve};
use crate::acp::{Redactor, WebSocketLimits};
use crate::client_tools::ToolSettings;
use crate::config::{self, Config, GooseTransport, OwnConfiguration, is_secret_name};
use crate::demo::ScriptedModel;
use crate::goose::extensions::{ExtensionLevel, about_other_sessions, reaching_other_sessions};
use crate::goose::launch::{LaunchSettings, OwnSettings};
use crate::goose::places::{HomeKind, SharedHome};
use crate::goose::serve;
use crate::goose::tools::GooseTools;
use crate::http::auth::Tenancy;
use crate::http::forwarded::{ProxyHeaders, TrustedProxies};
use crate::http::prompt::PromptLimits;
use crate::http::{HttpSettings, gate};
use crate::process::Spawner;
use crate::session::agent::LaunchSpec;
use crate::session::agent::client_tools::OfferedTools;
use crate::session::permission::PermissionSettings;
use crate::session::policy::PermissionPolicy;
use crate::session::registry::{CrashBounds, SessionSettings};
use crate::shutdown::Tasks;
use crate::traces::{ExporterSettings, Sampling, TraceSettings};

pub(super) fn launcher(
    config: &Config,
    model: Option<&ScriptedModel>,
    spawner: Spawner,
    tasks: &Tasks,
) -> GooseLauncher {
    let mut inherited = config.agent_environment();
    let mut last: Vec<(String, String)> =
        config.goose.env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect();
    let is_shared = config.goose.home == HomeKind::Shared;
    // goose's own files may name another provider than the built-in model.
    let config_dir = config.goose.config_dir.clone().filter(|_| model.is_none() || is_shared);
    if let Some(model) = model {
        inherited.retain(|(name, _)| !is_secret_name(name));
        last.extend(model.environment());
    }
    let secrets = inherited
        .iter()
        .chain(&last)
        .filter(|(name, _)| is_secret_name(name))
        .map(|(_, value)| value.clone());
    let dir = &config.storage.dir;
    let shared_home = config.shared_home();
    let folders = private_folders(inherited.iter().chain(&last), shared_home.as_ref(), dir);
    let redactor = Redactor::new(secrets.collect::<Vec<_>>(), folders);
    let finder = config.clone();
    let serve = serve(config, tasks);
    let settings = GooseSettings {
        find_program: Box::new(move || finder.goose_command()),
        launch: LaunchSettings {
            extensions: server_extensions(config),
            scheduler: config.goose.scheduler,
            inherited,
            last,
            own: own_settings(config),
        },
        servers: config.mcp.servers(),
        tools: tool_settings(config),
        home: config.goose.home,
        shared_home,
        config_dir,
        log_dir: config.goose.log_dir.clone(),
        homes: dir.join("homes"),
        workspaces: dir.join("workspaces"),
        start_timeout: config.goose.start_timeout,
        request_timeout: config.goose.request_timeout,
        line_bytes: config.limits.line_bytes,
        stderr_bytes: config.limits.stderr_bytes,
        pending_permissions: config.limits.pending_permissions,
        redactor,
    };
    GooseLauncher::new(settings, serve, spawner, tasks.clone())
}

/// The folders that callers must not see in what goose says.
fn private_folders<'a>(
    environment: impl Iterator<Item = &'a (String, String)>,
    shared_home: Option<&SharedHome>,
    storage: &Path,
) -> Vec<String> {
    let homes = environment.filter(|(name, _)| name == "HOME").map(|(_, value)| value.clone());
    let of_goose = shared_home.into_iter().flat_map(|home| [&home.configuration, &home.data, &home.logs]);
    let folders = of_goose.map(PathBuf::as_path).chain([storage]);
    homes.chain(folders.map(|folder| folder.to_string_lossy().into_owned())).collect()
}

/// The goose that all sessions share, if they do.
fn serve(config: &Config, tasks: &Tasks) -> Option<Serve> {
    let settings = config.goose.serve.clone();
    let limits = WebSocketLimits {
        sent_bytes: serve::MESSAGE_BYTES,
        received_bytes: config.limits.line_bytes,
        ping_interval: settings.ping_interval,
        ping_timeout: settings.ping_timeout,
    };
    let spec = LaunchSpec {
        provider: config.goose.provider.clone(),
        model: config.goose.model.clone(),
        ..LaunchSpec::new(config.goose.mode)
    };
    let sessions = config.sessions.max_running;
    (config.goose.transport == GooseTransport::Websocket)
        .then(|| Serve::new(settings, spec, limits, sessions, tasks.hard()))
}

/// What goose is offered of gander's own file system and terminal.
fn tool_settings(config: &Config) -> ToolSettings {
    ToolSettings {
        offered: OfferedTools { filesystem: config.goose.filesystem, terminal: config.goose.terminal },
        extra_roots: config.sessions.extra_roots.clone(),
        file_bytes: config.limits.file_bytes,
        diff_bytes: config.limits.diff_bytes,
        terminals: config.limits.terminals,
        live_bytes: config.limits.output_bytes,
        kept_bytes: config.limits.terminal_output_bytes,
        duration: config.limits.terminal_duration,
        environment: config.terminal_environment(),
    }
}

fn own_settings(config: &Config) -> OwnSettings {
    let OwnConfiguration { provider, model } = config.own_configuration();
    OwnSettings { provider, model, thinking_effort: config.goose.thinking_effort.clone() }
}

/// What a message has around its prompt, in bytes: less than this.
const AROUND_A_PROMPT: usize = 64 * 1024;

pub(super) fn extension_facts(config: &Config, launcher: GooseLauncher) -> ExtensionFacts {
    ExtensionFacts {
        launcher,
        server: server_extensions(config),
        extra: config.goose.extra_extensions.clone(),
    }
}

/// Whether all sessions have one home, which is not that of the user whom gander runs as.
fn has_one_home_of_ganders(config: &Config) -> bool {
    config.goose.transport == GooseTransport::Websocket && config.goose.home == HomeKind::Session
}

/// How many callers there may be.
pub(super) fn tenancy(config: &Config) -> Tenancy {
    if config.goose.home == HomeKind::Shared {
        return Tenancy::One("goose.home = \"shared\"".to_owned());
    }
    let reaching: Vec<&str> = reaching_other_sessions(&config.goose.builtins).collect();
    if reaching.is_empty() || !has_one_home_of_ganders(config) {
        return Tenancy::Several;
    }
    let reaching = reaching.join(", ");
    Tenancy::One(format!("goose.transport = \"websocket\" and {reaching} in goose.builtins"))
}

fn server_extensions(config: &Config) -> ExtensionLevel {
    let mut disabled = config.goose.disabled_extensions.clone();
    if !config.goose.scheduler {
        // Without its flag goose reports it as loaded, but gives the agent none of its tools (measured).
        disabled.push("scheduler".into());
    }
    if has_one_home_of_ganders(config) {
        // Those that are named stay, and then there is one caller.
        disabled.extend(about_other_sessions().map(str::to_owned));
    }
    ExtensionLevel { builtins: Some(config.goose.builtins.clone()), disabled }
}

pub(super) fn session_settings(config: &Config) -> SessionSettings {
    SessionSettings {
        max_sessions: config.sessions.max,
        max_running: config.sessions.max_running,
        max_starting: config.sessions.max_starting,
        tail_bytes: config.storage.tail_bytes,
        output_bytes: config.limits.output_bytes,
        pending_permissions: config.limits.pending_permissions,
        permissions: Arc::new(permission_settings(config)),
        end_grace: config.goose.end_grace,
        stop_grace: config.cancel.grace,
        turn_duration: config.turns.max_duration,
        crash: CrashBounds {
            deaths: config.crash.deaths,
            within: config.crash.within,
            cooldown: config.crash.cooldown,
        },
        idle_hibernate: config.sessions.idle_hibernate,
        event_queue: config.limits.event_queue,
        queued_turns: config.limits.queued_turns,
        turn_notices: config.limits.turn_notices,
        linked_file_bytes: config.limits.linked_file_bytes as u64,
    }
}

fn permission_settings(config: &Config) -> PermissionSettings {
    let permissions = &config.permissions;
    PermissionSettings {
        policy: PermissionPolicy {
            rules: permissions.rules.clone(),
            default: Some(permissions.default),
            ..PermissionPolicy::default()
        },
        timeout: permissions.timeout,
        on_no_subscriber: permissions.on_no_subscriber,
        allow_plan_write: permissions.allow_plan_write,
        grants: config.limits.permission_grants,
        tools: Arc::new(GooseTools),
    }
}

fn prompt_limits(config: &Config) -> PromptLimits {
    PromptLimits {
        blocks: config.limits.prompt_blocks,
        image_bytes: config.limits.image_bytes,
        json_bytes: match config.goose.transport {
            GooseTransport::Stdio => usize::MAX,
            GooseTransport::Websocket => serve::MESSAGE_BYTES - AROUND_A_PROMPT,
        },
    }
}

pub(super) fn trace_settings(config: &Config) -> Option<TraceSettings> {
    let traces = &config.traces;
    let headers = traces.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned()));
    Some(TraceSettings {
        exporter: ExporterSettings {
            endpoint: traces.endpoint.clone()?,
            headers: headers.collect(),
            timeout: traces.timeout,
            service_name: traces.service_name.clone(),
        },
        sampling: Sampling { ratio: traces.sample_ratio, caller_decides: traces.caller_decides },
        content: traces.content,
        queue_spans: traces.queue_spans,
    })
}

pub(super) fn http_settings(config: &Config, address: SocketAddr) -> HttpSettings {
    let mut allowed_hosts = gate::allowed_hosts(&config.server.allowed_hosts, address);
    let mut cors_origins = config.server.cors_origins.clone();
    if let Some((host, origin)) = config.server.public_host_and_origin() {
        allowed_hosts.push(host);
        cors_origins.push(origin);
    }
    HttpSettings {
        allowed_hosts,
        cors_origins,
        public_url: config.server.public_url.clone(),
        trusted_proxies: TrustedProxies {
            ranges: config.server.trusted_proxies(),
            headers: match config.server.proxy_headers {
                config::ProxyHeaders::XForwardedFor => ProxyHeaders::XForwardedFor,
                config::ProxyHeaders::XForwarded => ProxyHeaders::XForwarded,
                config::ProxyHeaders::Forwarded => ProxyHeaders::Forwarded,
            },
        },
        heartbeat: config.server.heartbeat,
        heartbeat_padding: config.server.heartbeat_padding,
        body_bytes: config.limits.body_bytes,
        prompt: prompt_limits(config),
        kept_answer_bytes: config.limits.idempotency_body_bytes,
        wait: config.limits.wait,
        streams_per_caller: config.limits.streams_per_caller,
        stream_tickets_per_caller: config.limits.stream_tickets_per_caller,
        header_timeout: config.server.header_timeout,
        write_timeout: config.server.write_timeout,
        max_connections: config.server.max_connections,
        auth_required: config.auth.required,
        loopback_only: address.ip().is_loopback(),
        storage_dir: config.storage.dir.clone(),
        cwd_roots: config.sessions.cwd_roots.clone(),
        default_mode: config.goose.mode,
        allow_modes: config.goose.allow_modes.clone(),
        default_provider: config.goose.provider.clone(),
        default_model: config.goose.model.clone(),
        caller_env: config.goose.caller_env.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_see_no_folder_that_goose_keeps_anything_in() {
        let set = [("HOME", "/h"), ("LANG", "/no/folder"), ("HOME", "/other")];
        let environment = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let shared = SharedHome::find(|name| match name {
            "XDG_DATA_HOME" => Some("/data".into()),
            "HOME" => Some("/other".into()),
            _ => None,
        });
        assert_eq!(
            private_folders(environment.iter(), shared.as_ref(), Path::new("/storage")),
            [
                "/h",
                "/other",
                "/other/.config/goose",
                "/data/goose",
                "/other/.local/state/goose/logs",
                "/storage"
            ]
        );
    }
}
