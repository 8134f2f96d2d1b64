//! Permission settings for tests, and tools that a few words describe.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::permission::PermissionSettings;
use super::policy::{
    Action, FileArgument, OnNoSubscriber, PermissionPolicy, ShellUse, ToolCatalogue, ToolFacts,
};

/// `shell` runs its `command`, `write` takes a `path`, `tree` only reads, `plan` writes the plan.
#[derive(Debug)]
struct FakeTools;

impl ToolCatalogue for FakeTools {
    fn facts(&self, tool: Option<&str>, _: Option<&str>, input: &Value) -> ToolFacts {
        let text = |name: &str| input.get(name).and_then(Value::as_str).map(str::to_owned);
        let line = text("command").filter(|_| tool == Some("shell"));
        ToolFacts {
            extension: Some("developer".into()),
            read_only: tool == Some("tree"),
            writes_plan: tool == Some("plan"),
            shell: line.map_or(ShellUse::Nothing, |line| ShellUse::Line { line, pointer: "/command" }),
            files: text("path").map(FileArgument::Path).into_iter().collect(),
            ..ToolFacts::default()
        }
    }
}

/// A gateway without rules of its own.
pub(super) fn permissions() -> PermissionSettings {
    PermissionSettings {
        policy: PermissionPolicy { default: Some(Action::Ask), ..PermissionPolicy::default() },
        timeout: Duration::from_mins(1),
        on_no_subscriber: OnNoSubscriber::Wait,
        allow_plan_write: true,
        grants: 2,
        tools: Arc::new(FakeTools),
    }
}
