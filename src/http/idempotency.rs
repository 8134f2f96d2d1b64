//! `Idempotency-Key`: the same request again gets the answer of the first.

use axum::body::Bytes;

use crate::session::agent::BoxFuture;
use crate::session::log::StoreError;

/// What identifies a request: the SHA-256 of caller, method, path and the caller's key.
pub type AnswerKey = [u8; 32];

/// The SHA-256 of a request's body.
pub type BodyHash = [u8; 32];

/// An answer, kept for the same request again. Only answers that made something (2xx) are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The headers worth repeating, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body. Empty for an event stream: it is told anew from the turn that `location` names.
    pub body: Bytes,
}

/// Whether a request came before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// No. From now on it counts as in progress.
    Fresh,
    /// Yes, and this was its answer.
    Stored(StoredAnswer),
    /// Yes, with another body.
    Mismatch,
    /// Yes, and it has neither been finished nor forgotten.
    InProgress,
}

/// Where answers are kept, for 24 hours and over restarts.
pub trait RememberedAnswers: Send + Sync + 'static {
    /// Looks a request up, and marks it as in progress when it is new.
    fn begin(&self, key: AnswerKey, body: BodyHash) -> BoxFuture<Result<Begin, StoreError>>;

    /// Keeps the answer of a request that [`begin`](Self::begin) called fresh.
    fn finish(&self, key: AnswerKey, answer: StoredAnswer) -> BoxFuture<Result<(), StoreError>>;

    /// Forgets a request that made nothing, so that it counts as new again.
    fn forget(&self, key: AnswerKey) -> BoxFuture<Result<(), StoreError>>;
}
