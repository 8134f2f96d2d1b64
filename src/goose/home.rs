//! A session's own goose home (`GOOSE_PATH_ROOT`): what goose reads its settings from, and where it keeps
//! its sessions and logs.
//!
//! goose fails open: a `config.yaml` that it cannot read is skipped, and then everything that was switched
//! off is on. Hence the file is read, changed and written by a YAML library here, and one that is malformed
//! is an error. Measured on goose 1.52: an entry counts by its key exactly as written, but starts whatever
//! its `name` says, so every entry that could start a switched-off extension is switched off.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_yaml_ng::{Mapping, Value};
use thiserror::Error;

use super::catalogue::same;

/// What goose remembers of "always allow" and "never allow" is for nobody else to inherit.
pub(super) const PERMISSIONS: &str = "permission.yaml";
/// What goose's `memory` extension remembers is for nobody else to learn.
const MEMORY: &str = "memory";
const CONFIGURATION: &str = "config.yaml";
/// Where goose and its tools put temporary files, within the home.
const TEMPORARY: &str = "tmp";

/// The most that a home may start with, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// The most files and folders that a home may start with.
const MAX_ENTRIES: usize = 10_000;
/// The deepest folder that is copied.
const MAX_DEPTH: usize = 16;

/// Why a home cannot be made or removed.
#[derive(Debug, Error)]
pub enum HomeError {
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// goose would skip the file and switch everything on.
    #[error("{} is not what goose expects: {reason}", path.display())]
    Malformed {
        /// The configuration file.
        path: PathBuf,
        /// What is wrong with it.
        reason: MalformedReason,
    },
    /// The folder to start from holds too much.
    #[error(
        "{} holds more than a session's home may start with ({MAX_BYTES} bytes, {MAX_ENTRIES} entries, \
         {MAX_DEPTH} folders deep)",
        path.display()
    )]
    TooLarge {
        /// The folder of goose's configuration.
        path: PathBuf,
    },
    /// The home would be copied into itself.
    #[error("the home {} lies inside {}, which it starts from", root.display(), config_dir.display())]
    Nested {
        /// The home.
        root: PathBuf,
        /// The folder of goose's configuration.
        config_dir: PathBuf,
    },
}

/// What is wrong with a configuration file.
#[derive(Debug, Error)]
pub enum MalformedReason {
    /// No YAML, or not UTF-8.
    #[error("{0}")]
    Yaml(#[from] serde_yaml_ng::Error),
    /// The file holds something else than settings.
    #[error("it is no mapping")]
    NoMapping,
    /// The extensions are not listed by name.
    #[error("`extensions` is no mapping")]
    NoExtensions,
}

/// The folder for temporary files of the home `root`. goose keeps the output of shell commands in its temporary folder
/// and leaves it behind when it is killed (measured), so that it has to be where [`remove`] takes it away.
#[must_use]
pub fn temporary_folder(root: &Path) -> PathBuf {
    root.join(TEMPORARY)
}

/// Where goose writes its log when `root` is its root.
#[must_use]
pub fn logs(root: &Path) -> PathBuf {
    root.join("state/logs")
}

/// Where goose keeps its configuration when `root` is its root.
#[must_use]
pub fn configuration_folder(root: &Path) -> PathBuf {
    root.join("config")
}

/// goose's configuration file in the folder of its configuration.
#[must_use]
pub fn configuration_in(folder: &Path) -> PathBuf {
    folder.join(CONFIGURATION)
}

/// Makes the home: `root` itself (0700, it must not exist yet) and in it an empty `tmp/` and `config/`, a copy of `config_dir`
/// without its `permission.yaml` and its `memory/`, and with the extensions in `switched_off` (catalogue keys) switched off.
/// No `config_dir`, or one that does not exist, is an empty one. Files are 0600; a symbolic link is followed
/// when it leads to a file; what is neither file nor folder is left out.
///
/// # Errors
/// When something cannot be read or written, when `config.yaml` is malformed, and when there is too much to
/// copy. What was made until then stays, for [`remove`].
pub fn prepare(
    root: &Path,
    config_dir: Option<&Path>,
    switched_off: &BTreeSet<String>,
) -> Result<(), HomeError> {
    if let Some(parent) = root.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
        made.map_err(io_error("make", parent))?;
    }
    make_folder(root)?;
    fill(root, config_dir, switched_off)
}

/// As [`prepare`], of a home that may be there already: its configuration is made anew, without what goose remembers of
/// permissions, and its temporary files go. The sessions in it stay, and what its `memory` extension has kept.
///
/// # Errors
/// As [`prepare`]. Only while no goose runs on it.
pub fn renew(
    root: &Path,
    config_dir: Option<&Path>,
    switched_off: &BTreeSet<String>,
) -> Result<(), HomeError> {
    if !root.exists() {
        return prepare(root, config_dir, switched_off);
    }
    empty_temporary_folder(root)?;
    clear_configuration(&configuration_folder(root))?;
    fill(root, config_dir, switched_off)
}

fn fill(root: &Path, config_dir: Option<&Path>, switched_off: &BTreeSet<String>) -> Result<(), HomeError> {
    make_folder(&temporary_folder(root))?;
    let target = configuration_folder(root);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&target);
    made.map_err(io_error("make", &target))?;
    let mut configuration = None;
    if let Some(source) = config_dir {
        match source.canonicalize() {
            Ok(source) => configuration = copy_configuration(root, &source, &target)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error("read", source)(error)),
        }
    }
    let path = config_dir.unwrap_or(&target).join(CONFIGURATION);
    let malformed = |reason| HomeError::Malformed { path: path.clone(), reason };
    let text = switch_off(&configuration.unwrap_or_default(), switched_off).map_err(malformed)?;
    write_file(&target.join(CONFIGURATION), &mut text.as_bytes()).map(drop)
}

/// Removes what goose and its tools have left in the temporary folder of the home `root`, and that folder.
///
/// # Errors
/// When something in it cannot be removed.
pub fn empty_temporary_folder(root: &Path) -> Result<(), HomeError> {
    remove(&temporary_folder(root))
}

/// Removes everything in a folder of goose's configuration but its `memory/`. A link is removed, and not followed.
fn clear_configuration(folder: &Path) -> Result<(), HomeError> {
    let is_folder = |path: &Path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    if !is_folder(folder) {
        return remove_any(folder);
    }
    for entry in fs::read_dir(folder).map_err(io_error("read", folder))? {
        let entry = entry.map_err(io_error("read", folder))?;
        let path = entry.path();
        if entry.file_name() == MEMORY && is_folder(&path) {
            continue;
        }
        remove_any(&path)?;
    }
    Ok(())
}

fn remove_any(path: &Path) -> Result<(), HomeError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Looks whether goose would read the configuration file in a folder, and not skip it. None is as good as an empty one.
///
/// # Errors
/// When it cannot be read, and when it is malformed.
pub fn check_configuration(folder: &Path) -> Result<(), HomeError> {
    let path = configuration_in(folder);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text.map_err(io_error("read", &path))?,
    };
    let checked = switch_off(&text, &BTreeSet::new());
    checked.map(drop).map_err(|reason| HomeError::Malformed { path, reason })
}

/// Removes a home with all that goose put into it. One that is not there is as good as removed.
///
/// # Errors
/// When something in it cannot be removed.
pub fn remove(root: &Path) -> Result<(), HomeError> {
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", root)(error)),
        _ => Ok(()),
    }
}

/// Copies everything but the configuration file, whose bytes are given back.
fn copy_configuration(root: &Path, source: &Path, target: &Path) -> Result<Option<Vec<u8>>, HomeError> {
    let real_root = root.canonicalize().map_err(io_error("read", root))?;
    if real_root.starts_with(source) {
        return Err(HomeError::Nested { root: root.to_owned(), config_dir: source.to_owned() });
    }
    let mut copier = Copier {
        source: source.to_owned(),
        bytes_left: MAX_BYTES,
        entries_left: MAX_ENTRIES,
        configuration: None,
    };
    copier.copy_folder(source, target, 0)?;
    Ok(copier.configuration)
}

struct Copier {
    source: PathBuf,
    bytes_left: u64,
    entries_left: usize,
    configuration: Option<Vec<u8>>,
}

impl Copier {
    fn copy_folder(&mut self, from: &Path, to: &Path, depth: usize) -> Result<(), HomeError> {
        if depth > MAX_DEPTH {
            return Err(self.too_large());
        }
        for entry in fs::read_dir(from).map_err(io_error("read", from))? {
            let entry = entry.map_err(io_error("read", from))?;
            let (path, name) = (entry.path(), entry.file_name());
            if depth == 0 && (name == PERMISSIONS || name == MEMORY) {
                continue;
            }
            self.entries_left = self.entries_left.checked_sub(1).ok_or_else(|| self.too_large())?;
            let kind = entry.file_type().map_err(io_error("read", &path))?;
            if kind.is_dir() {
                let folder = to.join(&name);
                make_folder(&folder)?;
                self.copy_folder(&path, &folder, depth + 1)?;
            } else if fs::metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
                let is_configuration = depth == 0 && name == CONFIGURATION;
                self.copy_file(&path, &to.join(&name), is_configuration)?;
            }
        }
        Ok(())
    }

    fn copy_file(&mut self, from: &Path, to: &Path, is_configuration: bool) -> Result<(), HomeError> {
        let file = File::open(from).map_err(io_error("read", from))?;
        // One byte more than allowed tells a file that is too large from one that just fits. What a file
        // claims as its length says nothing about files that grow or that the kernel makes up.
        let mut bounded = file.take(self.bytes_left + 1);
        let copied = if is_configuration {
            let mut bytes = Vec::new();
            bounded.read_to_end(&mut bytes).map_err(io_error("read", from))?;
            let length = bytes.len() as u64;
            self.configuration = Some(bytes);
            length
        } else {
            write_file(to, &mut bounded)?
        };
        self.bytes_left = self.bytes_left.checked_sub(copied).ok_or_else(|| self.too_large())?;
        Ok(())
    }

    fn too_large(&self) -> HomeError {
        HomeError::TooLarge { path: self.source.clone() }
    }
}

/// The configuration with the extensions switched off and everything else as it was.
fn switch_off(configuration: &[u8], switched_off: &BTreeSet<String>) -> Result<String, MalformedReason> {
    let mut settings = match serde_yaml_ng::from_slice(configuration)? {
        Value::Null => Mapping::new(),
        Value::Mapping(settings) => {
            // Merge keys (`<<`) are resolved, so that what is checked here is what goose sees.
            let mut settings = Value::Mapping(settings);
            settings.apply_merge()?;
            match settings {
                Value::Mapping(settings) => settings,
                _ => return Err(MalformedReason::NoMapping),
            }
        }
        _ => return Err(MalformedReason::NoMapping),
    };
    let extensions = settings.entry("extensions".into()).or_insert(Value::Null);
    if extensions.is_null() {
        *extensions = Value::Mapping(Mapping::new());
    }
    let Value::Mapping(extensions) = extensions else {
        return Err(MalformedReason::NoExtensions);
    };
    for (key, entry) in extensions.iter_mut() {
        let names = [key.as_str(), entry.get("name").and_then(Value::as_str)];
        let is_off = |name: &str| switched_off.iter().any(|off| same(off, name));
        if names.into_iter().flatten().any(is_off) {
            disable(entry);
        }
    }
    for name in switched_off {
        disable(extensions.entry(name.as_str().into()).or_insert(Value::Null));
    }
    Ok(serde_yaml_ng::to_string(&settings)?)
}

/// Sets `enabled: false` and keeps an entry's other keys.
fn disable(entry: &mut Value) {
    if !entry.is_mapping() {
        *entry = Value::Mapping(Mapping::new());
    }
    if let Value::Mapping(entry) = entry {
        entry.insert("enabled".into(), Value::Bool(false));
    }
}

fn make_folder(path: &Path) -> Result<(), HomeError> {
    DirBuilder::new().mode(0o700).create(path).map_err(io_error("make", path))
}

fn write_file(path: &Path, content: &mut impl Read) -> Result<u64, HomeError> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = opened.map_err(io_error("write", path))?;
    let copied = io::copy(content, &mut file).map_err(io_error("write", path))?;
    file.flush().map_err(io_error("write", path))?;
    Ok(copied)
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> HomeError {
    move |source| HomeError::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
