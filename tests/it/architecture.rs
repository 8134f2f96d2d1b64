//! The import rules: which module may know which other, read from the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What each module of the crate may name of the others. A module that is not listed here is an error.
///
/// An entry is a module, or a path into it that is all that may be named.
const ALLOWED: [(&str, &[&str]); 18] = [
    ("session", &["shutdown"]),
    ("http", &["ip_range", "metrics", "session", "shutdown", "traces"]),
    ("observer", &["session"]),
    ("metrics", &["observer", "session"]),
    ("traces", &["metrics", "observer", "session", "shutdown"]),
    ("acp", &["session", "shutdown"]),
    ("client_tools", &["process", "session", "shutdown"]),
    ("goose", &["session"]),
    ("store", &["session"]),
    ("process", &["shutdown"]),
    ("mcp_proxy", &["shutdown"]),
    (
        "config",
        &[
            "goose::catalogue",
            "goose::places",
            "goose::servers",
            "ip_range",
            "session::agent::Mode",
            "session::agent::servers",
            "session::policy",
        ],
    ),
    ("demo", &["shutdown"]),
    ("ip_range", &[]),
    ("shutdown", &[]),
    ("telemetry", &["config"]),
    ("cli", &["app", "config", "http", "session", "shutdown", "telemetry"]),
    (
        "app",
        &[
            "acp",
            "client_tools",
            "config",
            "demo",
            "goose",
            "http",
            "mcp_proxy",
            "metrics",
            "observer",
            "process",
            "session",
            "shutdown",
            "store",
            "telemetry",
            "traces",
        ],
    ),
];

/// The most lines that a source file has, tests left out.
const LINES: usize = 420;

/// What the core does not know. JSON-RPC only as a word of code, since its docs say that it is absent.
const FOREIGN_TO_THE_CORE: [&str; 12] = [
    "axum",
    "hyper",
    "http::",
    "rusqlite",
    "sqlite",
    "tokio::process",
    "std::process",
    "Command::new",
    "jsonrpc",
    "json_rpc",
    "agent_client_protocol",
    "session_update",
];

/// A source file of the crate, without its comments, strings and tests.
struct Source {
    path: PathBuf,
    /// The crate's module that it belongs to: `session` for `src/session/turn.rs`.
    module: String,
    /// How deep it is below the crate: 1 for `src/session.rs`, 2 for `src/session/turn.rs`.
    depth: usize,
    code: String,
    lines: usize,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    let is_test = |path: &Path| {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        stem == "tests"
            || stem.starts_with("fake_")
            || path.components().any(|part| part.as_os_str() == "tests")
    };
    files.retain(|path| !is_test(path.strip_prefix(&root).unwrap()));
    files.iter().map(|path| Source::read(&root, path)).collect()
}

impl Source {
    fn read(root: &Path, path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let below = path.strip_prefix(root).unwrap().with_extension("");
        let module = below.components().next().unwrap().as_os_str().to_str().unwrap().to_owned();
        let without_tests = without_tests(&text);
        Self {
            path: path.strip_prefix(root).unwrap().to_owned(),
            module,
            depth: below.components().count(),
            lines: without_tests.lines().count(),
            code: code_of(&without_tests),
        }
    }

    /// The paths into the crate that it names, such as `session::agent::Mode`.
    fn crate_paths(&self) -> BTreeSet<String> {
        crate_paths(&self.code, self.depth, &self.module)
    }
}

/// Cuts off a file's test module, which is always its end.
fn without_tests(text: &str) -> String {
    let tests = text.find("#[cfg(test)]\nmod tests {");
    text[..tests.unwrap_or(text.len())].to_owned()
}

/// The code alone: every comment and every string literal's content is gone.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let hashes =
            rest.strip_prefix('r').map_or(0, |after| after.len() - after.trim_start_matches('#').len());
        let raw = format!("r{}\"", "#".repeat(hashes));
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with(&raw)
            && !code.ends_with(|before: char| before.is_alphanumeric() || before == '_')
        {
            let end = format!("\"{}", "#".repeat(hashes));
            rest[raw.len()..].find(&end).map_or(rest.len(), |at| raw.len() + at + end.len())
        } else if letter == '"' {
            string_length(rest)
        } else if rest.starts_with("'\"'") {
            3
        } else if rest.starts_with(r"'\''") || rest.starts_with(r#"'\"'"#) {
            4
        } else {
            code.push(letter);
            rest = &rest[letter.len_utf8()..];
            continue;
        };
        rest = &rest[skipped..];
    }
    code
}

/// How long the string literal is that a text starts with.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Every path that begins at `crate` or climbs out of the file's module with `super`, as it is in the crate.
fn crate_paths(code: &str, depth: usize, module: &str) -> BTreeSet<String> {
    let climbs = format!("{}::", vec!["super"; depth].join("::"));
    let mut paths = BTreeSet::new();
    for (root, prefix) in [("crate::", ""), (climbs.as_str(), "")] {
        for (at, _) in code.match_indices(root) {
            let inside_a_word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
            let before = code[..at].chars().next_back();
            // `super::super::x` in a deeper file is found by its own whole length only.
            if before.is_some_and(inside_a_word) || code[..at].ends_with("super::") {
                continue;
            }
            expand(&code[at + root.len()..], prefix, &mut paths);
        }
    }
    // The module's own paths are nobody's business.
    paths.retain(|path| path != module && !path.starts_with(&format!("{module}::")));
    paths
}

/// Adds the paths of a use tree, `{…}` taken apart.
fn expand(tree: &str, prefix: &str, paths: &mut BTreeSet<String>) {
    let tree = tree.trim_start();
    if let Some(inside) = tree.strip_prefix('{') {
        for branch in branches(inside) {
            expand(branch, prefix, paths);
        }
        return;
    }
    let end = tree.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(tree.len());
    let path = if prefix.is_empty() { tree[..end].to_owned() } else { format!("{prefix}::{}", &tree[..end]) };
    match tree[end..].strip_prefix("::") {
        Some(rest) if rest.starts_with(|first: char| first == '{' || first.is_alphabetic()) => {
            expand(rest, &path, paths);
        }
        _ if tree[..end].is_empty() || tree[..end] == *"self" => {
            paths.insert(prefix.to_owned());
        }
        _ => {
            paths.insert(path);
        }
    }
}

/// The branches of a use tree's group, up to its closing brace.
fn branches(inside: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0_usize, 0, Vec::new());
    for (at, letter) in inside.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(&inside[start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&inside[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.retain(|branch| !branch.trim().is_empty());
    found
}

/// The paths that a module may not name.
fn forbidden(allowed: &[&str], paths: BTreeSet<String>) -> Vec<String> {
    let is_allowed = |path: &String| {
        allowed.iter().any(|allowed| path == allowed || path.starts_with(&format!("{allowed}::")))
    };
    paths.into_iter().filter(|path| !is_allowed(path)).collect()
}

#[test]
fn modules_import_only_what_they_may_know() {
    let allowed = BTreeMap::from(ALLOWED);
    let mut seen = BTreeSet::new();
    let mut faults = Vec::new();
    for source in sources() {
        // The crate's root lists the modules; the binary hands over to them.
        if matches!(source.module.as_str(), "lib" | "main") {
            continue;
        }
        let Some(allowed) = allowed.get(source.module.as_str()) else {
            faults.push(format!("{}: say in ALLOWED what this module may know", source.path.display()));
            continue;
        };
        for path in forbidden(allowed, source.crate_paths()) {
            faults.push(format!("{}: may not name crate::{path}", source.path.display()));
        }
        seen.insert(source.module);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let listed: BTreeSet<String> = allowed.keys().map(|module| (*module).to_owned()).collect();
    assert_eq!(seen, listed, "a module of ALLOWED is gone");
}

#[test]
fn the_core_knows_no_transport_no_database_and_no_process() {
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| source.module == "session") {
        for word in FOREIGN_TO_THE_CORE {
            if source.code.contains(word) {
                faults.push(format!("{}: {word}", source.path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn only_the_configuration_reads_the_environment() {
    let mut readers = Vec::new();
    for source in sources() {
        // `args_os` and `split_paths` do not read it.
        if ["env::var", "env::vars", "env::set_var"].iter().any(|word| source.code.contains(word)) {
            readers.push(source.path.display().to_string());
        }
    }
    assert_eq!(readers, ["config/environment.rs"]);
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<String> = sources()
        .iter()
        .filter(|source| source.lines > LINES)
        .map(|source| format!("{}: {} lines", source.path.display(), source.lines))
        .collect();
    assert!(long.is_empty(), "split these: {}", long.join(", "));
}

/// What the rules see of a piece of code in `src/<module>/x.rs`.
fn seen_in(module: &str, code: &str) -> Vec<String> {
    let allowed = BTreeMap::from(ALLOWED)[module];
    forbidden(allowed, crate_paths(&code_of(&without_tests(code)), 2, module))
}

#[test]
fn the_rules_see_every_way_to_name_a_module() {
    for (module, code, seen) in [
        ("session", "use crate::http::Api;", &["http::Api"][..]),
        (
            "session",
            "use crate::{shutdown::Tasks, goose::plan::{self, parse}};",
            &["goose::plan", "goose::plan::parse"],
        ),
        ("session", "use crate::{\n    config,\n    session::id::TurnId,\n};", &["config"]),
        ("session", "fn f() { crate::store::open() }", &["store::open"]),
        ("session", "use super::super::acp::Limits;", &["acp::Limits"]),
        ("session", "let x: Vec<crate::process::Child> = y;", &["process::Child"]),
        ("session", "pub(crate) use crate::app as a;", &["app"]),
        ("session", "use crate::*;", &[""]),
        ("http", "use crate::session::id;\nuse crate::store::{A, B};", &["store::A", "store::B"]),
        ("goose", "use crate::shutdown::Tasks;", &["shutdown::Tasks"]),
        ("config", "use crate::goose::{catalogue::find, launch};", &["goose::launch"]),
        ("config", "use crate::session::agent::{Mode, Notice};", &["session::agent::Notice"]),
        ("process", "use crate::session;", &["session"]),
        // What is no import.
        ("session", "// use crate::http::Api;\n/// [`crate::http`]", &[]),
        ("session", "let x = \"crate::http\"; let y = r#\"a \" crate::http\"#;", &[]),
        ("session", "pub(crate) struct A; use super::id::X; use crate::session::log;", &[]),
        ("session", "let quote = '\"'; use crate::http::A; let other = '\"';", &["http::A"]),
        ("session", "#[cfg(test)]\nmod tests {\n    use crate::http::Api;\n}", &[]),
    ] {
        assert_eq!(seen_in(module, code), seen, "{code}");
    }
}
