//! An agent's pipes: a message is a line of its standard input and output. Of its standard error the end is kept, without
//! secrets.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::rpc::{Line, LineSplitter};
use super::transport::{Incoming, Outgoing};
use crate::shutdown::Tasks;

/// How much one read of an agent's standard output takes at most, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// An agent's standard output.
pub(super) struct Lines<R> {
    stdout: R,
    /// What the last read brought.
    buffer: Vec<u8>,
    splitter: LineSplitter,
}

impl<R> Lines<R> {
    /// `limit`: the longest line, in bytes.
    pub(super) fn new(stdout: R, limit: usize) -> Self {
        Self { stdout, buffer: Vec::with_capacity(READ_BYTES), splitter: LineSplitter::new(limit) }
    }
}

impl<R: AsyncRead + Send + Unpin + 'static> Incoming for Lines<R> {
    async fn read(&mut self) -> usize {
        self.stdout.read_buf(&mut self.buffer).await.unwrap_or_default()
    }

    fn take(&mut self, each: impl FnMut(Line<'_>)) {
        self.splitter.push(&self.buffer, each);
        self.buffer.clear();
    }

    fn unfinished_too_long(&self) -> Option<(&[u8], u64)> {
        self.splitter.unfinished_too_long()
    }

    fn finish(&mut self, each: impl FnMut(Line<'_>)) {
        self.splitter.finish(each);
    }
}

/// An agent's standard input.
pub(super) struct StandardInput<W>(pub(super) W);

impl<W: AsyncWrite + Send + Unpin + 'static> Outgoing for StandardInput<W> {
    fn longest(&self) -> usize {
        usize::MAX
    }

    async fn send(&mut self, message: Vec<u8>) -> io::Result<()> {
        self.0.write_all(&message).await?;
        self.0.flush().await
    }

    async fn keep_alive(&mut self) -> io::Error {
        std::future::pending().await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}

/// How long after the agent's exit its standard error is still read. What it wrote is in the pipe already; only who
/// else holds the pipe open makes this wait.
const DRAIN: Duration = Duration::from_millis(25);
/// How much of it is read at once, in bytes.
const STDERR_READ_BYTES: usize = 8 * 1024;
/// Shorter secrets would be found in ordinary words.
const SHORTEST_SECRET_BYTES: usize = 4;

/// Takes secrets and the host's paths out of text that callers may see.
#[derive(Clone, Default)]
pub struct Redactor {
    /// What to look for and what to put there, longest first, so that a part never hides the whole.
    replacements: Arc<[(String, &'static str)]>,
}

impl Redactor {
    /// `secrets` become `[redacted]` (those under four bytes are left alone), `homes`, folders of the host,
    /// become `[home]`.
    #[must_use]
    pub fn new(secrets: impl IntoIterator<Item = String>, homes: impl IntoIterator<Item = String>) -> Self {
        let secrets = secrets
            .into_iter()
            .filter(|secret| secret.len() >= SHORTEST_SECRET_BYTES)
            .map(|secret| (secret, "[redacted]"));
        let homes = homes
            .into_iter()
            .map(|home| home.trim_end_matches('/').to_owned())
            .filter(|home| !home.is_empty())
            .map(|home| (home, "[home]"));
        Self::of(secrets.chain(homes).collect())
    }

    /// One that looks for more secrets.
    #[must_use]
    pub fn with_secrets(&self, secrets: impl IntoIterator<Item = String>) -> Self {
        let more = Self::new(secrets, []);
        Self::of(self.replacements.iter().chain(more.replacements.iter()).cloned().collect())
    }

    fn of(mut replacements: Vec<(String, &'static str)>) -> Self {
        replacements.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        Self { replacements: replacements.into() }
    }

    /// `text` without what is to be kept from callers.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let mut redacted = text.to_owned();
        for (text, replacement) in self.replacements.iter() {
            if redacted.contains(text) {
                redacted = redacted.replace(text, replacement);
            }
        }
        redacted
    }

    /// The longest text to look for, in bytes.
    fn longest(&self) -> usize {
        self.replacements.first().map_or(0, |(text, _)| text.len())
    }
}

/// What is redacted is not printed either.
impl std::fmt::Debug for Redactor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Redactor").field("replacements", &self.replacements.len()).finish()
    }
}

/// Reads an agent's standard error to its end, so that the agent never waits for a full pipe, and keeps the tail.
#[derive(Clone, Debug)]
pub struct StderrTail {
    limit: usize,
    redactor: Redactor,
    /// The last bytes, shared with the reading task. Locked for a copy only.
    kept: Arc<Mutex<VecDeque<u8>>>,
    ended: CancellationToken,
}

impl StderrTail {
    /// Starts to read. `limit`: how many bytes of text are kept.
    pub fn read(
        stderr: impl AsyncRead + Send + Unpin + 'static,
        limit: usize,
        redactor: Redactor,
        tasks: &Tasks,
    ) -> Self {
        let tail = Self { limit, redactor, kept: Arc::default(), ended: CancellationToken::new() };
        tasks.spawn(tail.clone().keep_reading(stderr));
        tail
    }

    async fn keep_reading(self, mut stderr: impl AsyncRead + Unpin) {
        let _ended = self.ended.clone().drop_guard();
        // A secret that the limit cuts in two could not be recognised, hence the room for one more.
        let room = self.limit + self.redactor.longest();
        let mut read = vec![0; STDERR_READ_BYTES];
        while let Ok(count @ 1..) = stderr.read(&mut read).await {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(&read[..count]);
            let surplus = kept.len().saturating_sub(room);
            kept.drain(..surplus);
        }
    }

    /// The end of what has been written so far: whole characters, no secrets.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes: Vec<u8> =
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let text = self.redactor.redact(&String::from_utf8_lossy(&bytes));
        // When something was dropped, the text may begin inside a secret, which nothing then recognises.
        let longest = self.redactor.longest();
        let maybe_secret = if bytes.len() >= self.limit + longest { longest } else { 0 };
        let start = text.len().saturating_sub(self.limit).max(maybe_secret).min(text.len());
        text[text.ceil_char_boundary(start)..].to_owned()
    }

    /// As [`StderrTail::text`], after the agent's exit: waits, for a short while only, until all was read.
    pub async fn text_at_exit(&self) -> String {
        let _ = tokio::time::timeout(DRAIN, self.ended.cancelled()).await;
        self.text()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    async fn tail_of(written: &[u8], limit: usize, redactor: Redactor) -> String {
        let (mut agent, gander) = tokio::io::duplex(16);
        let tail = StderrTail::read(gander, limit, redactor, &Tasks::new());
        agent.write_all(written).await.unwrap();
        drop(agent);
        tail.ended.cancelled().await;
        tail.text_at_exit().await
    }

    #[tokio::test]
    async fn the_tail_is_cut_between_characters() {
        assert_eq!(tail_of("aäöü".as_bytes(), 5, Redactor::default()).await, "öü");
        assert_eq!(tail_of("aäöü".as_bytes(), 100, Redactor::default()).await, "aäöü");
        assert_eq!(tail_of(b"a\xffb", 100, Redactor::default()).await, "a\u{fffd}b");
    }

    #[tokio::test]
    async fn a_secret_at_the_cut_is_not_half_shown() {
        let redactor = Redactor::new(["sk-123456789".to_owned()], []);
        let tail = tail_of(b"key sk-123456789 refused", 14, redactor).await;
        assert_eq!(tail, "acted] refused");
    }

    #[tokio::test]
    async fn a_secret_cut_off_before_other_secrets_is_not_half_shown() {
        let redactor = Redactor::new(["sk-1234567890123456789".to_owned()], []);
        let tail = tail_of(b"sk-1234567890123456789 sk-1234567890123456789 refused", 30, redactor).await;
        assert!(!tail.contains("789"), "{tail}");
        assert!(tail.ends_with("] refused"), "{tail}");
    }

    #[test]
    fn secrets_and_homes_are_replaced() {
        let redactor = Redactor::new(
            ["secret".to_owned(), "secret-longer".to_owned(), "abc".to_owned(), String::new()],
            ["/var/lib/gander/".to_owned(), "/".to_owned()],
        );
        assert_eq!(
            redactor.redact("secret-longer, secret, abc in /var/lib/gander/x and /tmp"),
            "[redacted], [redacted], abc in [home]/x and /tmp"
        );
        assert!(!format!("{redactor:?}").contains("secret"));
    }

    #[tokio::test]
    async fn a_held_pipe_does_not_hold_up_the_exit() {
        let (mut agent, gander) = tokio::io::duplex(64);
        let tail = StderrTail::read(gander, 100, Redactor::default(), &Tasks::new());
        agent.write_all(b"panicked").await.unwrap();
        assert_eq!(tail.text_at_exit().await, "panicked");
        drop(agent);
    }
}
