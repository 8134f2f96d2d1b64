//! How many streams each caller has open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::session::audience::Reader;

/// Counts the streams that each caller has open.
#[derive(Clone, Debug, Default)]
pub struct OpenStreams {
    /// By the caller's name; nobody is in it with zero. A standard mutex: held for one change, never across an await.
    counts: Arc<Mutex<HashMap<String, usize>>>,
}

impl OpenStreams {
    /// Counts one more, unless the caller has `limit` already. It is counted until the answer is dropped.
    pub(in crate::http) fn open(&self, caller: &str, limit: usize) -> Option<OpenStream> {
        let mut counts = self.lock();
        let count = counts.get(caller).copied().unwrap_or(0);
        if count >= limit {
            return None;
        }
        counts.insert(caller.to_owned(), count + 1);
        Some(OpenStream { streams: self.clone(), caller: caller.to_owned(), readers: Vec::new() })
    }

    /// How many are open, of all callers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().values().sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        // Nothing that could panic happens while it is held.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open stream of a caller.
#[derive(Debug)]
pub(in crate::http) struct OpenStream {
    streams: OpenStreams,
    caller: String,
    /// As what the caller counts among those who would see a question, for as long as the stream is open.
    readers: Vec<Reader>,
}

impl OpenStream {
    /// The same stream, of somebody who would see what agents ask.
    pub(in crate::http) fn read_as(mut self, readers: Vec<Reader>) -> Self {
        self.readers = readers;
        self
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut counts = self.streams.lock();
        if let Some(count) = counts.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_counted_for_each_caller_until_they_are_dropped() {
        let streams = OpenStreams::default();
        let first = streams.open("alice", 2).unwrap();
        let _second = streams.open("alice", 2).unwrap();
        assert!(streams.open("alice", 2).is_none());
        assert!(streams.open("bob", 2).is_some(), "others are not counted together");
        drop(first);
        assert!(streams.open("alice", 2).is_some());
        assert!(!streams.lock().contains_key("bob"), "who has none is not kept");
    }
}
