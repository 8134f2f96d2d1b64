//! Environment variables: what may be set for goose, what it inherits, what callers may set.

use super::GooseSettings;
use crate::config::environment::PREFIX;
use crate::config::error::{Problem, Violation};
use crate::config::secret::is_secret_name;

/// What callers may never set, by name.
const DANGEROUS_NAMES: [&str; 15] = [
    "PATH",
    "HOME",
    "SHELL",
    "ENV",
    "IFS",
    "TMPDIR",
    "EXTENSIONS",
    "GOOSE_ADDITIONAL_CONFIG_FILES",
    "GOOSE_PATH_ROOT",
    "GOOSE_MODE",
    "GOOSE_PROVIDER",
    "GOOSE_MODEL",
    // With it goose would take secrets from the system's keyring.
    "GOOSE_DISABLE_KEYRING",
    "GOOSE_TELEMETRY_ENABLED",
    // A program that goose runs.
    "GOOSE_STATUS_HOOK",
];
/// Whoever sets a provider's host gets its key; a proxy or a certificate of theirs sees everything; a path may mean
/// another host, name another program, or have a file of this host read out.
const DANGEROUS_ENDS: [&str; 30] = [
    "_API_KEY",
    "_KEY",
    "_TOKEN",
    "_SECRET",
    "_PASSWORD",
    "_CREDENTIALS",
    "_HEADERS",
    "_HOST",
    "_BASE_URL",
    "_URL",
    "_URI",
    "_ENDPOINT",
    "_PROXY",
    "_CERT",
    "_CERTS",
    "_BUNDLE",
    "_PATH",
    "_PATHS",
    "_FILE",
    "_FILES",
    "_DIR",
    "_ROOT",
    "_HOME",
    "_COMMAND",
    "_SHELL",
    "_OPTIONS",
    "_PROVIDER",
    "_BACKEND",
    "_RELAYS",
    "_REPO",
];
/// The dynamic linker's, interpreters', the server's and gander's own variables.
const DANGEROUS_STARTS: [&str; 12] = [
    "LD_",
    "DYLD_",
    "BASH_",
    "PYTHON",
    "PERL",
    "RUBY",
    "NODE_",
    "JAVA_",
    "GIT_",
    "XDG_",
    "GOOSE_SERVER__",
    PREFIX,
];

/// Checks the names that are set for goose, passed on to it and left to callers.
pub(super) fn validate(settings: &GooseSettings) -> Result<(), Violation> {
    for (name, value) in &settings.env {
        let problem = if name == "GOOSE_PATH_ROOT" {
            Problem::PathRoot
        } else if name == "GOOSE_ADDITIONAL_CONFIG_FILES" || name == "EXTENSIONS" {
            Problem::ExtensionsFromElsewhere
        } else if name == "GOOSE_SHELL" && value.expose().rsplit('/').next() != Some("bash") {
            Problem::OtherShell
        } else if name.starts_with(PREFIX) {
            Problem::OwnVariable
        } else if name.is_empty() || name.contains(['=', '\0']) {
            Problem::NotAVariable { found: name.clone(), prefixes: false }
        } else if value.expose().contains('\0') {
            Problem::NulInValue
        } else {
            continue;
        };
        return Err(Violation::new(format!("goose.env.{name}"), problem));
    }
    for (key, patterns) in
        [("goose.pass_env", &settings.pass_env), ("goose.terminal_env", &settings.terminal_env)]
    {
        let is_pattern = |text: &&String| is_variable_name(text.strip_suffix('*').unwrap_or(text));
        if let Some(pattern) = patterns.iter().find(|pattern| !is_pattern(pattern)) {
            let problem = Problem::NotAVariable { found: pattern.clone(), prefixes: true };
            return Err(Violation::new(key, problem));
        }
    }
    if let Some(name) = settings.terminal_env.iter().find(|name| !name.ends_with('*') && is_secret_name(name))
    {
        return Err(Violation::new("goose.terminal_env", Problem::NotForCommands { name: name.clone() }));
    }
    for name in &settings.caller_env {
        let problem = if !is_variable_name(name) {
            Problem::NotAVariable { found: name.clone(), prefixes: false }
        } else if is_dangerous(name) {
            Problem::NotForCallers { name: name.clone() }
        } else {
            continue;
        };
        return Err(Violation::new("goose.caller_env", problem));
    }
    Ok(())
}

fn is_variable_name(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_dangerous(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    DANGEROUS_NAMES.contains(&name.as_str())
        || DANGEROUS_ENDS.iter().any(|end| name.ends_with(end))
        || DANGEROUS_STARTS.iter().any(|start| name.starts_with(start))
}
