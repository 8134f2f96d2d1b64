//! What goose waits for when it does not get a session ready.
//!
//! goose tells nothing of it. Measured on goose 1.52: it starts the session's tool servers before it answers, one after
//! the other in an order of its own, and waits for each without an end. One that is a program is its child from then on;
//! one that fails stands in its log. Hence: what has failed is not waited for, nor a program that was started before
//! another one or was not started at all; the last program that was started may be, and so may every server that is
//! reached by HTTP.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;
use serde_yaml_ng::{Mapping, Value};

use super::home;
use super::places::Places;
use super::servers::folded;
use crate::session::agent::servers::{McpServer, McpTransport};

/// How much of goose's log is read, in bytes, from its end.
const LOG_BYTES: u64 = 1 << 20;
/// How many folders of goose's logs are looked into.
const LOG_FOLDERS: usize = 64;
/// How goose's log says that a server did not start.
const FAILED: &str = "Failed to load extension ";

/// A tool server that goose has to start.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expected {
    name: String,
    /// `None`: it is reached by HTTP.
    program: Option<Program>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Program {
    command: String,
    arguments: Vec<String>,
}

impl Program {
    /// Whether this may be its command line. Interpreters stand before a script, and some commands become others.
    fn is(&self, command_line: &[String]) -> bool {
        if self.arguments.is_empty() {
            let base = |path: &str| path.rsplit('/').next().map(ToOwned::to_owned);
            return command_line.iter().any(|word| base(word) == base(&self.command));
        }
        command_line.ends_with(&self.arguments)
    }
}

/// The names of the servers that goose may be waiting for: of the session's own, and of those that the configuration in
/// goose's home switches on. `children` are the command lines of goose's child processes, the oldest first. Reads files.
#[must_use]
pub fn silent_servers(places: &Places, servers: &[McpServer], children: &[Vec<String>]) -> Vec<String> {
    let mut expected: Vec<Expected> = servers.iter().map(of_session).collect();
    let own = fs::read(home::configuration_in(&places.configuration())).unwrap_or_default();
    for server in of_configuration(&own) {
        if !expected.iter().any(|other| other.name == server.name) {
            expected.push(server);
        }
    }
    if expected.is_empty() {
        return Vec::new();
    }
    let log = newest_log(&places.logs()).and_then(|path| end_of(&path).ok()).unwrap_or_default();
    silent(&expected, &failed_in(&log), children)
}

fn silent(expected: &[Expected], failed: &[String], children: &[Vec<String>]) -> Vec<String> {
    let is_child = |server: &Expected, child: &Vec<String>| {
        server.program.as_ref().is_some_and(|program| program.is(child))
    };
    let last = children.last();
    let is_known = last.is_some_and(|last| expected.iter().any(|server| is_child(server, last)));
    let may_be_silent = |server: &&Expected| match (&server.program, last) {
        _ if failed.contains(&server.name) => false,
        (None, _) => true,
        (Some(_), None) => false,
        (Some(_), Some(last)) if is_known => is_child(server, last),
        // The last one does not look like any of them: it is one that nothing looks like.
        (Some(_), Some(_)) => !children.iter().any(|child| is_child(server, child)),
    };
    expected.iter().filter(may_be_silent).map(|server| server.name.clone()).collect()
}

fn of_session(server: &McpServer) -> Expected {
    let program = match &server.transport {
        McpTransport::Stdio { command, args, .. } => {
            Some(Program { command: command.clone(), arguments: args.clone() })
        }
        McpTransport::Http { .. } => None,
    };
    Expected { name: server.name.clone(), program }
}

/// The servers that goose's own configuration switches on.
fn of_configuration(configuration: &[u8]) -> Vec<Expected> {
    #[derive(Deserialize)]
    struct Configuration {
        #[serde(default)]
        extensions: Mapping,
    }
    let extensions = serde_yaml_ng::from_slice::<Configuration>(configuration).map(|found| found.extensions);
    let entries = extensions.unwrap_or_default().into_iter();
    entries.filter_map(|(key, entry)| of_entry(key.as_str()?, &entry)).collect()
}

fn of_entry(key: &str, entry: &Value) -> Option<Expected> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str);
    if entry.get("enabled").and_then(Value::as_bool) == Some(false) {
        return None;
    }
    let program = match text("type")? {
        "stdio" => {
            let words = entry.get("args").and_then(Value::as_sequence).into_iter().flatten();
            let arguments = words.filter_map(Value::as_str).map(ToOwned::to_owned).collect();
            Some(Program { command: text("cmd").unwrap_or_default().to_owned(), arguments })
        }
        "streamable_http" | "sse" => None,
        _ => return None,
    };
    Some(Expected { name: folded(text("name").unwrap_or(key)), program })
}

/// The names of the servers that did not start, as goose logs them.
fn failed_in(log: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Line {
        fields: Fields,
    }
    #[derive(Deserialize)]
    struct Fields {
        message: String,
    }
    let messages = log.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let names = messages.filter_map(|line| {
        let (name, _) = line.fields.message.strip_prefix(FAILED)?.split_once(": ")?;
        Some(folded(name))
    });
    names.collect()
}

/// goose keeps a log for each of its processes, in a folder for each day.
fn newest_log(folder: &Path) -> Option<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    for _ in 0..LOG_FOLDERS {
        let Some(folder) = folders.pop() else { break };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() {
                folders.push(entry.path());
            } else if let Ok(modified) = about.modified()
                && about.is_file()
                && newest.as_ref().is_none_or(|(time, _)| *time < modified)
            {
                newest = Some((modified, entry.path()));
            }
        }
    }
    newest.map(|(_, path)| path)
}

fn end_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name` is reached by HTTP, `name=command argument…` is a program.
    fn expected(servers: &[&str]) -> Vec<Expected> {
        let read = |server: &&str| {
            let (name, line) =
                server.split_once('=').map_or((*server, None), |(name, line)| (name, Some(line)));
            let program = line.map(|line| {
                let mut words = words(line);
                Program { command: words.remove(0), arguments: words }
            });
            Expected { name: name.to_owned(), program }
        };
        servers.iter().map(read).collect()
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(ToOwned::to_owned).collect()
    }

    fn named(servers: &[&str], failed: &[&str], children: &[&str]) -> Vec<String> {
        let failed: Vec<String> = failed.iter().map(ToString::to_string).collect();
        let children: Vec<Vec<String>> = children.iter().map(|line| words(line)).collect();
        silent(&expected(servers), &failed, &children)
    }

    #[test]
    fn what_has_failed_or_came_before_or_was_not_started_is_not_waited_for() {
        let servers = ["a=python3 a.py", "b=sleep 9", "c=/usr/bin/thing", "web"];
        assert_eq!(named(&servers, &[], &[]), ["web"]);
        assert_eq!(named(&servers, &[], &["/opt/python3 a.py", "/usr/bin/sleep 9"]), ["b", "web"]);
        assert_eq!(named(&servers, &["web"], &["/usr/bin/sleep 9", "/opt/python3 a.py"]), ["a"]);
        assert_eq!(named(&servers, &["web", "a"], &["sh /usr/bin/thing"]), ["c"]);
        assert_eq!(named(&["web"], &["web"], &[]), Vec::<String>::new());
    }

    #[test]
    fn a_program_that_became_another_is_one_that_is_not_seen() {
        let servers = ["a=python3 a.py", "b=npx -y server"];
        assert_eq!(named(&servers, &[], &["python3 a.py", "node /x/server"]), ["b"]);
        assert_eq!(named(&servers, &[], &["node /x/server"]), ["a", "b"]);
    }

    #[test]
    fn a_homes_own_servers_are_those_that_are_on() {
        let configuration = b"extensions:
  Web One: {enabled: true, type: streamable_http, name: Web One, uri: 'http://x'}
  local: {enabled: true, type: stdio, name: local, cmd: python3, args: [a.py]}
  off: {enabled: false, type: stdio, name: off, cmd: x}
  developer: {enabled: true, type: platform}
";
        assert_eq!(of_configuration(configuration), expected(&["webone", "local=python3 a.py"]));
        assert_eq!(of_configuration(b"- no mapping"), []);
        assert_eq!(of_configuration(b""), []);
    }

    #[test]
    fn goose_logs_what_did_not_start() {
        let log = r#"{"timestamp":"x","level":"INFO","fields":{"message":"listening on stdio"},"target":"goose"}
no JSON
{"level":"WARN","fields":{"message":"Failed to load extension My Srv: process quit before initialization: stderr = "}}
{"level":"WARN","fields":{"message":"Failed to load extension cut off"}}"#;
        assert_eq!(failed_in(log), ["mysrv"]);
    }

    #[test]
    fn the_newest_log_counts() {
        let home = tempfile::tempdir().unwrap();
        let day = home.path().join("state/logs/cli/2026-11-30");
        fs::create_dir_all(&day).unwrap();
        fs::create_dir(home.path().join("config")).unwrap();
        let configuration = "extensions: {one: {type: sse, name: one}, two: {type: sse, name: two}}";
        fs::write(home.path().join("config/config.yaml"), configuration).unwrap();
        let line =
            |name: &str| format!("{{\"fields\":{{\"message\":\"Failed to load extension {name}: no\"}}}}\n");
        fs::write(day.join("old.log"), line("two")).unwrap();
        let older = SystemTime::now() - std::time::Duration::from_mins(1);
        File::options().write(true).open(day.join("old.log")).unwrap().set_modified(older).unwrap();
        fs::write(day.join("new.log"), line("one")).unwrap();
        assert_eq!(silent_servers(&Places::own(home.path()), &[], &[]), ["two"]);
    }
}
