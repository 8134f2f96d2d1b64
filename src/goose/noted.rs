//! Which sessions in the shared home are gander's, so that they can be gone on with and deleted, and no other ones are.
//!
//! goose's own name for a session is no proof: measured on goose 1.52, the name of a deleted session is given to the
//! next one. So the time at which goose made it counts too. The notes are in the session's own folder, one line each:
//! a start that fails leaves a session of goose's behind, and the next one makes another.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// How many notes are read, the first ones.
const NOTES: usize = 1_000;
/// How much of the file is read, in bytes.
const BYTES: u64 = 1 << 20;

/// A session of goose's in the shared home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GooseSession {
    /// goose's name for it.
    pub id: String,
    /// When goose made it, in goose's words; `None` of a goose that does not tell.
    pub created_at: Option<String>,
}

/// Notes a session in the folder `root`.
///
/// # Errors
/// When it cannot be written.
pub fn note(root: &Path, session: &GooseSession) -> io::Result<()> {
    let mut line = serde_json::to_vec(session)?;
    line.push(b'\n');
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(file(root))?;
    file.write_all(&line)?;
    // A note that a loss of power takes would be a session that nobody deletes.
    file.sync_data()
}

/// The sessions that are noted in the folder `root`: none when nothing ever was. A line that is cut off is passed over.
///
/// # Errors
/// When the notes cannot be read.
pub fn noted(root: &Path) -> io::Result<Vec<GooseSession>> {
    let file = match File::open(file(root)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let lines = BufReader::new(file.take(BYTES)).lines().take(NOTES);
    let read = |line: io::Result<String>| line.map(|line| serde_json::from_str(&line).ok()).transpose();
    lines.filter_map(read).collect()
}

fn file(root: &Path) -> PathBuf {
    root.join("goose-sessions")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(noted(folder.path()).unwrap(), []);
        let session = |id: &str, at: Option<&str>| GooseSession {
            id: id.into(),
            created_at: at.map(ToOwned::to_owned),
        };
        let sessions = [session("20261130_1", Some("2026-11-30T22:24:50Z")), session("20261130_2", None)];
        for session in &sessions {
            note(folder.path(), session).unwrap();
        }
        std::fs::OpenOptions::new()
            .append(true)
            .open(file(folder.path()))
            .unwrap()
            .write_all(b"{\"id\": \"2026")
            .unwrap();
        assert_eq!(noted(folder.path()).unwrap(), sessions);
        assert!(noted(&folder.path().join("goose-sessions")).is_err());
    }
}
