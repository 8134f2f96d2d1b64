//! The tokens file.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use figment::Figment;
use figment::providers::{Format, Toml};
use serde::Deserialize;

use super::{Role, TokenHash, secret};

/// A tokens file may be so large: some ten thousand callers.
const MAX_BYTES: u64 = 1 << 20;

/// Names go into logs, events and records.
const MAX_NAME_CHARS: usize = 64;

/// A file changed so shortly before it was read may change again without a new time stamp: the clock of some file
/// systems moves in steps.
const TIME_STAMP_STEP: Duration = Duration::from_secs(1);

/// What a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenEntry {
    pub(super) name: String,
    pub(super) roles: BTreeSet<Role>,
}

/// All valid tokens.
pub(super) type TokenSet = HashMap<TokenHash, Arc<TokenEntry>>;

/// Why a tokens file cannot be used. One line each.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// There is no such file.
    #[error("{}: the tokens file does not exist", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("{}: the tokens file cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no TOML, or has unknown keys, roles or wrong types.
    #[error("{}: {message}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, on one line.
        message: String,
    },
    /// It names more callers than may be.
    #[error(
        "{}: there are {callers} callers, and with {because} there may be one: they would share what goose keeps of \
         their sessions",
        path.display()
    )]
    SeveralCallers {
        /// The file.
        path: PathBuf,
        /// How many.
        callers: usize,
        /// The settings that keep it to one.
        because: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    tokens: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    sha256: String,
    #[serde(default = "Role::default_set")]
    roles: BTreeSet<Role>,
}

/// How a file was when it was looked at.
#[derive(Clone, Debug)]
pub(super) struct FileMark {
    /// `None` when it could not be looked at.
    state: Option<FileState>,
    /// Whether a further change would show in the state.
    settled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Of the content, in nanoseconds.
    modified: (i64, i64),
    /// Of the content or the access rights.
    changed: (i64, i64),
}

impl FileMark {
    /// Looks at a file.
    pub(super) fn of(path: &Path) -> Self {
        fs::metadata(path).map_or(Self { state: None, settled: true }, |metadata| Self::from(&metadata))
    }

    /// Whether it is the same file in the same state.
    pub(super) fn same_state(&self, before: &Self) -> bool {
        self.state == before.state
    }

    /// Whether the file may have changed since `before`.
    pub(super) fn differs(&self, before: &Self) -> bool {
        !before.settled || !self.same_state(before)
    }
}

impl From<&fs::Metadata> for FileMark {
    fn from(metadata: &fs::Metadata) -> Self {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        let state = FileState {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed,
        };
        // A change in the future is a clock that was set back: not settled either.
        let age = u64::try_from(changed.0)
            .ok()
            .and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)))
            .and_then(|changed| SystemTime::now().duration_since(changed).ok());
        Self { state: Some(state), settled: age.is_some_and(|age| age > TIME_STAMP_STEP * 2) }
    }
}

/// Reads a tokens file.
pub(super) fn read(path: &Path) -> Result<(FileMark, TokenSet), TokensError> {
    let unreadable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => TokensError::Missing { path: path.to_owned() },
        _ => TokensError::Unreadable { path: path.to_owned(), source },
    };
    // The mark is taken of the opened file and before reading: what is written meanwhile shows next time.
    let file = File::open(path).map_err(unreadable)?;
    let mark = FileMark::from(&file.metadata().map_err(unreadable)?);
    let mut text = String::new();
    let size = file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
    let malformed = |message: String| TokensError::Malformed { path: path.to_owned(), message };
    if size as u64 > MAX_BYTES {
        return Err(malformed("the tokens file is larger than 1 MiB".into()));
    }
    let set = parse(&text).map_err(malformed)?;
    Ok((mark, set))
}

/// Reads the text of a tokens file; the error is one line.
pub(super) fn parse(text: &str) -> Result<TokenSet, String> {
    let document: Document =
        Figment::new().merge(Toml::string(text)).extract().map_err(|error| one_line(&error.to_string()))?;
    if document.tokens.is_empty() {
        return Err("there is no [[tokens]] entry".into());
    }
    let mut set = TokenSet::new();
    let mut names = BTreeSet::new();
    for Entry { name, sha256, roles } in document.tokens {
        let proper =
            !name.is_empty() && name.chars().count() <= MAX_NAME_CHARS && !name.chars().any(char::is_control);
        if !proper {
            return Err(format!("name {name:?}: has to be 1 to {MAX_NAME_CHARS} printable characters"));
        }
        if roles.is_empty() {
            return Err(format!("token {name:?}: roles is empty"));
        }
        let Some(hash) = secret::from_hex(&sha256) else {
            return Err(format!("token {name:?}: sha256 has to be 64 hexadecimal digits"));
        };
        if !names.insert(name.clone()) {
            return Err(format!("token {name:?}: the name is there twice"));
        }
        if set.insert(hash, Arc::new(TokenEntry { name: name.clone(), roles })).is_some() {
            return Err(format!("token {name:?}: another entry has the same sha256"));
        }
    }
    Ok(set)
}

/// The TOML reader draws a picture over several lines: its first line says where, its last what.
fn one_line(message: &str) -> String {
    let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("not understood");
    lines.next_back().map_or_else(|| first.to_owned(), |last| format!("{first}: {last}"))
}
