//! What a prompt may be made of.
//!
//! goose takes more kinds of content block than are good for it: it reads the file that a `resource_link` names from
//! anywhere on its host, and drops `audio` and binary resources without a word. Such prompts are refused.

use std::io;

use serde_json::{Map, Value};

use super::problem::{Code, FieldError, Problem, pointer_token};
use crate::session::turn::Prompt;

/// What is wrong with a prompt: where, and what.
type Faults = Vec<FieldError>;

/// The prompt in a request's `prompt` field; the agent takes none that has more bytes of JSON than `limit`.
pub(super) fn bounded_prompt_of(value: Value, limit: usize) -> Result<Prompt, Problem> {
    let prompt = prompt_of(value).map_err(Problem::unacceptable)?;
    let mut bytes = CountedBytes(0);
    let counted = match &prompt {
        Prompt::Text(text) => serde_json::to_writer(&mut bytes, text),
        Prompt::Blocks(blocks) => serde_json::to_writer(&mut bytes, blocks),
    };
    counted.map_err(Problem::internal)?;
    if bytes.0 > limit {
        let detail = format!("the prompt has {} bytes of JSON, and the agent takes {limit}", bytes.0);
        return Err(Problem::new(Code::BodyTooLarge, detail));
    }
    Ok(prompt)
}

/// Only counts what is written.
struct CountedBytes(usize);

impl io::Write for CountedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The prompt in a request's `prompt` field.
fn prompt_of(value: Value) -> Result<Prompt, Faults> {
    match value {
        Value::String(text) if text.trim().is_empty() => Err(vec![empty_prompt()]),
        Value::String(text) => Ok(Prompt::Text(text)),
        Value::Array(blocks) if blocks.is_empty() => Err(vec![empty_prompt()]),
        Value::Array(blocks) => {
            let faults: Faults =
                blocks.iter().enumerate().flat_map(|(index, block)| faults_of_block(index, block)).collect();
            if !faults.is_empty() {
                Err(faults)
            } else if blocks.iter().all(is_blank_text) {
                Err(vec![empty_prompt()])
            } else {
                Ok(Prompt::Blocks(blocks))
            }
        }
        _ => Err(vec![FieldError::new("/prompt", "must be text or a list of content blocks")]),
    }
}

fn empty_prompt() -> FieldError {
    FieldError::new("/prompt", "must not be empty")
}

fn is_blank_text(block: &Value) -> bool {
    block["type"] == "text" && block["text"].as_str().is_none_or(|text| text.trim().is_empty())
}

fn faults_of_block(index: usize, block: &Value) -> Faults {
    let at = format!("/prompt/{index}");
    let Some(fields) = block.as_object() else {
        return vec![FieldError::new(at, "must be a content block")];
    };
    let Some(kind) = fields.get("type").and_then(Value::as_str) else {
        return vec![FieldError::new(format!("{at}/type"), "must be text, image or resource")];
    };
    let mut check = FieldCheck { at: &at, fields, faults: Vec::new() };
    match kind {
        "text" => {
            check.text("text");
            check.only(&["type", "text", "annotations"]);
        }
        "image" => {
            check.image_type();
            check.base64("data");
            check.only(&["type", "mimeType", "data", "annotations"]);
        }
        "resource" => {
            check.resource();
            check.only(&["type", "resource", "annotations"]);
        }
        "resource_link" => check.refuse(
            "type",
            "resource_link is not taken: the agent would read the file it names from anywhere on its host; send the \
             text as a resource block",
        ),
        "audio" => {
            check.refuse("type", "audio is not taken: the agent would drop it without a word");
        }
        _ => check.refuse("type", "must be text, image or resource"),
    }
    check.faults
}

/// Collects what is wrong with the fields of one JSON object.
struct FieldCheck<'a> {
    at: &'a str,
    fields: &'a Map<String, Value>,
    faults: Faults,
}

impl FieldCheck<'_> {
    fn refuse(&mut self, field: &str, detail: &str) {
        self.faults.push(FieldError::new(format!("{}/{}", self.at, pointer_token(field)), detail));
    }

    fn text(&mut self, field: &str) {
        if !self.fields.get(field).is_some_and(Value::is_string) {
            self.refuse(field, "must be text");
        }
    }

    fn image_type(&mut self) {
        let is_image = |name: &str| {
            name.strip_prefix("image/").is_some_and(|format| {
                !format.is_empty()
                    && format.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
            })
        };
        if !self.fields.get("mimeType").and_then(Value::as_str).is_some_and(is_image) {
            self.refuse("mimeType", "must be an image's media type, such as image/png");
        }
    }

    fn base64(&mut self, field: &str) {
        let is_base64 = |data: &str| {
            let digits = data.trim_end_matches('=');
            !digits.is_empty()
                && data.len().is_multiple_of(4)
                && data.len() - digits.len() <= 2
                && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
        };
        if !self.fields.get(field).and_then(Value::as_str).is_some_and(is_base64) {
            self.refuse(field, "must be base64");
        }
    }

    fn resource(&mut self) {
        let Some(fields) = self.fields.get("resource").and_then(Value::as_object) else {
            self.refuse("resource", "must be an object with uri and text");
            return;
        };
        let at = format!("{}/resource", self.at);
        let mut check = FieldCheck { at: &at, fields, faults: Vec::new() };
        check.text("uri");
        if fields.contains_key("blob") {
            check.refuse("blob", "is not taken: the agent would drop it without a word; only text is");
        } else {
            check.text("text");
        }
        if fields.contains_key("mimeType") {
            check.text("mimeType");
        }
        check.only(&["uri", "mimeType", "text", "blob"]);
        self.faults.append(&mut check.faults);
    }

    /// Refuses every field but these. `annotations` are ACP's hints for display, an object.
    fn only(&mut self, known: &[&str]) {
        if self.fields.get("annotations").is_some_and(|annotations| !annotations.is_object()) {
            self.refuse("annotations", "must be an object");
        }
        for field in self.fields.keys() {
            if !known.contains(&field.as_str()) {
                self.refuse(field, "is not a known field");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pointers(prompt: Value) -> Vec<String> {
        prompt_of(prompt).unwrap_err().into_iter().map(|fault| fault.pointer).collect()
    }

    #[test]
    fn text_and_the_three_kinds_of_block_pass_as_they_are() {
        assert_eq!(prompt_of(json!("hello")).unwrap(), Prompt::Text("hello".into()));
        let blocks = json!([
            {"type": "text", "text": "look", "annotations": {"audience": ["user"]}},
            {"type": "image", "mimeType": "image/png", "data": "aGk="},
            {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "x"}},
        ]);
        assert_eq!(prompt_of(blocks.clone()).unwrap(), Prompt::Blocks(blocks.as_array().unwrap().clone()));
        assert!(prompt_of(json!([{"type": "text", "text": " "}, {"type": "text", "text": "a"}])).is_ok());
    }

    #[test]
    fn an_empty_prompt_is_refused() {
        for empty in [json!(""), json!(" \n\t"), json!([]), json!([{"type": "text", "text": " "}])] {
            assert_eq!(pointers(empty), ["/prompt"]);
        }
    }

    #[test]
    fn what_is_no_prompt_is_refused_at_its_place() {
        let cases = [
            (json!(7), vec!["/prompt"]),
            (json!({"type": "text", "text": "a"}), vec!["/prompt"]),
            (json!(["text"]), vec!["/prompt/0"]),
            (json!([{"text": "a"}]), vec!["/prompt/0/type"]),
            (json!([{"type": "video"}]), vec!["/prompt/0/type"]),
            (json!([{"type": "text", "text": "a"}, {"type": "text"}]), vec!["/prompt/1/text"]),
            (json!([{"type": "text", "text": "a", "a/b": 1}]), vec!["/prompt/0/a~1b"]),
            (json!([{"type": "text", "text": "a", "annotations": 1}]), vec!["/prompt/0/annotations"]),
            (
                json!([{"type": "image", "mimeType": "text/plain", "data": "aGk="}]),
                vec!["/prompt/0/mimeType"],
            ),
            (json!([{"type": "image", "mimeType": "image/png"}]), vec!["/prompt/0/data"]),
            (
                json!([{"type": "image", "mimeType": "image/png", "data": "aGk=", "uri": "file:///a"}]),
                vec!["/prompt/0/uri"],
            ),
            (json!([{"type": "resource"}]), vec!["/prompt/0/resource"]),
            (json!([{"type": "resource", "resource": {"text": "a"}}]), vec!["/prompt/0/resource/uri"]),
            (json!([{"type": "resource", "resource": {"uri": "a"}}]), vec!["/prompt/0/resource/text"]),
            (
                json!([{"type": "resource", "resource": {"uri": "a", "text": "b", "_meta": {}}}]),
                vec!["/prompt/0/resource/_meta"],
            ),
        ];
        for (prompt, expected) in cases {
            assert_eq!(pointers(prompt.clone()), expected, "{prompt}");
        }
    }

    #[test]
    fn image_data_is_checked_since_the_agent_does_not() {
        for data in ["", "=", "====", "aGk", "a===", "!!!notbase64", "aGk= ", "aG=k"] {
            let prompt = json!([{"type": "image", "mimeType": "image/png", "data": data}]);
            assert_eq!(pointers(prompt), ["/prompt/0/data"], "{data:?}");
        }
    }

    #[test]
    fn blocks_that_the_agent_would_misuse_or_drop_are_refused_with_the_reason() {
        let faults = prompt_of(json!([
            {"type": "resource_link", "uri": "file:///etc/hostname", "name": "x"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "a", "blob": "aGk="}},
        ]))
        .unwrap_err();
        let pointers: Vec<_> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
        assert_eq!(pointers, ["/prompt/0/type", "/prompt/1/type", "/prompt/2/resource/blob"]);
        assert!(faults[0].detail.contains("from anywhere on its host"));
        assert!(faults[1].detail.contains("drop"));
        assert!(faults[2].detail.contains("drop"));
    }
}
