//! What callers may say about a session, checked.

mod extensions;
mod own_process;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use self::extensions::{Names, NamesSchema};
use super::policy_body::{self, PatchPermissionPolicy};
use super::servers::{AskedServer, AskedServerSchema};
use crate::http::HttpSettings;
use crate::http::host::{ExtensionWish, HostFacts};
use crate::http::problem::{FieldError, pointer_token};
use crate::session::agent::{LaunchSpec, Mode, Setting};
use crate::session::audit::By;
use crate::session::handle::SessionPatch;
use crate::session::policy::PermissionPolicy;
use crate::session::registry::NewSession;

/// Characters of a title.
const TITLE_CHARS: usize = 500;
/// Entries of the metadata.
const METADATA_ENTRIES: usize = 64;
/// Bytes of a metadata key.
const METADATA_KEY_BYTES: usize = 128;
/// Bytes of a metadata value.
const METADATA_VALUE_BYTES: usize = 4_096;
/// Bytes of the name of a provider, a model or an extension.
const NAME_BYTES: usize = 256;
/// Bytes of an environment variable's value.
const ENV_VALUE_BYTES: usize = 16 * 1024;

/// What is wrong with a body.
pub(super) type Faults = Vec<FieldError>;

/// A new session. Every field may be left out.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSession {
    /// Where the agent works: an absolute path of an existing directory. Left out: a new directory of the session's
    /// own.
    #[schema(examples("/home/me/project"))]
    cwd: Option<String>,
    /// For people. A title set here is not replaced by the agent's.
    #[schema(max_length = 500)]
    title: Option<String>,
    /// The caller's own notes.
    metadata: Option<BTreeMap<String, String>>,
    /// The mode to decide tool calls in; left out: the gateway's.
    #[schema(inline)]
    mode: Option<Mode>,
    /// The model's provider; left out: the gateway's.
    #[schema(examples("openai"))]
    provider: Option<String>,
    /// The model; left out: the gateway's, or the provider's own.
    #[schema(examples("gpt-4o"))]
    model: Option<String>,
    /// How much the model thinks, such as `low` or `high`: one of those that the model offers. Left out: the
    /// gateway's, where the model offers it.
    #[schema(examples("high"))]
    thinking_effort: Option<String>,
    /// The extensions to have, in place of the gateway's list: names, or text with commas.
    #[schema(value_type = Option<NamesSchema>)]
    builtins: Option<Names>,
    /// Extensions to be without, besides the gateway's list.
    #[schema(value_type = Option<NamesSchema>)]
    disabled_extensions: Option<Names>,
    /// Extensions, and servers, without which the session is not to be: when one of them does not load, it is not made
    /// (424), and later its turns fail.
    #[schema(value_type = Option<NamesSchema>)]
    require_extensions: Option<Names>,
    /// Environment variables of the agent; only names that the gateway's owner has left to callers.
    #[schema(example = json!({"GOOSE_MAX_TURNS": "40"}))]
    env: Option<BTreeMap<String, String>>,
    /// The session's own permission rules and terms, beside the gateway's. Rules and defaults that allow take the role
    /// `approve`.
    permission_policy: Option<PermissionPolicy>,
    /// The tool servers (MCP) to have: the gateway's by their names, and the caller's own as far as the gateway's owner
    /// lets callers bring some. Left out: all of the gateway's.
    #[schema(value_type = Option<Vec<AskedServerSchema>>, max_items = 32)]
    mcp_servers: Option<Vec<AskedServer>>,
}

impl CreateSession {
    /// The directory asked for.
    pub(super) fn cwd(&self) -> Option<&str> {
        self.cwd.as_deref()
    }

    /// The settings that the body itself names.
    pub(super) fn named_settings(&self) -> Vec<Setting> {
        let named = [
            (Setting::Provider, self.provider.is_some()),
            (Setting::Model, self.model.is_some()),
            (Setting::ThinkingEffort, self.thinking_effort.is_some()),
            (Setting::Mode, self.mode.is_some()),
        ];
        named.into_iter().filter_map(|(setting, is_named)| is_named.then_some(setting)).collect()
    }

    /// The permission policy asked for.
    pub(super) fn permission_policy(&self) -> Option<&PermissionPolicy> {
        self.permission_policy.as_ref()
    }

    /// Whether it names an extension that the gateway does not know of before it has asked the agent's program.
    pub(super) fn names_unknown_extension(&self, host: &dyn HostFacts) -> bool {
        let names = [&self.builtins, &self.disabled_extensions];
        names.into_iter().flatten().any(|names| names.has_unknown(host))
    }

    /// The session to make, but for its directory.
    pub(super) fn check(
        self,
        by: By,
        settings: &HttpSettings,
        host: &dyn HostFacts,
    ) -> Result<NewSession, Faults> {
        let mut check = Check::default();
        let title = self.title.inspect(|title| check.title(title));
        let metadata = self.metadata.unwrap_or_default();
        for (key, value) in &metadata {
            check.metadata(key, value);
        }
        check.metadata_entries(metadata.len());
        let mode = self.mode.inspect(|mode| check.mode(*mode, settings)).unwrap_or(settings.default_mode);
        let provider = self.provider.inspect(|name| check.setting("provider", name));
        let model = self.model.inspect(|name| check.setting("model", name));
        let thinking_effort = self.thinking_effort.inspect(|name| check.setting("thinking_effort", name));
        let builtins =
            self.builtins.inspect(|names| check.extensions("builtins", &names.0, ExtensionWish::Have, host));
        let disabled = self.disabled_extensions.unwrap_or_default();
        check.extensions("disabled_extensions", &disabled.0, ExtensionWish::BeWithout, host);
        let required = self.require_extensions.unwrap_or_default();
        check.required(&required.0);
        let env = self.env.unwrap_or_default();
        for (name, value) in &env {
            check.env(name, value, settings);
        }
        let permission_policy = self.permission_policy.unwrap_or_default();
        policy_body::add_faults(&permission_policy, &mut check.faults);
        let mcp_servers = check.servers(self.mcp_servers, host);
        // The gateway's model belongs to the gateway's provider.
        let default_model = settings
            .default_model
            .clone()
            .filter(|_| provider.is_none() || provider == settings.default_provider);
        check.done(NewSession {
            by,
            title,
            metadata,
            permission_policy,
            launch: LaunchSpec {
                provider: provider.or_else(|| settings.default_provider.clone()),
                model: model.or(default_model),
                thinking_effort,
                builtins: builtins.map(|names| names.0),
                disabled_extensions: disabled.0,
                require_extensions: required.0,
                env,
                mcp_servers,
                ..LaunchSpec::new(mode)
            },
        })
    }
}

/// A change of a session (RFC 7396): what is left out stays, null removes.
#[expect(clippy::option_option, reason = "absent, null and a value are three things in a merge patch")]
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchSession {
    /// The title; null removes it, so that the agent's is taken again.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, max_length = 500)]
    title: Option<Option<String>>,
    /// Merged into the metadata; a null entry is removed, null as a whole removes all.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<BTreeMap<String, Option<String>>>)]
    metadata: Option<Option<BTreeMap<String, Option<String>>>>,
    /// The mode.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Mode, inline, required = false)]
    mode: Option<Option<Mode>>,
    /// The model's provider.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = String, required = false)]
    provider: Option<Option<String>>,
    /// The model.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = String, required = false)]
    model: Option<Option<String>>,
    /// How much the model thinks: one of those that it offers. Null goes back to the default.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    thinking_effort: Option<Option<String>>,
    /// Merged into the permission policy; a null member is removed, null as a whole removes all. Rules and defaults
    /// that allow take the role `approve`. What is pending stays as it is.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<PatchPermissionPolicy>)]
    permission_policy: Option<Option<PatchPermissionPolicy>>,
}

/// A field that is there, be it null.
#[expect(clippy::option_option, reason = "absent, null and a value are three things in a merge patch")]
pub(super) fn given<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Some)
}

impl PatchSession {
    /// Whether the metadata changes, so that the change has to be checked against what is there.
    pub(super) fn changes_metadata(&self) -> bool {
        self.metadata.is_some()
    }

    /// What is said of the permission policy.
    pub(super) fn permission_policy(&self) -> Option<PermissionPolicy> {
        self.permission_policy.as_ref()?.as_ref().map(PatchPermissionPolicy::said)
    }

    /// The change; `metadata` is what the session has now.
    pub(super) fn check(
        self,
        metadata: &BTreeMap<String, String>,
        settings: &HttpSettings,
    ) -> Result<SessionPatch, Faults> {
        let mut check = Check::default();
        let title = self.title.inspect(|title| {
            if let Some(title) = title {
                check.title(title);
            }
        });
        let changed = match self.metadata {
            None => BTreeMap::new(),
            Some(None) => metadata.keys().map(|key| (key.clone(), None)).collect(),
            Some(Some(changed)) => changed,
        };
        for (key, value) in &changed {
            if let Some(value) = value {
                check.metadata(key, value);
            }
        }
        let kept = metadata.keys().filter(|key| !changed.contains_key(*key)).count();
        check.metadata_entries(kept + changed.values().flatten().count());
        let mode = check.not_null("mode", self.mode).inspect(|mode| check.mode(*mode, settings));
        let provider =
            check.not_null("provider", self.provider).inspect(|name| check.setting("provider", name));
        let model = check.not_null("model", self.model).inspect(|name| check.setting("model", name));
        let thinking_effort = self.thinking_effort.inspect(|name| {
            if let Some(name) = name {
                check.setting("thinking_effort", name);
            }
        });
        if let Some(Some(policy)) = &self.permission_policy {
            policy_body::add_faults(&policy.said(), &mut check.faults);
        }
        let permission_policy =
            self.permission_policy.map(|policy| policy.map(PatchPermissionPolicy::into_patch));
        check.done(SessionPatch {
            title,
            metadata: changed,
            provider,
            model,
            thinking_effort,
            mode,
            permission_policy,
        })
    }
}

/// Collects everything that is wrong with a body, so that callers need not find one fault after the other.
#[derive(Default)]
pub(super) struct Check {
    faults: Faults,
}

impl Check {
    pub(super) fn refuse(&mut self, pointer: impl Into<String>, detail: impl Into<String>) {
        self.faults.push(FieldError::new(pointer, detail));
    }

    fn done<T>(self, value: T) -> Result<T, Faults> {
        if self.faults.is_empty() { Ok(value) } else { Err(self.faults) }
    }

    #[expect(clippy::option_option, reason = "absent, null and a value are three things in a merge patch")]
    fn not_null<T>(&mut self, field: &str, value: Option<Option<T>>) -> Option<T> {
        if matches!(value, Some(None)) {
            self.refuse(
                format!("/{field}"),
                "must not be null: a session always has one, and it cannot be removed",
            );
        }
        value.flatten()
    }

    fn title(&mut self, title: &str) {
        if title.trim().is_empty() {
            self.refuse("/title", "must not be empty");
        } else if title.chars().count() > TITLE_CHARS {
            self.refuse("/title", format!("must not be longer than {TITLE_CHARS} characters"));
        } else if title.chars().any(char::is_control) {
            self.refuse("/title", "must not have control characters");
        }
    }

    fn metadata(&mut self, key: &str, value: &str) {
        let pointer = format!("/metadata/{}", pointer_token(key));
        if key.is_empty() || key.len() > METADATA_KEY_BYTES {
            self.refuse(pointer, format!("must have a key of 1 to {METADATA_KEY_BYTES} bytes"));
        } else if value.len() > METADATA_VALUE_BYTES {
            self.refuse(pointer, format!("must not be longer than {METADATA_VALUE_BYTES} bytes"));
        }
    }

    fn metadata_entries(&mut self, entries: usize) {
        if entries > METADATA_ENTRIES {
            self.refuse("/metadata", format!("must not have more than {METADATA_ENTRIES} entries"));
        }
    }

    fn mode(&mut self, mode: Mode, settings: &HttpSettings) {
        if !settings.allow_modes.contains(&mode) {
            let allowed: Vec<&str> = settings.allow_modes.iter().map(|mode| mode.as_str()).collect();
            self.refuse("/mode", format!("this gateway allows {}", allowed.join(", ")));
        }
    }

    fn setting(&mut self, field: &str, name: &str) {
        if name.trim().is_empty() || name.len() > NAME_BYTES || name.chars().any(char::is_control) {
            let detail = format!("must be a name of 1 to {NAME_BYTES} bytes without control characters");
            self.refuse(format!("/{field}"), detail);
        }
    }

    fn env(&mut self, name: &str, value: &str, settings: &HttpSettings) {
        let pointer = format!("/env/{}", pointer_token(name));
        if !settings.caller_env.iter().any(|allowed| allowed == name) {
            self.refuse(
                pointer,
                format!("{name}: is not among the variables that this gateway leaves to callers"),
            );
        } else if value.len() > ENV_VALUE_BYTES || value.contains('\0') {
            self.refuse(
                pointer,
                format!("must not be longer than {ENV_VALUE_BYTES} bytes or have zero bytes"),
            );
        }
    }
}

/// The real path of the directory that a session asks to work in.
///
/// What does not exist and what lies outside the allowed directories is refused in the same words: callers learn
/// nothing about the rest of the host. The path given on is free of symbolic links at the time of the check.
pub(super) async fn usable_cwd(cwd: &str, settings: &HttpSettings) -> Result<PathBuf, FieldError> {
    if !Path::new(cwd).is_absolute() {
        return Err(FieldError::new("/cwd", "must be an absolute path"));
    }
    if settings.cwd_roots.is_empty() && !settings.loopback_only {
        let detail =
            "must be left out: this gateway names no directories (sessions.cwd_roots) that sessions may use";
        return Err(FieldError::new("/cwd", detail));
    }
    match existing_directory(cwd).await {
        // Another session's folder, or its agent's home, is no place to work in: its owner may be somebody else.
        Some(directory) if lies_below(&directory, &settings.storage_dir).await => {
            Err(FieldError::new("/cwd", "must not lie in the gateway's own folder (storage.dir)"))
        }
        Some(directory) if is_within(&directory, &settings.cwd_roots).await => Ok(directory),
        _ if settings.cwd_roots.is_empty() => Err(FieldError::new("/cwd", "must be an existing directory")),
        _ => Err(FieldError::new(
            "/cwd",
            "must be an existing directory that sessions of this gateway may use",
        )),
    }
}

async fn existing_directory(path: impl AsRef<Path>) -> Option<PathBuf> {
    let path = tokio::fs::canonicalize(path).await.ok()?;
    // Callers see the path as JSON text.
    path.to_str()?;
    tokio::fs::metadata(&path).await.ok()?.is_dir().then_some(path)
}

/// Whether a real path lies in one of the roots; without any, everything does.
async fn is_within(directory: &Path, roots: &[PathBuf]) -> bool {
    for root in roots {
        if lies_below(directory, root).await {
            return true;
        }
    }
    roots.is_empty()
}

/// Whether a real path is a folder, by whatever path that is named, or lies below it.
async fn lies_below(directory: &Path, folder: &Path) -> bool {
    existing_directory(folder).await.is_some_and(|folder| directory.starts_with(folder))
}

#[cfg(test)]
mod tests;
