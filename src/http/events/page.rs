//! A page of events, as one JSON object.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};
use utoipa::ToSchema;

use crate::http::stream::{
    Cursor, CursorSchema, Ended, Piece, Selection, Source, Start, StreamResetReason, reset,
};
use crate::session::log::StoreError;

/// A page ends behind the event that reaches this; an event may be large.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Events, oldest first. There are more when `next_after` is not `last_event_id`.
#[derive(ToSchema)]
#[schema(as = EventPage)]
#[expect(dead_code, reason = "only describes what `page` writes")]
pub(in crate::http) struct EventPageSchema {
    /// `Event`s. The first one is a `stream.reset` when the cursor could not be honoured.
    #[schema(value_type = Vec<Event>)]
    events: Vec<()>,
    /// Asks for the next page, as `after`: behind everything that was looked at, whether it was selected or not.
    #[schema(value_type = CursorSchema)]
    next_after: (),
    /// The cursor of the last event there is.
    #[schema(value_type = CursorSchema)]
    last_event_id: (),
}

/// The name of the schema of an event, which is put together elsewhere.
#[derive(ToSchema)]
struct Event;

/// What follows the events.
#[derive(Serialize)]
struct Ending {
    next_after: Cursor,
    last_event_id: Cursor,
}

/// Collects at most `limit` selected events. When there is none, waits for the first; `ended` ends the wait.
pub(in crate::http) async fn page<S: Source>(
    mut source: S,
    start: Start,
    selection: Selection,
    limit: usize,
    wait: Duration,
    mut ended: Ended,
) -> Result<Bytes, StoreError> {
    let deadline = Instant::now() + wait;
    let (mut cursor, reason) = start.place(&source);
    let mut events = Events::default();
    if let Some(reason) = reason {
        events.push(&serde_json::to_vec(&reset(&source, reason)).map_err(StoreError::failed)?);
    }
    // A reset is something to know at once.
    let limit = limit + events.count;
    loop {
        // What comes while this reads is for the next page: a flood must not keep it from an end.
        let head = source.head();
        while cursor < head && events.has_room(limit) {
            // None: the events are being deleted together with their session.
            let batch = match source.read(cursor).await {
                Err(StoreError::CursorLost) => {
                    let reset = reset(&source, StreamResetReason::EventsLost);
                    events.push(&serde_json::to_vec(&reset).map_err(StoreError::failed)?);
                    cursor = 0;
                    continue;
                }
                batch => batch?,
            };
            let Some(batch) = batch else { break };
            for (place, frame) in batch.pieces.iter().flat_map(Piece::frames) {
                if selection.takes(&frame) {
                    if !events.has_room(limit) {
                        break;
                    }
                    events.push(frame.json());
                }
                // Behind the last event that fits, and what is not selected.
                cursor = place;
            }
            if events.has_room(limit) {
                cursor = batch.through;
            }
        }
        if events.count > 0 || cursor < head {
            break;
        }
        let more = tokio::select! {
            biased;
            () = &mut ended => false,
            more = source.wait(cursor) => more,
            () = sleep_until(deadline) => false,
        };
        if !more {
            break;
        }
    }
    let last_event_id = source.cursor(source.head());
    events.finish(&Ending { next_after: source.cursor(cursor), last_event_id })
}

/// The body so far.
#[derive(Default)]
struct Events {
    json: BytesMut,
    count: usize,
}

impl Events {
    fn has_room(&self, limit: usize) -> bool {
        self.count < limit && self.json.len() < PAGE_BYTES
    }

    fn push(&mut self, event: &[u8]) {
        self.json.put_slice(if self.count == 0 { b"{\"events\":[" } else { b"," });
        self.json.put_slice(event);
        self.count += 1;
    }

    fn finish(mut self, ending: &Ending) -> Result<Bytes, StoreError> {
        if self.count == 0 {
            self.json.put_slice(b"{\"events\":[");
        }
        self.json.put_slice(b"],");
        let ending = serde_json::to_vec(ending).map_err(StoreError::failed)?;
        self.json.put_slice(ending.get(1..).unwrap_or_default());
        Ok(self.json.freeze())
    }
}

#[cfg(test)]
mod tests;
