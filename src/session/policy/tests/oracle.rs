//! What bash says: lines that are allowed are run in a real bash, in which every command is a stub that records its
//! words. Whatever runs has to be what the engine said would run, and nothing may be left behind.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::session::policy::shell::ShellLine;

/// What a stub does: one record per call, in one write. A loop that does not end is ended with everything in its process
/// group.
const STUB: &str = "#!/bin/sh
printf '%s\\037' \"$0\" \"$@\" '\u{1e}
' >> \"$LOG\"
calls=0
while read -r _; do calls=$((calls + 1)); done < \"$LOG\"
[ \"$calls\" -gt 20 ] && kill -9 0
";

/// The stubs, and what each ends with.
const STUBS: [(&str, i32); 4] = [("ok", 0), ("fail", 1), ("say", 0), ("bad", 0)];

/// Pieces of lines, most of them hostile.
const PIECES: &[&str] = &[
    "ok",
    "fail",
    "say",
    "one",
    "bad",
    "'ok'",
    "\"ok\"",
    "o\\k",
    "o''k",
    "./bad",
    "b''ad",
    "-x",
    "a=b",
    "X=y",
    "PATH=.",
    "'a b'",
    "\"a b\"",
    "'; bad'",
    "\"; bad\"",
    "\"$(bad)\"",
    "'$(bad)'",
    "$(bad)",
    "`bad`",
    "$X",
    "\\;",
    "\\\\",
    "\\\"",
    "\\'",
    "'",
    "\"",
    "\\",
    "*",
    "?",
    "[a]",
    "[",
    "]",
    "{a,b}",
    "{}",
    "{",
    "}",
    "(",
    ")",
    ";",
    ";;",
    "&",
    "&&",
    "||",
    "|",
    "|&",
    "\n",
    "!",
    "if",
    "then",
    "else",
    "elif",
    "fi",
    "while",
    "until",
    "do",
    "done",
    "for",
    "in",
    "case",
    "esac",
    "function",
    "coproc",
    "select",
    "time",
    "-p",
    "--",
    "[[",
    "]]",
    "((",
    "))",
    "2>&1",
    ">&2",
    ">/dev/null",
    "2>/dev/null",
    "</dev/null",
    "> x",
    "< x",
    "&>/dev/null",
    ">&",
    "2",
    ">",
    "<",
    "2>",
    "<&1",
    ">&-",
    "<(bad)",
    "<<<",
    "<<x",
    "{v}>",
    "#",
    "# bad",
    " # bad",
    "~",
    "HEAD~1",
    "bad()",
    "ok()",
    "ok ()",
    "\t",
    "$",
    "$'ok'",
    "$\"ok\"",
    "eval",
    "exec",
    "command",
    "builtin",
    ".",
    "trap",
    "export",
    "\r",
    "\u{e9}",
    "\u{a0}",
    "=",
    "+=",
    "a[0]=b",
    "a=(b)",
    "%",
    "^",
    ",",
    "..",
    ":",
    "@(ok)",
    "+(ok)",
    "!(ok)",
    "x=1 ok",
];

fn piece() -> impl Strategy<Value = String> {
    prop::sample::select(PIECES).prop_map(str::to_owned)
}

/// Any pieces, with and without blanks.
fn any_line() -> impl Strategy<Value = String> {
    prop::collection::vec((piece(), prop::bool::weighted(0.7)), 1..10).prop_map(|pieces| {
        pieces.into_iter().map(|(piece, blank)| if blank { piece + " " } else { piece }).collect()
    })
}

/// A line that would be allowed, were it not for a piece that is put in somewhere.
fn likely_line() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "a",
        "-x",
        "'a b'",
        "\"a b\"",
        "'; bad'",
        "'$(bad)'",
        "\\;",
        "{}",
        "HEAD~1",
        "a=b",
        "\"\\\"; bad\"",
        "''",
        "2",
        "\\\\",
        "if",
        "}",
        "#",
    ]);
    let redirect = prop::sample::select(vec!["", "", "", " 2>&1", " >/dev/null", " 2>/dev/null", " >&2"]);
    let name = prop::sample::select(vec!["ok", "ok", "fail", "say one", "'ok'", "o\\k", "s\"ay\" 'one'"]);
    let command = (name, prop::collection::vec(word, 0..3), redirect).prop_map(|(name, words, redirect)| {
        let words = if name == "fail" { Vec::new() } else { words };
        format!("{}{redirect}", [vec![name], words].concat().join(" "))
    });
    let leaf = command.boxed();
    let list = leaf.prop_recursive(3, 12, 3, |inner| {
        let joint = prop::sample::select(vec!["; ", " && ", " || ", " | ", "\n", " |& ", ";"]);
        prop_oneof![
            3 => (inner.clone(), joint, inner.clone()).prop_map(|(one, joint, other)| format!("{one}{joint}{other}")),
            1 => inner.clone().prop_map(|list| format!("({list})")),
            1 => inner.clone().prop_map(|list| format!("{{ {list}; }}")),
            1 => inner.clone().prop_map(|list| format!("! {list}")),
            1 => (inner.clone(), inner.clone()).prop_map(|(one, other)| format!("if {one}; then {other}; fi")),
            1 => (inner.clone(), inner.clone()).prop_map(|(one, other)| format!("while {one}; do {other}; done")),
            1 => (inner.clone(), inner).prop_map(|(one, other)| format!("until {one}\ndo {other}\ndone")),
        ]
    });
    (list, prop::option::of((piece(), any::<prop::sample::Index>()))).prop_map(|(mut line, addition)| {
        if let Some((piece, place)) = addition {
            let places: Vec<usize> = line.char_indices().map(|(at, _)| at).chain([line.len()]).collect();
            line.insert_str(places[place.index(places.len())], &piece);
        }
        line
    })
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![1 => any_line(), 4 => likely_line()]
}

/// A folder of stubs, and a folder to run lines in.
struct Oracle {
    folder: tempfile::TempDir,
}

impl Oracle {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for place in ["bin", "work"] {
            fs::create_dir(folder.path().join(place)).unwrap();
            for (name, code) in STUBS {
                let path = folder.path().join(place).join(name);
                fs::write(&path, format!("{STUB}exit {code}\n")).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        Self { folder }
    }

    fn work(&self) -> std::path::PathBuf {
        self.folder.path().join("work")
    }

    fn files(&self) -> HashSet<std::ffi::OsString> {
        fs::read_dir(self.work()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    /// Runs a line as goose does, and gives what was run: the path of each command, and its words.
    fn run(&self, line: &str) -> Vec<(String, Vec<String>)> {
        let log = self.folder.path().join("log");
        fs::write(&log, "").unwrap();
        Command::new("/bin/bash")
            .args(["-c", line])
            .env_clear()
            .env("PATH", self.folder.path().join("bin"))
            .env("LOG", &log)
            .current_dir(self.work())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .status()
            .unwrap();
        let records = fs::read_to_string(&log).unwrap();
        let calls = records.split("\u{1e}\n\u{1f}").filter(|record| !record.is_empty()).map(|record| {
            let mut words: Vec<String> = record.split('\u{1f}').map(str::to_owned).collect();
            words.pop();
            let path = words[0].clone();
            words[0] = Path::new(&path).file_name().unwrap().to_str().unwrap().to_owned();
            (path, words)
        });
        calls.collect()
    }
}

fn rules() -> Policy {
    server(json!([
        {"action": "allow", "command": "ok *"},
        {"action": "allow", "command": "fail"},
        {"action": "allow", "command": "say one *"},
    ]))
}

/// Whether one of the rules allows such a call, said another way than the engine says it.
fn is_allowed(words: &[String]) -> bool {
    match words[0].as_str() {
        "ok" => true,
        "fail" => words.len() == 1,
        "say" => words.get(1).is_some_and(|word| word == "one"),
        _ => false,
    }
}

/// Checks a line, and says whether it was allowed.
fn check(oracle: &Oracle, rules: &Policy, line: &str) -> bool {
    if Call::shell(line).decide(rules, &[]).action != Action::Allow {
        return false;
    }
    let said: Vec<Vec<String>> =
        ShellLine::read(line).commands.unwrap().into_iter().map(|command| command.words).collect();
    let before = oracle.files();
    for (path, words) in oracle.run(line) {
        assert!(path.contains("/bin/") && is_allowed(&words), "{line:?} ran {path} {words:?}");
        assert!(said.contains(&words), "{line:?} ran {words:?}, which is not among {said:?}");
    }
    assert_eq!(oracle.files(), before, "{line:?} left a file");
    true
}

#[test]
fn bash_runs_nothing_but_what_was_allowed() {
    let oracle = Oracle::new();
    let rules = rules();
    // The oracle sees what runs, or it would find nothing wrong.
    assert_eq!(oracle.run("ok a; ./bad | say $(bad) > y").len(), 4);
    assert!(oracle.files().contains(std::ffi::OsStr::new("y")));
    assert!(check(&oracle, &rules, "ok 'a b' | say one && fail || ok"));
    let allowed = std::cell::Cell::new(0_u32);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(CASES)
    });
    let result = runner.run(&line(), |line| {
        allowed.set(allowed.get() + u32::from(check(&oracle, &rules, &line)));
        Ok(())
    });
    result.unwrap();
    assert!(
        allowed.get() > CASES / 10,
        "only {} of {CASES} lines were allowed: too few to say anything",
        allowed.get()
    );
}

/// Lines that are tried, of which about a third are run.
const CASES: u32 = 500;
