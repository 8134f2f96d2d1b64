//! `GET /v1/sessions/{id}/messages`: the conversation, with the pieces of each message joined.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::session::id::{EventId, Timestamp, TurnId};
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
    id: Uuid,
    prompt: Option<Prompt>,
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
    fn of_event(json: &'a [u8]) -> Option<Self> {
        let event: MessageEvent<'a> = serde_json::from_slice(json).ok()?;
        let (id, role, text, content) = match event.kind.as_ref() {
            "turn.started" => {
                let turn = event.turn?;
                let (text, content) = match turn.prompt? {
                    Prompt::Text(text) => (text, None),
                    Prompt::Blocks(blocks) => (text_of_blocks(&blocks), Some(blocks)),
                };
                (turn.id, MessageRole::User, Cow::Owned(text), content)
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

    /// Offers the next event.
    fn offer(&mut self, id: EventId, json: &[u8]) -> Room {
        let Some(piece) = Piece::of_event(json) else {
            return Room::Left;
        };
        match self.messages.last_mut().filter(|last| last.id == piece.id && last.role == piece.role) {
            Some(last) => last.text.push_str(&piece.text),
            None if self.messages.len() >= self.limit || self.bytes >= PAGE_BYTES => return Room::Full,
            None => self.messages.push(Message {
                id: piece.id,
                role: piece.role,
                turn_id: piece.turn_id,
                text: piece.text.into_owned(),
                content: piece.content,
                created_at: piece.time,
            }),
        }
        self.bytes += json.len();
        self.taken = id;
        Room::Left
    }
}
