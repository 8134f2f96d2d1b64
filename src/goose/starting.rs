//! What goose waits for when it does not get a session ready.
//!
//! goose tells nothing of it. Measured on goose 1.52: it starts the session's tool servers before it answers, one after
//! the other in an order of its own, and waits for each without an end. One that is a program is its child from then on;
//! one that fails stands in its log. Hence: what has failed is not waited for, nor a program that was started before
//! another one or was not started at all; the last program that was started may be, and so may every server that is
//! reached by HTTP.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_yaml_ng::{Mapping, Value};

use super::home;
use super::servers::folded;
use crate::session::agent::servers::{McpServer, McpTransport};

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
/// the folder `configuration` switches on. `failed` are the names of those that did not start, in goose's words; `children`
/// are the command lines of goose's child processes, the oldest first. Reads a file.
#[must_use]
pub fn silent_servers(
    configuration: &Path,
    servers: &[McpServer],
    failed: &[String],
    children: &[Vec<String>],
) -> Vec<String> {
    let mut expected: Vec<Expected> = servers.iter().map(of_session).collect();
    let own = fs::read(home::configuration_in(configuration)).unwrap_or_default();
    for server in of_configuration(&own) {
        if !expected.iter().any(|other| other.name == server.name) {
            expected.push(server);
        }
    }
    let failed: Vec<String> = failed.iter().map(|name| folded(name)).collect();
    silent(&expected, &failed, children)
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
    fn the_configuration_and_what_has_failed_are_taken_by_gooses_names() {
        let folder = tempfile::tempdir().unwrap();
        let configuration = "extensions: {'My Srv': {type: sse, name: My Srv}, two: {type: sse, name: two}, own: {type: sse}}";
        fs::write(folder.path().join("config.yaml"), configuration).unwrap();
        let found = |failed: &[&str]| {
            let failed: Vec<String> = failed.iter().map(ToString::to_string).collect();
            silent_servers(folder.path(), &[], &failed, &[])
        };
        assert_eq!(found(&[]), ["mysrv", "two", "own"]);
        assert_eq!(found(&["My Srv", "own"]), ["two"]);
        assert_eq!(silent_servers(&folder.path().join("none"), &[], &[], &[]), Vec::<String>::new());
    }
}
