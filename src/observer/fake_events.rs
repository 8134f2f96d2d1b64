//! Events for observers under test.

use serde_json::{Value, json};

use super::{Observed, Observer};
use crate::session::event::EventKind;
use crate::session::id::{EventId, SessionId, SessionNumber, Timestamp, TurnId};
use crate::session::run::RunBuilder;

/// Tells an observer of an event with this body.
pub(crate) fn observe(
    observer: &mut dyn Observer,
    session: u32,
    kind: EventKind,
    turn: Option<TurnId>,
    body: &Value,
) {
    let mut event = json!({"session_id": SessionId::new(), "time": Timestamp::now()});
    let fields = event.as_object_mut().unwrap();
    fields.extend(body.as_object().unwrap().clone());
    let mut run = RunBuilder::new(EventId(1));
    run.push_json(kind, turn, event.to_string().as_bytes());
    let run = run.finish().unwrap().unwrap();
    for frame in run.frames_after(EventId(0)) {
        observer.event(&Observed::read(SessionNumber(session), "alice", &frame));
    }
}

/// What a turn's event has.
pub(crate) fn turn(id: TurnId, state: &str) -> Value {
    json!({"turn": {"id": id, "state": state, "created_at": Timestamp::now(), "started_at": Timestamp::now()}})
}

/// Tells of a turn that starts.
pub(crate) fn started(observer: &mut dyn Observer, session: u32) -> TurnId {
    let id = TurnId::new();
    observe(observer, session, EventKind::TurnStarted, Some(id), &turn(id, "running"));
    id
}
