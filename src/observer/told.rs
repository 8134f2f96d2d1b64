//! What observers read of events.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::session::event::EventKind;
use crate::session::id::{PermissionId, SessionId, Timestamp, TurnId};
use crate::session::turn::TurnState;

/// The parts of an event's JSON that are recorded. What an event does not have is `None`; what agents and callers have
/// written stays the text that it is.
#[derive(Debug, Deserialize)]
pub struct Told<'event> {
    /// The session.
    pub session_id: SessionId,
    /// When.
    pub time: Timestamp,
    /// Of `turn.*`.
    #[serde(borrow)]
    pub turn: Option<ToldTurn<'event>>,
    /// Of `tool_call.started` and `tool_call.finished`.
    #[serde(borrow)]
    pub tool_call: Option<ToldCall<'event>>,
    /// Of `permission.*`.
    #[serde(borrow)]
    pub permission: Option<ToldPermission<'event>>,
    /// Of `session.updated`.
    pub session: Option<ToldSession>,
}

impl Told<'_> {
    /// Whether events of this type are read.
    pub(super) fn is_read(kind: EventKind) -> bool {
        use EventKind::{
            PermissionResolved, SessionUpdated, ToolCallFinished, ToolCallStarted, TurnQueued, TurnStarted,
        };
        kind.ends_turn()
            || matches!(
                kind,
                TurnQueued
                    | TurnStarted
                    | ToolCallStarted
                    | ToolCallFinished
                    | PermissionResolved
                    | SessionUpdated
            )
    }
}

/// A turn.
#[derive(Debug, Deserialize)]
pub struct ToldTurn<'event> {
    /// Which.
    pub id: TurnId,
    /// How far it is.
    pub state: TurnState,
    /// What was asked; only on the turn's first event.
    #[serde(borrow)]
    pub prompt: Option<&'event RawValue>,
    /// The agent's last message.
    #[serde(borrow)]
    pub text: Option<&'event RawValue>,
    /// ACP's stop reason.
    #[serde(borrow)]
    pub stop_reason: Option<Cow<'event, str>>,
    /// Why it failed.
    #[serde(borrow)]
    pub error: Option<ToldError<'event>>,
    /// Tokens.
    pub usage: Option<ToldUsage>,
    /// When the caller asked.
    pub created_at: Timestamp,
    /// When the agent was given it.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The request that asked for it.
    #[serde(borrow)]
    pub request_id: Option<Cow<'event, str>>,
    /// The trace context that it belongs to.
    #[serde(borrow)]
    pub traceparent: Option<Cow<'event, str>>,
}

impl ToldTurn<'_> {
    /// How long it waited for those before it.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.started_at.or(self.ended_at).map_or(Duration::ZERO, |begun| begun.remaining(self.created_at))
    }

    /// How long the agent had it, once it is over; zero when the agent never had it.
    #[must_use]
    pub fn took(&self) -> Duration {
        let times = self.started_at.zip(self.ended_at);
        times.map_or(Duration::ZERO, |(began, ended)| ended.remaining(began))
    }

    /// Why it failed, for programs; nothing when it did not.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        self.error.as_ref().map(|error| error.class.as_ref())
    }
}

/// Why a turn failed.
#[derive(Debug, Deserialize)]
pub struct ToldError<'event> {
    /// For programs.
    #[serde(borrow)]
    pub class: Cow<'event, str>,
}

/// Tokens of a turn, as far as they are known.
#[derive(Debug, Deserialize)]
pub struct ToldUsage {
    /// Sent to the model.
    pub input_tokens: Option<u64>,
    /// Made by it.
    pub output_tokens: Option<u64>,
}

/// A tool call.
#[derive(Debug, Deserialize)]
pub struct ToldCall<'event> {
    /// The agent's id of it.
    #[serde(borrow)]
    pub id: Cow<'event, str>,
    /// The tool's name.
    #[serde(borrow)]
    pub tool: Option<Cow<'event, str>>,
    /// The extension that provides it.
    #[serde(borrow)]
    pub extension: Option<Cow<'event, str>>,
    /// How far it is.
    #[serde(borrow)]
    pub status: Option<Cow<'event, str>>,
    /// The arguments.
    #[serde(borrow)]
    pub input: Option<&'event RawValue>,
    /// What it gave.
    #[serde(borrow)]
    pub content: Option<&'event RawValue>,
}

/// A permission request.
#[derive(Debug, Deserialize)]
pub struct ToldPermission<'event> {
    /// gander's id of it.
    pub id: PermissionId,
    /// When the agent asked.
    pub requested_at: Timestamp,
    /// The tool call that it is about.
    #[serde(borrow)]
    pub tool_call: ToldAskedCall<'event>,
    /// How it was decided.
    #[serde(borrow)]
    pub outcome: Option<ToldOutcome<'event>>,
}

/// The tool call that a permission is about.
#[derive(Debug, Deserialize)]
pub struct ToldAskedCall<'event> {
    /// The agent's id of it.
    #[serde(borrow)]
    pub id: Cow<'event, str>,
    /// The tool's name.
    #[serde(borrow)]
    pub tool: Option<Cow<'event, str>>,
}

/// How a permission request was decided.
#[derive(Debug, Deserialize)]
pub struct ToldOutcome<'event> {
    /// What was decided.
    #[serde(borrow)]
    pub decision: Cow<'event, str>,
    /// `caller:<name>`, or what decided by itself.
    #[serde(borrow)]
    by: Cow<'event, str>,
    /// When.
    pub at: Timestamp,
}

impl ToldOutcome<'_> {
    /// What kind of thing decided: `caller` for every caller, since who it was is the audit's business.
    #[must_use]
    pub fn by(&self) -> &str {
        self.by.split(':').next().unwrap_or_default()
    }
}

/// What changed in a session.
#[derive(Debug, Deserialize)]
pub struct ToldSession {
    /// The agent.
    pub agent: Option<ToldAgent>,
}

/// An agent.
#[derive(Debug, Deserialize)]
pub struct ToldAgent {
    /// How many agents the session has had.
    pub generation: u32,
    /// Its process; `None` when it has none.
    pub pid: Option<u32>,
}
