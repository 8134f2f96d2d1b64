//! What a tool call gave, in the API's words: `{"type": "diff", …}` and `{"type": "terminal", …}`.

use std::time::Duration;

use serde_json::{Value, json};
use similar::TextDiff;

/// How long finding the differences may take; what is not found by then is shown as replaced whole.
const DIFF_TIME: Duration = Duration::from_millis(200);
/// Lines shown around a change.
const CONTEXT_LINES: usize = 3;

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
    use super::*;

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
