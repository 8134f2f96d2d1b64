//! `GET /v1/sessions/{id}/messages`: the conversation, with the pieces of each message joined.

use std::borrow::Cow;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::Api;
use super::auth::{Caller, Role, session_of};
use super::problem::Problem;
use super::request::{PageRequest, PathText, QueryParams};
use crate::session::id::{EventId, SessionId, Timestamp, TurnId};
use crate::session::log::{SessionLog, Store, StoreError};
use crate::session::turn::Prompt;

/// Events read from the store at once.
const READ_EVENTS: usize = 1_000;

/// A page ends with the message whose events take it over this many bytes.
const PAGE_BYTES: usize = 1024 * 1024;

/// Who wrote a message. Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    /// A caller, or the agent in a caller's name (a slash command it echoes).
    User,
    /// The agent.
    Assistant,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Message {
    /// The `message_id` of its events; for a prompt the turn's id.
    pub id: Uuid,
    /// Who wrote it.
    pub role: MessageRole,
    /// The turn it belongs to.
    pub turn_id: Option<TurnId>,
    /// The text; of a prompt made of content blocks that of its text blocks.
    pub text: String,
    /// The content blocks of a prompt that was made of such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Vec<Value>>,
    /// When its first piece came.
    pub created_at: Timestamp,
}

/// A page of messages, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MessageList {
    /// The messages.
    pub messages: Vec<Message>,
    /// Asks for the next page; null on the last one.
    pub next_cursor: Option<String>,
    /// The event up to which the last page is complete: go on with `/events?after=`.
    pub last_event_id: EventId,
}

/// What is read of the events that make up messages.
#[derive(Deserialize)]
struct MessageEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    turn_id: Option<TurnId>,
    time: Timestamp,
    message_id: Option<Uuid>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    turn: Option<PromptOfTurn>,
}

#[derive(Deserialize)]
struct PromptOfTurn {
    id: TurnId,
    prompt: Option<Prompt>,
}

impl MessageEvent<'_> {
    /// The turn that begins, when its prompt is told elsewhere: it was queued, and its message is where the agent got it.
    fn queued_turn(&self) -> Option<TurnId> {
        let turn = self.turn.as_ref()?;
        (self.kind == "turn.started" && turn.prompt.is_none()).then_some(turn.id)
    }
}

/// A message, or a further piece of one.
struct Piece<'a> {
    id: Uuid,
    role: MessageRole,
    turn_id: Option<TurnId>,
    text: Cow<'a, str>,
    content: Option<Vec<Value>>,
    time: Timestamp,
}

impl<'a> Piece<'a> {
    /// What an event says; `None` for one that is no piece of a message.
    fn of_event(event: MessageEvent<'a>) -> Option<Self> {
        let (id, role, text, content) = match event.kind.as_ref() {
            "turn.started" => {
                let turn = event.turn?;
                let (text, content) = match turn.prompt? {
                    Prompt::Text(text) => (text, None),
                    Prompt::Blocks(blocks) => (text_of_blocks(&blocks), Some(blocks)),
                };
                (turn.id.as_uuid(), MessageRole::User, Cow::Owned(text), content)
            }
            "message.delta" => (event.message_id?, MessageRole::Assistant, event.text?, None),
            "message.user" => (event.message_id?, MessageRole::User, event.text?, None),
            _ => return None,
        };
        Some(Self { id, role, turn_id: event.turn_id, text, content, time: event.time })
    }
}

fn text_of_blocks(blocks: &[Value]) -> String {
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect();
    texts.join("\n\n")
}

/// Joins the pieces of messages into one page. A message ends where another begins, so a page is never cut within one.
struct MessagePage {
    limit: usize,
    messages: Vec<Message>,
    bytes: usize,
    /// The last event whose piece is in the page.
    taken: EventId,
}

/// Whether a page takes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// It does.
    Left,
    /// It is full, and the event offered begins the next page.
    Full,
}

impl MessagePage {
    fn new(limit: usize) -> Self {
        Self { limit, messages: Vec::new(), bytes: 0, taken: EventId(0) }
    }

    /// Offers the next event, which takes so many bytes.
    fn offer(&mut self, id: EventId, event: MessageEvent<'_>, bytes: usize) -> Room {
        let Some(piece) = Piece::of_event(event) else {
            return Room::Left;
        };
        if let Some(last) =
            self.messages.last_mut().filter(|last| last.id == piece.id && last.role == piece.role)
        {
            last.text.push_str(&piece.text);
        } else if self.messages.len() >= self.limit || self.bytes >= PAGE_BYTES {
            return Room::Full;
        } else {
            self.messages.push(Message {
                id: piece.id,
                role: piece.role,
                turn_id: piece.turn_id,
                text: piece.text.into_owned(),
                content: piece.content,
                created_at: piece.time,
            });
        }
        self.bytes += bytes;
        self.taken = id;
        Room::Left
    }
}

/// Which part of the list of messages.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MessagesQuery {
    /// How many at most.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List a session's messages
///
/// The conversation, oldest first, with the pieces of each message joined. A message that is still being written is
/// given as far as it is; its further pieces come behind `last_event_id`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/messages",
    operation_id = "listMessages",
    tag = "sessions",
    params(("session_id" = SessionId, Path, description = "The session."), MessagesQuery),
    responses(
        (status = 200, description = "The messages.", body = MessageList),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn list_messages(
    State(api): State<Api>,
    caller: Caller,
    PathText(session_id): PathText<String>,
    QueryParams(query): QueryParams<MessagesQuery>,
) -> Result<Json<MessageList>, Problem> {
    caller.require(Role::Read)?;
    let session = session_of(&api, &caller, &session_id)?;
    // The cursor is the id of the last event of the page before.
    let (page, limit) = PageRequest::<u64>::new(query.limit, query.cursor.as_deref())?.to_store();
    let after = EventId(page.before.unwrap_or(0));
    Ok(Json(read_messages(api.registry.store().as_ref(), session.log(), after, limit).await?))
}

/// The messages behind `after`, up to the log's head of now.
async fn read_messages(
    store: &dyn Store,
    log: &SessionLog,
    after: EventId,
    limit: usize,
) -> Result<MessageList, StoreError> {
    let until = log.head().committed;
    let mut page = MessagePage::new(limit);
    // Callers can make cursors up; the store is only asked for ids that exist.
    let mut cursor = after.min(until);
    loop {
        let events = store.message_events(log.number(), cursor, until, READ_EVENTS).await?;
        for (id, json) in &events {
            cursor = *id;
            let Ok(mut event) = serde_json::from_slice::<MessageEvent<'_>>(json) else { continue };
            let mut bytes = json.len();
            if let Some((turn, began)) = event.queued_turn().zip(event.turn.as_mut()) {
                let turn = store.turn(log.number(), turn).await?;
                began.prompt = turn.and_then(|turn| turn.prompt);
                bytes += began.prompt.as_ref().map_or(0, Prompt::bytes);
            }
            if page.offer(*id, event, bytes) == Room::Full {
                let next_cursor = Some(page.taken.to_string());
                return Ok(MessageList { messages: page.messages, next_cursor, last_event_id: until });
            }
        }
        if events.len() < READ_EVENTS {
            return Ok(MessageList { messages: page.messages, next_cursor: None, last_event_id: until });
        }
    }
}

#[cfg(test)]
mod tests;
