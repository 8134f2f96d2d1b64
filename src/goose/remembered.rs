//! goose's own memory of permissions: `permission.yaml` in the folder of its configuration.
//!
//! Measured on goose 1.52 and 1.50: a tool named under `user.always_allow` runs unasked, `shell` with whatever command,
//! in `approve` and in `smart_approve`. `approve` reads the file when goose starts, `smart_approve` with every prompt, so
//! that a line written meanwhile counts too. goose writes such lines for answers that gander never gives. Under
//! `smart_approve:` goose keeps what its model took for dangerous (`ask_before`), and never what it took for harmless.
//! Hence no `always_allow` entry is goose's own, wherever it stands: somebody wrote it, perhaps the agent's own shell.
//!
//! A `goose serve` reads the file in `approve` while it makes or loads a session, and keeps that copy (measured on goose
//! 1.52): a line that comes and goes meanwhile counts for that session. So what stands there before and afterwards tells
//! of the time between only when nobody has touched it.

use std::error::Error;
use std::fmt;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_yaml_ng::{Mapping, Value};

use super::places::{HomeKind, Places};

/// goose's own is a few hundred bytes.
const MAX_BYTES: u64 = 1 << 20;
/// How many of the tools are named.
const NAMED_TOOLS: usize = 5;

/// Why goose must not run on a home. Says what to do, and names no path of the host.
#[derive(Debug)]
pub struct Remembers {
    /// Whose home it is.
    home: HomeKind,
    fault: Fault,
}

/// What is wrong with the file.
#[derive(Debug)]
enum Fault {
    /// Tools would run unasked.
    AlwaysAllow(Vec<String>),
    /// What goose would make of it is not known.
    Malformed(&'static str),
    /// It cannot be read.
    Unreadable(io::ErrorKind),
}

impl fmt::Display for Remembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, or_else) = match self.home {
            HomeKind::Session => {
                ("config/permission.yaml in the session's goose home", ", or delete the session")
            }
            HomeKind::Shared => ("permission.yaml in the home that goose shares with its user", ""),
        };
        let repair = "repair or remove it";
        match &self.fault {
            Fault::AlwaysAllow(tools) => {
                let tools = tools.join(", ");
                write!(
                    f,
                    "always_allow in {file} names {tools}: goose would run that unasked. Empty the list{or_else}"
                )
            }
            Fault::Malformed(what) => {
                write!(f, "{file} is not what goose writes ({what}): {repair}{or_else}")
            }
            Fault::Unreadable(why) => write!(f, "{file} cannot be read ({why}): {repair}{or_else}"),
        }
    }
}

impl Error for Remembers {}

/// How goose's memory stands at one time. One that is the same later has not been touched in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The folder that the file is in, as far as there is one.
    folder: Option<Stamp>,
    /// The file, with all that is in it.
    file: Option<(Stamp, Vec<u8>)>,
}

impl Memory {
    /// For how long nobody had touched it then; zero also when the clock has been set back.
    #[must_use]
    pub fn untouched_for(&self, now: SystemTime) -> Duration {
        let stamps = self.folder.iter().chain(self.file.iter().map(|(stamp, _)| stamp));
        let last = stamps.map(|stamp| stamp.changed).max().unwrap_or_default();
        now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(last)
    }
}

/// Which file something is, and when it was changed last: nobody can set that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    /// Since 1970.
    changed: Duration,
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        let seconds = Duration::from_secs(found.ctime().try_into().unwrap_or_default());
        let changed = seconds + Duration::from_nanos(found.ctime_nsec().try_into().unwrap_or_default());
        Self { device: found.dev(), inode: found.ino(), changed }
    }
}

/// Looks whether goose, run there, would run something unasked since it remembers that it may. Gives how its memory
/// stands.
///
/// # Errors
/// When it would, and when that cannot be told.
pub fn check(places: &Places) -> Result<Memory, Remembers> {
    let checked = check_folder(&places.configuration());
    checked.map_err(|fault| Remembers { home: places.kind(), fault })
}

fn check_folder(folder: &Path) -> Result<Memory, Fault> {
    // First when it was changed, then what is in it: so that a change in between shows the next time.
    let stamp = match fs::metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => Some(Stamp::of(&found.map_err(unreadable)?)),
    };
    Ok(Memory { folder: stamp, file: check_file(&folder.join(super::home::PERMISSIONS))? })
}

fn check_file(path: &Path) -> Result<Option<(Stamp, Vec<u8>)>, Fault> {
    // Opening a pipe would wait for its writer.
    let file = OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(path);
    let file = match file {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(unreadable)?,
    };
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err(Fault::Malformed("it is no file"));
    }
    let mut text = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Fault::Malformed("it is too large"));
    }
    check_text(&text)?;
    Ok(Some((Stamp::of(&found), text)))
}

const NON_BLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreadable(error: io::Error) -> Fault {
    Fault::Unreadable(error.kind())
}

fn check_text(text: &[u8]) -> Result<(), Fault> {
    let no_yaml = |_| Fault::Malformed("no YAML");
    let mut whole: Value = serde_yaml_ng::from_slice(text).map_err(no_yaml)?;
    whole.apply_merge().map_err(no_yaml)?;
    let mut allowed = Vec::new();
    for section in mapping(&whole)?.values() {
        let lists = mapping(section)?;
        for tool in match lists.get("always_allow") {
            None | Some(Value::Null) => continue,
            Some(Value::Sequence(tools)) => tools,
            Some(_) => return Err(Fault::Malformed("always_allow is no list")),
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
    Err(Fault::AlwaysAllow(allowed))
}

/// Nothing at all is an empty mapping.
fn mapping(value: &Value) -> Result<&Mapping, Fault> {
    static EMPTY: std::sync::LazyLock<Mapping> = std::sync::LazyLock::new(Mapping::new);
    match value {
        Value::Mapping(mapping) => Ok(mapping),
        Value::Null => Ok(&EMPTY),
        _ => Err(Fault::Malformed("it has something else where lists of tools belong")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn said(text: &str) -> String {
        let told = |fault| Remembers { home: HomeKind::Session, fault }.to_string();
        check_text(text.as_bytes()).map_or_else(told, |()| "fine".into())
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
        assert!(matches!(check_text(b"user: \xff"), Err(Fault::Malformed(_))));
    }

    #[test]
    fn a_line_that_comes_and_goes_leaves_a_trace() {
        let home = tempfile::tempdir().unwrap();
        let places = Places::own(home.path());
        let (folder, file) = (home.path().join("config"), home.path().join("config/permission.yaml"));
        let other = home.path().join("other");
        fs::create_dir(&folder).unwrap();
        let memory = || {
            let memory = check(&places).unwrap();
            // The system's clock goes in ticks: what is changed within one may look untouched.
            std::thread::sleep(Duration::from_millis(20));
            assert!(memory.untouched_for(SystemTime::now()) >= Duration::from_millis(20));
            memory
        };
        let absent = memory();
        assert_eq!(absent, memory());
        fs::write(&file, "user: {always_allow: [shell]}").unwrap();
        fs::remove_file(&file).unwrap();
        assert_ne!(absent, memory());

        fs::write(&file, "user: {}").unwrap();
        let written = memory();
        assert_eq!(written, memory());
        fs::write(&file, "user: {always_allow: [shell]}").unwrap();
        fs::write(&file, "user: {}").unwrap();
        assert_ne!(written, memory());

        let written = memory();
        fs::rename(&file, &other).unwrap();
        fs::rename(&other, &file).unwrap();
        assert_ne!(written, memory());

        let written = memory();
        fs::rename(&folder, &other).unwrap();
        fs::rename(&other, &folder).unwrap();
        assert_ne!(written, memory());
    }

    #[test]
    fn only_a_file_of_a_fair_size_is_read() {
        let home = tempfile::tempdir().unwrap();
        let check = || check(&Places::own(home.path())).map_err(|error| error.fault);
        assert!(check().is_ok(), "no file is an empty one");
        let path = home.path().join("config/permission.yaml");
        fs::create_dir_all(&path).unwrap();
        assert!(matches!(check(), Err(Fault::Malformed(_))));
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "# \n".repeat(400_000)).unwrap();
        assert!(matches!(check(), Err(Fault::Malformed(_))));
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        assert!(matches!(check(), Err(Fault::Malformed(_))), "a pipe is not waited for");
    }
}
