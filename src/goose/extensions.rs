//! Which of goose's extensions a session gets, from what the server and the session say.

use std::collections::BTreeSet;

use thiserror::Error;

use super::catalogue::{EXTENSIONS, find, key_of};

/// The extensions that get round the questions of a mode that asks, and how. They are off, in every mode, unless
/// somebody names them.
pub(super) const GETS_ROUND_QUESTIONS: [(&str, &str); 4] = [
    ("summon", "its subagents run tools without asking"),
    ("extensionmanager", "with it the agent can switch on what was switched off"),
    ("orchestrator", "it works in other sessions of goose, where nobody is asked"),
    ("code_execution", "its scripts call other tools, all of them under one question"),
];

/// The extensions by which the agent can start any other one, whatever is switched off: for itself, for a subagent that a
/// recipe describes, or for another session.
pub(super) const STARTS_OTHERS: [&str; 3] = ["summon", "extensionmanager", "orchestrator"];

/// The extensions that are about what the other sessions of the same home keep there.
pub fn about_other_sessions() -> impl Iterator<Item = &'static str> {
    EXTENSIONS.iter().filter(|extension| extension.needs_shared_home).map(|extension| extension.name)
}

/// Those of the extensions, by their keys, that give the agent what the other sessions of the same home keep there: by
/// themselves, or by what they can start.
pub fn reaching_other_sessions(keys: &[String]) -> impl Iterator<Item = &str> {
    let reaches = |key: &&str| {
        STARTS_OTHERS.contains(key) || find(key).is_some_and(|extension| extension.needs_shared_home)
    };
    keys.iter().map(String::as_str).filter(reaches)
}

/// What one level says. Names may be written in any way that [`key_of`] understands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtensionLevel {
    /// Extensions to start besides goose's defaults; `None` when the level says nothing about them.
    pub builtins: Option<Vec<String>>,
    /// Extensions to switch off. Within one level `builtins` wins.
    pub disabled: Vec<String>,
}

/// What a session's goose is started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtensionChoice {
    /// Keys for `--with-builtin`, each once, in the order they were given.
    pub builtins: Vec<String>,
    /// Keys to switch off in the home's configuration. None of them is in `builtins`, since goose starts
    /// what `--with-builtin` names whatever the configuration says.
    pub switched_off: BTreeSet<String>,
}

/// A session may only narrow what the server allows.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the server has switched off: {}", names.join(", "))]
pub struct DisabledByServer {
    /// The keys that the session named in its `builtins`.
    pub names: Vec<String>,
}

impl ExtensionChoice {
    /// Puts the two levels together. A session's `builtins` replaces the server's; its `disabled` adds to
    /// the server's and takes names out of the server's `builtins`.
    ///
    /// # Errors
    /// When the session's `builtins` names what the server has switched off.
    pub fn resolve(server: &ExtensionLevel, session: &ExtensionLevel) -> Result<Self, DisabledByServer> {
        let server_builtins = keys(server.builtins.as_deref().unwrap_or_default());
        let off_by_server = switched_off(&server_builtins, &server.disabled);
        let own_builtins = session.builtins.as_deref().map(keys);
        let off_by_session = switched_off(own_builtins.as_deref().unwrap_or_default(), &session.disabled);
        if let Some(own) = &own_builtins {
            let names: Vec<String> =
                own.iter().filter(|name| off_by_server.contains(*name)).cloned().collect();
            if !names.is_empty() {
                return Err(DisabledByServer { names });
            }
        }
        // A server's list that the session has replaced no longer keeps anything on.
        let off_by_server =
            if own_builtins.is_some() { switched_off(&[], &server.disabled) } else { off_by_server };
        let builtins = own_builtins.unwrap_or_else(|| {
            server_builtins.into_iter().filter(|name| !off_by_session.contains(name)).collect()
        });
        let mut off: BTreeSet<String> = GETS_ROUND_QUESTIONS.map(|(name, _)| name.to_owned()).into();
        off.extend(off_by_server);
        off.extend(off_by_session);
        off.retain(|name| !builtins.contains(name));
        Ok(Self { builtins, switched_off: off })
    }
}

/// What one level switches off. Without `developer` there is to be no shell, and the extension manager
/// could bring it back.
fn switched_off(builtins: &[String], disabled: &[String]) -> BTreeSet<String> {
    let is_off = |name: &String| !builtins.contains(name);
    let mut off: BTreeSet<String> = keys(disabled).into_iter().filter(is_off).collect();
    if off.contains("developer") {
        off.extend(Some("extensionmanager".to_owned()).filter(is_off));
    }
    off
}

/// The keys of the names, each once.
fn keys(names: &[String]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for key in names.iter().map(|name| key_of(name)).filter(|key| !key.is_empty()) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::{
        DisabledByServer, ExtensionChoice, ExtensionLevel, about_other_sessions, reaching_other_sessions,
    };

    /// Names separated by spaces; `None` is a level that does not say.
    fn level(builtins: Option<&str>, disabled: &str) -> ExtensionLevel {
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        ExtensionLevel { builtins: builtins.map(list), disabled: list(disabled) }
    }

    #[test]
    fn levels_are_put_together_as_documented() {
        let unsaid = || level(None, "");
        for (server, session, builtins, off) in [
            // One level.
            (level(Some("todo"), ""), unsaid(), "todo", "extensionmanager summon"),
            (unsaid(), unsaid(), "", "extensionmanager summon"),
            (level(Some("todo summon"), ""), unsaid(), "todo summon", "extensionmanager"),
            (level(Some("Extension_Manager TODO todo"), ""), unsaid(), "extensionmanager todo", "summon"),
            (level(Some("todo"), "apps"), unsaid(), "todo", "apps extensionmanager summon"),
            (level(Some("apps"), "apps"), unsaid(), "apps", "extensionmanager summon"),
            (level(Some("todo"), "developer"), unsaid(), "todo", "developer extensionmanager summon"),
            (level(Some("extensionmanager"), "developer"), unsaid(), "extensionmanager", "developer summon"),
            // The session's builtins replace the server's.
            (level(Some("todo memory"), ""), level(Some("apps"), ""), "apps", "extensionmanager summon"),
            (level(Some("todo"), ""), level(Some(""), ""), "", "extensionmanager summon"),
            (level(Some("summon"), ""), level(Some("todo"), ""), "todo", "extensionmanager summon"),
            (level(Some("todo"), ""), level(Some("summon"), ""), "summon", "extensionmanager"),
            (level(Some("apps"), "apps"), level(Some("todo"), ""), "todo", "apps extensionmanager summon"),
            (level(Some("apps"), "apps"), level(Some("apps"), ""), "apps", "extensionmanager summon"),
            // The session's disabled names add, and come out of the server's builtins.
            (level(Some("todo"), "apps"), level(None, "tom"), "todo", "apps extensionmanager summon tom"),
            (level(Some("todo memory"), ""), level(None, "todo"), "memory", "extensionmanager summon todo"),
            (level(Some("todo"), ""), level(Some("todo"), "todo"), "todo", "extensionmanager summon"),
            (
                level(Some("todo extensionmanager"), ""),
                level(None, "developer"),
                "todo",
                "developer extensionmanager summon",
            ),
        ] {
            let choice = ExtensionChoice::resolve(&server, &session).unwrap();
            let mut switched_off: Vec<&str> = choice.switched_off.iter().map(String::as_str).collect();
            for never_named in ["code_execution", "orchestrator"] {
                assert!(choice.switched_off.contains(never_named), "{server:?} {session:?}");
                switched_off.retain(|name| *name != never_named);
            }
            assert_eq!(choice.builtins.join(" "), builtins, "{server:?} {session:?}");
            assert_eq!(switched_off.join(" "), off, "{server:?} {session:?}");
        }
    }

    #[test]
    fn what_reaches_other_sessions_is_known() {
        let named = ["todo", "memory", "summon", "mine", "chatrecall", "extensionmanager"].map(str::to_owned);
        let reaching: Vec<&str> = reaching_other_sessions(&named).collect();
        assert_eq!(reaching, ["memory", "summon", "chatrecall", "extensionmanager"]);
        let about: Vec<&str> = about_other_sessions().collect();
        assert_eq!(about, ["scheduler", "chatrecall", "orchestrator", "memory"]);
    }

    #[test]
    fn a_session_cannot_bring_back_what_the_server_switched_off() {
        for (server, session, names) in [
            (level(Some("todo"), "developer"), level(Some("todo developer"), ""), &["developer"][..]),
            (level(None, "developer"), level(Some("Extension_Manager"), ""), &["extensionmanager"]),
            (level(None, "apps tom"), level(Some("tom apps"), "apps"), &["tom", "apps"]),
        ] {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(ExtensionChoice::resolve(&server, &session), Err(DisabledByServer { names }));
        }
    }
}
