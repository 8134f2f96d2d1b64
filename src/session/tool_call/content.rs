//! What a tool call gave, in the API's words: `{"type": "diff", …}` and `{"type": "terminal", …}`.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use similar::TextDiff;
use utoipa::ToSchema;

/// How long finding the differences may take; what is not found by then is shown as replaced whole.
const DIFF_TIME: Duration = Duration::from_millis(200);
/// Lines shown around a change.
const CONTEXT_LINES: usize = 3;

/// A part of what a tool call gave, as the API's document shows it. Which members are there depends on `type`: `content`
/// has `content`; `diff` has `path`, `old_text`, `new_text` and `unified_diff`; `terminal` has `output`, `exit_code`,
/// `signal` and `truncated`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ToolCallContent {
    /// `content`, `diff` or `terminal`. Open: callers ignore values they do not know.
    #[serde(rename = "type")]
    pub kind: String,
    /// An ACP content block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    /// The file that was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What the file had before; null when there was none, or when it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_text: Option<String>,
    /// What the file has now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_text: Option<String>,
    /// The change for people and tools; null when what was there is not known, or the texts were cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unified_diff: Option<String>,
    /// What a command wrote, its end at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// What the command ended with; null when a signal ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The signal that ended the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Whether something was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
}

/// What a file had before it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before<'a> {
    /// There was no file.
    NoFile,
    /// Something that nobody has seen, or that is no text.
    Unknown,
    /// This text.
    Text(&'a str),
}

/// The change of a file. `old_text` is null when there was no file; when what was there is not known, `unified_diff` is
/// null too. With more than `limit` bytes of either text both are cut to it, there is no unified diff, and `truncated` is
/// there and true.
#[must_use]
pub fn diff(path: &str, before: Before<'_>, new: &str, limit: usize) -> Value {
    let old = match before {
        Before::Text(old) => Some(old),
        Before::NoFile | Before::Unknown => None,
    };
    if old.map_or(0, str::len).max(new.len()) > limit {
        let cut = |text: &str| text[..text.floor_char_boundary(limit)].to_owned();
        return json!({
            "type": "diff", "path": path, "old_text": old.map(cut), "new_text": cut(new), "unified_diff": null,
            "truncated": true,
        });
    }
    let unified_diff = (before != Before::Unknown).then(|| unified(path, old, new));
    json!({"type": "diff", "path": path, "old_text": old, "new_text": new, "unified_diff": unified_diff})
}

fn unified(path: &str, old: Option<&str>, new: &str) -> String {
    let named = |side: &str| format!("{side}/{}", path.trim_start_matches('/'));
    let from = old.map_or_else(|| "/dev/null".to_owned(), |_| named("a"));
    let diff = TextDiff::configure().timeout(DIFF_TIME).diff_lines(old.unwrap_or_default(), new);
    diff.unified_diff().context_radius(CONTEXT_LINES).header(&from, &named("b")).to_string()
}

/// What a command wrote and how it ended.
#[must_use]
pub fn terminal(output: &str, exit_code: Option<i64>, signal: Option<&str>, truncated: bool) -> Value {
    json!({
        "type": "terminal", "output": output, "exit_code": exit_code, "signal": signal, "truncated": truncated,
    })
}

#[cfg(test)]
mod tests {
    use utoipa::PartialSchema as _;

    use super::*;

    #[test]
    fn the_document_has_all_that_a_change_and_a_command_have() {
        let schema = serde_json::to_value(ToolCallContent::schema()).unwrap();
        let shown = schema["properties"].as_object().unwrap();
        for given in [
            diff("/w/a", Before::NoFile, "long", 1),
            terminal("out", Some(0), None, false),
            json!({"type": "content", "content": {}}),
        ] {
            for member in given.as_object().unwrap().keys() {
                assert!(shown.contains_key(member), "{member}");
            }
        }
    }

    #[test]
    fn a_diff_has_both_texts_and_their_difference() {
        let changed = diff("/w/a.txt", Before::Text("one\ntwo\n"), "one\nTWO\n", 100);
        assert_eq!(
            changed["unified_diff"],
            "--- a/w/a.txt\n+++ b/w/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n"
        );
        assert_eq!(
            (&changed["old_text"], &changed["new_text"]),
            (&json!("one\ntwo\n"), &json!("one\nTWO\n"))
        );
        let new = diff("/w/a", Before::NoFile, "ä", 100);
        assert_eq!(new["old_text"], Value::Null);
        assert_eq!(
            new["unified_diff"],
            "--- /dev/null\n+++ b/w/a\n@@ -0,0 +1 @@\n+ä\n\\ No newline at end of file\n"
        );
        assert_eq!(
            diff("/w/a", Before::Text("x\r\ny\r\n"), "x\r\n", 100)["unified_diff"],
            "--- a/w/a\n+++ b/w/a\n@@ -1,2 +1 @@\n x\r\n-y\r\n"
        );
        assert_eq!(
            diff("/w/a", Before::Text("x\n"), "", 100)["unified_diff"],
            "--- a/w/a\n+++ b/w/a\n@@ -1 +0,0 @@\n-x\n"
        );
        assert_eq!(diff("/w/a", Before::Text("x"), "x", 100)["unified_diff"], "");
        let unknown = diff("/w/a", Before::Unknown, "x", 100);
        assert_eq!((&unknown["old_text"], &unknown["unified_diff"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn large_texts_are_cut_at_a_character_and_told_so() {
        let cut = diff("/w/a", Before::Text("short"), "ääää", 5);
        assert_eq!((&cut["old_text"], &cut["new_text"]), (&json!("short"), &json!("ää")));
        assert_eq!((&cut["unified_diff"], &cut["truncated"]), (&Value::Null, &json!(true)));
        assert_eq!(diff("/w/a", Before::NoFile, "ää", 4)["truncated"], Value::Null);
    }
}
