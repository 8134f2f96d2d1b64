//! The line codec: bytes to lines to JSON-RPC messages, and back.
//!
//! It is forgiving on purpose: an agent's library or tool may print to the wrong stream, and one bad line must not
//! end a session. What is not JSON-RPC is reported to the caller, who counts.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// How much of a line over the limit is kept, to see what it was. In bytes.
pub(super) const HEAD_BYTES: usize = 4096;
/// A line buffer that grew past this shrinks back when its line is done. In bytes.
const KEPT_CAPACITY: usize = 64 * 1024;

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// Longer than the limit: its beginning, and its whole length in bytes.
    TooLong { head: &'a [u8], bytes: u64 },
}

/// Cuts a stream of bytes into lines and keeps what is not finished yet, at most `limit` bytes of it.
#[derive(Debug)]
pub(super) struct LineSplitter {
    limit: usize,
    /// The beginning of the unfinished line.
    line: Vec<u8>,
    /// The unfinished line's length, also when not all of it is kept.
    bytes: u64,
}

impl LineSplitter {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), bytes: 0 }
    }

    /// Takes what was read and gives every line that it finishes to `each`.
    pub(super) fn push(&mut self, mut read: &[u8], mut each: impl FnMut(Line<'_>)) {
        while let Some(end) = memchr::memchr(b'\n', read) {
            let (rest_of_line, after) = (&read[..end], &read[end + 1..]);
            if self.bytes == 0 && rest_of_line.len() <= self.limit {
                each(Line::Whole(rest_of_line));
            } else {
                self.keep(rest_of_line);
                self.give_line(&mut each);
            }
            read = after;
        }
        self.keep(read);
    }

    /// Gives the last line when the stream ended without a line end.
    pub(super) fn finish(&mut self, mut each: impl FnMut(Line<'_>)) {
        if self.bytes > 0 {
            self.give_line(&mut each);
        }
    }

    /// The beginning of the unfinished line and its length so far, once that is more than a line may have. It may never
    /// end, so whoever can tell from this much that it is no good need not wait for the rest.
    pub(super) fn unfinished_too_long(&self) -> Option<(&[u8], u64)> {
        (self.is_too_long() && self.line.len() == HEAD_BYTES).then_some((&self.line, self.bytes))
    }

    fn keep(&mut self, part: &[u8]) {
        self.bytes += part.len() as u64;
        if self.is_too_long() {
            let missing = HEAD_BYTES.saturating_sub(self.line.len()).min(part.len());
            self.line.extend_from_slice(&part[..missing]);
            self.line.truncate(HEAD_BYTES);
            self.line.shrink_to(HEAD_BYTES);
        } else {
            self.line.extend_from_slice(part);
        }
    }

    fn is_too_long(&self) -> bool {
        self.bytes > self.limit as u64
    }

    fn give_line(&mut self, each: &mut impl FnMut(Line<'_>)) {
        if self.is_too_long() {
            each(Line::TooLong { head: &self.line, bytes: self.bytes });
        } else {
            each(Line::Whole(&self.line));
        }
        self.bytes = 0;
        self.line.clear();
        self.line.shrink_to(KEPT_CAPACITY);
    }
}

/// A JSON-RPC error as the agent sent it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct RpcError {
    #[serde(default)]
    pub(super) code: i64,
    #[serde(default)]
    pub(super) message: String,
    /// Any JSON; goose puts a sentence there.
    #[serde(default)]
    pub(super) data: Option<Value>,
}

/// One JSON-RPC message. Ids are raw JSON: they are the agent's, of any type, and go back as they came.
#[derive(Debug)]
pub(super) enum Message<'a> {
    Request { id: &'a RawValue, method: Cow<'a, str>, params: Option<&'a RawValue> },
    Notification { method: Cow<'a, str>, params: Option<&'a RawValue> },
    Response { id: &'a RawValue, outcome: Result<&'a RawValue, RpcError> },
}

/// Text that is no JSON-RPC message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotJsonRpc;

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// `null` that is there is not the same as nothing: `"result":null` answers, `"id":null` asks for an answer.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Gives each message of a line to `each`: one, or those of a batch.
pub(super) fn read_messages<'a>(line: &'a str, mut each: impl FnMut(Result<Message<'a>, NotJsonRpc>)) {
    if !line.trim_ascii_start().starts_with('[') {
        return each(read_message(line));
    }
    match serde_json::from_str::<Vec<&RawValue>>(line) {
        Ok(batch) if !batch.is_empty() => {
            for message in batch {
                each(read_message(message.get()));
            }
        }
        Ok(_) | Err(_) => each(Err(NotJsonRpc)),
    }
}

fn read_message(text: &str) -> Result<Message<'_>, NotJsonRpc> {
    match serde_json::from_str(text).map_err(|_| NotJsonRpc)? {
        Envelope { id: Some(id), method: Some(method), params, .. } => {
            Ok(Message::Request { id, method, params })
        }
        Envelope { id: None, method: Some(method), params, .. } => {
            Ok(Message::Notification { method, params })
        }
        Envelope { id: Some(id), error: Some(error), .. } => {
            // An error object that cannot be read is an error all the same.
            let error = serde_json::from_str(error.get()).unwrap_or(RpcError {
                code: 0,
                message: String::new(),
                data: None,
            });
            Ok(Message::Response { id, outcome: Err(error) })
        }
        Envelope { id: Some(id), result: Some(result), .. } => {
            Ok(Message::Response { id, outcome: Ok(result) })
        }
        Envelope { .. } => Err(NotJsonRpc),
    }
}

/// The method of a notification of which only the beginning is known. `None` when the beginning does not tell, or
/// tells of a request or an answer.
pub(super) fn method_of_head(head: &[u8]) -> Option<String> {
    let Head { id, method, is_answer } = Head::read(head);
    method.filter(|_| id.is_none() && !is_answer)
}

/// Id and method of a request of which only the beginning is known. `None` when the beginning does not tell, or tells of
/// something else.
pub(super) fn request_of_head(head: &[u8]) -> Option<(Box<RawValue>, String)> {
    let Head { id, method, is_answer } = Head::read(head);
    id.zip(method).filter(|_| !is_answer)
}

/// What the beginning of a message tells.
#[derive(Default)]
struct Head {
    id: Option<Box<RawValue>>,
    method: Option<String>,
    is_answer: bool,
}

impl Head {
    fn read(head: &[u8]) -> Self {
        let text = String::from_utf8_lossy(head);
        let mut read = Self::default();
        // The text stops in the middle of something, so this fails; what was seen until then is what counts.
        let _ = HeadReader(&mut read).deserialize(&mut serde_json::Deserializer::from_str(&text));
        read
    }
}

struct HeadReader<'h>(&'h mut Head);

impl<'de> DeserializeSeed<'de> for HeadReader<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeadReader<'_> {
    type Value = ();
    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON-RPC message")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "method" => self.0.method = Some(map.next_value()?),
                "id" => self.0.id = Some(map.next_value()?),
                "result" | "error" => {
                    self.0.is_answer = true;
                    return Err(A::Error::custom("an answer"));
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A request, as a line with its end.
pub(super) fn request_line<P: Serialize>(id: u64, method: &str, params: &P) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Request<'a, P> {
        jsonrpc: &'static str,
        id: u64,
        method: &'a str,
        params: &'a P,
    }
    line(&Request { jsonrpc: "2.0", id, method, params })
}

/// A notification, as a line with its end.
pub(super) fn notification_line<P: Serialize>(method: &str, params: &P) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Notification<'a, P> {
        jsonrpc: &'static str,
        method: &'a str,
        params: &'a P,
    }
    line(&Notification { jsonrpc: "2.0", method, params })
}

/// The answer to a request of the agent, as a line with its end.
pub(super) fn result_line<R: Serialize>(id: &RawValue, result: &R) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Answer<'a, R> {
        jsonrpc: &'static str,
        id: &'a RawValue,
        result: &'a R,
    }
    line(&Answer { jsonrpc: "2.0", id, result })
}

/// The refusal of a request of the agent, as a line with its end.
pub(super) fn error_line(id: &RawValue, code: i64, message: &str) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Refusal<'a> {
        jsonrpc: &'static str,
        id: &'a RawValue,
        error: Reason<'a>,
    }
    #[derive(Serialize)]
    struct Reason<'a> {
        code: i64,
        message: &'a str,
    }
    line(&Refusal { jsonrpc: "2.0", id, error: Reason { code, message } })
}

fn line(message: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests;
