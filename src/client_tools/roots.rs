//! The folders that an agent's files are kept to, and opening files in them so that nothing gets between the check and
//! the use.
//!
//! Symbolic links are followed by name first, which may be told anything; what it led to is then opened from the folder
//! that it has to be in with `openat2`, which follows no link at all (`RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS`). A link
//! that somebody puts in the way in between is an error.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat2};
use rustix::io::Errno;

use super::{Refusal, refused};
use crate::session::policy::real_path;

/// The session's folder and the extra ones, without symbolic links.
#[derive(Debug)]
pub(super) struct Roots {
    folders: Vec<PathBuf>,
}

/// A file's place: a folder that is opened, and a name in it.
pub(super) struct Place {
    pub(super) folder: OwnedFd,
    pub(super) name: std::ffi::OsString,
}

impl Roots {
    /// A folder that is not there holds nothing.
    pub(super) fn new(cwd: PathBuf, extra: Vec<PathBuf>) -> Self {
        let folders = std::iter::once(cwd).chain(extra);
        Self { folders: folders.filter_map(|folder| folder.canonicalize().ok()).collect() }
    }

    /// The folder in which a path leads to, and the rest of the way.
    fn root_of(&self, path: &Path) -> Result<(OwnedFd, PathBuf), Refusal> {
        let outside = || {
            refused(format!(
                "{} is outside of the session's folder, and so cannot be used by this tool",
                path.display()
            ))
        };
        if !path.is_absolute() {
            return Err(refused(format!("{} is not an absolute path", path.display())));
        }
        let real = real_path(path).ok_or_else(outside)?;
        let inside = |root: &PathBuf| Some((root.clone(), real.strip_prefix(root).ok()?.to_owned()));
        let (root, rest) = self.folders.iter().find_map(inside).ok_or_else(outside)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = openat2(CWD, &root, flags, Mode::empty(), resolve);
        Ok((opened.map_err(|error| why(path, error))?, rest))
    }

    /// Opens a file or folder that exists.
    pub(super) fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Refusal> {
        let (root, rest) = self.root_of(path)?;
        let rest = if rest.as_os_str().is_empty() { Path::new(".") } else { &rest };
        beneath(&root, rest, flags).map_err(|error| why(path, error))
    }

    /// A folder that commands may be started in.
    pub(super) fn folder(&self, path: &Path) -> Result<PathBuf, Refusal> {
        self.open(path, OFlags::PATH | OFlags::DIRECTORY)?;
        real_path(path).ok_or_else(|| refused(format!("{} cannot be found", path.display())))
    }

    /// The place of a file that is to be written. Folders on the way to it are made.
    pub(super) fn place(&self, path: &Path) -> Result<Place, Refusal> {
        let (mut folder, rest) = self.root_of(path)?;
        let mut names = rest.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            _ => None,
        });
        let Some(mut name) = names.next() else { return Err(why(path, Errno::ISDIR)) };
        for next in names {
            folder = enter(&folder, &name).map_err(|error| why(path, error))?;
            name = next;
        }
        Ok(Place { folder, name })
    }
}

/// Opens what lies below a folder, without following any link.
pub(super) fn beneath(
    folder: impl AsFd,
    path: impl AsRef<Path>,
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(folder, path.as_ref(), flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Opens a folder in a folder, and makes it if it is missing.
fn enter(folder: &OwnedFd, name: &std::ffi::OsStr) -> rustix::io::Result<OwnedFd> {
    let open = || beneath(folder, name, OFlags::PATH | OFlags::DIRECTORY);
    match open() {
        Err(Errno::NOENT) => {
            match mkdirat(folder, name, Mode::from_raw_mode(0o777)) {
                // Somebody else has made it meanwhile.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            open()
        }
        opened => opened,
    }
}

/// The system's error in words for the agent.
pub(super) fn why(path: &Path, error: Errno) -> Refusal {
    let path = path.display();
    refused(match error {
        Errno::NOENT => format!("{path} does not exist"),
        Errno::ACCESS | Errno::PERM => format!("{path}: permission denied"),
        Errno::ISDIR => format!("{path} is a folder"),
        Errno::NOTDIR => format!("{path}: a part of it is no folder"),
        Errno::LOOP | Errno::XDEV | Errno::AGAIN => {
            format!("{path} leads out of the session's folder, or was changed while it was looked at")
        }
        Errno::NOSYS => {
            "this system's kernel cannot keep files to a folder (openat2 is missing: Linux 5.6 has it)".into()
        }
        Errno::NOSPC | Errno::DQUOT => format!("{path}: no space left"),
        Errno::NAMETOOLONG => format!("{path}: the name is too long"),
        error => format!("{path}: {}", std::io::Error::from(error)),
    })
}
