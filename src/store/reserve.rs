//! Room on the disk that is given up when sessions have to be deleted from a full one: also a deletion writes.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

/// The reserve's name within the storage folder.
const RESERVE: &str = "gander.reserve";

#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    bytes: u64,
}

impl Reserve {
    /// Gives up what an earlier run held, for as long as the database is opened.
    pub(super) fn new(dir: &Path, bytes: u64) -> Self {
        let reserve = Self { path: dir.join(RESERVE), bytes };
        reserve.release();
        reserve
    }

    /// Takes the room again, if there is so much. Without it deletions only work while the disk is not quite full.
    pub(super) fn hold(&self) {
        if self.bytes == 0 || fs::metadata(&self.path).is_ok_and(|file| file.len() == self.bytes) {
            return;
        }
        if let Err(error) = self.allocate() {
            tracing::debug!(%error, "no room is held in reserve");
            self.release();
        }
    }

    fn allocate(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&self.path)?;
        Ok(fallocate(&file, FallocateFlags::empty(), 0, self.bytes)?)
    }

    /// Gives the room to whoever writes next.
    pub(super) fn release(&self) {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "the reserve on the disk could not be given up");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_held_and_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let held = || fs::metadata(dir.path().join(RESERVE)).map(|file| file.len()).ok();
        let reserve = Reserve::new(dir.path(), 10_000);
        assert_eq!(held(), None);
        reserve.hold();
        assert_eq!(held(), Some(10_000));
        reserve.release();
        reserve.release();
        assert_eq!(held(), None);
        reserve.hold();
        Reserve::new(dir.path(), 0).hold();
        assert_eq!(held(), None);
    }
}
