//! Which sessions in the shared home are gander's, so that they can be gone on with and deleted, and no other ones are.
//!
//! goose's own name for a session is no proof: measured on goose 1.52, the name of a deleted session is given to the
//! next one. So the time at which goose made it counts too. The notes are in the session's own folder, one line each:
//! a start that fails leaves a session of goose's behind, and the next one makes another.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The notes' file in the session's folder.
const NAME: &str = "goose-sessions";
/// How many notes are read, the last ones: goose goes on with the last session of all.
const NOTES: usize = 1_000;
/// How much of the end of the file is read, in bytes.
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
    let mut file = match File::open(file(root)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
    let mut text = Vec::new();
    file.take(BYTES).read_to_end(&mut text)?;
    let lines = text.rsplit(|byte| *byte == b'\n');
    let mut last: Vec<GooseSession> =
        lines.filter_map(|line| serde_json::from_slice(line).ok()).take(NOTES).collect();
    last.reverse();
    Ok(last)
}

/// Removes all that is in the folder `root` but the notes. A folder that is not there is as good as empty.
///
/// # Errors
/// When it cannot be read, or something in it cannot be removed.
pub fn remove_all_else(root: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == NAME {
            continue;
        }
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn file(root: &Path) -> PathBuf {
    root.join(NAME)
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
    #[test]
    fn of_many_notes_the_last_ones_count() {
        let folder = tempfile::tempdir().unwrap();
        let session = |number: usize| GooseSession { id: format!("20261130_{number}"), created_at: None };
        let lines = (0..=NOTES).map(|number| serde_json::to_string(&session(number)).unwrap() + "\n");
        let mut text: String = lines.collect();
        std::fs::write(file(folder.path()), &text).unwrap();
        let found = noted(folder.path()).unwrap();
        assert_eq!((found.len(), &found[0], &found[NOTES - 1]), (NOTES, &session(1), &session(NOTES)));
        text.insert_str(0, &format!("{{\"id\": \"{}\"}}\n", "x".repeat(usize::try_from(BYTES).unwrap())));
        std::fs::write(file(folder.path()), &text).unwrap();
        assert_eq!(noted(folder.path()).unwrap(), found, "whatever is far before them");
    }

    #[test]
    fn all_but_the_notes_can_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let session = GooseSession { id: "20261130_1".into(), created_at: None };
        note(folder.path(), &session).unwrap();
        std::fs::create_dir_all(folder.path().join("config/skills")).unwrap();
        std::fs::write(folder.path().join("config/config.yaml"), "").unwrap();
        std::os::unix::fs::symlink("/nowhere", folder.path().join("link")).unwrap();
        remove_all_else(folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(noted(folder.path()).unwrap(), [session]);
        remove_all_else(&folder.path().join("none")).unwrap();
    }
}
