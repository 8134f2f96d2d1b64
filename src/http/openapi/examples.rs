//! An example for every request body and every answer: one story, of a session that is asked what is new since a
//! release. Clients' generators show them, and tools that try the document send the requests.

mod answers;
mod problems;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use utoipa::Modify;
use utoipa::openapi::example::{Example, ExampleBuilder};
use utoipa::openapi::{Content, OpenApi as Document, Ref, RefOr, Response};

use super::super::problem::Code;

/// What the answers to a token that lacks something, or to a request that no route takes, have in common.
const ANYWHERE: [Code; 8] = [
    Code::MalformedRequest,
    Code::Unauthenticated,
    Code::RoleMissing,
    Code::OriginNotAllowed,
    Code::HostNotAllowed,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidRequest,
];

/// Puts the examples into the document. An operation without one keeps none; a test looks for those.
pub(super) struct Examples;

impl Modify for Examples {
    fn modify(&self, document: &mut Document) {
        let mut used = Vec::new();
        for path in document.paths.paths.values_mut() {
            let methods = [&mut path.get, &mut path.post, &mut path.patch, &mut path.delete];
            for operation in methods.into_iter().flatten() {
                let id = operation.operation_id.clone().unwrap_or_default();
                if let Some(RefOr::T(body)) = &mut operation.request_body {
                    for content in body.content.values_mut().filter_map(inline) {
                        content.examples = requests(&id);
                    }
                }
                for (status, response) in &mut operation.responses.responses {
                    let RefOr::T(response) = response else { continue };
                    let codes = codes_in(&response.description);
                    for (media_type, content) in &mut response.content {
                        let Some(content) = inline(content) else { continue };
                        if media_type == "application/problem+json" {
                            content.examples = references(&codes);
                            used.extend(codes.iter().copied());
                        } else {
                            content.example = answers::of(&id, status, media_type);
                        }
                    }
                }
            }
        }
        let Some(components) = &mut document.components else { return };
        if let Some(RefOr::T(refused)) = components.responses.get_mut("Refused") {
            add_to(refused, &ANYWHERE);
            used.extend(ANYWHERE);
        }
        for code in used {
            let example = ExampleBuilder::new().summary(code.title()).value(Some(problems::of(code))).build();
            components.examples.insert(code.as_str().to_owned(), example.into());
        }
    }
}

fn inline(content: &mut RefOr<Content>) -> Option<&mut Content> {
    match content {
        RefOr::T(content) => Some(content),
        RefOr::Ref(_) => None,
    }
}

fn add_to(response: &mut Response, codes: &[Code]) {
    for content in response.content.values_mut().filter_map(inline) {
        content.examples = references(codes);
    }
}

/// The codes that a description names.
fn codes_in(description: &str) -> Vec<Code> {
    let words: Vec<&str> = description.split('`').skip(1).step_by(2).collect();
    Code::ALL.iter().copied().filter(|code| words.contains(&code.as_str())).collect()
}

fn references(codes: &[Code]) -> BTreeMap<String, RefOr<Example>> {
    let reference = |code: &Code| Ref::new(format!("#/components/examples/{}", code.as_str()));
    codes.iter().map(|code| (code.as_str().to_owned(), RefOr::Ref(reference(code)))).collect()
}

/// The examples for an operation's body, by their names.
fn requests(operation: &str) -> BTreeMap<String, RefOr<Example>> {
    let examples: &[(&str, &str, Value)] = match operation {
        "createSession" => &[
            ("defaults", "Everything as the gateway has it, in an empty folder", json!({})),
            (
                "careful",
                "A title, and rules that decide beforehand",
                json!({
                    "title": "Release notes",
                    "metadata": {"ticket": "DOC-7"},
                    "mode": "smart_approve",
                    "builtins": ["todo"],
                    "permission_policy": {
                        "rules": [{"action": "reject", "tool": "shell", "command": "git push *"}],
                        "default": "ask",
                        "timeout_s": 600,
                    },
                }),
            ),
        ],
        "updateSession" => &[
            (
                "title",
                "Another title, and a note less",
                json!({"title": "Notes for 1.5", "metadata": {"ticket": null}}),
            ),
            ("mode", "Ask before every tool", json!({"mode": "approve"})),
        ],
        "createTurn" => &[
            ("text", "Text", json!({"prompt": answers::PROMPT})),
            (
                "blocks",
                "Content blocks, behind the turn that runs",
                json!({
                    "prompt": [
                        {"type": "text", "text": "Shorten this:"},
                        {"type": "resource", "resource": {
                            "uri": "file:///notes.md", "mimeType": "text/markdown", "text": "# 1.5\nMuch is new.",
                        }},
                    ],
                    "when_busy": "queue",
                }),
            ),
        ],
        "steerTurn" => &[("text", "Text", json!({"prompt": "Leave the dependency updates out."}))],
        "answerPermission" => &[
            ("once", "Allow this call", json!({"decision": "allow"})),
            (
                "session",
                "Allow such calls for the rest of the session",
                json!({"decision": "allow", "scope": "session"}),
            ),
            (
                "reject",
                "Reject it, and say why",
                json!({"decision": "reject", "reason": "Not on this branch."}),
            ),
            ("option", "By the option's id", json!({"option_id": "allow_once"})),
        ],
        "explainPermission" => &[(
            "shell",
            "A shell line",
            json!({"tool": "shell", "input": {"command": "git push origin main"}}),
        )],
        _ => &[],
    };
    let made = |(name, summary, value): &(&str, &str, Value)| {
        let example = ExampleBuilder::new().summary(*summary).value(Some(value.clone())).build();
        ((*name).to_owned(), example.into())
    };
    examples.iter().map(made).collect()
}
