//! What callers get when something is not done: RFC 9457 problem details, and the one table that says which error of
//! the layers below becomes which problem.

use std::fmt;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::session::agent::{LaunchError, Setting};
use crate::session::handle::Refusal;
use crate::session::log::StoreError;
use crate::session::registry::CreateError;
use crate::session::turn::TurnErrorClass;

/// Seconds after which a caller may try again what the gateway could not do at the moment.
const RETRY_AFTER_S: u64 = 5;

macro_rules! problem_codes {
    ($($(#[$doc:meta])* $name:ident = $status:literal $code:literal $title:literal,)*) => {
        /// What went wrong, for programs. Open: callers treat a code they do not know by its status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As in the API, e.g. `turn-in-progress`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }

            /// The HTTP status that comes with it.
            #[must_use]
            pub fn status(self) -> StatusCode {
                let status: u16 = match self {
                    $(Self::$name => $status,)*
                };
                StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }

            /// A few words for people, the same for every problem of this code.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                }
            }
        }
    };
}

problem_codes! {
    /// The request's JSON, query or a header cannot be read.
    MalformedRequest = 400 "malformed-request" "Malformed request",
    /// No token, or none that is valid.
    Unauthenticated = 401 "unauthenticated" "Not authenticated",
    /// The caller's token lacks a role.
    RoleMissing = 403 "role-missing" "Role missing",
    /// A web page of another origin asks.
    OriginNotAllowed = 403 "origin-not-allowed" "Origin not allowed",
    /// The request is addressed to a host name that is not the gateway's.
    HostNotAllowed = 421 "host-not-allowed" "Host not allowed",
    /// No such path.
    NotFound = 404 "not-found" "Not found",
    /// No such session, or it is somebody else's.
    SessionNotFound = 404 "session-not-found" "Session not found",
    /// No such turn in the session.
    TurnNotFound = 404 "turn-not-found" "Turn not found",
    /// No such permission request in the session.
    PermissionNotFound = 404 "permission-not-found" "Permission not found",
    /// The path exists, not with this method.
    MethodNotAllowed = 405 "method-not-allowed" "Method not allowed",
    /// The body is larger than the gateway takes.
    BodyTooLarge = 413 "body-too-large" "Body too large",
    /// The body is no JSON.
    UnsupportedMediaType = 415 "unsupported-media-type" "Unsupported media type",
    /// The session's agent works on another turn.
    TurnInProgress = 409 "turn-in-progress" "Turn in progress",
    /// The turn is over.
    TurnNotRunning = 409 "turn-not-running" "Turn not running",
    /// The permission request was decided otherwise, or is over.
    PermissionAlreadyResolved = 409 "permission-already-resolved" "Permission already resolved",
    /// The idempotency key came before with another body.
    IdempotencyKeyReused = 409 "idempotency-key-reused" "Idempotency key reused",
    /// The session starts, changes or is being deleted.
    SessionBusy = 409 "session-busy" "Session busy",
    /// The request can be read, but not accepted.
    InvalidRequest = 422 "invalid-request" "Invalid request",
    /// The permission request does not offer this option.
    UnknownPermissionOption = 422 "unknown-permission-option" "Unknown permission option",
    /// The agent, as it is spoken to, cannot do it.
    NotInThisTransport = 422 "not-in-this-transport" "Not in this transport",
    /// An extension that the session requires did not load.
    ExtensionRequired = 424 "extension-required" "Extension required",
    /// A mistake of the gateway's.
    Internal = 500 "internal" "Internal error",
    /// The agent did not start, or is gone.
    AgentStartFailed = 502 "agent-start-failed" "Agent start failed",
    /// The agent has no model provider.
    ProviderNotConfigured = 502 "provider-not-configured" "Provider not configured",
    /// The agent did not get ready in time.
    AgentStartTimeout = 504 "agent-start-timeout" "Agent start timeout",
    /// As much runs as may run.
    AtCapacity = 503 "at-capacity" "At capacity",
    /// The gateway stops.
    Draining = 503 "draining" "Shutting down",
    /// The store does not take anything at the moment.
    StorageUnavailable = 503 "storage-unavailable" "Storage unavailable",
}

/// What is wrong with one part of a request's body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// Where, as an RFC 6901 JSON pointer into the body; empty for the body as a whole.
    #[schema(examples("/prompt/0/text"))]
    pub pointer: String,
    /// What, for people.
    pub detail: String,
}

impl FieldError {
    /// An error at `pointer`.
    #[must_use]
    pub fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

/// One step of a JSON pointer (RFC 6901, section 3): a name with its `~` and `/` escaped.
#[must_use]
pub fn pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// An answer that says why something was not done. `application/problem+json` on the wire.
#[derive(Clone)]
pub struct Problem(Box<Parts>);

#[derive(Clone)]
struct Parts {
    code: Code,
    status: StatusCode,
    detail: String,
    errors: Vec<FieldError>,
    members: Map<String, Value>,
    retry_after_s: Option<u64>,
    /// For the log only.
    cause: Option<String>,
}

impl Problem {
    /// A problem; `detail` is for people, and callers see it.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let status = code.status();
        let retry_after_s = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER_S);
        Self(Box::new(Parts {
            code,
            status,
            detail: detail.into(),
            errors: Vec::new(),
            members: Map::new(),
            retry_after_s,
            cause: None,
        }))
    }

    /// A mistake of the gateway's. The cause goes into the log, never to the caller.
    #[must_use]
    pub fn internal(cause: impl fmt::Display) -> Self {
        Self::new(Code::Internal, "the gateway made a mistake; its log has the cause under this request id")
            .caused_by(cause)
    }

    /// An unacceptable field.
    #[must_use]
    pub fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let error = FieldError::new(pointer, detail);
        let detail = match error.pointer.as_str() {
            "" => error.detail.clone(),
            pointer => format!("{pointer}: {}", error.detail),
        };
        Self::new(Code::InvalidRequest, detail).errors(vec![error])
    }

    /// Unacceptable fields, all of them; `errors` is not empty.
    #[must_use]
    pub fn unacceptable(errors: Vec<FieldError>) -> Self {
        let texts: Vec<String> =
            errors.iter().map(|error| format!("{}: {}", error.pointer, error.detail)).collect();
        Self::new(Code::InvalidRequest, texts.join("; ")).errors(errors)
    }

    /// Adds a member that says what the problem is about, e.g. `turn_id`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        self.0.members.insert(name.to_owned(), value);
        self
    }

    /// Says which parts of the body are wrong.
    #[must_use]
    pub fn errors(mut self, errors: Vec<FieldError>) -> Self {
        self.0.errors = errors;
        self
    }

    /// Says when to try again, in seconds: the `Retry-After` header and `retry_after_s`.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.0.retry_after_s = Some(seconds);
        self
    }

    /// Answers 503 whatever the code's own status is: readiness says so of everything that is not in order.
    #[must_use]
    pub(super) fn unavailable(mut self) -> Self {
        self.0.status = StatusCode::SERVICE_UNAVAILABLE;
        self.retry_after(RETRY_AFTER_S)
    }

    /// Keeps the cause for the log. Callers never see it.
    #[must_use]
    pub fn caused_by(mut self, cause: impl fmt::Display) -> Self {
        self.0.cause = Some(cause.to_string());
        self
    }

    /// What went wrong, for programs.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// What only the log says.
    #[must_use]
    pub fn cause(&self) -> Option<&str> {
        self.0.cause.as_deref()
    }

    /// The body, with the request's id once that is known.
    #[must_use]
    pub fn body(&self, request_id: Option<&str>) -> Vec<u8> {
        let code = self.0.code;
        let mut body = self.0.members.clone();
        body.insert("type".into(), format!("urn:gander:problem:{}", code.as_str()).into());
        body.insert("title".into(), code.title().into());
        body.insert("status".into(), self.0.status.as_u16().into());
        body.insert("detail".into(), self.0.detail.clone().into());
        body.insert("code".into(), code.as_str().into());
        if let Some(request_id) = request_id {
            body.insert("request_id".into(), request_id.into());
        }
        if !self.0.errors.is_empty() {
            body.insert("errors".into(), json!(self.0.errors));
        }
        if let Some(seconds) = self.0.retry_after_s {
            body.insert("retry_after_s".into(), seconds.into());
        }
        Value::Object(body).to_string().into_bytes()
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.as_str(), self.0.detail)
    }
}

impl IntoResponse for Problem {
    /// The answer, complete but for the request's id. The problem itself goes along as an extension: the outermost
    /// layer knows the id, writes the body anew with it, and logs the cause.
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body(None)));
        *response.status_mut() = self.0.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.0.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.0.code == Code::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Failed(_) => {
                Self::new(Code::StorageUnavailable, "the store does not take or give anything at the moment")
                    .caused_by(error)
            }
            StoreError::Unavailable(_) => Self::new(
                Code::StorageUnavailable,
                "nothing can be written at the moment: the disk is full or failing, or storage.max_bytes is reached",
            )
            .caused_by(error),
            StoreError::CursorLost => Self::internal(error),
            StoreError::Closed => draining(),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            Refusal::SessionGone => Self::new(Code::SessionNotFound, detail),
            Refusal::Busy(_) => Self::new(Code::SessionBusy, detail),
            Refusal::StartFailed(error) => error.into(),
            Refusal::SteeringUnsupported => Self::new(Code::NotInThisTransport, detail),
            Refusal::LinkRefused(faults) => Self::unacceptable(
                faults
                    .into_iter()
                    .map(|fault| FieldError::new(format!("/prompt/{}/uri", fault.block), fault.detail))
                    .collect(),
            ),
            Refusal::SteerRefused(failure) => Self::invalid("/prompt", failure.message),
            Refusal::CoolingDown { retry_after, .. } => {
                Self::new(Code::AgentStartFailed, detail).retry_after(retry_after.as_secs())
            }
            Refusal::AtCapacity(_) | Refusal::QueueFull | Refusal::TooManySteers => {
                Self::new(Code::AtCapacity, detail)
            }
            Refusal::Failed(_) | Refusal::Unfit(_) => Self::new(Code::AgentStartFailed, detail),
            Refusal::TurnInProgress(turn) => Self::new(Code::TurnInProgress, detail).with("turn_id", turn),
            Refusal::TurnNotFound => Self::new(Code::TurnNotFound, detail),
            Refusal::TurnNotRunning => Self::new(Code::TurnNotRunning, detail),
            Refusal::OptionNotOffered => Self::new(Code::UnknownPermissionOption, detail),
            Refusal::GrantNotFound => Self::new(Code::NotFound, detail),
            Refusal::PermissionNotFound => Self::new(Code::PermissionNotFound, detail),
            Refusal::PermissionAlreadyResolved(permission) => {
                Self::new(Code::PermissionAlreadyResolved, detail).with("permission", permission)
            }
            Refusal::SettingRefused { setting, failure } => match failure.class {
                TurnErrorClass::ProviderNotConfigured => Self::new(Code::ProviderNotConfigured, detail),
                TurnErrorClass::AgentExited | TurnErrorClass::AgentUnresponsive => {
                    Self::new(Code::AgentStartFailed, detail)
                }
                _ => Self::invalid(format!("/{setting}"), failure.message),
            },
            Refusal::Draining => draining(),
            Refusal::Store(error) => error.into(),
        }
    }
}

impl From<CreateError> for Problem {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::AtCapacity(detail) => Self::new(Code::AtCapacity, detail),
            CreateError::Draining => draining(),
            CreateError::Store(error) => error.into(),
        }
    }
}

impl From<LaunchError> for Problem {
    fn from(error: LaunchError) -> Self {
        let detail = error.to_string();
        match error {
            LaunchError::Failed { stderr_tail, .. } => {
                let problem = Self::new(Code::AgentStartFailed, detail);
                match stderr_tail {
                    Some(tail) => problem.with("stderr_tail", tail),
                    None => problem,
                }
            }
            LaunchError::Timeout { waiting_for, extensions, .. } => {
                let problem = Self::new(Code::AgentStartTimeout, detail).with("waiting_for", waiting_for);
                if extensions.is_empty() { problem } else { problem.with("extensions", extensions) }
            }
            // A caller who names the setting for a new session gets a 422 (`sessions`); this is the gateway's own choice.
            LaunchError::SettingRefused { setting: Setting::Provider | Setting::Model, .. } => {
                Self::new(Code::ProviderNotConfigured, detail)
            }
            LaunchError::SettingRefused { .. } => Self::new(Code::AgentStartFailed, detail),
            LaunchError::NoRoom { .. } => Self::new(Code::AtCapacity, detail),
            LaunchError::ExtensionRequired { extensions } => {
                Self::new(Code::ExtensionRequired, detail).with("extensions", extensions)
            }
            LaunchError::ProviderNotConfigured { .. } => Self::new(Code::ProviderNotConfigured, detail),
            // Only a deletion or the gateway's end gives a start up; in both cases trying anew is what helps.
            LaunchError::Cancelled => Self::new(Code::Draining, detail),
        }
    }
}

fn draining() -> Problem {
    Problem::new(Code::Draining, "the gateway is shutting down")
}

#[cfg(test)]
mod tests;
