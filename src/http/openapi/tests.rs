use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::http::permissions::{PermissionAnswer, SupposedCall};
use crate::http::sessions::{CreateSession, PatchSession};
use crate::http::steer::SteerTurn;
use crate::http::turns::StartTurn;
use crate::session::audit::By;
use crate::session::event::{EventBody, EventKind};
use crate::session::id::{EventId, MessageId, SessionId, Timestamp, TurnId};
use crate::session::permission::{PermissionKind, PermissionState, PermissionToolCall};
use crate::session::run::RunBuilder;
use crate::session::turn::{Prompt, TurnState};

fn document_value() -> Value {
    serde_json::from_str(&document_json().unwrap()).unwrap()
}

#[test]
fn the_printed_document_is_stable_and_ends_with_a_line_end() {
    let text = document_json().unwrap();
    assert_eq!(text, document_json().unwrap());
    assert!(text.ends_with("}\n") && !text.ends_with("\n\n"));
    assert!(document_value()["openapi"].as_str().unwrap().starts_with("3.1"));
}

#[test]
fn every_reference_leads_somewhere() {
    fn visit(value: &Value, document: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{reference}");
                }
                members.values().for_each(|member| visit(member, document));
            }
            Value::Array(items) => items.iter().for_each(|item| visit(item, document)),
            _ => {}
        }
    }
    let document = document_value();
    visit(&document, &document);
}

#[test]
fn every_operation_has_an_id_of_its_own_a_tag_and_answers() {
    let document = document_value();
    let mut ids = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{id} is there twice");
            assert_eq!(operation["tags"].as_array().map(Vec::len), Some(1), "{method} {path}");
            assert!(!operation["responses"].as_object().unwrap().is_empty(), "{method} {path}");
            let open = operation["security"] == json!([{}]);
            let needs_a_token = path.starts_with("/v1/") || path == "/metrics";
            assert_eq!(open, !needs_a_token, "{method} {path}: security");
        }
    }
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
}

#[test]
fn every_problem_code_is_described() {
    let document = document_value();
    let code = &document["components"]["schemas"]["Problem"]["properties"]["code"]["description"];
    for known in Code::ALL {
        assert!(code.as_str().unwrap().contains(&format!("`{}`", known.as_str())), "{known:?}");
    }
}

#[test]
fn enums_are_open_but_for_what_tells_schemas_apart() {
    let document = document_value();
    let schemas = &document["components"]["schemas"];
    for (name, value) in [("SessionState", "idle"), ("PermissionKind", "tool"), ("Mode", "auto")] {
        assert_eq!(schemas[name].get("enum"), None, "{name}");
        assert!(schemas[name]["x-extensible-enum"].as_array().unwrap().contains(&json!(value)), "{name}");
    }
}

#[test]
fn an_enum_in_its_place_is_described_there() {
    let document = document_value();
    let action = &document["components"]["schemas"]["Rule"]["properties"]["action"];
    assert_eq!((&action["type"], &action["enum"]), (&json!("string"), &json!(["allow", "ask", "reject"])));
    assert_eq!(action["description"], "What happens to such a call.");
}

fn turn() -> Turn {
    Turn {
        id: TurnId::new(),
        session_id: SessionId::new(),
        state: TurnState::Running,
        prompt: None,
        text: None,
        stop_reason: None,
        error: None,
        usage: None,
        created_at: Timestamp::now(),
        started_at: None,
        ended_at: None,
        first_event_id: EventId(1),
        last_event_id: None,
        request_id: None,
        traceparent: None,
    }
}

fn permission() -> Permission {
    let input = PermissionToolCall {
        id: "call_1".into(),
        tool: None,
        extension: None,
        title: None,
        kind: None,
        input: None,
        cwd: "/".into(),
    };
    Permission {
        id: crate::session::id::PermissionId::new(),
        session_id: SessionId::new(),
        turn_id: TurnId::new(),
        kind: PermissionKind::Tool,
        state: PermissionState::Pending,
        tool_call: input,
        options: Vec::new(),
        requested_at: Timestamp::now(),
        expires_at: Timestamp::now(),
        outcome: None,
    }
}

/// An event of each kind with every optional member.
fn full_body(kind: EventKind) -> EventBody {
    match kind {
        EventKind::SessionCreated | EventKind::SessionUpdated | EventKind::SessionDeleted => {
            EventBody::Session { session: Box::default() }
        }
        EventKind::SessionState => {
            EventBody::State { state: SessionState::Idle, reason: None, by: Some(By::caller("alice")) }
        }
        EventKind::TurnQueued
        | EventKind::TurnStarted
        | EventKind::TurnCompleted
        | EventKind::TurnFailed
        | EventKind::TurnCancelled
        | EventKind::TurnInterrupted => EventBody::Turn { turn: Box::new(turn()), by: Some("alice".into()) },
        EventKind::TurnSteered => EventBody::Steered {
            turn: Box::new(turn()),
            message_id: MessageId::new(),
            prompt: Prompt::Text("a".into()),
            by: "alice".into(),
        },
        EventKind::MessageDelta | EventKind::ThoughtDelta | EventKind::MessageUser => {
            EventBody::Text { message_id: MessageId::new(), text: "a".into() }
        }
        EventKind::ToolCallStarted | EventKind::ToolCallUpdated | EventKind::ToolCallFinished => {
            EventBody::ToolCall { tool_call: Box::default() }
        }
        EventKind::ToolCallOutput => EventBody::Output {
            tool_call_id: "call_1".into(),
            stream: "stdout".into(),
            text: "a".into(),
            truncated: true,
        },
        EventKind::PlanUpdated => EventBody::Plan { plan: Plan::default() },
        EventKind::PermissionRequested | EventKind::PermissionResolved => {
            EventBody::Permission { permission: Box::new(permission()), by: None }
        }
        EventKind::UsageUpdated => EventBody::Usage { usage: SessionUsage::default() },
        EventKind::CommandsUpdated => EventBody::Commands { commands: Vec::new(), skills: Vec::new() },
        EventKind::Notice => {
            EventBody::Notice { level: NoticeLevel::Info, code: "a".into(), message: "b".into() }
        }
        EventKind::AgentUpdate => EventBody::Raw { raw: json!({}) },
    }
}

#[test]
fn an_event_has_exactly_the_members_that_its_schema_names() {
    let document = document_value();
    let schemas = &document["components"]["schemas"];
    let mapping = schemas["Event"]["discriminator"]["mapping"].as_object().unwrap();
    assert!(EventKind::ALL.iter().all(|kind| mapping.contains_key(kind.as_str())));
    assert!(schemas["Event"]["oneOf"].as_array().unwrap().len() >= EventKind::ALL.len());
    for kind in EventKind::ALL.iter().copied() {
        let mut run = RunBuilder::new(EventId(1));
        let body = full_body(kind);
        run.push(SessionId::new(), Some(TurnId::new()), Timestamp::now(), kind, &body).unwrap();
        let run = run.finish().unwrap().unwrap();
        let json = run.frames_after(EventId(0)).next().unwrap().json().to_vec();
        let event: Value = serde_json::from_slice(&json).unwrap();
        let pointer = mapping[kind.as_str()].as_str().unwrap().strip_prefix('#').unwrap();
        let schema = document.pointer(pointer).unwrap();
        assert_eq!(schema["properties"]["type"]["enum"], json!([kind.as_str()]));
        let named: BTreeSet<&String> = schema["properties"].as_object().unwrap().keys().collect();
        let written: BTreeSet<&String> = event.as_object().unwrap().keys().collect();
        assert_eq!(named, written, "{}", kind.as_str());
    }
}

#[test]
fn only_a_body_that_has_to_be_there_is_called_required() {
    let document = serde_json::to_value(document()).unwrap();
    let required = |path: &str| document["paths"][path]["post"]["requestBody"]["required"].clone();
    assert_eq!(required("/v1/sessions"), serde_json::Value::Null);
    assert_eq!(required("/v1/sessions/{session_id}/turns"), true);
    assert!(
        document["paths"]["/v1/sessions"]["post"]["requestBody"]["content"]["application/json"].is_object()
    );
}

/// Every operation, with its id.
fn operations(document: &Value) -> Vec<(String, &Value)> {
    let paths = document["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|methods| methods.as_object().unwrap().values());
    operations.map(|operation| (operation["operationId"].as_str().unwrap().to_owned(), operation)).collect()
}

#[test]
fn every_body_and_every_answer_has_an_example() {
    let document = document_value();
    let mut answers = 0;
    for (id, operation) in operations(&document) {
        if let Some(body) = operation.get("requestBody") {
            let examples = body["content"]["application/json"]["examples"].as_object();
            let examples = examples.unwrap_or_else(|| panic!("{id}: its body has no example"));
            assert!(examples.values().all(|example| example["summary"].is_string()), "{id}");
        }
        for (status, answer) in operation["responses"].as_object().unwrap() {
            for (media_type, content) in answer["content"].as_object().into_iter().flatten() {
                let is_there = match media_type.as_str() {
                    // Which of the checks fails is in members of its own.
                    "application/problem+json" if id == "getReadiness" => true,
                    "application/problem+json" => content["examples"].is_object(),
                    _ => content["example"] != Value::Null,
                };
                assert!(is_there, "{id}: the answer {status} as {media_type} has no example");
                answers += 1;
            }
        }
    }
    assert!(answers > 60, "{answers}");
    let refused = &document["components"]["responses"]["Refused"]["content"]["application/problem+json"];
    assert!(refused["examples"]["unauthenticated"].is_object());
}

#[test]
fn the_example_of_a_problem_is_of_its_code_and_says_what_it_is_about() {
    let document = document_value();
    let problems = document["components"]["examples"].as_object().unwrap();
    let named = document["components"]["schemas"]["Problem"]["properties"].as_object().unwrap();
    for (code, example) in problems {
        let problem = &example["value"];
        assert_eq!(problem["code"], *code);
        assert!(!problem["detail"].as_str().unwrap().is_empty(), "{code}");
        for member in problem.as_object().unwrap().keys() {
            assert!(named.contains_key(member), "{code}: {member} is not in the schema");
        }
    }
    for member in [
        "turn_id",
        "permission",
        "role",
        "extensions",
        "stderr_tail",
        "waiting_for",
        "errors",
        "retry_after_s",
    ] {
        assert!(problems.values().any(|example| !example["value"][member].is_null()), "{member}");
    }
}

#[test]
fn gander_takes_the_bodies_that_are_shown() {
    let document = document_value();
    let mut taken = 0;
    for (id, operation) in operations(&document) {
        let examples = operation["requestBody"]["content"]["application/json"]["examples"].as_object();
        for (name, example) in examples.into_iter().flatten() {
            let body = example["value"].clone();
            let read = match id.as_str() {
                "createSession" => serde_json::from_value::<CreateSession>(body).err(),
                "updateSession" => serde_json::from_value::<PatchSession>(body).err(),
                "createTurn" => serde_json::from_value::<StartTurn>(body).err(),
                "steerTurn" => serde_json::from_value::<SteerTurn>(body).err(),
                "answerPermission" => serde_json::from_value::<PermissionAnswer>(body).err(),
                "explainPermission" => serde_json::from_value::<SupposedCall>(body).err(),
                other => panic!("{other} has a body: read it here"),
            };
            assert!(read.is_none(), "{id}, {name}: {read:?}");
            taken += 1;
        }
    }
    assert!(taken > 10, "{taken}");
}
