//! What goose's log says of extensions that did not load, for versions of goose that say it nowhere else.
//!
//! goose 1.50 and 1.52 tell it in their answers too (`_meta.extensionResults`), which are the better source: the log's
//! lines name no session and no process, and processes that are started in the same second on the same root write into
//! the same file (measured). Hence only what was written since a process was started is taken for its words.

use std::fs::{self, DirEntry, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use crate::session::agent::ExtensionStatus;

/// How much is read of the end of a file, in bytes. The failures come with the first few kilobytes.
const TAIL_BYTES: u64 = 256 * 1024;
/// How many files are read at most.
const FILES: usize = 8;
/// How many entries of the log's folders are looked at. goose keeps a folder for each day.
const ENTRIES: usize = 10_000;
/// How deep the files are: `cli/<date>/<start>.log`.
const DEPTH: usize = 3;
/// A file's time of change comes from a clock that moves in steps.
const CLOCK_STEP: Duration = Duration::from_secs(1);

/// What the log below `folder` tells, since then, of extensions that did not load. A folder that does not exist tells
/// nothing.
///
/// # Errors
/// When the folder or a file in it cannot be read.
pub fn failures_below(folder: &Path, since: SystemTime) -> io::Result<Vec<ExtensionStatus>> {
    let mut failures: Vec<ExtensionStatus> = Vec::new();
    for file in files_changed(folder, since.checked_sub(CLOCK_STEP).unwrap_or(since))? {
        for failure in failures_in(&tail(&file)?, since) {
            if !failures.iter().any(|known| known.name == failure.name) {
                failures.push(failure);
            }
        }
    }
    Ok(failures)
}

/// What a log's text tells, since then, of extensions that did not load. Lines that are something else are passed over.
#[must_use]
pub fn failures_in(text: &str, since: SystemTime) -> Vec<ExtensionStatus> {
    text.lines().filter_map(|line| failure_in(line, since)).collect()
}

fn failure_in(line: &str, since: SystemTime) -> Option<ExtensionStatus> {
    // Most lines are something else, and reading them would take longest.
    if !line.contains("xtension") {
        return None;
    }
    let line: Map<String, Value> = serde_json::from_str(line).ok()?;
    let at = humantime::parse_rfc3339(line.get("timestamp")?.as_str()?).ok()?;
    if at < since {
        return None;
    }
    let fields = line.get("fields")?.as_object()?;
    let (name, error) = in_message(fields).or_else(|| in_fields(fields))?;
    Some(ExtensionStatus { name: name.trim().to_owned(), loaded: false, error: Some(error) })
}

/// Up to 1.54: one message.
fn in_message(fields: &Map<String, Value>) -> Option<(String, String)> {
    let told = fields.get("message")?.as_str()?.strip_prefix("Failed to load extension ")?;
    let (name, error) = told.split_once(": ")?;
    Some((name.to_owned(), error.to_owned()))
}

/// Since 1.55: a message that is always the same, with what it is about in fields beside it.
fn in_fields(fields: &Map<String, Value>) -> Option<(String, String)> {
    let message = fields.get("message")?.as_str()?;
    if !message.to_ascii_lowercase().starts_with("failed to start extension") {
        return None;
    }
    let first = |names: &[&str]| names.iter().find_map(|name| fields.get(*name)?.as_str()).map(str::to_owned);
    let name = first(&["extension", "name", "extension_name", "key"])?;
    // Whatever its field is called, the reason is there.
    let rest = || {
        let others = fields.iter().filter(|(key, value)| *key != "message" && value.as_str() != Some(&name));
        others.filter_map(|(_, value)| value.as_str()).map(str::to_owned).next()
    };
    let error = first(&["error", "err", "reason"]).or_else(rest).unwrap_or_else(|| message.to_owned());
    Some((name, error))
}

/// The log files that were written to since then, the newest last.
fn files_changed(folder: &Path, since: SystemTime) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    let mut folders = vec![(folder.to_owned(), 1)];
    let mut entries = 0;
    while let Some((folder, depth)) = folders.pop() {
        let listed = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            listed => listed?,
        };
        let mut below = Vec::new();
        for entry in listed.take(ENTRIES - entries) {
            entries += 1;
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() && depth < DEPTH {
                below.push((changed_at(&entry), entry.path()));
            } else if kind.is_file() && entry.path().extension().is_some_and(|extension| extension == "log") {
                found.extend(changed_at(&entry).filter(|at| *at >= since).map(|at| (at, entry.path())));
            }
        }
        // The newest is taken first: should there be too many entries, the old ones are left out.
        below.sort_unstable();
        folders.extend(below.into_iter().map(|(_, path)| (path, depth + 1)));
    }
    found.sort_unstable();
    let surplus = found.len().saturating_sub(FILES);
    Ok(found.into_iter().skip(surplus).map(|(_, path)| path).collect())
}

/// `None` for a file that has gone meanwhile.
fn changed_at(entry: &DirEntry) -> Option<SystemTime> {
    entry.metadata().and_then(|metadata| metadata.modified()).ok()
}

/// The end of a file; a line that is cut is none that could be read.
fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGS: [(&str, &str); 3] = [
        ("1.50.0", include_str!("../../tests/goose/log-1.50.0.jsonl")),
        ("1.52.0", include_str!("../../tests/goose/log-1.52.0.jsonl")),
        // Not recorded: as goose's users describe it.
        ("1.55", include_str!("../../tests/goose/log-1.55.jsonl")),
    ];

    fn failure(name: &str, error: &str) -> ExtensionStatus {
        ExtensionStatus { name: name.into(), loaded: false, error: Some(error.into()) }
    }

    fn expected() -> Vec<ExtensionStatus> {
        vec![
            failure("nosuch", "invalid config: Unknown extension: nosuch"),
            failure("bad", "IO error: No such file or directory (os error 2)"),
        ]
    }

    #[test]
    fn every_form_is_understood() {
        for (version, log) in LOGS {
            assert_eq!(failures_in(log, SystemTime::UNIX_EPOCH), expected(), "{version}");
        }
    }

    #[test]
    fn what_is_written_otherwise_is_understood_as_far_as_it_goes() {
        let line = |fields: &str| format!(r#"{{"timestamp":"2026-11-30T19:00:48.1Z","fields":{fields}}}"#);
        for (fields, found) in [
            (
                r#"{"message":"Failed to start extension","extension_name":"a","cause":"no"}"#,
                Some(("a", "no")),
            ),
            (
                r#"{"message":"failed to start extension","key":"a","code":3}"#,
                Some(("a", "failed to start extension")),
            ),
            (r#"{"message":"Failed to load extension a b: x: y"}"#, Some(("a b", "x: y"))),
            (r#"{"message":"Failed to load extension"}"#, None),
            (r#"{"message":"failed to start extension"}"#, None),
            (r#"{"message":["an extension"]}"#, None),
            (r#"{"message":"an extension is there"}"#, None),
        ] {
            let found = found.map(|(name, error)| failure(name, error));
            assert_eq!(failures_in(&line(fields), SystemTime::UNIX_EPOCH), Vec::from_iter(found), "{fields}");
        }
        let no_time = r#"{"fields":{"message":"Failed to load extension a: b"}}"#;
        assert_eq!(
            failures_in(&format!("{no_time}\n\nFailed to load extension a: b\n{{"), SystemTime::UNIX_EPOCH),
            []
        );
    }

    #[test]
    fn only_what_was_written_since_counts() {
        let log = LOGS[1].1;
        let at = |time: &str| humantime::parse_rfc3339(time).unwrap();
        assert_eq!(failures_in(log, at("2026-11-30T19:00:48.08Z")), expected()[1..]);
        assert_eq!(failures_in(log, at("2026-11-30T19:00:49Z")), []);
    }

    #[test]
    fn the_files_are_found_and_their_ends_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(failures_below(&dir.path().join("none"), SystemTime::UNIX_EPOCH).unwrap(), []);
        let day = dir.path().join("cli/2026-11-30");
        fs::create_dir_all(&day).unwrap();
        let long = "x".repeat(1024 * 1024);
        fs::write(day.join("20261130_190048.log"), format!("{long}\n{}", LOGS[1].1)).unwrap();
        fs::write(day.join("20261130_190049.log"), LOGS[2].1).unwrap();
        fs::write(day.join("notes.txt"), LOGS[0].1).unwrap();
        assert_eq!(failures_below(dir.path(), SystemTime::UNIX_EPOCH).unwrap(), expected());
        let later = SystemTime::now() + Duration::from_mins(1);
        assert_eq!(failures_below(dir.path(), later).unwrap(), []);
    }
}
