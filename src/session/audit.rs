//! Who did what, and when: what is left of every decision, and of every call that changes something.
//!
//! Every change that somebody caused is told as an event with who that was. [`entry_of`] reads the audit's entry from the
//! event, and the two are committed together: nothing is changed and told that leaves no entry, and a new kind of event
//! does not compile before it is said what it leaves.
//!
//! Architecture invariant: no entry has words of a prompt, of the agent, or of a tool's input or output. It is kept when
//! the session, with all of those, has been deleted.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::event::{EventBody, EventKind, SessionChange};
use super::id::{SessionId, Timestamp, TurnId};
use super::permission::Permission;
use super::snapshot::SessionState;

/// How much is kept of a name that somebody else chose, in bytes.
const NAME_BYTES: usize = 200;

/// The request by which somebody asks for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedBy {
    /// The request's id.
    pub id: Arc<str>,
    /// The W3C trace context that what follows from it belongs to, as its header `traceparent` has it.
    pub traceparent: Option<Arc<str>>,
}

/// Who asks for a change. In JSON, and so in events, the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// A caller.
    Caller {
        /// Its name.
        name: Arc<str>,
        /// Its request; `None` where there was none.
        request: Option<AskedBy>,
    },
    /// `sessions.expire_after`.
    Expiry,
}

impl By {
    /// A caller without a request of its own.
    #[must_use]
    pub fn caller(name: &str) -> Self {
        Self::Caller { name: name.into(), request: None }
    }

    /// As events tell it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Caller { name, .. } => name,
            Self::Expiry => "expiry",
        }
    }

    /// As the audit tells it: a caller is told from everybody else, whatever its name.
    #[must_use]
    pub fn who(&self) -> String {
        match self {
            Self::Caller { name, .. } => format!("caller:{name}"),
            Self::Expiry => "expiry".into(),
        }
    }

    /// The one that [`By::who`] tells of.
    #[must_use]
    pub fn of_who(who: &str) -> Self {
        who.strip_prefix("caller:").map_or(Self::Expiry, Self::caller)
    }

    fn asker(&self) -> (String, Option<String>) {
        (self.who(), self.request())
    }

    /// The request, where there was one.
    #[must_use]
    pub fn asked_by(&self) -> Option<&AskedBy> {
        match self {
            Self::Caller { request, .. } => request.as_ref(),
            Self::Expiry => None,
        }
    }

    fn request(&self) -> Option<String> {
        self.asked_by().map(|request| request.id.as_ref().to_owned())
    }
}

#[cfg(test)]
impl From<&str> for By {
    fn from(name: &str) -> Self {
        Self::caller(name)
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for By {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When.
    pub at: Timestamp,
    /// `caller:<name>`, or what decided by itself: `policy`, `timeout`, `expiry`, …
    pub who: String,
    /// `session.created`, `turn.started`, `permission.resolved`, …
    pub what: String,
    /// In which session; null for what is of none.
    pub session: Option<SessionId>,
    /// The id of the request (`x-request-id`) that asked for it.
    pub request: Option<String>,
    /// What else there is to say.
    pub details: Map<String, Value>,
}

/// Which entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only this session's.
    pub session: Option<SessionId>,
    /// Only those from then on.
    pub since: Option<Timestamp>,
    /// Only what this one did, as in [`AuditEntry::who`].
    pub who: Option<String>,
}

impl AuditEntry {
    /// Something that was done to no session.
    #[must_use]
    pub fn of_gateway(by: &By, what: &str) -> Self {
        Self::new(Timestamp::now(), by.asker(), what, None, json!({}))
    }

    /// A session was deleted. Committed with that, since its log, and with it the event, may take nothing any more.
    #[must_use]
    pub fn session_deleted(session: SessionId, by: &By) -> Self {
        let what = EventKind::SessionDeleted.as_str();
        Self::new(Timestamp::now(), by.asker(), what, Some(session), json!({}))
    }

    fn new(
        at: Timestamp,
        (who, request): (String, Option<String>),
        what: &str,
        session: Option<SessionId>,
        details: Value,
    ) -> Self {
        let details = match details {
            Value::Object(details) => details.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            _ => Map::new(),
        };
        Self { at, who, what: what.to_owned(), session, request, details }
    }
}

/// What an event leaves; `None` when nobody caused it, or when it is no change.
#[must_use]
pub fn entry_of(
    session: SessionId,
    at: Timestamp,
    kind: EventKind,
    turn: Option<TurnId>,
    body: &EventBody,
) -> Option<AuditEntry> {
    let entry =
        |by: &By, what: &str, details| Some(AuditEntry::new(at, by.asker(), what, Some(session), details));
    match (kind, body) {
        (EventKind::SessionCreated | EventKind::SessionUpdated, EventBody::Session { session }) => {
            entry(session.by.as_ref()?, kind.as_str(), changed(session))
        }
        (EventKind::SessionState, EventBody::State { state, by, .. }) => {
            let what = match state {
                SessionState::Hibernated => "session.hibernated",
                SessionState::Cancelling => "turn.cancel",
                state => state.as_str(),
            };
            entry(by.as_ref()?, what, json!({ "turn": turn }))
        }
        (
            EventKind::TurnQueued
            | EventKind::TurnStarted
            | EventKind::TurnCompleted
            | EventKind::TurnFailed
            | EventKind::TurnCancelled
            | EventKind::TurnInterrupted,
            EventBody::Turn { turn, by },
        ) => entry(by.as_ref()?, kind.as_str(), json!({ "turn": turn.id })),
        (EventKind::TurnSteered, EventBody::Steered { turn, by, .. }) => {
            entry(by, kind.as_str(), json!({ "turn": turn.id }))
        }
        (EventKind::PermissionResolved, EventBody::Permission { permission, by }) => {
            decided(session, at, permission, by.as_ref())
        }
        (
            // Its own entry is committed with the deletion: `AuditEntry::session_deleted`.
            EventKind::SessionDeleted
            | EventKind::PermissionRequested
            | EventKind::MessageDelta
            | EventKind::ThoughtDelta
            | EventKind::MessageUser
            | EventKind::ToolCallStarted
            | EventKind::ToolCallUpdated
            | EventKind::ToolCallOutput
            | EventKind::ToolCallFinished
            | EventKind::PlanUpdated
            | EventKind::UsageUpdated
            | EventKind::CommandsUpdated
            | EventKind::Notice
            | EventKind::AgentUpdate
            // A body of another kind: there is none.
            | EventKind::SessionCreated
            | EventKind::SessionUpdated
            | EventKind::SessionState
            | EventKind::TurnQueued
            | EventKind::TurnStarted
            | EventKind::TurnCompleted
            | EventKind::TurnFailed
            | EventKind::TurnCancelled
            | EventKind::TurnInterrupted
            | EventKind::TurnSteered
            | EventKind::PermissionResolved,
            _,
        ) => None,
    }
}

/// Which fields were changed, and to what where that is the gateway's own word.
fn changed(change: &SessionChange) -> Value {
    let fields: Vec<String> = match serde_json::to_value(change) {
        Ok(Value::Object(fields)) => fields.into_iter().map(|(name, _)| name).collect(),
        _ => Vec::new(),
    };
    let fields: Vec<String> =
        fields.into_iter().filter(|name| !["by", "id", "owner"].contains(&name.as_str())).collect();
    json!({ "fields": fields, "mode": change.mode })
}

fn decided(
    session: SessionId,
    at: Timestamp,
    permission: &Permission,
    by: Option<&By>,
) -> Option<AuditEntry> {
    let outcome = permission.outcome.as_ref()?;
    let call = &permission.tool_call;
    let details = json!({
        "permission": permission.id,
        "turn": permission.turn_id,
        "tool": call.tool.as_deref().map(shortened),
        "extension": call.extension.as_deref().map(shortened),
        "state": permission.state,
        "decision": outcome.decision,
        "scope": outcome.scope,
        "rule": outcome.rule,
    });
    let what = EventKind::PermissionResolved.as_str();
    // Who decided is in the outcome; by which request only its asker knows.
    let (who, request) = (outcome.by.clone().into(), by.and_then(By::request));
    Some(AuditEntry::new(at, (who, request), what, Some(session), details))
}

fn shortened(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::agent::Mode;
    use crate::session::id::PermissionId;
    use crate::session::permission::{
        DecidedBy, Decision, Outcome, PermissionKind, PermissionState, PermissionToolCall, Scope,
    };
    use crate::session::turn::{Prompt, Turn, TurnState};

    const SECRET: &str = "words of a prompt or of a tool";

    fn alice() -> By {
        By::Caller { name: "alice".into(), request: Some(AskedBy { id: "r-1".into(), traceparent: None }) }
    }

    fn left_by(kind: EventKind, body: &EventBody) -> Option<AuditEntry> {
        let entry = entry_of(SessionId::new(), Timestamp::now(), kind, None, body);
        assert!(!serde_json::to_string(&entry).unwrap().contains(SECRET));
        entry
    }

    fn told(entry: Option<AuditEntry>) -> (String, String, Option<String>, Value) {
        let AuditEntry { who, what, request, details, .. } = entry.unwrap();
        (who, what, request, Value::Object(details))
    }

    fn session(by: Option<By>) -> EventBody {
        let title = Some(Some(SECRET.to_owned()));
        let change = SessionChange { title, mode: Some(Mode::Auto), by, ..SessionChange::default() };
        EventBody::Session { session: Box::new(change) }
    }

    fn turn(by: Option<By>) -> EventBody {
        let turn = Turn {
            id: TurnId::new(),
            session_id: SessionId::new(),
            state: TurnState::Running,
            prompt: Some(Prompt::Text(SECRET.into())),
            text: Some(SECRET.into()),
            stop_reason: None,
            error: None,
            usage: None,
            created_at: Timestamp::now(),
            started_at: None,
            ended_at: None,
            first_event_id: super::super::id::EventId(1),
            last_event_id: None,
            request_id: None,
            traceparent: None,
        };
        EventBody::Turn { turn: Box::new(turn), by }
    }

    fn permission(by: DecidedBy, asker: Option<By>) -> EventBody {
        let outcome = Outcome {
            decision: Decision::Allow,
            scope: Scope::Once,
            by,
            rule: Some("server.rules[0]".into()),
            reason: Some(SECRET.into()),
            at: Timestamp::now(),
        };
        let tool_call = PermissionToolCall {
            id: "call_1".into(),
            tool: Some("é".repeat(1000)),
            extension: Some("developer".into()),
            title: Some(SECRET.into()),
            kind: None,
            input: Some(json!({"command": SECRET})),
            cwd: "/".into(),
        };
        let permission = Permission {
            id: PermissionId::new(),
            session_id: SessionId::new(),
            turn_id: TurnId::new(),
            kind: PermissionKind::Tool,
            state: PermissionState::Resolved,
            tool_call,
            options: Vec::new(),
            requested_at: Timestamp::now(),
            expires_at: Timestamp::now(),
            outcome: Some(outcome),
        };
        EventBody::Permission { permission: Box::new(permission), by: asker }
    }

    #[test]
    fn what_a_caller_causes_leaves_who_what_and_by_which_request() {
        let (who, what, request, details) = told(left_by(EventKind::SessionUpdated, &session(Some(alice()))));
        assert_eq!((who.as_str(), what.as_str()), ("caller:alice", "session.updated"));
        assert_eq!(request.as_deref(), Some("r-1"));
        assert_eq!(details, json!({"fields": ["title", "mode"], "mode": "auto"}));
        let (_, what, _, details) = told(left_by(EventKind::TurnStarted, &turn(Some(alice()))));
        assert_eq!((what.as_str(), details["turn"].is_string()), ("turn.started", true));
        for (state, expected) in
            [(SessionState::Hibernated, "session.hibernated"), (SessionState::Cancelling, "turn.cancel")]
        {
            let body = EventBody::State { state, reason: None, by: Some(alice()) };
            assert_eq!(told(left_by(EventKind::SessionState, &body)).1, expected);
        }
    }

    #[test]
    fn what_nobody_causes_leaves_nothing() {
        assert_eq!(left_by(EventKind::SessionUpdated, &session(None)), None);
        assert_eq!(left_by(EventKind::TurnStarted, &turn(None)), None);
        assert_eq!(left_by(EventKind::TurnCompleted, &turn(None)), None);
        let idle = EventBody::State { state: SessionState::Hibernated, reason: None, by: None };
        assert_eq!(left_by(EventKind::SessionState, &idle), None);
        // Its own entry comes with the deletion.
        assert_eq!(left_by(EventKind::SessionDeleted, &session(Some(alice()))), None);
    }

    #[test]
    fn every_decision_leaves_who_or_what_decided() {
        for (by, asker, who, request) in [
            (DecidedBy::Caller("alice".into()), Some(alice()), "caller:alice", Some("r-1")),
            (DecidedBy::Policy, None, "policy", None),
            (DecidedBy::Timeout, None, "timeout", None),
            (DecidedBy::Restart, None, "restart", None),
        ] {
            let entry = left_by(EventKind::PermissionResolved, &permission(by, asker));
            let (found, what, by_request, details) = told(entry);
            assert_eq!((found.as_str(), by_request.as_deref()), (who, request));
            assert_eq!((what.as_str(), &details["decision"]), ("permission.resolved", &json!("allow")));
            assert_eq!(details["rule"], "server.rules[0]");
            assert_eq!(details["tool"].as_str().unwrap().len(), NAME_BYTES, "cut at a character");
        }
    }

    #[test]
    fn a_caller_is_never_taken_for_something_else() {
        for by in [By::caller("expiry"), By::caller("a b"), By::Expiry] {
            assert_eq!(By::of_who(&by.who()), by);
        }
        assert_ne!(By::caller("expiry").who(), By::Expiry.who());
    }
}
