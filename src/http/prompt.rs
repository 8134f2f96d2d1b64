//! What a prompt may be made of.
//!
//! goose takes more kinds of content block than are good for it (measured on 1.52): it drops `audio`, binary resources
//! and what is not for the `assistant` without a word, and passes on as an image whatever it is given. Such prompts are
//! refused. Where a `resource_link` leads is looked at by the session ([`crate::session::links`]), which knows its
//! directory.

mod image;

use serde_json::{Map, Value};

use super::problem::{FieldError, pointer_token};
use crate::session::turn::Prompt;

/// What a prompt may be made of.
#[derive(Clone, Copy, Debug)]
pub struct PromptLimits {
    /// How many content blocks it may have.
    pub blocks: usize,
    /// How many bytes an image may have.
    pub image_bytes: usize,
}

/// What is wrong with a prompt: where, and what.
type Faults = Vec<FieldError>;

/// The prompt in a request's `prompt` field.
pub(super) fn prompt_of(value: Value, limits: PromptLimits) -> Result<Prompt, Faults> {
    match value {
        Value::String(text) if text.trim().is_empty() => Err(vec![empty_prompt()]),
        Value::String(text) => Ok(Prompt::Text(text)),
        Value::Array(blocks) if blocks.is_empty() => Err(vec![empty_prompt()]),
        Value::Array(blocks) if blocks.len() > limits.blocks => {
            let detail =
                format!("must not have more than {} content blocks (limits.prompt_blocks)", limits.blocks);
            Err(vec![FieldError::new("/prompt", detail)])
        }
        Value::Array(blocks) => {
            let faults: Faults = blocks
                .iter()
                .enumerate()
                .flat_map(|(index, block)| faults_of_block(index, block, limits))
                .collect();
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

fn faults_of_block(index: usize, block: &Value, limits: PromptLimits) -> Faults {
    let at = format!("/prompt/{index}");
    let Some(fields) = block.as_object() else {
        return vec![FieldError::new(at, "must be a content block")];
    };
    let Some(kind) = fields.get("type").and_then(Value::as_str) else {
        return vec![FieldError::new(format!("{at}/type"), KINDS)];
    };
    let mut check = FieldCheck { at: &at, fields, faults: Vec::new() };
    match kind {
        "text" => {
            check.text("text");
            check.only(&["type", "text", "annotations"]);
        }
        "image" => {
            check.image(limits.image_bytes);
            check.only(&["type", "mimeType", "data", "annotations"]);
        }
        "resource" => {
            check.resource();
            check.only(&["type", "resource", "annotations"]);
        }
        "resource_link" => {
            check.text("uri");
            check.text("name");
            for field in ["title", "description", "mimeType"] {
                check.optional(field, Value::is_string, "must be text");
            }
            check.optional("size", Value::is_u64, "must be a number of bytes");
            check.only(&["type", "uri", "name", "title", "description", "mimeType", "size", "annotations"]);
        }
        "audio" => {
            check.refuse("type", "audio is not taken: the agent would drop it without a word");
        }
        _ => check.refuse("type", KINDS),
    }
    check.annotations();
    check.faults
}

const KINDS: &str = "must be text, image, resource or resource_link";

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

    fn optional(&mut self, field: &str, is_right: fn(&Value) -> bool, detail: &str) {
        if self.fields.get(field).is_some_and(|value| !is_right(value)) {
            self.refuse(field, detail);
        }
    }

    fn image(&mut self, most_bytes: usize) {
        let text = |field: &str| self.fields.get(field).and_then(Value::as_str);
        let faults = image::faults(text("mimeType"), text("data"), most_bytes);
        for (field, detail) in faults {
            self.refuse(field, &detail);
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
        check.optional("mimeType", Value::is_string, "must be text");
        check.only(&["uri", "mimeType", "text", "blob"]);
        self.faults.append(&mut check.faults);
    }

    /// ACP's hints for display. One of them is none: what is not for the assistant does not reach the model.
    fn annotations(&mut self) {
        let Some(annotations) = self.fields.get("annotations") else { return };
        let Some(hints) = annotations.as_object() else {
            return self.refuse("annotations", "must be an object");
        };
        let audience = match hints.get("audience") {
            None | Some(Value::Null) => return,
            Some(audience) => audience.as_array().map_or(&[][..], Vec::as_slice),
        };
        let is_known = audience.iter().all(|role| role == "user" || role == "assistant");
        if !is_known || !audience.iter().any(|role| role == "assistant") {
            let detail = "must be a list with assistant in it, and else only user: the agent would drop the block \
                          without a word";
            self.faults.push(FieldError::new(format!("{}/annotations/audience", self.at), detail));
        }
    }

    /// Refuses every field but these.
    fn only(&mut self, known: &[&str]) {
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

    const LIMITS: PromptLimits = PromptLimits { blocks: 4, image_bytes: 100 };
    const PNG: &str = "iVBORw0KGgo=";

    fn prompt_of(value: Value) -> Result<Prompt, Faults> {
        super::prompt_of(value, LIMITS)
    }

    fn pointers(prompt: Value) -> Vec<String> {
        prompt_of(prompt).unwrap_err().into_iter().map(|fault| fault.pointer).collect()
    }

    #[test]
    fn text_and_the_four_kinds_of_block_pass_as_they_are() {
        assert_eq!(prompt_of(json!("hello")).unwrap(), Prompt::Text("hello".into()));
        let blocks = json!([
            {"type": "text", "text": "look", "annotations": {"audience": ["user", "assistant"], "priority": 1}},
            {"type": "image", "mimeType": "image/png", "data": PNG},
            {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "x"}},
            {"type": "resource_link", "uri": "file:///a", "name": "a", "title": "A", "description": "It.",
             "mimeType": "text/plain", "size": 3, "annotations": {}},
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
            (json!([{"type": "image", "mimeType": "text/plain", "data": PNG}]), vec!["/prompt/0/mimeType"]),
            (json!([{"type": "image", "mimeType": "image/png"}]), vec!["/prompt/0/data"]),
            (
                json!([{"type": "image", "mimeType": "image/png", "data": PNG, "uri": "file:///a"}]),
                vec!["/prompt/0/uri"],
            ),
            (json!([{"type": "resource_link", "uri": "a"}]), vec!["/prompt/0/name"]),
            (json!([{"type": "resource_link", "name": "a"}]), vec!["/prompt/0/uri"]),
            (
                json!([{"type": "resource_link", "uri": "a", "name": "a", "size": -1, "title": 1, "text": "b"}]),
                vec!["/prompt/0/title", "/prompt/0/size", "/prompt/0/text"],
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
    fn a_prompt_has_so_many_blocks() {
        let blocks = |count| Value::Array(vec![json!({"type": "text", "text": "a"}); count]);
        assert!(prompt_of(blocks(LIMITS.blocks)).is_ok());
        let faults = prompt_of(blocks(LIMITS.blocks + 1)).unwrap_err();
        assert_eq!(faults[0].pointer, "/prompt");
        assert!(faults[0].detail.contains("limits.prompt_blocks"));
    }

    #[test]
    fn a_block_that_the_agent_would_drop_for_its_audience_is_refused() {
        let with =
            |audience: Value| json!([{"type": "text", "text": "a", "annotations": {"audience": audience}}]);
        for dropped in
            [json!(["user"]), json!([]), json!(["robot"]), json!(["assistant", "robot"]), json!("assistant")]
        {
            assert_eq!(pointers(with(dropped.clone())), ["/prompt/0/annotations/audience"], "{dropped}");
        }
        for taken in [json!(["assistant"]), json!(["user", "assistant"]), Value::Null] {
            assert!(prompt_of(with(taken.clone())).is_ok(), "{taken}");
        }
        let kinds = json!([
            {"type": "image", "mimeType": "image/png", "data": PNG, "annotations": {"audience": ["user"]}},
            {"type": "resource", "resource": {"uri": "a", "text": "b"}, "annotations": {"audience": ["user"]}},
            {"type": "resource_link", "uri": "a", "name": "a", "annotations": {"audience": ["user"]}},
        ]);
        assert_eq!(pointers(kinds).len(), 3);
    }

    #[test]
    fn blocks_that_the_agent_would_drop_are_refused_with_the_reason() {
        let faults = prompt_of(json!([
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "a", "blob": "aGk="}},
        ]))
        .unwrap_err();
        let pointers: Vec<_> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
        assert_eq!(pointers, ["/prompt/0/type", "/prompt/1/resource/blob"]);
        assert!(faults.iter().all(|fault| fault.detail.contains("drop")));
    }
}
