//! Records as rows, events as keys: what the tables hold.

use rusqlite::{Connection, ErrorCode};

use crate::session::id::{EventId, PermissionId, SessionNumber, TurnId};
use crate::session::log::{Change, StoreError};
use crate::session::permission::PermissionState;
use crate::session::run::{Run, RunTooLarge};
use crate::session::snapshot::SessionState;

/// An event's id takes the lower bits of its key, its session's number the upper.
const ID_BITS: u32 = 40;
/// The last id that fits.
pub(super) const LAST_ID: EventId = EventId((1 << ID_BITS) - 1);

/// The key of an event. Ids behind [`LAST_ID`] count as that one, so that no key lies in another session.
pub(super) fn key(session: SessionNumber, id: EventId) -> i64 {
    (i64::from(session.0) << ID_BITS) | id.0.min(LAST_ID.0).cast_signed()
}

/// The id of the event at `key`.
pub(super) fn id_of(key: i64) -> EventId {
    EventId(key.cast_unsigned() & LAST_ID.0)
}

/// The database did not do it, or what it holds makes no sense.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    #[error("a record is unreadable: {0}")]
    Record(#[from] serde_json::Error),
    #[error("the event at {key} is of the unknown kind {kind}")]
    UnknownKind { key: i64, kind: i64 },
    #[error("event {expected} is missing: the next one is {found}")]
    Gap { expected: EventId, found: EventId },
    #[error("the cursor is of an event that was lost")]
    CursorLost,
    #[error(transparent)]
    TooLarge(#[from] RunTooLarge),
    #[error("session numbers are used up")]
    NumbersUsedUp,
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::CursorLost => Self::CursorLost,
            Fault::Database(error) if may_pass(&error) => Self::Unavailable(error.to_string().into()),
            fault => Self::Failed(fault.to_string().into()),
        }
    }
}

/// Whether the same may work later: no room, or a disk that does not read or write at the moment. Everything else is
/// a damaged database or a mistake of ours, which trying again does not mend.
pub(super) fn may_pass(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::OutOfMemory
        )
    )
}

/// A permission's state as the column has it.
pub(super) fn permission_state(state: PermissionState) -> &'static str {
    match state {
        PermissionState::Pending => "pending",
        PermissionState::Resolved => "resolved",
        PermissionState::Expired => "expired",
        PermissionState::Cancelled => "cancelled",
    }
}

/// A [`Change`] as it is written: the JSON, and the columns that lists are filtered by.
#[derive(Debug)]
pub(super) enum Record {
    Session { owner: String, state: SessionState, json: String },
    Turn { id: TurnId, json: String },
    Permission { id: PermissionId, state: PermissionState, json: String },
}

impl Record {
    pub(super) fn new(change: &Change) -> Result<Self, serde_json::Error> {
        Ok(match change {
            Change::Session(record) => Self::Session {
                owner: record.snapshot.owner.clone(),
                state: record.snapshot.state,
                json: serde_json::to_string(record)?,
            },
            Change::Turn(turn) => Self::Turn { id: turn.id, json: serde_json::to_string(turn)? },
            Change::Permission(permission) => Self::Permission {
                id: permission.id,
                state: permission.state,
                json: serde_json::to_string(permission)?,
            },
        })
    }

    /// How many bytes its contents take.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Session { json, .. } | Self::Turn { json, .. } | Self::Permission { json, .. } => {
                json.len()
            }
        }
    }

    pub(super) fn write(&self, connection: &Connection, session: SessionNumber) -> rusqlite::Result<()> {
        match self {
            Self::Session { owner, state, json } => connection
                .prepare_cached("UPDATE sessions SET owner = ?2, state = ?3, record = ?4 WHERE number = ?1")?
                .execute((session.0, owner, state.as_str(), json))?,
            Self::Turn { id, json } => connection
                .prepare_cached(
                    "INSERT INTO turns (session, id, record) VALUES (?1, ?2, ?3)
                     ON CONFLICT (session, id) DO UPDATE SET record = excluded.record",
                )?
                .execute((session.0, id.as_uuid().as_bytes(), json))?,
            Self::Permission { id, state, json } => connection
                .prepare_cached(
                    "INSERT INTO permissions (session, id, state, record) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (id) DO UPDATE SET state = excluded.state, record = excluded.record",
                )?
                .execute((session.0, id.as_uuid().as_bytes(), permission_state(*state), json))?,
        };
        Ok(())
    }
}

/// Writes a run's events.
pub(super) fn write_events(
    connection: &Connection,
    session: SessionNumber,
    run: &Run,
) -> rusqlite::Result<()> {
    let mut insert =
        connection.prepare_cached("INSERT INTO events (k, kind, turn, data) VALUES (?1, ?2, ?3, ?4)")?;
    for frame in run.frames_after(EventId(run.first().0.saturating_sub(1))) {
        let turn = frame.turn.map(|turn| turn.as_uuid().into_bytes());
        insert.execute((key(session, frame.id), frame.kind.code(), turn, frame.json()))?;
    }
    Ok(())
}
