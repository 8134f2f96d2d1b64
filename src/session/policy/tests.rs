//! Whole decisions, by tables and by properties.

mod decisions;
mod hostile;
mod lines;
mod oracle;
mod properties;

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::session::agent::Mode;

/// What the tests know of tools: `shell` runs its `command`, `write` and `tree` take a `path`, `look` is read-only.
pub(super) fn facts(tool: &str, input: &Value) -> ToolFacts {
    let text = |pointer: &str| input.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let files = text("/path").map(|path| {
        if path.starts_with('~') { FileArgument::Unclear(path) } else { FileArgument::Path(path) }
    });
    ToolFacts {
        extension: Some(if tool.contains("__") { "server" } else { "developer" }.to_owned()),
        kind: match tool {
            "shell" => Some("execute"),
            "write" => Some("edit"),
            _ => None,
        },
        read_only: tool == "look",
        writes_plan: false,
        shell: match text("/command") {
            Some(line) if tool == "shell" => ShellUse::Line { line, pointer: "/command" },
            Some(line) => ShellUse::Perhaps(vec![line]),
            None => ShellUse::Nothing,
        },
        files: files.into_iter().collect(),
        reach: if tool == "tree" { Reach::Below } else { Reach::Itself },
    }
}

/// One call of a tool in `/work`.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) input: Value,
    pub(super) mode: Mode,
}

impl Call {
    pub(super) fn new(tool: &str, input: Value) -> Self {
        Self { tool: tool.to_owned(), input, mode: Mode::Approve }
    }

    pub(super) fn shell(line: &str) -> Self {
        Self::new("shell", json!({"command": line}))
    }

    pub(super) fn write(path: &str) -> Self {
        Self::new("write", json!({"path": path, "content": "…"}))
    }

    pub(super) fn in_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Gives the request to `with`, on a disk without links but `/work/link`, which leads to `/outside`, and `/alias`,
    /// which leads to `/real`.
    pub(super) fn request<T>(&self, policy: &Policy, with: impl FnOnce(&ToolRequest<'_>) -> T) -> T {
        let facts = facts(&self.tool, &self.input);
        let mut request = ToolRequest {
            tool: Some(&self.tool),
            extension: None,
            kind: Some("other"),
            mode: self.mode,
            input: &self.input,
            cwd: Path::new("/work"),
            facts: &facts,
            resolved: &ResolvedPaths::default(),
        };
        let resolved = ResolvedPaths::known(policy.paths(&request).into_iter().map(|path| {
            let plain = paths::without_dots(&path);
            let linked =
                |from: &str, to: &str| plain.strip_prefix(from).ok().map(|rest| Path::new(to).join(rest));
            let really = linked("/work/link", "/outside").or_else(|| linked("/alias", "/real"));
            (path, Some(really.unwrap_or(plain)))
        }));
        request.resolved = &resolved;
        with(&request)
    }

    pub(super) fn decide(&self, policy: &Policy, grants: &[Grant]) -> Verdict {
        self.request(policy, |request| policy.decide(request, grants))
    }
}

/// A policy as people write it.
pub(super) fn policy(text: Value) -> PermissionPolicy {
    let policy: PermissionPolicy = serde_json::from_value(text).unwrap();
    assert_eq!(policy.faults(), []);
    policy
}

/// Rules alone, on the gateway's side.
pub(super) fn server(rules: Value) -> Policy {
    let rules = PermissionPolicy {
        rules: serde_json::from_value(rules).unwrap(),
        default: Some(Action::Ask),
        ..PermissionPolicy::default()
    };
    assert_eq!(rules.faults(), []);
    Policy::new(&rules, &PermissionPolicy::default())
}
