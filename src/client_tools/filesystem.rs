//! Text files for the agent: read whole or by lines, written so that nobody ever sees half of one.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, accessat, fchmod, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use serde_json::Value;
use uuid::Uuid;

use super::roots::{Place, Roots, beneath, why};
use super::{Refusal, refused};
use crate::session::tool_call::content::{self, Before};

/// The bits of a file's mode that a new file in its place keeps.
const MODE_BITS: u32 = 0o7777;
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
/// place. An existing file's mode stays; symbolic links were followed, so one that leads to a file stays one.
pub(super) fn write(roots: &Roots, path: &Path, text: &str, bounds: Bounds) -> Result<Value, Refusal> {
    if text.len() > bounds.file_bytes {
        return Err(too_large(path, text.len() as u64, bounds.file_bytes));
    }
    let Place { folder, name } = roots.place(path)?;
    let old = Old::read(&folder, &name, path, bounds.file_bytes)?;
    replace(&folder, &name, text.as_bytes(), old.mode).map_err(|error| io_why(path, &error))?;
    let before = match (&old.text, old.mode) {
        (Some(text), _) => Before::Text(text),
        (None, Some(_)) => Before::Unknown,
        (None, None) => Before::NoFile,
    };
    Ok(content::diff(&path.to_string_lossy(), before, text, bounds.diff_bytes))
}

/// What a write replaces.
#[derive(Debug, Default)]
struct Old {
    /// The file's mode; `None`: there is no file.
    mode: Option<Mode>,
    /// Its content, unless that is too large or no text.
    text: Option<String>,
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
        let mode = Some(Mode::from_raw_mode(found.st_mode & MODE_BITS));
        Ok(Self { mode, text })
    }
}

/// Puts a new file in the place of whatever has the name.
fn replace(folder: &OwnedFd, name: &OsStr, bytes: &[u8], mode: Option<Mode>) -> std::io::Result<()> {
    let temporary = format!(".gander-{}", Uuid::now_v7().simple());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, &temporary, flags, NEW_FILE)?;
    let written = || {
        if let Some(mode) = mode {
            fchmod(&file, mode)?;
        }
        File::from(file).write_all(bytes)?;
        Ok(renameat(folder, &temporary, folder, name)?)
    };
    written().inspect_err(|_| {
        // The first error is the one to tell.
        let _ = unlinkat(folder, &temporary, AtFlags::empty());
    })
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
