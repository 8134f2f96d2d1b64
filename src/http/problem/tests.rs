use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::session::agent::{AgentFailure, ExtensionStatus};
use crate::session::id::TurnId;

/// The table of the API's description, row by row.
const CONTRACT: &[(u16, &[&str])] = &[
    (400, &["malformed-request"]),
    (401, &["unauthenticated"]),
    (403, &["role-missing", "origin-not-allowed"]),
    (404, &["not-found", "session-not-found", "turn-not-found", "permission-not-found"]),
    (405, &["method-not-allowed"]),
    (
        409,
        &[
            "turn-in-progress",
            "turn-not-running",
            "permission-already-resolved",
            "idempotency-key-reused",
            "session-busy",
        ],
    ),
    (413, &["body-too-large"]),
    (415, &["unsupported-media-type"]),
    (421, &["host-not-allowed"]),
    (422, &["invalid-request", "unknown-permission-option", "not-in-this-transport"]),
    (424, &["extension-required"]),
    (500, &["internal"]),
    (502, &["agent-start-failed", "provider-not-configured"]),
    (503, &["at-capacity", "draining", "storage-unavailable"]),
    (504, &["agent-start-timeout"]),
];

fn body(problem: &Problem) -> Value {
    serde_json::from_slice(&problem.body(Some("request-1"))).unwrap()
}

fn cooling_down() -> Problem {
    Refusal::CoolingDown { reason: "it died".into(), retry_after: Duration::from_secs(7) }.into()
}

#[test]
fn who_has_to_wait_for_an_agent_that_died_is_told_how_long() {
    let response = cooling_down().into_response();
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(response.headers()[header::RETRY_AFTER], "7");
}

#[test]
fn every_code_has_the_status_that_the_contract_gives_it() {
    let mut codes = 0;
    for (status, names) in CONTRACT {
        for name in *names {
            let code = Code::ALL.iter().find(|code| code.as_str() == *name).expect(name);
            assert_eq!(code.status().as_u16(), *status, "{name}");
            codes += 1;
        }
    }
    assert_eq!(codes, Code::ALL.len(), "a code that is not in the table");
}

#[test]
fn every_problem_has_the_members_that_callers_rely_on() {
    for code in Code::ALL {
        let body = body(&Problem::new(*code, "what happened"));
        assert_eq!(body["type"], format!("urn:gander:problem:{}", code.as_str()));
        assert_eq!(body["code"], code.as_str());
        assert_eq!(body["status"], code.status().as_u16());
        assert_eq!(body["detail"], "what happened");
        assert_eq!(body["request_id"], "request-1");
        assert!(body["title"].as_str().is_some_and(|title| !title.is_empty()));
        assert_eq!(body.get("errors"), None);

        let response = Problem::new(*code, "").into_response();
        assert_eq!(response.status(), code.status());
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        assert_eq!(response.headers().contains_key(header::RETRY_AFTER), code.status() == 503, "{code:?}");
        assert_eq!(response.headers().contains_key(header::WWW_AUTHENTICATE), code.status() == 401);
    }
}

#[test]
fn what_a_problem_is_about_goes_along_but_its_cause_does_not() {
    let problem = Problem::new(Code::AtCapacity, "full")
        .with("turn_id", "t")
        .errors(vec![FieldError::new("/a/0", "is wrong")])
        .retry_after(9)
        .caused_by("/var/secret");
    let body = body(&problem);
    assert_eq!(body["turn_id"], "t");
    assert_eq!(body["errors"], json!([{"pointer": "/a/0", "detail": "is wrong"}]));
    assert_eq!(body["retry_after_s"], 9);
    assert!(!body.to_string().contains("secret"));
    assert_eq!(problem.cause(), Some("/var/secret"));
    assert_eq!(problem.into_response().headers()[header::RETRY_AFTER], "9");
}

#[test]
fn a_member_cannot_hide_the_code() {
    assert_eq!(body(&Problem::new(Code::NotFound, "").with("code", "other"))["code"], "not-found");
}

#[test]
fn the_errors_below_become_problems() {
    let failure = |class| AgentFailure { class, code: None, message: "no such model".into() };
    let setting = |class| Refusal::SettingRefused { setting: Setting::Model, failure: failure(class) };
    let turn = TurnId::new();
    let table: Vec<(Problem, Code)> = vec![
        (Refusal::SessionGone.into(), Code::SessionNotFound),
        (Refusal::Busy("it starts").into(), Code::SessionBusy),
        (Refusal::Failed("exit code 3".into()).into(), Code::AgentStartFailed),
        (Refusal::TurnInProgress(turn).into(), Code::TurnInProgress),
        (Refusal::TurnNotFound.into(), Code::TurnNotFound),
        (Refusal::TurnNotRunning.into(), Code::TurnNotRunning),
        (Refusal::PermissionNotFound.into(), Code::PermissionNotFound),
        (setting(TurnErrorClass::AgentError).into(), Code::InvalidRequest),
        (setting(TurnErrorClass::AgentExited).into(), Code::AgentStartFailed),
        (setting(TurnErrorClass::ProviderNotConfigured).into(), Code::ProviderNotConfigured),
        (Refusal::Draining.into(), Code::Draining),
        (Refusal::Store(StoreError::Closed).into(), Code::Draining),
        (CreateError::AtCapacity("too many").into(), Code::AtCapacity),
        (CreateError::Draining.into(), Code::Draining),
        (LaunchError::Cancelled.into(), Code::Draining),
        (LaunchError::NoRoom { detail: "too many open files".into() }.into(), Code::AtCapacity),
        (Refusal::AtCapacity("full").into(), Code::AtCapacity),
        (cooling_down(), Code::AgentStartFailed),
        (
            LaunchError::ProviderNotConfigured { detail: "no provider".into() }.into(),
            Code::ProviderNotConfigured,
        ),
    ];
    for (problem, code) in table {
        assert_eq!(problem.code(), code, "{problem:?}");
    }
    assert_eq!(body(&Refusal::TurnInProgress(turn).into())["turn_id"], turn.to_string());
    let setting = body(&setting(TurnErrorClass::AgentError).into());
    assert_eq!(setting["errors"], json!([{"pointer": "/model", "detail": "no such model"}]));
}

#[test]
fn a_failed_start_says_what_the_agent_said_and_what_it_hangs_on() {
    let failed = LaunchError::Failed { detail: "it ended".into(), stderr_tail: Some("panic".into()) };
    assert_eq!(body(&failed.into())["stderr_tail"], "panic");
    let missing = ExtensionStatus { name: "web".into(), loaded: false, error: Some("refused".into()) };
    let required = Problem::from(LaunchError::ExtensionRequired { extensions: vec![missing] });
    assert_eq!(required.code(), Code::ExtensionRequired);
    assert_eq!(body(&required)["detail"], "required extensions did not load: web (refused)");
    assert_eq!(body(&required)["extensions"], json!([{"name": "web", "loaded": false, "error": "refused"}]));
    let timeout = LaunchError::Timeout {
        after: Duration::from_mins(1),
        waiting_for: "initialize".into(),
        extensions: vec![ExtensionStatus { name: "web".into(), loaded: false, error: None }],
    };
    let timeout = Problem::from(timeout);
    assert_eq!(timeout.code(), Code::AgentStartTimeout);
    assert_eq!(body(&timeout)["waiting_for"], "initialize");
    assert_eq!(body(&timeout)["extensions"], json!([{"name": "web", "loaded": false, "error": null}]));
}

#[test]
fn the_text_of_a_store_error_stays_in_the_log() {
    let problem = Problem::from(StoreError::Failed(Arc::from("disk full on /srv/state")));
    assert_eq!(problem.code(), Code::StorageUnavailable);
    assert!(!body(&problem).to_string().contains("/srv"));
    assert!(problem.cause().unwrap().contains("disk full"));
}
