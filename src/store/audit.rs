//! Who did what, and when: written with the changes themselves, read beside a gander that runs, forgotten in small steps.

use std::path::Path;

use rusqlite::types::Type;
use rusqlite::{Connection, Row, ToSql};
use uuid::Uuid;

use super::SqliteStore;
use super::record::Fault;
use super::schema::{self, OpenError};
use crate::session::audit::{AuditEntry, AuditFilter};
use crate::session::id::{SessionId, Timestamp};
use crate::session::log::StoreError;

/// Entries forgotten at once. A step with as many takes a few milliseconds.
pub(super) const STEP_ROWS: usize = 1000;
/// Entries read at once: a long read would keep the write-ahead log from starting anew.
const PAGE_ROWS: usize = 500;

/// What an entry takes besides its details, about.
const ENTRY_BYTES: usize = 128;

/// An entry as it is written.
#[derive(Debug)]
pub(super) struct AuditRow {
    entry: AuditEntry,
    details: String,
}

impl AuditRow {
    pub(super) fn new(entry: AuditEntry) -> Result<Self, serde_json::Error> {
        let details = serde_json::to_string(&entry.details)?;
        Ok(Self { entry, details })
    }

    pub(super) fn bytes(&self) -> usize {
        self.details.len() + ENTRY_BYTES
    }

    pub(super) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let AuditEntry { at, who, what, session, request, .. } = &self.entry;
        connection
            .prepare_cached(
                "INSERT INTO audit (at_ms, who, what, session, request, details)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute((
                at.as_millis(),
                who,
                what,
                session.map(|id| id.as_uuid().into_bytes()),
                request,
                &self.details,
            ))?;
        Ok(())
    }
}

impl SqliteStore {
    /// Forgets who did what before a moment, some of the oldest entries at once; whether there may be more.
    pub async fn forget_audit(&self, before: Timestamp) -> Result<bool, StoreError> {
        let forgotten = self.call(move |connection| forget(connection, before.as_millis())).await?;
        Ok(forgotten == STEP_ROWS)
    }
}

/// Forgets at most [`STEP_ROWS`] entries from before `before_ms`, the oldest first; how many.
pub(super) fn forget(connection: &Connection, before_ms: i64) -> Result<usize, Fault> {
    let mut delete = connection.prepare_cached(
        "DELETE FROM audit WHERE k IN (SELECT k FROM audit WHERE at_ms < ?1 ORDER BY at_ms LIMIT ?2)",
    )?;
    Ok(delete.execute((before_ms, i64::try_from(STEP_ROWS).unwrap_or(i64::MAX)))?)
}

/// The entries of a storage folder, read without a part in what a gander does there.
pub struct AuditLog {
    connection: Connection,
    filter: AuditFilter,
    /// The last entry that was read.
    last: i64,
}

impl AuditLog {
    /// Opens the database of `dir` for reading only; it is neither made nor migrated nor locked.
    ///
    /// # Errors
    /// When there is none, or not one that this version can read.
    pub fn open(dir: &Path, filter: AuditFilter) -> Result<Self, OpenError> {
        Ok(Self { connection: schema::open_beside(dir)?, filter, last: 0 })
    }

    /// The next entries, oldest first; empty at the end.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn next_page(&mut self) -> Result<Vec<AuditEntry>, StoreError> {
        let page = page(&self.connection, &self.filter, self.last).map_err(StoreError::from)?;
        if let Some((last, _)) = page.last() {
            self.last = *last;
        }
        Ok(page.into_iter().map(|(_, entry)| entry).collect())
    }
}

fn page(connection: &Connection, filter: &AuditFilter, after: i64) -> Result<Vec<(i64, AuditEntry)>, Fault> {
    let session = filter.session.map(|id| id.as_uuid().into_bytes());
    let since_ms = filter.since.map(Timestamp::as_millis);
    let mut values: Vec<&dyn ToSql> = vec![&after];
    let mut conditions = vec!["k > ?1".to_owned()];
    // Only what is asked for stands in the text, so that the index that fits is taken.
    let mut only = |condition: &str, value| {
        values.push(value);
        conditions.push(format!("{condition} ?{}", values.len()));
    };
    if let Some(session) = &session {
        only("session =", session as &dyn ToSql);
    }
    if let Some(since_ms) = &since_ms {
        only("at_ms >=", since_ms);
    }
    if let Some(who) = &filter.who {
        only("who =", who);
    }
    let sql = format!(
        "SELECT k, at_ms, who, what, session, request, details FROM audit
         WHERE {} ORDER BY k LIMIT {PAGE_ROWS}",
        conditions.join(" AND ")
    );
    let mut select = connection.prepare_cached(&sql)?;
    let mut rows = select.query(&*values)?;
    let mut page = Vec::new();
    while let Some(row) = rows.next()? {
        page.push((row.get(0)?, entry(row)?));
    }
    Ok(page)
}

fn entry(row: &Row<'_>) -> Result<AuditEntry, Fault> {
    let at_ms: i64 = row.get(1)?;
    let session: Option<[u8; 16]> = row.get(4)?;
    let details: String = row.get(6)?;
    let at = Timestamp::from_millis(at_ms).ok_or(rusqlite::Error::IntegralValueOutOfRange(1, at_ms));
    Ok(AuditEntry {
        at: at?,
        who: row.get(2)?,
        what: row.get(3)?,
        session: session.map(|bytes| SessionId::from(Uuid::from_bytes(bytes))),
        request: row.get(5)?,
        details: serde_json::from_str(&details)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(6, Type::Text, error.into()))?,
    })
}
