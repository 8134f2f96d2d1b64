//! The calls of goose's own tools, told the same way whoever does their work: goose itself, or gander for it.
//!
//! Only with its client's file system and terminal does goose say of which kind a call is, which file it touches and what
//! has changed, and it says so late. All that can be told by the call itself is added here, when the call begins; what a
//! call that goose did by itself gave is told as gander would.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::result_begins_with;
use crate::goose::tools::GooseTools;
use crate::session::policy::{FileArgument, ShellUse, ToolCatalogue};
use crate::session::tool_call::content::{self, Before};
use crate::session::tool_call::{ToolCall, ToolCallStatus};

/// How the result of a write begins that has made a new file (measured).
const CREATED: &str = "Created ";
/// How many calls are remembered. No model has so many open at once.
const REMEMBERED: usize = 256;

/// What is known of the calls that have begun.
#[derive(Debug, Default)]
pub(super) struct OwnCalls {
    /// Where relative paths begin; `None`: they are left as they are.
    cwd: Option<PathBuf>,
    /// Bytes of each of a diff's texts.
    diff_bytes: usize,
    open: HashMap<String, Known>,
}

/// A call of one of goose's own tools.
#[derive(Debug)]
struct Known {
    change: Option<Change>,
    is_shell: bool,
    /// The file that it touches.
    path: Option<String>,
    /// Whether its live output was cut.
    truncated: bool,
}

/// What a call that changes a file puts there.
#[derive(Debug)]
struct Change {
    old: Option<String>,
    new: String,
}

impl OwnCalls {
    pub(super) fn in_folder(cwd: PathBuf, diff_bytes: usize) -> Self {
        Self { cwd: Some(cwd), diff_bytes, open: HashMap::new() }
    }

    /// A call begins: adds its kind and the file that it touches.
    pub(super) fn started(&mut self, call: &mut ToolCall) {
        // Models repeat ids.
        self.open.remove(&call.id);
        let input = call.input.clone().unwrap_or_default();
        let facts = GooseTools.facts(call.tool.as_deref(), call.extension.as_deref(), &input);
        let Some(kind) = facts.kind.filter(|kind| *kind != "other") else { return };
        let path = match facts.files.as_slice() {
            [FileArgument::Path(path)] if !facts.read_only => Some(self.absolute(path)),
            _ => None,
        };
        if call.kind.as_deref().is_none_or(|kind| kind == "other") {
            call.kind = Some(kind.to_owned());
        }
        if let (Some(path), None) = (&path, &call.locations) {
            let line = input.get("line").and_then(Value::as_u64);
            call.locations = Some(vec![match line {
                Some(line) => json!({"path": path, "line": line}),
                None => json!({"path": path}),
            }]);
        }
        if self.open.len() >= REMEMBERED {
            self.open.clear();
        }
        let text = |name: &str| input.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
        let change = match (kind, text("content"), text("after")) {
            ("edit", Some(new), _) => Some(Change { old: None, new }),
            ("edit", None, Some(new)) => Some(Change { old: text("before"), new }),
            _ => None,
        };
        let is_shell = facts.shell != ShellUse::Nothing;
        self.open.insert(call.id.clone(), Known { change, is_shell, path, truncated: false });
    }

    fn absolute(&self, path: &str) -> String {
        match &self.cwd {
            Some(cwd) => cwd.join(path).to_string_lossy().into_owned(),
            None => path.to_owned(),
        }
    }

    /// A call writes.
    pub(super) fn wrote(&mut self, id: &str, truncated: bool) {
        if let Some(known) = self.open.get_mut(id) {
            known.truncated |= truncated;
        }
    }

    /// A call changes or ends: what it gave is told in one form.
    pub(super) fn updated(&mut self, call: &mut ToolCall) {
        let Some(known) = self.open.get(&call.id) else { return };
        if known.path.is_some() {
            // Told when it began; goose's own is relative at times, and names a line that nobody asked for.
            call.locations = None;
        }
        let Some(status) = call.status.filter(|status| status.is_final()) else { return };
        let Some(known) = self.open.remove(&call.id) else { return };
        let is_told = call
            .content
            .iter()
            .flatten()
            .any(|block| matches!(block.get("type").and_then(Value::as_str), Some("diff" | "terminal")));
        if is_told {
            return;
        }
        let given = match (&known.change, &known.path) {
            (Some(Change { old, new }), Some(path)) if status == ToolCallStatus::Completed => {
                let before = match old {
                    Some(old) => Before::Text(old),
                    None if result_begins_with(call, CREATED) => Before::NoFile,
                    None => Before::Unknown,
                };
                Some(content::diff(path, before, new, self.diff_bytes))
            }
            _ if known.is_shell => call.output.as_ref().and_then(|output| ran(output, known.truncated)),
            _ => None,
        };
        let Some(given) = given else { return };
        // A call that failed also says in words why.
        let words = call.content.take().filter(|_| status != ToolCallStatus::Completed);
        call.content = Some(std::iter::once(given).chain(words.into_iter().flatten()).collect());
    }
}

/// What a command that goose ran itself has given, by goose's own account of it.
fn ran(output: &Value, truncated: bool) -> Option<Value> {
    let text = |name: &str| output.get(name).and_then(Value::as_str);
    let (stdout, stderr) = (text("stdout")?, text("stderr").unwrap_or_default());
    let between = if stdout.is_empty() || stderr.is_empty() || stdout.ends_with('\n') { "" } else { "\n" };
    let exit_code = output.get("exit_code").and_then(Value::as_i64);
    Some(content::terminal(&format!("{stdout}{between}{stderr}"), exit_code, None, truncated))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(calls: &mut OwnCalls, tool: &str, input: Value) -> ToolCall {
        let mut call = ToolCall {
            id: "c".into(),
            tool: Some(tool.into()),
            extension: Some("developer".into()),
            input: Some(input),
            ..ToolCall::default()
        };
        calls.started(&mut call);
        call
    }

    fn ended(
        calls: &mut OwnCalls,
        status: ToolCallStatus,
        content: &Value,
        output: Option<Value>,
    ) -> Vec<Value> {
        let content = content.as_array().cloned();
        let mut call =
            ToolCall { id: "c".into(), status: Some(status), content, output, ..ToolCall::default() };
        call.locations = Some(vec![json!({"path": "a", "line": 1})]);
        calls.updated(&mut call);
        call.content.unwrap_or_default()
    }

    fn calls() -> OwnCalls {
        OwnCalls::in_folder("/w".into(), 100)
    }

    const TEXT: &str = "Created a (1 lines)";

    fn words() -> Value {
        json!([{"type": "content", "content": {"type": "text", "text": TEXT}}])
    }

    #[test]
    fn kind_and_file_are_told_at_the_beginning() {
        let mut calls = calls();
        let call = started(&mut calls, "write", json!({"path": "a", "content": "x"}));
        assert_eq!(
            (call.kind.as_deref(), call.locations),
            (Some("edit"), Some(vec![json!({"path": "/w/a"})]))
        );
        let call = started(&mut calls, "read", json!({"path": "/v/a", "line": 2}));
        assert_eq!(call.kind.as_deref(), Some("read"));
        assert_eq!(call.locations, Some(vec![json!({"path": "/v/a", "line": 2})]));
        let call = started(&mut calls, "shell", json!({"command": "ls"}));
        assert_eq!((call.kind.as_deref(), call.locations), (Some("execute"), None));
        let call = started(&mut calls, "web__write", json!({"path": "a", "content": "x"}));
        assert_eq!((call.kind, call.locations), (None, None), "nobody knows what another's tool does");
    }

    #[test]
    fn a_change_that_goose_made_itself_is_a_diff_of_what_is_known() {
        let mut calls = calls();
        started(&mut calls, "edit", json!({"path": "a", "before": "x\n", "after": "y\n"}));
        let content = ended(&mut calls, ToolCallStatus::Completed, &words(), None);
        assert_eq!(content, [content::diff("/w/a", Before::Text("x\n"), "y\n", 100)]);
        started(&mut calls, "write", json!({"path": "/a", "content": "x\n"}));
        let content = ended(&mut calls, ToolCallStatus::Completed, &words(), None);
        assert_eq!(content, [content::diff("/a", Before::NoFile, "x\n", 100)]);
        started(&mut calls, "write", json!({"path": "/a", "content": "x\n"}));
        let overwrote = json!([{"type": "content", "content": {"type": "text", "text": "Overwrote"}}]);
        let content = ended(&mut calls, ToolCallStatus::Completed, &overwrote, None);
        assert_eq!(content, [content::diff("/a", Before::Unknown, "x\n", 100)]);
        started(&mut calls, "write", json!({"path": "/a", "content": "x\n"}));
        let content = ended(&mut calls, ToolCallStatus::Failed, &words(), None);
        assert_eq!(json!(content), words(), "nothing was changed");
        started(&mut calls, "write", json!({"path": "/a", "content": "x\n"}));
        let told = json!([{"type": "diff", "path": "/a", "old_text": "w", "new_text": "x\n"}]);
        assert_eq!(json!(ended(&mut calls, ToolCallStatus::Completed, &told, None)), told);
    }

    #[test]
    fn a_command_that_goose_ran_itself_is_a_terminal() {
        let mut calls = calls();
        started(&mut calls, "shell", json!({"command": "ls"}));
        calls.wrote("c", true);
        let output = json!({"stdout": "out", "stderr": "err", "exit_code": 3});
        let content = ended(&mut calls, ToolCallStatus::Failed, &words(), Some(output));
        assert_eq!(content[0], content::terminal("out\nerr", Some(3), None, true));
        assert_eq!(content[1], words()[0]);
        started(&mut calls, "shell", json!({"command": "ls"}));
        let declined = ended(&mut calls, ToolCallStatus::Failed, &words(), None);
        assert_eq!(json!(declined), words(), "it did not run");
    }
}
