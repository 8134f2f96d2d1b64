//! goose's `memory` extension, kept within a session's own home.
//!
//! Measured on goose 1.52: whatever goose's root folder is, it keeps what it remembers for everywhere in
//! `$XDG_CONFIG_HOME/goose/memory`, else `~/.config/goose/memory`, and tells the model all of it at the start of each
//! session. Sessions of different callers would learn of each other by it. Hence that variable leads into the home. It is
//! the agent's shell's too: so the folder has links to all that is in the user's own one, and programs find there what
//! they look for.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use serde_yaml_ng::Value;

use super::catalogue::same;
use super::extensions::STARTS_OTHERS;
use super::home;
use super::launch::Launch;

const NAME: &str = "memory";
/// The variable that says where users keep configuration.
pub const VARIABLE: &str = "XDG_CONFIG_HOME";
/// How many entries of the user's folder are linked to.
const LINKS: usize = 1_000;

/// Whether a session may have the extension: by its name, by the configuration in its home, from its last agent
/// (`earlier`), or since the agent can start it, for itself or for a subagent. Reads a file.
#[must_use]
pub fn may_load(launch: &Launch, root: &Path, earlier: Option<&[String]>) -> bool {
    let has = |wanted: &str| launch.builtins.iter().any(|name| name == wanted);
    let was_there = || earlier.unwrap_or_default().iter().any(|name| same(name, NAME));
    STARTS_OTHERS.into_iter().any(has)
        || !launch.switched_off.contains(NAME) && (has(NAME) || was_there() || is_configured(root))
}

/// Whether the home's configuration switches it on. goose starts an entry by its `name`, whatever its key is.
fn is_configured(root: &Path) -> bool {
    let text = fs::read(home::configuration_in(&home::configuration_folder(root))).unwrap_or_default();
    let settings: Value = serde_yaml_ng::from_slice(&text).unwrap_or_default();
    let extensions = settings.get("extensions").and_then(Value::as_mapping);
    extensions.into_iter().flatten().any(|(key, entry)| {
        let names = [key.as_str(), entry.get("name").and_then(Value::as_str)];
        names.into_iter().flatten().any(|name| same(name, NAME))
            && entry.get("enabled").and_then(Value::as_bool) != Some(false)
    })
}

/// The user's own folder of that kind, as goose's variables say it.
#[must_use]
pub fn users_folder(environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let absolute = |name| environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(VARIABLE).or_else(|| absolute("HOME").map(|home| home.join(".config")))
}

/// Makes the folder in the home `root` that [`VARIABLE`] is to name, with links to what is in `outside`, the user's own
/// one. What is there already stays.
///
/// # Errors
/// When something cannot be made.
pub fn keep_within(root: &Path, outside: Option<&Path>) -> io::Result<PathBuf> {
    let folder = root.join("xdg-config");
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    link(&home::configuration_folder(root), &folder.join("goose"))?;
    // A folder that is not there or cannot be read has nothing for programs.
    let entries = outside.and_then(|outside| fs::read_dir(outside).ok());
    for entry in entries.into_iter().flatten().flatten().take(LINKS) {
        link(&entry.path(), &folder.join(entry.file_name()))?;
    }
    Ok(folder)
}

fn link(to: &Path, at: &Path) -> io::Result<()> {
    match symlink(to, at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn launch(builtins: &[&str], off: &[&str]) -> Launch {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        Launch {
            arguments: Vec::new(),
            builtins: names(builtins),
            environment: BTreeMap::new(),
            switched_off: BTreeSet::from_iter(names(off)),
            wants_providers_model: false,
        }
    }

    #[test]
    fn a_session_may_have_it_in_several_ways() {
        let home = tempfile::tempdir().unwrap();
        let configured = tempfile::tempdir().unwrap();
        let folder = home::configuration_folder(configured.path());
        fs::create_dir(&folder).unwrap();
        let write = |text: &str| fs::write(home::configuration_in(&folder), text).unwrap();
        let had = ["Memory".to_owned()];
        for (builtins, off, earlier, expected) in [
            (&["todo"][..], &[][..], None, false),
            (&["memory"], &[], None, true),
            (&["extensionmanager"], &[], None, true),
            (&["extensionmanager"], &["memory"], None, true),
            (&["summon"], &[], None, true),
            (&["summon"], &["memory"], None, true),
            (&["orchestrator"], &[], None, true),
            (&[], &[], Some(&had[..]), true),
            (&[], &["memory"], Some(&had[..]), false),
        ] {
            let launch = launch(builtins, off);
            assert_eq!(may_load(&launch, home.path(), earlier), expected, "{builtins:?} {off:?}");
        }
        for (text, expected) in [
            ("extensions: {Memory: {enabled: true, type: builtin}}", true),
            ("extensions: {mine: {enabled: true, type: builtin, name: memory}}", true),
            ("extensions: {memory: {enabled: false}}", false),
            ("extensions: {todo: {enabled: true}}", false),
        ] {
            write(text);
            assert_eq!(may_load(&launch(&[], &[]), configured.path(), None), expected, "{text}");
        }
    }

    #[test]
    fn programs_find_what_the_user_has_and_goose_what_the_session_has() {
        let (home, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(home::configuration_folder(home.path())).unwrap();
        fs::create_dir(outside.path().join("goose")).unwrap();
        fs::create_dir(outside.path().join("git")).unwrap();
        fs::write(outside.path().join("git/config"), "[user]").unwrap();
        for _ in 0..2 {
            let folder = keep_within(home.path(), Some(outside.path())).unwrap();
            assert_eq!(fs::read_to_string(folder.join("git/config")).unwrap(), "[user]");
            fs::write(folder.join("goose/memory"), "").unwrap();
        }
        assert!(home::configuration_folder(home.path()).join("memory").exists());
        assert_eq!(fs::read_dir(outside.path().join("goose")).unwrap().count(), 0);
        keep_within(home.path(), Some(Path::new("/nonexistent"))).unwrap();
        home::remove(home.path()).unwrap();
        assert!(outside.path().join("git/config").exists(), "links are not followed when a home goes");
    }
}
