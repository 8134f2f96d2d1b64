//! Which of the extensions that goose has loaded belong to a session, and which of those get round its questions.
//!
//! Measured on goose 1.52: a session that is loaded again has the extensions that it was saved with, whatever the
//! configuration and `--with-builtin` say now. Who can write to the session's home, as the agent's own shell can, can add
//! to them.

use std::collections::BTreeSet;

use super::catalogue;
use super::extensions::GETS_ROUND_QUESTIONS;
use super::servers::folded;
use crate::session::agent::{Mode, Notice, NoticeLevel};

/// What a session may have loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Belonging {
    /// The extensions that were asked for by name.
    named: BTreeSet<String>,
    switched_off: BTreeSet<String>,
    /// All that it may have, when that is known.
    known: Option<BTreeSet<String>>,
}

impl Belonging {
    /// `builtins` and `switched_off` as they were resolved; `earlier`: what the session's last agent had, when it goes on
    /// with that one's session.
    #[must_use]
    pub fn new(builtins: &[String], switched_off: &BTreeSet<String>, earlier: Option<&[String]>) -> Self {
        let keys = |names: &[String]| names.iter().map(|name| loaded_key(name)).collect::<BTreeSet<_>>();
        let named = keys(builtins);
        // With the extension manager the agent may add to them: that was asked for.
        let may_change = named.contains("extensionmanager");
        let known = earlier.map(keys).filter(|known| !known.is_empty() && !may_change);
        Self { named, switched_off: switched_off.clone(), known }
    }

    /// Takes the session's tool servers into account, by their names: one may load now that did not for the session's
    /// last agent, and one that is left out may not though it did.
    #[must_use]
    pub fn with_servers(mut self, servers: &[String], left_out: &[String]) -> Self {
        if let Some(known) = &mut self.known {
            known.retain(|name| !left_out.contains(name));
            known.extend(servers.iter().cloned());
        }
        self
    }

    /// Whether an extension may be there.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let is_known = |known: &BTreeSet<String>| known.contains(&loaded_key(name));
        !self.is_off(name) && self.known.as_ref().is_none_or(is_known)
    }

    /// Whether an extension is switched off.
    #[must_use]
    pub fn is_off(&self, name: &str) -> bool {
        self.switched_off.contains(&loaded_key(name))
    }

    /// Which of the loaded extensions are not to be there.
    #[must_use]
    pub fn intruders(&self, loaded: &[String]) -> Vec<String> {
        loaded.iter().filter(|name| !self.has(name)).cloned().collect()
    }

    /// What there is to tell of the extensions that a session has by name, in a mode that asks.
    #[must_use]
    pub fn warnings(&self, mode: Mode) -> Vec<Notice> {
        if !matches!(mode, Mode::Approve | Mode::SmartApprove) {
            return Vec::new();
        }
        let named = GETS_ROUND_QUESTIONS.iter().filter(|(name, _)| self.named.contains(*name));
        named
            .map(|(name, how)| Notice {
                level: NoticeLevel::Warning,
                code: "extension-gets-round-questions".into(),
                message: format!("{name} was asked for by name, in a mode that asks: {how}"),
            })
            .collect()
    }
}

/// What is told of an extension that was there and is not any more.
#[must_use]
pub fn removed(name: &str) -> Notice {
    Notice {
        level: NoticeLevel::Warning,
        code: "extension-removed".into(),
        message: format!("goose had loaded {name}, which does not belong to this session: it was removed"),
    }
}

/// The key under which goose lists a loaded extension.
fn loaded_key(name: &str) -> String {
    catalogue::find(name).map_or_else(|| folded(name), |extension| extension.name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &str) -> Vec<String> {
        names.split_whitespace().map(str::to_owned).collect()
    }

    fn belonging(builtins: &str, off: &str, earlier: Option<&str>) -> Belonging {
        let earlier = earlier.map(list);
        Belonging::new(&list(builtins), &list(off).into_iter().collect(), earlier.as_deref())
    }

    #[test]
    fn a_new_session_may_have_what_is_not_switched_off() {
        let session = belonging("todo", "summon developer", None);
        assert_eq!(session.intruders(&list("todo developer web summon")), ["developer", "summon"]);
        assert_eq!(session.intruders(&[]), Vec::<String>::new());
    }

    #[test]
    fn a_session_that_goes_on_may_have_what_it_had() {
        let session = belonging("todo", "summon", Some("todo developer summon web-One"));
        assert_eq!(session.intruders(&list("todo developer web-one")), Vec::<String>::new());
        // Switched off since, or never asked for.
        assert_eq!(session.intruders(&list("todo summon evil")), ["summon", "evil"]);
        // Of a session of which nothing is known only what is switched off can be told.
        assert_eq!(belonging("", "summon", Some("")).intruders(&list("todo summon")), ["summon"]);
        // The agent may add to them when it was given the means by name.
        let managed = belonging("extensionmanager", "summon", Some("developer extensionmanager"));
        assert_eq!(managed.intruders(&list("memory summon")), ["summon"]);
    }

    #[test]
    fn tool_servers_come_and_go_by_their_own_list() {
        let session = belonging("", "summon", Some("developer web gone"))
            .with_servers(&list("web late"), &list("gone"));
        assert_eq!(session.intruders(&list("developer web late gone evil")), ["gone", "evil"]);
        // A new session may have what is not switched off, servers among it.
        let session = belonging("", "summon", None).with_servers(&list("web"), &[]);
        assert_eq!(session.intruders(&list("developer web")), Vec::<String>::new());
    }

    #[test]
    fn names_are_compared_as_goose_lists_them() {
        for (name, key) in [
            ("my srv", "mysrv"),
            ("web-One", "web-one"),
            ("A.b/é", "a_b__"),
            ("_X_y_", "_x_y_"),
            ("tab\tx", "tabx"),
            ("Extension Manager", "extensionmanager"),
            ("codeexecution", "code_execution"),
        ] {
            assert_eq!(loaded_key(name), key);
        }
    }

    #[test]
    fn what_gets_round_questions_is_told_where_there_are_questions() {
        let session = belonging("todo summon code_execution", "", None);
        for mode in [Mode::Approve, Mode::SmartApprove] {
            let told = session.warnings(mode);
            assert_eq!(told.len(), 2, "{told:?}");
            assert!(told[0].message.starts_with("summon was asked for"), "{told:?}");
        }
        assert!(session.warnings(Mode::Auto).is_empty() && session.warnings(Mode::Chat).is_empty());
        assert!(belonging("todo", "", None).warnings(Mode::Approve).is_empty());
    }
}
