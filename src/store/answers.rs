//! Answers to requests with an idempotency key, kept so that the same request again gets the same answer.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};

use super::record::Fault;
use crate::session::id::SessionId;

/// Old answers removed with each new request.
const SWEEP_ROWS: u32 = 100;

/// Which request: a hash of caller, method, path and idempotency key.
pub type AnswerKey = [u8; 32];

/// An answer as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The headers that belong to it.
    pub headers: Vec<(String, String)>,
    /// The body. Empty once the session that it told of is deleted.
    pub body: Vec<u8>,
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerState {
    /// Nothing: it may run, and has been noted as running.
    Fresh,
    /// It was answered.
    Stored(StoredAnswer),
    /// The key was used for another body.
    Mismatch,
    /// The same request runs.
    InProgress,
}

/// Milliseconds since 1970 before which answers are no longer kept.
fn oldest(now_ms: i64, kept: Duration) -> i64 {
    now_ms.saturating_sub(i64::try_from(kept.as_millis()).unwrap_or(i64::MAX))
}

/// At the start: whatever ran has ended without an answer, and what is old goes.
pub(super) fn clean_up(connection: &Connection, now_ms: i64, kept: Duration) -> rusqlite::Result<()> {
    connection
        .execute("DELETE FROM answers WHERE status IS NULL OR created_ms < ?1", (oldest(now_ms, kept),))?;
    Ok(())
}

pub(super) fn begin(
    connection: &Connection,
    key: &AnswerKey,
    body_hash: &[u8; 32],
    now_ms: i64,
    kept: Duration,
) -> Result<AnswerState, Fault> {
    let oldest = oldest(now_ms, kept);
    connection
        .prepare_cached(
            "DELETE FROM answers WHERE k IN
                 (SELECT k FROM answers WHERE created_ms < ?1 ORDER BY created_ms LIMIT ?2)",
        )?
        .execute((oldest, SWEEP_ROWS))?;
    // Exactly this one too, when there were more old ones than a sweep takes.
    connection
        .prepare_cached("DELETE FROM answers WHERE key = ?1 AND created_ms < ?2")?
        .execute((key, oldest))?;
    let found = connection
        .prepare_cached("SELECT body_hash, status, headers, body FROM answers WHERE key = ?1")?
        .query_row((key,), |row| {
            let hash: [u8; 32] = row.get(0)?;
            let status: Option<u16> = row.get(1)?;
            Ok((hash, status, row.get::<_, Option<String>>(2)?, row.get::<_, Option<Vec<u8>>>(3)?))
        })
        .optional()?;
    match found {
        None => {
            connection
                .prepare_cached("INSERT INTO answers (key, body_hash, created_ms) VALUES (?1, ?2, ?3)")?
                .execute((key, body_hash, now_ms))?;
            Ok(AnswerState::Fresh)
        }
        Some((hash, ..)) if hash != *body_hash => Ok(AnswerState::Mismatch),
        Some((_, Some(status), headers, body)) => {
            let headers = headers.as_deref().map(serde_json::from_str).transpose()?.unwrap_or_default();
            Ok(AnswerState::Stored(StoredAnswer { status, headers, body: body.unwrap_or_default() }))
        }
        Some((_, None, ..)) => Ok(AnswerState::InProgress),
    }
}

/// The body of an answer about a session stays only as long as the session: the removal of a deleted session empties it,
/// and that of a session which is gone already is not kept at all. The rest of the row tells that the request was done.
pub(super) fn finish(
    connection: &Connection,
    key: &AnswerKey,
    session: Option<SessionId>,
    answer: &StoredAnswer,
) -> Result<(), Fault> {
    let headers = serde_json::to_string(&answer.headers)?;
    let number: Option<u32> = match session {
        Some(session) => connection
            .prepare_cached("SELECT number FROM sessions WHERE id = ?1")?
            .query_row((session.as_uuid().into_bytes(),), |row| row.get(0))
            .optional()?,
        None => None,
    };
    let body = (session.is_some() == number.is_some()).then_some(&answer.body);
    connection
        .prepare_cached(
            "UPDATE answers SET status = ?2, headers = ?3, body = ?4, session = ?5 WHERE key = ?1",
        )?
        .execute((key, answer.status, headers, body, number))?;
    Ok(())
}

/// A stored answer stays.
pub(super) fn forget(connection: &Connection, key: &AnswerKey) -> Result<(), Fault> {
    connection.prepare_cached("DELETE FROM answers WHERE key = ?1 AND status IS NULL")?.execute((key,))?;
    Ok(())
}
