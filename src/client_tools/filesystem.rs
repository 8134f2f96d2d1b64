//! Text files for the agent: read whole or by lines, written so that nobody ever sees half of one.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    Access, AtFlags, FileType, Gid, Mode, OFlags, Uid, accessat, fchmod, fchown, fstat, openat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;
use serde_json::Value;
use uuid::Uuid;

use super::roots::{Place, Roots, beneath, why};
use super::{Refusal, refused};
use crate::session::tool_call::content::{self, Before};

/// The bits of a file's mode that a new file in its place keeps: who may do what, never as whom it runs.
const MODE_BITS: u32 = 0o777;
/// What a file may be to whom while nobody is to see it.
const HIDDEN_FILE: Mode = Mode::from_raw_mode(0o600);
/// What a new file may be to whom, before the umask.
const NEW_FILE: Mode = Mode::from_raw_mode(0o666);
/// Opening a pipe or a device must not wait, nor change the terminal.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// The bounds of a write, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) file_bytes: usize,
    pub(super) diff_bytes: usize,
}

/// A text file's content: all of it, or `limit` lines from line `line` (counted from 1) on, with their ends as they are.
pub(super) fn read(
    roots: &Roots,
    path: &Path,
    line: Option<u32>,
    limit: Option<u32>,
    most: usize,
) -> Result<String, Refusal> {
    let (file, bytes) = regular(roots.open(path, READ)?, path)?;
    if line.is_none() && limit.is_none() {
        if bytes > most as u64 {
            return Err(too_large(path, bytes, most));
        }
        return text(path, read_up_to(file, most + 1, path)?, most);
    }
    let skipped = line.unwrap_or(1).saturating_sub(1);
    let mut wanted = limit.unwrap_or(u32::MAX);
    let mut reader = BufReader::new(file);
    let mut read = Vec::new();
    for _ in 0..skipped {
        if reader.skip_until(b'\n').map_err(|error| io_why(path, &error))? == 0 {
            break;
        }
    }
    while wanted > 0 && read.len() <= most {
        let room = (most + 1).saturating_sub(read.len()) as u64;
        let count = (&mut reader).take(room).read_until(b'\n', &mut read);
        if count.map_err(|error| io_why(path, &error))? == 0 {
            break;
        }
        wanted -= 1;
    }
    text(path, read, most)
}

/// Writes a text file and gives the diff. It appears whole or not at all: a temporary file in the same folder takes its
/// place. An existing file's owner, group and permissions stay, and where they cannot, nothing is written; symbolic links
/// were followed, so one that leads to a file stays one. `may_go_on` is asked last of all.
pub(super) fn write(
    roots: &Roots,
    path: &Path,
    text: &str,
    bounds: Bounds,
    may_go_on: impl FnOnce() -> Result<(), Refusal>,
) -> Result<Value, Refusal> {
    if text.len() > bounds.file_bytes {
        return Err(too_large(path, text.len() as u64, bounds.file_bytes));
    }
    let Place { folder, name } = roots.place(path)?;
    let old = Old::read(&folder, &name, path, bounds.file_bytes)?;
    let new = NewFile::write(&folder, text.as_bytes(), old.owned).map_err(|error| io_why(path, &error))?;
    may_go_on()?;
    new.replace(&name, old.owned, path)?;
    let before = match (&old.text, old.owned) {
        (Some(text), _) => Before::Text(text),
        (None, Some(_)) => Before::Unknown,
        (None, None) => Before::NoFile,
    };
    Ok(content::diff(&path.to_string_lossy(), before, text, bounds.diff_bytes))
}

/// What a write replaces.
#[derive(Debug, Default)]
struct Old {
    /// Whose the file is; `None`: there is no file.
    owned: Option<Owned>,
    /// Its content, unless that is too large or no text.
    text: Option<String>,
}

/// Whose a file is, and what it may be to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owned {
    user: Uid,
    group: Gid,
    mode: Mode,
}

impl Owned {
    fn of(stat: &rustix::fs::Stat) -> Self {
        Self {
            user: Uid::from_raw(stat.st_uid),
            group: Gid::from_raw(stat.st_gid),
            mode: Mode::from_raw_mode(stat.st_mode & MODE_BITS),
        }
    }
}

impl Old {
    fn read(folder: &OwnedFd, name: &OsStr, path: &Path, most: usize) -> Result<Self, Refusal> {
        let found = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(Self::default()),
            found => found.map_err(|error| why(path, error))?,
        };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(why(path, Errno::ISDIR)),
            FileType::Symlink => return Err(why(path, Errno::LOOP)),
            _ => return Err(no_regular_file(path)),
        }
        // Taking the place of a file that may not be written would get round its mode.
        accessat(folder, name, Access::WRITE_OK, AtFlags::empty()).map_err(|error| why(path, error))?;
        let text = match beneath(folder, name, READ) {
            // It may be written although it cannot be read.
            Err(Errno::ACCESS) => None,
            opened => {
                let (file, bytes) = regular(opened.map_err(|error| why(path, error))?, path)?;
                let bytes = (bytes <= most as u64).then(|| read_up_to(file, most, path)).transpose()?;
                bytes.and_then(|bytes| String::from_utf8(bytes).ok())
            }
        };
        Ok(Self { owned: Some(Owned::of(&found)), text })
    }
}

/// A file that has no name that anybody knows yet. What is dropped instead of put somewhere is removed.
struct NewFile<'f> {
    folder: &'f OwnedFd,
    temporary: String,
    file: File,
}

impl<'f> NewFile<'f> {
    /// Writes one. What takes the place of another is for nobody else's eyes until it has that one's permissions.
    fn write(folder: &'f OwnedFd, bytes: &[u8], old: Option<Owned>) -> std::io::Result<Self> {
        let temporary = format!(".gander-{}", Uuid::now_v7().simple());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = if old.is_some() { HIDDEN_FILE } else { NEW_FILE };
        let file = File::from(openat(folder, &temporary, flags, mode)?);
        let mut new = Self { folder, temporary, file };
        new.file.write_all(bytes)?;
        Ok(new)
    }

    /// Puts it in the place of whatever has the name, with the owner and the permissions of that.
    fn replace(self, name: &OsStr, old: Option<Owned>, path: &Path) -> Result<(), Refusal> {
        if let Some(old) = old {
            let own = Owned::of(&fstat(&self.file).map_err(|error| why(path, error))?);
            if (own.user, own.group) != (old.user, old.group) {
                fchown(&self.file, Some(old.user), Some(old.group)).map_err(|error| match error {
                    Errno::PERM => refused(format!(
                        "{} belongs to another user or group, which replacing it would change: permission denied",
                        path.display()
                    )),
                    error => why(path, error),
                })?;
            }
            fchmod(&self.file, old.mode).map_err(|error| why(path, error))?;
        }
        renameat(self.folder, &self.temporary, self.folder, name).map_err(|error| why(path, error))
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        // It fails for one that was put in its place: its temporary name is gone.
        let _ = unlinkat(self.folder, &self.temporary, AtFlags::empty());
    }
}

/// The file and its size, if it is one: a pipe, a device or a folder has no content of its own.
fn regular(opened: OwnedFd, path: &Path) -> Result<(File, u64), Refusal> {
    let file = File::from(opened);
    let found = file.metadata().map_err(|error| io_why(path, &error))?;
    if found.is_dir() {
        return Err(why(path, Errno::ISDIR));
    }
    if !found.is_file() {
        return Err(no_regular_file(path));
    }
    Ok((file, found.len()))
}

fn no_regular_file(path: &Path) -> Refusal {
    refused(format!("{} is no regular file", path.display()))
}

fn read_up_to(file: File, most: usize, path: &Path) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes).map_err(|error| io_why(path, &error))?;
    Ok(bytes)
}

fn text(path: &Path, bytes: Vec<u8>, most: usize) -> Result<String, Refusal> {
    if bytes.len() > most {
        return Err(too_large(path, bytes.len() as u64, most));
    }
    String::from_utf8(bytes)
        .map_err(|_| refused(format!("{} is not UTF-8 text: binary files cannot be read", path.display())))
}

fn too_large(path: &Path, bytes: u64, most: usize) -> Refusal {
    refused(format!(
        "{}: {bytes} bytes or more are too much, at most {most} can be read or written",
        path.display()
    ))
}

fn io_why(path: &Path, error: &std::io::Error) -> Refusal {
    match Errno::from_io_error(error) {
        Some(number) => why(path, number),
        None => refused(format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests;
