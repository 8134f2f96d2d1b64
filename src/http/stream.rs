//! Event streams: one loop that reads events by cursor and makes the chunks of a body.
//!
//! Replay and live are the same loop: read the committed events behind the cursor, pass them on, and when there are
//! none wait for the head to move. Nothing is queued per subscriber; one that is slow reads on from where it is.
//!
//! Architecture invariant: `Subscription` knows no HTTP. What ends a stream from outside (shutdown, a token that was
//! taken away) comes in as one future.

mod notes;
mod open;
mod selection;
mod source;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

pub use notes::{StreamCursor, StreamCursorType, StreamReset, StreamResetReason, StreamResetType};
pub use open::OpenStreams;

pub(super) use notes::{Cursor, CursorSchema};
pub(super) use open::OpenStream;
pub(super) use selection::{EventKinds, Form, Selection};
pub(super) use source::{OrderedEvents, Piece, SessionEvents, Source};

use crate::session::id::TurnId;
use crate::session::log::StoreError;
use crate::session::run::Frame;
use source::Batch;

/// How long a browser waits before it connects again, in milliseconds.
const RETRY_MS: u32 = 2_000;

/// Where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Behind this place; 0 is before the first one.
    After(u64),
    /// With what is committed from now on.
    Latest,
    /// Behind a place of another database: nowhere here.
    Unknown,
}

impl Start {
    /// The place to begin behind, or why that is not the one that was asked for.
    pub(super) fn place(self, source: &impl Source) -> (u64, Option<StreamResetReason>) {
        let head = source.head();
        match self {
            Self::Latest => (head, None),
            Self::Unknown => (0, Some(StreamResetReason::CursorUnknown)),
            Self::After(after) if after > head => (0, Some(StreamResetReason::CursorBeyondHead)),
            Self::After(after) if after > 0 && after < source.forgotten() => {
                (0, Some(StreamResetReason::CursorExpired))
            }
            Self::After(after) => (after, None),
        }
    }
}

/// The event for a reader whose cursor cannot be honoured.
pub(super) fn reset(source: &impl Source, reason: StreamResetReason) -> StreamReset {
    let last_event_id = source.cursor(source.head());
    StreamReset { kind: StreamResetType::StreamReset, reason, last_event_id }
}

/// Where a stream ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Only with the log.
    LogEnds,
    /// With the last event that is committed now.
    Now,
    /// With the turn's last event.
    TurnEnds(TurnId),
}

/// How a silent stream is kept alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heartbeat {
    /// How often.
    pub(super) every: Duration,
    /// Spaces in the comment.
    pub(super) padding: usize,
}

/// Why a subscription goes on.
enum Wake {
    /// There are events behind its cursor.
    Events,
    /// A comment is due.
    Heartbeat,
    /// There will be nothing more.
    Over,
}

/// Done when a stream has to end although its log goes on.
pub(super) type Ended = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// One subscriber's way through the events.
pub(super) struct Subscription<S> {
    source: S,
    form: Form,
    selection: Selection,
    /// The last place that was looked at: everything selected up to it has been given out.
    cursor: u64,
    /// The last place the subscriber was told, by a frame or otherwise.
    told: u64,
    /// Nothing behind this place is given out.
    until: u64,
    /// The turn whose last event ends the stream.
    until_turn: Option<TurnId>,
    /// The first chunk, until it is given out.
    opening: Option<Bytes>,
    heartbeat: Interval,
    padding: usize,
    ended: Ended,
    /// Whether nothing more is given out.
    done: bool,
}

impl<S: Source> Subscription<S> {
    /// Begins to read `source`. `ended` ends it from outside.
    pub(super) fn new(
        source: S,
        start: Start,
        until: Until,
        (form, selection): (Form, Selection),
        heartbeat: Heartbeat,
        ended: Ended,
    ) -> Self {
        let head = source.head();
        let (cursor, reason) = start.place(&source);
        // Who begins with the newest has no cursor yet: it gets one, else a cut before the first event would lose some.
        let beginning = (start == Start::Latest).then(|| source.cursor(cursor));
        let reset = reason.map(|reason| reset(&source, reason));
        let opening = opening(form, heartbeat.padding, beginning, reset);
        // A period of zero would panic.
        let every = heartbeat.every.max(Duration::from_millis(1));
        let mut beats = interval_at(Instant::now() + every, every);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            source,
            form,
            selection,
            cursor,
            told: cursor,
            until: if until == Until::Now { head } else { u64::MAX },
            until_turn: if let Until::TurnEnds(turn) = until { Some(turn) } else { None },
            opening: (!opening.is_empty()).then_some(opening),
            heartbeat: beats,
            padding: heartbeat.padding,
            ended,
            done: false,
        }
    }

    /// The next piece of the body: whole frames, as many as one read brings. `None` when the stream is over, and ever
    /// after.
    pub(super) async fn next_chunk(&mut self) -> Option<Bytes> {
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        loop {
            if self.done {
                return None;
            }
            if self.cursor >= self.until {
                self.done = true;
                return (self.told != self.cursor).then(|| self.tell_cursor());
            }
            // Biased: an end is not put off by what there is to read, a heartbeat not by events that are not selected.
            let wake = tokio::select! {
                biased;
                () = &mut self.ended => Wake::Over,
                _ = self.heartbeat.tick() => Wake::Heartbeat,
                more = self.source.wait(self.cursor) => if more { Wake::Events } else { Wake::Over },
            };
            match wake {
                Wake::Events => {}
                Wake::Heartbeat => return Some(self.heartbeat_chunk()),
                Wake::Over => {
                    self.done = true;
                    return None;
                }
            }
            match self.source.read(self.cursor).await {
                Ok(Some(batch)) => {
                    if let Some(chunk) = self.take(&batch) {
                        return Some(chunk);
                    }
                }
                // The events are being deleted together with their session.
                Ok(None) => self.done = true,
                Err(StoreError::CursorLost) => {
                    (self.cursor, self.told) = (0, 0);
                    let reset = reset(&self.source, StreamResetReason::EventsLost);
                    return Some(reset_frame(self.form, reset).into());
                }
                Err(error) => {
                    tracing::warn!(%error, "an event stream ends: its events cannot be read");
                    self.done = true;
                }
            }
        }
    }

    /// What is selected of a batch, and the cursor behind it.
    fn take(&mut self, batch: &Batch) -> Option<Bytes> {
        let is_whole = self.selection.is_everything() && self.form == Form::Named && S::IDS_ARE_CURSORS;
        if is_whole
            && batch.through <= self.until
            && let [piece] = batch.pieces.as_slice()
        {
            self.cursor = batch.through;
            self.told = self.cursor;
            return Some(piece.bytes());
        }
        let mut chunk = BytesMut::new();
        for piece in &batch.pieces {
            if self.selection.is_everything() {
                chunk.reserve(piece.size());
            }
            for (place, frame) in piece.frames().take_while(|(place, _)| *place <= self.until) {
                self.cursor = place;
                if self.selection.takes(&frame) {
                    self.put(&mut chunk, place, &frame);
                    self.told = place;
                }
                if frame.kind.ends_turn() && self.until_turn.is_some() && frame.turn == self.until_turn {
                    self.done = true;
                    return (!chunk.is_empty()).then(|| chunk.freeze());
                }
            }
        }
        self.cursor = batch.through.min(self.until);
        if chunk.is_empty() {
            return None;
        }
        if self.form == Form::Lines && !S::IDS_ARE_CURSORS {
            chunk.put(self.tell_cursor());
        }
        Some(chunk.freeze())
    }

    fn put(&self, chunk: &mut BytesMut, place: u64, frame: &Frame<'_>) {
        match self.form {
            Form::Lines => {
                chunk.put_slice(frame.json());
                chunk.put_u8(b'\n');
                return;
            }
            Form::Named | Form::Unnamed if S::IDS_ARE_CURSORS => chunk.put_slice(frame.id_line()),
            Form::Named | Form::Unnamed => {
                chunk.put_slice(format!("id: {}\n", self.source.cursor(place)).as_bytes());
            }
        }
        let rest = if self.form == Form::Named { frame.without_id() } else { frame.data_only() };
        chunk.put_slice(rest);
    }

    /// Moves the subscriber's cursor over events it did not get.
    fn tell_cursor(&mut self) -> Bytes {
        self.told = self.cursor;
        cursor_chunk(self.form, self.source.cursor(self.cursor))
    }

    /// A comment; where JSON lines have none, the cursor, which every reader of JSON lines can take.
    fn heartbeat_chunk(&mut self) -> Bytes {
        if self.form == Form::Lines {
            return self.tell_cursor();
        }
        let mut chunk = format!(":{:1$}\n", "", self.padding);
        if self.told == self.cursor {
            chunk.push('\n');
            return chunk.into();
        }
        [chunk.as_bytes(), &self.tell_cursor()].concat().into()
    }
}

/// Tells the cursor without an event. By the HTML standard ("dispatch the event") a block without `data:` sets the
/// last event id and dispatches nothing.
fn cursor_chunk(form: Form, cursor: Cursor) -> Bytes {
    match form {
        Form::Named | Form::Unnamed => format!("id: {cursor}\n\n").into(),
        Form::Lines => {
            line(&StreamCursor { kind: StreamCursorType::StreamCursor, next_after: cursor }).into()
        }
    }
}

fn line(value: &impl Serialize) -> String {
    // Neither has anything that JSON cannot say.
    serde_json::to_string(value).map_or_else(|_| String::new(), |json| json + "\n")
}

/// The first bytes. Of server-sent events: a comment, so that proxies and browsers see the answer begin, and the time
/// to wait before connecting again. Then the cursor if the subscriber has none, and the reset if there is one.
fn opening(form: Form, padding: usize, beginning: Option<Cursor>, reset: Option<StreamReset>) -> Bytes {
    let mut chunk = Vec::new();
    if form != Form::Lines {
        chunk.extend_from_slice(format!(": gander{:1$}\nretry: {RETRY_MS}\n\n", "", padding).as_bytes());
    }
    if let Some(cursor) = beginning {
        chunk.extend_from_slice(&cursor_chunk(form, cursor));
    }
    if let Some(reset) = reset {
        chunk.extend_from_slice(reset_frame(form, reset).as_bytes());
    }
    chunk.into()
}

fn reset_frame(form: Form, reset: StreamReset) -> String {
    let line = line(&reset);
    match form {
        Form::Named => format!("event: {}\ndata: {line}\n", StreamResetType::NAME),
        Form::Unnamed => format!("data: {line}\n"),
        Form::Lines => line,
    }
}

#[cfg(test)]
mod tests;
