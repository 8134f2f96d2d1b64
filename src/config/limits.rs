//! `[limits]`: bounds on everything that callers and agents send.

use std::time::Duration;

use serde::Deserialize;

use super::error::{Problem, Violation};
use super::parse;
use super::server::check_positive;

/// More of anything is a mistyped number; channels and semaphores also have an upper limit of their own.
const MOST: usize = 1_000_000;
/// Every snapshot lists the queued turns.
const MOST_QUEUED: usize = 1000;
/// Sizes beyond 4 GiB are mistyped too.
const LARGEST: usize = u32::MAX as usize;

/// What a message has around a file's content, in bytes: less than this.
const AROUND_A_FILE: usize = 64 * 1024;

/// `[limits]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSettings {
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Content blocks of one prompt.
    pub prompt_blocks: usize,
    /// Bytes of one image in a prompt.
    pub image_bytes: usize,
    /// Bytes of the files that one prompt links, all together.
    pub linked_file_bytes: usize,
    /// Bytes of one line from goose; a longer one fails that session's goose.
    pub line_bytes: usize,
    /// Bytes of live output kept per tool call.
    pub output_bytes: usize,
    /// The longest that `Prefer: wait` and `wait_s` can ask for.
    #[serde(deserialize_with = "parse::duration")]
    pub wait: Duration,
    /// Event streams that one caller may have open.
    pub streams_per_caller: usize,
    /// Stream tickets that one token may have.
    pub stream_tickets_per_caller: usize,
    /// Unanswered permission requests per session.
    pub pending_permissions: usize,
    /// Answers for the rest of the session that one session remembers.
    pub permission_grants: usize,
    /// Notices that goose may give in one turn.
    pub turn_notices: usize,
    /// Turns that may wait in one session; zero: none.
    pub queued_turns: usize,
    /// Bytes of goose's standard error kept per session, the newest.
    pub stderr_bytes: usize,
    /// Messages of goose that may wait for their session.
    pub event_queue: usize,
    /// Bytes of an answer that is stored for an idempotency key.
    pub idempotency_body_bytes: usize,
    /// Bytes of a file that goose reads or writes through gander.
    pub file_bytes: usize,
    /// Bytes of each of the two texts of a diff.
    pub diff_bytes: usize,
    /// Commands that goose may run through gander at a time, per session.
    pub terminals: usize,
    /// Bytes of a command's output that are kept at most, the last ones.
    pub terminal_output_bytes: usize,
    /// How long such a command may run, with what it started; zero: for ever.
    #[serde(deserialize_with = "parse::duration")]
    pub terminal_duration: Duration,
}

impl LimitSettings {
    pub(super) fn validate(&self) -> Result<(), Violation> {
        check_bytes("limits.body_bytes", self.body_bytes)?;
        check_count("limits.prompt_blocks", self.prompt_blocks)?;
        check_bytes("limits.image_bytes", self.image_bytes)?;
        check_bytes("limits.linked_file_bytes", self.linked_file_bytes)?;
        check_bytes("limits.line_bytes", self.line_bytes)?;
        check_bytes("limits.output_bytes", self.output_bytes)?;
        check_positive("limits.wait", self.wait)?;
        check_count("limits.streams_per_caller", self.streams_per_caller)?;
        check_count("limits.stream_tickets_per_caller", self.stream_tickets_per_caller)?;
        check_count("limits.pending_permissions", self.pending_permissions)?;
        check_at_most("limits.permission_grants", self.permission_grants, MOST)?;
        check_count("limits.turn_notices", self.turn_notices)?;
        check_at_most("limits.queued_turns", self.queued_turns, MOST_QUEUED)?;
        check_bytes("limits.stderr_bytes", self.stderr_bytes)?;
        check_count("limits.event_queue", self.event_queue)?;
        check_bytes("limits.idempotency_body_bytes", self.idempotency_body_bytes)?;
        check_bytes("limits.file_bytes", self.file_bytes)?;
        // A text that is all quotes and line ends takes twice its size.
        let most = self.line_bytes.saturating_sub(AROUND_A_FILE) / 2;
        if self.file_bytes > most {
            let problem = Problem::MoreThanALineHolds { found: self.file_bytes, most };
            return Err(Violation::new("limits.file_bytes", problem));
        }
        check_bytes("limits.diff_bytes", self.diff_bytes)?;
        check_count("limits.terminals", self.terminals)?;
        check_bytes("limits.terminal_output_bytes", self.terminal_output_bytes)
    }
}

/// Fails when a count is zero or absurd.
pub(super) fn check_count(key: &str, found: usize) -> Result<(), Violation> {
    check_range(key, found, 1, MOST)
}

/// Fails when there is more than there may be; zero is fine.
pub(super) fn check_at_most(key: &str, found: usize, max: usize) -> Result<(), Violation> {
    check_range(key, found, 0, max)
}

/// Fails when a size in bytes is zero or absurd.
pub(super) fn check_bytes(key: &str, found: usize) -> Result<(), Violation> {
    check_range(key, found, 1, LARGEST)
}

fn check_range(key: &str, found: usize, min: usize, max: usize) -> Result<(), Violation> {
    if (min..=max).contains(&found) {
        return Ok(());
    }
    Err(Violation::new(key, Problem::OutOfRange { found, min, max }))
}
