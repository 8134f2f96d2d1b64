//! What carries messages to an agent and back: one JSON-RPC message at a time, whatever it is.

use std::future::Future;
use std::io;

use super::rpc::Line;

/// What an agent says.
pub(super) trait Incoming: Send + 'static {
    /// Waits until there is more, and reads it. How many bytes; 0 when nothing comes any more. Nothing is lost when the
    /// future is dropped.
    fn read(&mut self) -> impl Future<Output = usize> + Send;

    /// Gives every message that the last read finished to `each`.
    fn take(&mut self, each: impl FnMut(Line<'_>));

    /// The beginning and the length so far of a message that is longer than it may be, and not at its end.
    fn unfinished_too_long(&self) -> Option<(&[u8], u64)>;

    /// Nothing comes any more: gives what was not finished to `each`.
    fn finish(&mut self, each: impl FnMut(Line<'_>));
}

/// What an agent hears.
pub(super) trait Outgoing: Send + 'static {
    /// The longest message that it takes, in bytes without a line end.
    fn longest(&self) -> usize;

    /// Sends a message, which ends with a line end. Done when nothing of it is held back here.
    fn send(&mut self, message: Vec<u8>) -> impl Future<Output = io::Result<()>> + Send;

    /// What the way needs to stay open while nothing is sent. Ends only when the agent takes nothing any more; may be
    /// dropped whenever there is something to send.
    fn keep_alive(&mut self) -> impl Future<Output = io::Error> + Send;

    /// Tells the agent that nothing more comes.
    fn close(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}
