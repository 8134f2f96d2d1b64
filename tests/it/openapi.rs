//! The OpenAPI document: it says what the gateway does, all of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use gander::http::openapi::document_json;
use gander::session::event::EventKind;
use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::support::{Setup, refusal, text};

/// The problem codes of the contract that this gateway can answer with, and their statuses.
const CODES: [(&str, u16); 26] = [
    ("malformed-request", 400),
    ("unauthenticated", 401),
    ("role-missing", 403),
    ("origin-not-allowed", 403),
    ("host-not-allowed", 421),
    ("not-found", 404),
    ("session-not-found", 404),
    ("turn-not-found", 404),
    ("permission-not-found", 404),
    ("method-not-allowed", 405),
    ("body-too-large", 413),
    ("unsupported-media-type", 415),
    ("turn-in-progress", 409),
    ("turn-not-running", 409),
    ("permission-already-resolved", 409),
    ("idempotency-key-reused", 409),
    ("session-busy", 409),
    ("invalid-request", 422),
    ("unknown-permission-option", 422),
    ("not-in-this-transport", 422),
    ("extension-required", 424),
    ("internal", 500),
    ("agent-start-failed", 502),
    ("provider-not-configured", 502),
    ("agent-start-timeout", 504),
    ("storage-unavailable", 503),
];

/// Those of 503 that need `Retry-After` beside `storage-unavailable`.
const BUSY_CODES: [&str; 2] = ["at-capacity", "draining"];

const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// The types of JSON Schema.
const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "object", "array", "null"];

fn document() -> Value {
    serde_json::from_str(&document_json().unwrap()).unwrap()
}

/// Every operation: path, method in lower case, and what it says.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if METHODS.contains(&method.as_str()) {
                operations.push((path.clone(), method.clone(), operation.clone()));
            }
        }
    }
    operations
}

/// Calls `look` on every value in the document, with its JSON pointer.
fn walk(value: &Value, pointer: &str, look: &mut impl FnMut(&str, &Value)) {
    look(pointer, value);
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let step = name.replace('~', "~0").replace('/', "~1");
                walk(member, &format!("{pointer}/{step}"), look);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, &format!("{pointer}/{index}"), look);
            }
        }
        _ => {}
    }
}

#[test]
fn the_file_in_the_repository_is_what_gander_prints() {
    let printed = Command::new(env!("CARGO_BIN_EXE_gander")).arg("openapi").env_clear().output().unwrap();
    assert!(printed.status.success());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi/gander.json");
    let kept = fs::read_to_string(&file).unwrap();
    assert!(
        kept.as_bytes() == printed.stdout,
        "openapi/gander.json is stale: cargo run -- openapi > openapi/gander.json"
    );
}

#[tokio::test]
async fn the_document_is_served_and_lists_every_route_of_the_router_and_no_other() {
    let gander = Setup::fake().start().await;
    let served = gander.client.get(format!("http://{}/openapi.json", gander.address)).send().await.unwrap();
    assert_eq!(served.status(), StatusCode::OK);
    assert_eq!(served.headers()["content-type"], "application/json");
    assert_eq!(served.text().await.unwrap(), document_json().unwrap());

    // The router's routes, from its source: it is the one place that has them all.
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http.rs")).unwrap();
    let routes = source.split(".route(").skip(1).map(|route| route.split('"').nth(1).unwrap().to_owned());
    // The pages that show the document are not in it.
    let routed: BTreeSet<String> = routes.filter(|path| !path.starts_with("/docs")).collect();
    assert!(routed.len() >= 14, "{routed:?}");
    let document = document();
    let documented: BTreeSet<String> = document["paths"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(documented, routed);

    // Their methods, from the router itself: it tells them when asked with one that no route has.
    for (path, item) in document["paths"].as_object().unwrap() {
        let path = path
            .replace("{session_id}", "a")
            .replace("{turn_id}", "b")
            .replace("{permission_id}", "c")
            .replace("{grant_id}", "d");
        let put = gander.request(Method::PUT, &path).send().await.unwrap();
        assert_eq!(put.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let allow = put.headers()["allow"].to_str().unwrap().to_ascii_lowercase();
        let mut allowed: BTreeSet<&str> = allow.split(',').map(str::trim).collect();
        // Every GET has a HEAD (RFC 9110, section 9.3.2); the document does not say so.
        allowed.remove("head");
        let methods: BTreeSet<&str> = item.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(allowed, methods, "{path}");
        refusal(gander.request(Method::PUT, &path), 405, "method-not-allowed").await;
    }
    gander.stop().await;
}

#[test]
fn every_event_has_a_schema_of_its_own() {
    let document = document();
    let event = &document["components"]["schemas"]["Event"];
    let mapping = event["discriminator"]["mapping"].as_object().unwrap();
    let listed: BTreeSet<String> =
        event["oneOf"].as_array().unwrap().iter().map(|item| text(&item["$ref"])).collect();
    assert_eq!(event["discriminator"]["propertyName"], "type");
    // The kinds of the log, and the two that only streams have.
    assert_eq!(mapping.len(), EventKind::ALL.len() + 2);
    assert_eq!(listed.len(), mapping.len());
    let reset = document.pointer(text(&mapping["stream.reset"]).trim_start_matches('#')).unwrap();
    for field in ["type", "reason", "last_event_id"] {
        assert!(reset["properties"].get(field).is_some(), "{field}");
    }
    let cursor = document.pointer(text(&mapping["stream.cursor"]).trim_start_matches('#')).unwrap();
    for field in ["type", "next_after"] {
        assert!(cursor["properties"].get(field).is_some(), "{field}");
    }
    for kind in EventKind::ALL {
        let reference = text(&mapping[kind.as_str()]);
        assert!(listed.contains(&reference), "{reference}");
        let schema = document.pointer(reference.trim_start_matches('#')).unwrap();
        assert_eq!(schema["properties"]["type"]["enum"], serde_json::json!([kind.as_str()]));
        let required: BTreeSet<String> = schema["required"].as_array().unwrap().iter().map(text).collect();
        for field in ["id", "type", "session_id", "turn_id", "time"] {
            assert!(required.contains(field), "{} without {field}", kind.as_str());
        }
        for field in &required {
            assert!(schema["properties"].get(field).is_some(), "{}: {field}", kind.as_str());
        }
        // More than what every event has.
        assert!(required.len() > 5, "{} carries nothing", kind.as_str());
    }
}

#[test]
fn every_problem_code_is_told() {
    let document = document();
    let told = text(&document["components"]["schemas"]["Problem"]["properties"]["code"]["description"]);
    let busy = BUSY_CODES.map(|code| (code, 503));
    for (code, status) in CODES.into_iter().chain(busy) {
        assert!(told.contains(&format!("`{code}` ({status})")), "{code}: {told}");
    }
    assert_eq!(told.matches('`').count(), (CODES.len() + BUSY_CODES.len()) * 2, "an unlisted code: {told}");
    // What an operation names in its answers is a code, and stands at its status.
    for (path, method, operation) in operations(&document) {
        for (status, response) in operation["responses"].as_object().unwrap() {
            let Ok(status @ 400..) = status.parse::<u16>() else { continue };
            let description = response["description"].as_str().unwrap_or_default();
            for word in description.split('`').skip(1).step_by(2).filter(|word| word.contains('-')) {
                let known = CODES.into_iter().chain(busy).any(|known| known == (word, status));
                assert!(known, "{method} {path} {status}: {word}");
            }
        }
    }
}

#[test]
fn the_document_is_sound() {
    let document = document();
    assert!(text(&document["openapi"]).starts_with("3.1."));
    assert_eq!(document["info"]["title"], "gander");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    // Every reference leads somewhere, and every named schema is needed.
    let mut targets = BTreeSet::new();
    walk(&document, "", &mut |pointer, value| {
        if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            let target = reference.strip_prefix('#').unwrap_or_else(|| panic!("{pointer}: {reference}"));
            assert!(document.pointer(target).is_some(), "{pointer}: {reference} leads nowhere");
            targets.insert(target.to_owned());
        }
    });
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        let used = name == "Event" || targets.contains(&format!("/components/schemas/{name}"));
        assert!(used, "nothing refers to the schema {name}");
    }
    // JSON Schema 2020-12: no `nullable`, types by their names, required properties exist.
    walk(&document["components"]["schemas"], "", &mut |pointer, value| {
        assert!(value.get("nullable").is_none_or(|_| pointer.ends_with("/properties")), "{pointer}");
        if let (Some(properties), Some(required)) = (value.get("properties"), value.get("required")) {
            for field in required.as_array().unwrap() {
                assert!(properties.get(field.as_str().unwrap()).is_some(), "{pointer}: {field}");
            }
        }
        let named = value.get("type").filter(|_| !pointer.ends_with("/properties"));
        for word in
            named.into_iter().flat_map(|named| named.as_array().cloned().unwrap_or(vec![named.clone()]))
        {
            assert!(word.as_str().is_none_or(|word| TYPES.contains(&word)), "{pointer}: {word}");
        }
    });
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let what = format!("{method} {path}");
        assert!(ids.insert(text(&operation["operationId"])), "{what}: its id is there twice");
        // Every variable of the path is described, and no other.
        let in_path: BTreeSet<String> =
            path.split('{').skip(1).map(|part| part.split('}').next().unwrap().to_owned()).collect();
        let empty = Vec::new();
        let parameters = operation["parameters"].as_array().unwrap_or(&empty);
        let described: BTreeSet<String> = parameters
            .iter()
            .filter(|parameter| parameter["in"] == "path")
            .map(|parameter| text(&parameter["name"]))
            .collect();
        assert_eq!(described, in_path, "{what}");
        for parameter in parameters {
            assert!(parameter["schema"].is_object(), "{what}: {parameter}");
            assert!(parameter["in"] != "path" || parameter["required"] == true, "{what}: {parameter}");
        }
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with('2')), "{what}");
        for (status, response) in responses {
            let known =
                status.parse::<u16>().is_ok_and(|status| (100..600).contains(&status)) || status == "4XX";
            assert!(known, "{what}: {status}");
            assert!(response["$ref"].is_string() || response["description"].is_string(), "{what}: {status}");
        }
        // What needs a token says so, and what does not.
        let open = ["/healthz", "/readyz", "/openapi.json"].contains(&path.as_str());
        assert_eq!(operation.get("security").is_some(), open, "{what}");
    }
    assert_eq!(document["security"], serde_json::json!([{"token": []}]));
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
}
