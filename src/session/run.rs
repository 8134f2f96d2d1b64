//! Events made ready for the wire: serialised once, as server-sent-event frames, and shared by all subscribers.
//!
//! A frame is `id: 17⏎event: tool_call.started⏎data: {…}⏎⏎`. A [`Run`] is one or more frames with consecutive ids in
//! one piece of memory, and a mark per frame that says where its parts are.

use std::ops::Range;

use bytes::{BufMut, Bytes};
use serde::Serialize;

use super::event::{EventBody, EventKind};
use super::id::{EventId, SessionId, Timestamp, TurnId};

/// Where one frame ends and its parts lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// First byte behind the frame.
    end: u32,
    /// First byte of the JSON.
    data: u32,
    kind: EventKind,
    turn: Option<TurnId>,
}

/// Consecutive events of one session, as frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    first: EventId,
    bytes: Bytes,
    marks: Vec<Mark>,
}

/// One event within a [`Run`].
#[derive(Clone, Copy, Debug)]
pub struct Frame<'run> {
    /// Its number in the session.
    pub id: EventId,
    /// Its type.
    pub kind: EventKind,
    /// The turn it belongs to.
    pub turn: Option<TurnId>,
    run: &'run Run,
    start: usize,
    mark: Mark,
}

const EVENT_FIELD: &str = "event: ";
const DATA_FIELD: &str = "data: ";

impl<'run> Frame<'run> {
    /// The whole frame.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.run.bytes.slice(self.start..self.mark.end as usize)
    }

    /// The event as JSON, on one line.
    #[must_use]
    pub fn json(&self) -> &'run [u8] {
        // A frame ends with two line ends.
        &self.run.bytes[self.mark.data as usize..self.mark.end as usize - 2]
    }

    /// The frame's `id:` line.
    #[must_use]
    pub fn id_line(&self) -> &'run [u8] {
        &self.run.bytes[self.start..self.event_line()]
    }

    /// The frame without its `id:` line.
    #[must_use]
    pub fn without_id(&self) -> &'run [u8] {
        &self.run.bytes[self.event_line()..self.mark.end as usize]
    }

    /// The frame with its `data:` line only, for `EventSource.onmessage`.
    #[must_use]
    pub fn data_only(&self) -> &'run [u8] {
        &self.run.bytes[self.data_line()..self.mark.end as usize]
    }

    fn data_line(&self) -> usize {
        self.mark.data as usize - DATA_FIELD.len()
    }

    fn event_line(&self) -> usize {
        self.data_line() - EVENT_FIELD.len() - self.kind.as_str().len() - 1
    }
}

impl Run {
    /// The first event's id.
    #[must_use]
    pub fn first(&self) -> EventId {
        self.first
    }

    /// The last event's id.
    #[must_use]
    pub fn last(&self) -> EventId {
        EventId(self.first.0 + self.marks.len() as u64 - 1)
    }

    /// How many bytes the frames take.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// How many bytes the run takes in memory, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.bytes.len() + self.marks.len() * size_of::<Mark>() + size_of::<Self>()
    }

    /// How many events.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a run is never empty")]
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    fn start_of(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.marks[before].end as usize)
    }

    fn index_after(&self, after: EventId) -> usize {
        usize::try_from((after.0 + 1).saturating_sub(self.first.0))
            .unwrap_or(usize::MAX)
            .min(self.marks.len())
    }

    /// The frames behind `after`, one by one.
    pub fn frames_after(&self, after: EventId) -> impl Iterator<Item = Frame<'_>> {
        (self.index_after(after)..self.marks.len()).map(|index| Frame {
            id: EventId(self.first.0 + index as u64),
            kind: self.marks[index].kind,
            turn: self.marks[index].turn,
            run: self,
            start: self.start_of(index),
            mark: self.marks[index],
        })
    }

    /// The frames behind `after`, as one piece of memory, not copied.
    #[must_use]
    pub fn bytes_after(&self, after: EventId) -> Bytes {
        let range: Range<usize> = self.start_of(self.index_after(after))..self.bytes.len();
        self.bytes.slice(range)
    }
}

/// What an event has in common with those around it: all that is said of it but its id, its type and its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Context {
    session_id: SessionId,
    turn_id: Option<TurnId>,
    time: Timestamp,
}

/// Collects events into a [`Run`].
#[derive(Debug)]
pub struct RunBuilder {
    first: EventId,
    bytes: Vec<u8>,
    marks: Vec<Mark>,
    /// The last event's, and how it is written: nearly always the next one's too.
    context: Option<(Context, Vec<u8>)>,
}

/// More than 4 GiB of frames in one run: no reader makes that, so only an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a run of events is larger than 4 GiB")]
pub struct RunTooLarge;

impl RunBuilder {
    /// The first event pushed gets the id `first`.
    #[must_use]
    pub fn new(first: EventId) -> Self {
        Self { first, bytes: Vec::new(), marks: Vec::new(), context: None }
    }

    /// The id that the next event gets.
    #[must_use]
    pub fn next_id(&self) -> EventId {
        EventId(self.first.0 + self.marks.len() as u64)
    }

    /// Serialises one event; gives its id.
    pub fn push(
        &mut self,
        session_id: SessionId,
        turn_id: Option<TurnId>,
        time: Timestamp,
        kind: EventKind,
        body: &EventBody,
    ) -> Result<EventId, serde_json::Error> {
        let id = self.next_id();
        let start = self.bytes.len();
        self.begin(id, kind);
        let data = self.bytes.len();
        if let Err(error) = self.put_json(id, kind, Context { session_id, turn_id, time }, body) {
            self.bytes.truncate(start);
            return Err(error);
        }
        self.end(data, kind, turn_id);
        Ok(id)
    }

    /// `{"id":…,"type":…,` then the context's fields, then the body's: three objects written as one, since a derived
    /// one would write the context anew for every event.
    fn put_json(
        &mut self,
        id: EventId,
        kind: EventKind,
        context: Context,
        body: &EventBody,
    ) -> Result<(), serde_json::Error> {
        self.bytes.put_slice(b"{\"id\":");
        self.bytes.put_slice(itoa(id.0).digits());
        self.bytes.put_slice(b",\"type\":\"");
        self.bytes.put_slice(kind.as_str().as_bytes());
        self.bytes.put_u8(b'"');
        match &self.context {
            Some((known, fields)) if *known == context => self.bytes.put_slice(fields),
            _ => {
                let mut fields = serde_json::to_vec(&context)?;
                fields.pop();
                fields[0] = b',';
                self.bytes.put_slice(&fields);
                self.context = Some((context, fields));
            }
        }
        let body_start = self.bytes.len();
        serde_json::to_writer(&mut self.bytes, body)?;
        // Every body is an object with at least one field.
        self.bytes[body_start] = b',';
        Ok(())
    }

    /// Takes an event that was serialised before (its JSON, from the store).
    pub fn push_json(&mut self, kind: EventKind, turn: Option<TurnId>, json: &[u8]) {
        self.begin(self.next_id(), kind);
        let data = self.bytes.len();
        self.bytes.put_slice(json);
        self.end(data, kind, turn);
    }

    fn begin(&mut self, id: EventId, kind: EventKind) {
        self.bytes.put_slice(b"id: ");
        self.bytes.put_slice(itoa(id.0).digits());
        self.bytes.put_u8(b'\n');
        self.bytes.put_slice(EVENT_FIELD.as_bytes());
        self.bytes.put_slice(kind.as_str().as_bytes());
        self.bytes.put_u8(b'\n');
        self.bytes.put_slice(DATA_FIELD.as_bytes());
    }

    fn end(&mut self, data: usize, kind: EventKind, turn: Option<TurnId>) {
        self.bytes.put_slice(b"\n\n");
        let small = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
        self.marks.push(Mark { end: small(self.bytes.len()), data: small(data), kind, turn });
    }

    /// How many bytes the frames take so far.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The run, or `None` when nothing was pushed.
    pub fn finish(self) -> Result<Option<Run>, RunTooLarge> {
        if self.marks.is_empty() {
            return Ok(None);
        }
        if u32::try_from(self.bytes.len()).is_err() {
            return Err(RunTooLarge);
        }
        Ok(Some(Run { first: self.first, bytes: self.bytes.into(), marks: self.marks }))
    }
}

/// Decimal digits without an allocation: the hot path writes one per event.
struct Digits {
    buffer: [u8; 20],
    start: usize,
}

impl Digits {
    fn digits(&self) -> &[u8] {
        &self.buffer[self.start..]
    }
}

fn itoa(mut number: u64) -> Digits {
    let mut digits = Digits { buffer: [b'0'; 20], start: 20 };
    loop {
        digits.start -= 1;
        digits.buffer[digits.start] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            return digits;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::session::agent::NoticeLevel;

    fn run(first: u64, messages: &[String], turn: Option<TurnId>) -> Run {
        let mut builder = RunBuilder::new(EventId(first));
        for message in messages {
            let body =
                EventBody::Notice { level: NoticeLevel::Info, code: "test".into(), message: message.clone() };
            let time = Timestamp::from(SystemTime::UNIX_EPOCH);
            builder.push(SessionId::new(), turn, time, EventKind::Notice, &body).unwrap();
        }
        builder.finish().unwrap().unwrap()
    }

    #[test]
    fn a_frame_has_its_id_its_type_and_one_line_of_json() {
        let turn = TurnId::new();
        let run = run(17, &["one\ntwo".into()], Some(turn));
        let frame = run.frames_after(EventId(0)).next().unwrap();
        let text = String::from_utf8(frame.bytes().to_vec()).unwrap();
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!(lines[..2], ["id: 17", "event: notice"]);
        assert_eq!(lines[3..], ["", ""]);
        let json: Value = serde_json::from_str(lines[2].strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(json, serde_json::from_slice::<Value>(frame.json()).unwrap());
        assert_eq!(json["id"], 17);
        assert_eq!(json["type"], "notice");
        assert_eq!(json["turn_id"], turn.to_string());
        assert_eq!(json["time"], "1970-01-01T00:00:00.000Z");
        assert_eq!(json["message"], "one\ntwo");
        assert_eq!(frame.id_line(), b"id: 17\n");
        assert_eq!([frame.id_line(), frame.without_id()].concat(), frame.bytes());
        assert_eq!(frame.data_only(), format!("{}\n\n", lines[2]).as_bytes());
    }

    #[test]
    fn nothing_pushed_is_no_run() {
        assert_eq!(RunBuilder::new(EventId(1)).finish(), Ok(None));
    }

    #[test]
    fn every_kind_has_its_name_and_its_number() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_code(kind.code()), Some(*kind));
            assert_eq!(EventKind::from_name(kind.as_str()), Some(*kind));
        }
        assert_eq!(EventKind::from_code(0), None);
        assert_eq!(EventKind::from_name("message"), None);
    }

    proptest! {
        #[test]
        fn what_is_behind_a_cursor_is_the_same_bytes_however_it_is_read(
            messages in proptest::collection::vec(any::<String>(), 1..20),
            first in 1..100_000_u64,
            offset in 0..25_u64,
        ) {
            let run = run(first, &messages, None);
            prop_assert_eq!(run.last(), EventId(first + messages.len() as u64 - 1));
            let after = EventId((first - 1 + offset).min(run.last().0));
            let joined: Vec<u8> = run.frames_after(after).flat_map(|frame| frame.bytes().to_vec()).collect();
            prop_assert_eq!(&joined[..], &run.bytes_after(after)[..]);
            let ids: Vec<u64> = run.frames_after(after).map(|frame| frame.id.0).collect();
            prop_assert_eq!(ids, (after.0 + 1..=run.last().0).collect::<Vec<_>>());
            // What the store gives back from the JSON alone is equal.
            let mut again = RunBuilder::new(run.first());
            for frame in run.frames_after(EventId(0)) {
                again.push_json(frame.kind, frame.turn, frame.json());
            }
            prop_assert_eq!(again.finish().unwrap().unwrap(), run);
        }
    }
}
