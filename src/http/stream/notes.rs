//! What a stream says about itself, between the events.

use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;

use crate::session::id::EventId;
use crate::session::order::OrderCursor;

/// Where a subscriber is: what it asks to go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Cursor {
    /// In a session's log.
    Event(EventId),
    /// In the order of all events.
    Order(OrderCursor),
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(id) => id.fmt(f),
            Self::Order(cursor) => cursor.fmt(f),
        }
    }
}

impl Serialize for Cursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Event(id) => id.serialize(serializer),
            Self::Order(cursor) => serializer.collect_str(cursor),
        }
    }
}

/// Where a reader is: an event's id in the log of one session, an opaque text over all sessions.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = Cursor)]
#[expect(dead_code, reason = "only describes what `Cursor` writes")]
pub(in crate::http) enum CursorSchema {
    /// In one session.
    Event(u64),
    /// Over all sessions.
    Order(String),
}

/// The event that tells a subscriber that its cursor cannot be honoured: what it knows may be wrong, so it loads the
/// snapshots again. The events that follow begin with the oldest. It has no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = StreamResetEvent)]
pub struct StreamReset {
    /// Always `stream.reset`.
    #[serde(rename = "type")]
    pub kind: StreamResetType,
    /// Why, for programs.
    pub reason: StreamResetReason,
    /// The cursor of the last event now.
    #[schema(value_type = CursorSchema)]
    pub(in crate::http) last_event_id: Cursor,
}

/// The type of the event that resets a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub enum StreamResetType {
    /// The only value.
    #[serde(rename = "stream.reset")]
    StreamReset,
}

impl StreamResetType {
    /// As in the `event:` field.
    pub const NAME: &'static str = "stream.reset";
}

/// Why a cursor cannot be honoured. Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamResetReason {
    /// Nothing that far has been given out yet.
    CursorBeyondHead,
    /// The cursor is of another database: gander's storage was replaced.
    CursorUnknown,
    /// It is so old that sessions may have been deleted since of which nothing is known any more.
    CursorExpired,
    /// The event of that id was lost when the machine lost its power.
    EventsLost,
}

/// A line of a stream of JSON lines that says where the reader is, as the `id:` lines of server-sent events do. It
/// stands behind the events of all sessions, and keeps a silent stream alive. No event: it is in no log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = StreamCursorEvent)]
pub struct StreamCursor {
    /// Always `stream.cursor`.
    #[serde(rename = "type")]
    pub kind: StreamCursorType,
    /// What to ask for with `after` when the connection is lost here.
    #[schema(value_type = CursorSchema)]
    pub(in crate::http) next_after: Cursor,
}

/// The type of the line that says where the reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub enum StreamCursorType {
    /// The only value.
    #[serde(rename = "stream.cursor")]
    StreamCursor,
}

impl StreamCursorType {
    /// As in `type`.
    pub const NAME: &'static str = "stream.cursor";
}
