//! What each problem looks like.

use serde_json::{Value, json};

use super::answers::{PERMISSION, REQUEST, TURN, answered_permission};
use crate::http::problem::{Code, FieldError, Problem};

/// The body of a problem of this code.
pub(super) fn of(code: Code) -> Value {
    let problem = match code {
        Code::InvalidRequest => {
            Problem::unacceptable(vec![FieldError::new("/cwd", "is not an absolute path")])
        }
        Code::Internal => Problem::internal(""),
        _ => Problem::new(code, detail(code)),
    };
    let problem = match code {
        Code::RoleMissing => problem.with("role", "approve"),
        Code::TurnInProgress => problem.with("turn_id", TURN),
        Code::PermissionAlreadyResolved => problem.with("permission", answered_permission()),
        Code::AgentStartFailed => problem.with("stderr_tail", "error: unexpected argument"),
        Code::AgentStartTimeout => problem.with("waiting_for", "initialize"),
        Code::ExtensionRequired => {
            let missing = json!([{"name": "files", "loaded": false, "error": "connection refused"}]);
            problem.with("extensions", missing)
        }
        _ => problem,
    };
    serde_json::from_slice(&problem.body(Some(REQUEST))).unwrap_or_default()
}

fn detail(code: Code) -> String {
    match code {
        Code::MalformedRequest => "the body is not JSON: expected `,` or `}` at line 1 column 18".into(),
        Code::Unauthenticated => "this takes a valid token: Authorization: Bearer <token>".into(),
        Code::RoleMissing => "this takes the role approve, which the caller's token does not have".into(),
        Code::OriginNotAllowed => "the origin https://example.com is not among server.cors_origins".into(),
        Code::HostNotAllowed => "the host example.com is not among server.allowed_hosts".into(),
        Code::NotFound => "there is nothing at this path".into(),
        Code::SessionNotFound => "there is no such session".into(),
        Code::TurnNotFound => "there is no such turn in this session".into(),
        Code::PermissionNotFound => "there is no such permission request in this session".into(),
        Code::MethodNotAllowed => "PUT is not possible here".into(),
        Code::BodyTooLarge => "the body is larger than 8388608 bytes".into(),
        Code::UnsupportedMediaType => "the body must be application/json".into(),
        Code::TurnInProgress => format!("the turn {TURN} is running"),
        Code::TurnNotRunning => "the turn is over".into(),
        Code::PermissionAlreadyResolved => {
            format!("the permission request {PERMISSION} was decided otherwise")
        }
        Code::IdempotencyKeyReused => "the idempotency key came before with another body".into(),
        Code::SessionBusy => "the session is starting".into(),
        Code::UnknownPermissionOption => "the permission request does not offer allow_forever".into(),
        Code::NotInThisTransport => "this agent takes no words into a running turn".into(),
        Code::ExtensionRequired => "required extensions did not load: files".into(),
        Code::AgentStartFailed => "the agent ended while it was starting".into(),
        Code::ProviderNotConfigured => "the agent has no model provider".into(),
        Code::AgentStartTimeout => "the agent was not ready within 1m: initialize".into(),
        Code::AtCapacity => "as many agents run as may run, and none of them is idle".into(),
        Code::Draining => "the gateway is shutting down".into(),
        Code::StorageUnavailable => "nothing can be written at the moment".into(),
        // These say what they are about.
        Code::InvalidRequest | Code::Internal => String::new(),
    }
}
