//! What can be said of extensions before a session is started: which there are, which a session gets, and whether it
//! can have its wish.

use super::launcher::GooseLauncher;
use crate::goose::catalogue::{self, EXTENSIONS, Runs};
use crate::goose::extensions::{DisabledByServer, ExtensionChoice, ExtensionLevel};
use crate::goose::listing::Listed;
use crate::http::host::{Extension, ExtensionRefusal, ExtensionWish, Extensions};
use crate::session::agent::servers::{McpServerChoice, McpServerFault, McpServerWish};

/// The extensions of this gateway's goose.
#[derive(Clone)]
pub(super) struct ExtensionFacts {
    pub(super) launcher: GooseLauncher,
    /// What the configuration says of them.
    pub(super) server: ExtensionLevel,
    /// Names that the owner vouches for though the catalogue does not have them.
    pub(super) extra: Vec<String>,
}

impl ExtensionFacts {
    /// The catalogue and what else goose lists, with what a session gets that says nothing of extensions.
    pub(super) async fn list(self) -> Extensions {
        let (listed, effective_error) = match self.launcher.listing().await {
            Ok(listed) => (Some(listed), None),
            Err(reason) => (None, Some(reason)),
        };
        let choice = ExtensionChoice::resolve(&self.server, &ExtensionLevel::default()).unwrap_or_default();
        // `unlisted`: goose lists it only when it is configured.
        let row = |name: &str, default, provides: &str, needs_shared_home, unlisted| Extension {
            name: name.to_owned(),
            default,
            provides: provides.to_owned(),
            needs_shared_home,
            effective: listed.as_deref().map(|listed| is_effective(listed, &choice, name, unlisted)),
        };
        let mut extensions: Vec<Extension> = Vec::new();
        for known in &EXTENSIONS {
            let bundled = known.runs == Runs::Bundled;
            let default = Some(known.on_by_default);
            extensions.push(row(known.name, default, known.provides, known.needs_shared_home, bundled));
        }
        for found in listed.iter().flat_map(|listed| listed.iter()) {
            if catalogue::find(&found.key).is_none() {
                extensions.push(row(&found.key, None, &found.description, false, false));
            }
        }
        for name in &self.extra {
            if !extensions.iter().any(|extension| catalogue::same(&extension.name, name)) {
                extensions.push(row(name, None, "", false, true));
            }
        }
        Extensions { extensions, effective_error }
    }

    /// Whether a session can have its wish. What only goose knows counts once it has been [listed](Self::list).
    pub(super) fn check(&self, name: &str, wish: ExtensionWish) -> Result<(), ExtensionRefusal> {
        if !self.is_known(name, wish) {
            return Err(ExtensionRefusal::Unknown { nearest: catalogue::nearest(name) });
        }
        if wish == ExtensionWish::BeWithout {
            return Ok(());
        }
        if self.launcher.one_serves_all() && !self.is_started(name) {
            return Err(ExtensionRefusal::NotShared);
        }
        let session = ExtensionLevel { builtins: Some(vec![name.to_owned()]), disabled: Vec::new() };
        match ExtensionChoice::resolve(&self.server, &session) {
            Err(DisabledByServer { .. }) => Err(ExtensionRefusal::SwitchedOff),
            Ok(_) => Ok(()),
        }
    }

    /// Whether a goose that is started for all sessions has the extension.
    fn is_started(&self, name: &str) -> bool {
        let choice = ExtensionChoice::resolve(&self.server, &ExtensionLevel::default()).unwrap_or_default();
        choice.builtins.iter().any(|builtin| catalogue::same(builtin, name))
            || catalogue::find(name)
                .is_some_and(|known| known.on_by_default && !choice.switched_off.contains(known.name))
    }

    /// The tool servers of a session that has these wishes. goose's configuration may have servers of its own, whose
    /// names callers cannot take either.
    pub(super) fn choose_servers(
        &self,
        wishes: Option<Vec<McpServerWish>>,
    ) -> Result<Vec<McpServerChoice>, Vec<(usize, McpServerFault)>> {
        let choices = self.launcher.servers().choose(wishes)?;
        let taken = |(place, choice): (usize, &McpServerChoice)| match choice {
            McpServerChoice::Caller(server) if self.is_known(&server.name, ExtensionWish::BeWithout) => {
                let detail = format!("is taken: the server would replace the extension {}", server.name);
                Some((place, McpServerFault { field: "/name".into(), detail }))
            }
            _ => None,
        };
        let faults: Vec<_> = choices.iter().enumerate().filter_map(taken).collect();
        if faults.is_empty() { Ok(choices) } else { Err(faults) }
    }

    fn is_known(&self, name: &str, wish: ExtensionWish) -> bool {
        // A server of goose's configuration can be switched off, but `--with-builtin` does not start it.
        let fits = |listed: &Listed| {
            catalogue::same(&listed.key, name)
                && (listed.comes_with_goose || wish == ExtensionWish::BeWithout)
        };
        catalogue::find(name).is_some()
            || self.extra.iter().any(|extra| catalogue::same(extra, name))
            || self.launcher.known_listing().is_some_and(|listed| listed.iter().any(fits))
    }
}

/// Whether a session that says nothing of the extension gets it.
fn is_effective(listed: &[Listed], choice: &ExtensionChoice, name: &str, unlisted: bool) -> bool {
    let found = listed.iter().find(|listed| catalogue::same(&listed.key, name));
    let started = choice.builtins.iter().any(|builtin| catalogue::same(builtin, name));
    // In the shared home it is on until it is unloaded.
    let is_off = choice.switched_off.iter().any(|off| catalogue::same(off, name));
    started && (unlisted || found.is_some()) || found.is_some_and(|found| found.enabled && !is_off)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_is_what_goose_enables_and_what_gander_starts() {
        let listed = |key: &str, enabled| Listed {
            key: key.into(),
            enabled,
            comes_with_goose: true,
            description: String::new(),
        };
        let listed = [
            listed("developer", true),
            listed("todo", false),
            listed("apps", false),
            listed("analyze", true),
        ];
        let choice = ExtensionChoice {
            builtins: ["todo", "summarize", "memory"].map(str::to_owned).into(),
            switched_off: ["analyze".to_owned()].into(),
        };
        for (name, unlisted, effective) in [
            ("developer", false, true),
            ("todo", false, true),
            ("apps", false, false),
            // The shared home has it on.
            ("analyze", false, false),
            // This goose does not have it, whatever it is told to start.
            ("summarize", false, false),
            ("memory", true, true),
            ("tutorial", true, false),
        ] {
            assert_eq!(is_effective(&listed, &choice, name, unlisted), effective, "{name}");
        }
    }
}
