//! goose's own memory of permissions: `config/permission.yaml` in a session's home.
//!
//! Measured on goose 1.52 and 1.50: a tool named under `user.always_allow` runs unasked, `shell` with whatever command,
//! in `approve` and in `smart_approve`. `approve` reads the file when goose starts, `smart_approve` with every prompt, so
//! that a line written meanwhile counts too. goose writes such lines for answers that gander never gives. Under
//! `smart_approve:` goose keeps what its model took for dangerous (`ask_before`), and never what it took for harmless.
//! Hence no `always_allow` entry is goose's own, wherever it stands: somebody wrote it, perhaps the agent's own shell.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_yaml_ng::{Mapping, Value};
use thiserror::Error;

/// goose's own is a few hundred bytes.
const MAX_BYTES: u64 = 1 << 20;
/// How many of the tools are named.
const NAMED_TOOLS: usize = 5;

/// Why goose must not run on a home. Says what to do, and names no path of the host.
#[derive(Debug, Error)]
pub enum Remembers {
    /// Tools would run unasked.
    #[error(
        "always_allow in {FILE} names {}: goose would run that unasked. Empty the list, or delete the session",
        .0.join(", ")
    )]
    AlwaysAllow(Vec<String>),
    /// What goose would make of it is not known.
    #[error("{FILE} is not what goose writes ({0}): repair or remove it, or delete the session")]
    Malformed(&'static str),
    /// It cannot be read.
    #[error("{FILE} cannot be read ({0}): repair or remove it, or delete the session")]
    Unreadable(io::ErrorKind),
}

const FILE: &str = "config/permission.yaml in the session's goose home";

/// Looks whether goose, run on the home `root`, would run something unasked since it remembers that it may.
///
/// # Errors
/// When it would, and when that cannot be told.
pub fn check(root: &Path) -> Result<(), Remembers> {
    let path = super::home::configuration_folder(root).join(super::home::PERMISSIONS);
    // Opening a pipe would wait for its writer.
    let file = OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(path);
    let file = match file {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file.map_err(unreadable)?,
    };
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(Remembers::Malformed("it is no file"));
    }
    let mut text = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Remembers::Malformed("it is too large"));
    }
    check_text(&text)
}

const NON_BLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreadable(error: io::Error) -> Remembers {
    Remembers::Unreadable(error.kind())
}

fn check_text(text: &[u8]) -> Result<(), Remembers> {
    let no_yaml = |_| Remembers::Malformed("no YAML");
    let mut whole: Value = serde_yaml_ng::from_slice(text).map_err(no_yaml)?;
    whole.apply_merge().map_err(no_yaml)?;
    let mut allowed = Vec::new();
    for section in mapping(&whole)?.values() {
        let lists = mapping(section)?;
        for tool in match lists.get("always_allow") {
            None | Some(Value::Null) => continue,
            Some(Value::Sequence(tools)) => tools,
            Some(_) => return Err(Remembers::Malformed("always_allow is no list")),
        } {
            allowed.push(
                tool.as_str().map_or_else(|| "something that is no text".into(), |tool| format!("{tool:?}")),
            );
        }
    }
    if allowed.is_empty() {
        return Ok(());
    }
    let more = allowed.len().saturating_sub(NAMED_TOOLS);
    allowed.truncate(NAMED_TOOLS);
    if more > 0 {
        allowed.push(format!("{more} more"));
    }
    Err(Remembers::AlwaysAllow(allowed))
}

/// Nothing at all is an empty mapping.
fn mapping(value: &Value) -> Result<&Mapping, Remembers> {
    static EMPTY: std::sync::LazyLock<Mapping> = std::sync::LazyLock::new(Mapping::new);
    match value {
        Value::Mapping(mapping) => Ok(mapping),
        Value::Null => Ok(&EMPTY),
        _ => Err(Remembers::Malformed("it has something else where lists of tools belong")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn said(text: &str) -> String {
        check_text(text.as_bytes()).map_or_else(|error| error.to_string(), |()| "fine".into())
    }

    #[test]
    fn what_goose_itself_keeps_is_fine() {
        for text in [
            "",
            "user: {}",
            "user:\n",
            "user:\n  always_allow: []\n  ask_before: []\n  never_allow: [shell]\n",
            "smart_approve:\n  always_allow: []\n  ask_before:\n  - edit\n  - shell\n  never_allow: []\n",
        ] {
            assert_eq!(said(text), "fine", "{text}");
        }
    }

    #[test]
    fn whatever_is_always_allowed_is_told() {
        for text in [
            "user:\n  always_allow: [shell]\n  ask_before: []\n  never_allow: []\n",
            "\u{feff}user: {always_allow: [shell]}",
            r#"{"user": {"always_allow": ["shell"]}}"#,
            "smart_approve: {always_allow: [shell]}",
            "base: &base {always_allow: [shell]}\nuser: *base",
            "base: &base\n  always_allow: [shell]\nuser:\n  <<: *base",
            "later: {always_allow: [shell]}",
        ] {
            let said = said(text);
            assert!(said.contains(r#"names "shell""#), "{text}: {said}");
            assert!(said.ends_with("Empty the list, or delete the session"), "{said}");
        }
        let many = format!("user: {{always_allow: [{}]}}", ["x"; 9].join(", "));
        assert!(said(&many).contains(r#""x", "x", 4 more: goose"#), "{}", said(&many));
    }

    #[test]
    fn what_goose_may_read_otherwise_is_malformed() {
        for text in [
            "user: [",
            "user: [always_allow]",
            "[]",
            "user: {always_allow: shell}",
            "user: {always_allow: {shell: true}}",
            "user: !user {always_allow: [shell]}",
            // Of two of the same name goose takes the last.
            "user: {}\nuser: {always_allow: [shell]}",
            "user: {}\n---\nuser: {always_allow: [shell]}",
        ] {
            assert!(said(text).contains("is not what goose writes"), "{text}: {}", said(text));
        }
        assert!(matches!(check_text(b"user: \xff"), Err(Remembers::Malformed(_))));
    }

    #[test]
    fn only_a_file_of_a_fair_size_is_read() {
        let home = tempfile::tempdir().unwrap();
        assert!(check(home.path()).is_ok(), "no file is an empty one");
        let path = home.path().join("config/permission.yaml");
        fs::create_dir_all(&path).unwrap();
        assert!(matches!(check(home.path()), Err(Remembers::Malformed(_))));
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "# \n".repeat(400_000)).unwrap();
        assert!(matches!(check(home.path()), Err(Remembers::Malformed(_))));
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        assert!(matches!(check(home.path()), Err(Remembers::Malformed(_))), "a pipe is not waited for");
    }
}
