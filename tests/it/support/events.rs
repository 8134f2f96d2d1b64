//! A subscriber: reads server-sent events as they come.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use reqwest::RequestBuilder;
use serde_json::Value;

use super::PATIENCE;

/// One event as it came over the wire.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// The `id:` field.
    pub(crate) id: Option<String>,
    /// The `event:` field.
    pub(crate) name: Option<String>,
    /// The `data:` field, parsed.
    pub(crate) data: Value,
    /// The frame, byte for byte, without the blank line behind it.
    pub(crate) frame: Bytes,
}

impl Event {
    /// The event's type.
    pub(crate) fn kind(&self) -> &str {
        self.data["type"].as_str().unwrap()
    }
}

/// An open stream of events.
pub(crate) struct EventStream {
    body: std::pin::Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>,
    buffer: BytesMut,
    /// What came that is no event: comments, `retry:`, bare ids.
    pub(crate) asides: Vec<String>,
}

impl EventStream {
    /// Sends the request; the answer must be a stream.
    pub(crate) async fn open(request: RequestBuilder) -> Self {
        let response = request.header("accept", "text/event-stream").send().await.unwrap();
        let status = response.status();
        assert!(status.is_success(), "{status}: {}", response.text().await.unwrap());
        let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
        assert!(content_type.starts_with("text/event-stream"), "{content_type}");
        Self { body: Box::pin(response.bytes_stream()), buffer: BytesMut::new(), asides: Vec::new() }
    }

    /// The next event; `None` at the stream's end, which may be a cut.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        tokio::time::timeout(PATIENCE, self.next_frame()).await.expect("no event came")
    }

    async fn next_frame(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|window| window == b"\n\n") {
                let frame = self.buffer.split_to(end + 2).freeze();
                let frame = frame.slice(..end);
                let mut event = Event { id: None, name: None, data: Value::Null, frame: frame.clone() };
                for line in std::str::from_utf8(&frame).unwrap().lines() {
                    if let Some(id) = line.strip_prefix("id: ") {
                        event.id = Some(id.to_owned());
                    } else if let Some(name) = line.strip_prefix("event: ") {
                        event.name = Some(name.to_owned());
                    } else if let Some(data) = line.strip_prefix("data: ") {
                        event.data = serde_json::from_str(data).unwrap();
                    } else {
                        self.asides.push(line.to_owned());
                    }
                }
                if event.data != Value::Null {
                    return Some(event);
                }
                if let Some(id) = event.id {
                    self.asides.push(format!("id: {id}"));
                }
                continue;
            }
            match self.body.next().await {
                Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
                Some(Err(_)) | None => return None,
            }
        }
    }

    /// Reads on until an event of this type has come; gives it. What came before it is gone.
    pub(crate) async fn until(&mut self, kind: &str) -> Event {
        self.through(kind).await.pop().unwrap()
    }

    /// Reads on until an event of this type has come; gives all that came, with it.
    pub(crate) async fn through(&mut self, kind: &str) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let Some(event) = self.next().await else {
                let kinds: Vec<&str> = events.iter().map(Event::kind).collect();
                panic!("the stream ended before {kind}, after {kinds:?}")
            };
            let found = event.kind() == kind;
            events.push(event);
            if found {
                return events;
            }
        }
    }

    /// Everything up to the stream's end.
    pub(crate) async fn rest(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// The types of events, in order.
pub(crate) fn kinds(events: &[Event]) -> Vec<&str> {
    events.iter().map(Event::kind).collect()
}

/// Fails unless every turn, tool call and permission that began has exactly one end, and the turn's is its last event.
pub(crate) fn assert_all_ended_once(events: &[Event]) {
    let mut turns: BTreeMap<String, usize> = BTreeMap::new();
    let mut calls: BTreeMap<String, usize> = BTreeMap::new();
    let mut permissions: BTreeMap<String, usize> = BTreeMap::new();
    let id = |thing: &Value| thing["id"].as_str().unwrap().to_owned();
    for event in events {
        let data = &event.data;
        if let Some(turn) = data["turn_id"].as_str() {
            assert_ne!(turns.get(turn), Some(&1), "{data} comes after its turn's end");
        }
        let (ends, key) = match event.kind() {
            // A queued turn has begun already.
            "turn.started" if turns.contains_key(&id(&data["turn"])) => continue,
            "turn.queued" | "turn.started" | "turn.completed" | "turn.failed" | "turn.cancelled"
            | "turn.interrupted" => (&mut turns, id(&data["turn"])),
            // An agent that is started again may count its calls anew.
            "tool_call.started" | "tool_call.finished" => {
                (&mut calls, format!("{} in {}", id(&data["tool_call"]), data["turn_id"]))
            }
            "permission.requested" | "permission.resolved" => (&mut permissions, id(&data["permission"])),
            _ => continue,
        };
        if ["queued", "started", "requested"].iter().any(|begin| event.kind().ends_with(begin)) {
            assert_eq!(ends.insert(key, 0), None, "{data} begins twice");
        } else {
            let count = ends.get_mut(&key).unwrap_or_else(|| panic!("{data} never began"));
            *count += 1;
            assert_eq!(*count, 1, "{data} ends twice");
        }
    }
    for (key, count) in turns.iter().chain(&calls).chain(&permissions) {
        assert_eq!(*count, 1, "{key} never ended");
    }
}

/// The events of one turn, without those that goose tells at moments of its own, such as its usage.
pub(crate) fn of_turn(events: &[Event], turn: &Value) -> Vec<Event> {
    let own = |kind: &str| matches!(kind, "usage.updated" | "commands.updated" | "session.updated");
    let mut events = events.to_vec();
    events.retain(|event| event.data["turn_id"] == turn["id"] && !own(event.kind()));
    events
}

/// What the events of one type carry.
pub(crate) fn carried<'events>(events: &'events [Event], kind: &str, field: &str) -> Vec<&'events Value> {
    events.iter().filter(|event| event.kind() == kind).map(|event| &event.data[field]).collect()
}

/// The one event of a type.
pub(crate) fn only<'events>(events: &'events [Event], kind: &str) -> &'events Event {
    let mut found = events.iter().filter(|event| event.kind() == kind);
    match (found.next(), found.next()) {
        (Some(event), None) => event,
        _ => panic!("not one {kind} in {:?}", kinds(events)),
    }
}
