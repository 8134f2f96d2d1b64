//! Reads of events that several subscribers share.
//!
//! Subscribers that fall behind do so together: they have read the same runs, stand at the same cursors, and ask for
//! the same events one after the other. What one of them has read is kept for the others, and while it is being read
//! they wait for it. Measured with 1,000 subscribers: without it each reads the whole flood from the database.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

use crate::session::id::{EventId, SessionNumber};
use crate::session::log::StoreError;
use crate::session::run::Run;

/// Runs that are kept, of all sessions together.
const KEPT_RUNS: usize = 8;
/// A larger run is not kept, so that what is kept has a bound. In bytes; a usual run has a quarter of it.
const LARGEST_KEPT: usize = 1024 * 1024;

/// What is read: the events of a session behind an id, about so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) session: SessionNumber,
    pub(super) after: EventId,
    pub(super) max_bytes: usize,
}

/// Empty while it is being read.
type Reading = Arc<OnceCell<Arc<Run>>>;

/// The last reads, oldest first. Few enough to be searched one by one.
#[derive(Debug, Default)]
pub(super) struct SharedReads {
    /// A standard mutex: it is held for a search, never across an await.
    recent: Mutex<VecDeque<(Wanted, Reading)>>,
}

impl SharedReads {
    /// The events, from memory, else by `read`, which runs once for all who ask meanwhile. `None`: there are none.
    pub(super) async fn events<F>(&self, wanted: Wanted, read: F) -> Result<Option<Arc<Run>>, StoreError>
    where
        F: AsyncFnOnce() -> Result<Option<Run>, StoreError>,
    {
        let reading = self.reading(wanted);
        let outcome = reading.get_or_try_init(async || match read().await {
            Ok(Some(run)) => Ok(Arc::new(run)),
            Ok(None) => Err(None),
            Err(error) => Err(Some(error)),
        });
        match outcome.await {
            Ok(run) => {
                if run.weight() > LARGEST_KEPT {
                    self.lock().retain(|(kept, _)| *kept != wanted);
                }
                Ok(Some(Arc::clone(run)))
            }
            Err(None) => Ok(None),
            Err(Some(error)) => Err(error),
        }
    }

    /// Drops what is kept of a session that is gone.
    pub(super) fn forget(&self, session: SessionNumber) {
        self.lock().retain(|(kept, _)| kept.session != session);
    }

    fn reading(&self, wanted: Wanted) -> Reading {
        let mut recent = self.lock();
        if let Some((_, reading)) = recent.iter().find(|(kept, _)| *kept == wanted) {
            return Arc::clone(reading);
        }
        if recent.len() == KEPT_RUNS {
            recent.pop_front();
        }
        let reading = Reading::default();
        recent.push_back((wanted, Arc::clone(&reading)));
        reading
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Wanted, Reading)>> {
        // Nothing can be half done within a search.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::session::event::EventKind;
    use crate::session::run::RunBuilder;

    fn wanted(after: u64) -> Wanted {
        Wanted { session: SessionNumber(1), after: EventId(after), max_bytes: 1000 }
    }

    fn run(first: u64, bytes: usize) -> Run {
        let mut run = RunBuilder::new(EventId(first));
        run.push_json(EventKind::Notice, None, &vec![b'x'; bytes]);
        run.finish().unwrap().unwrap()
    }

    /// Asks, and counts the reads.
    async fn ask(shared: &SharedReads, reads: &AtomicUsize, after: u64, bytes: usize) -> Arc<Run> {
        let read = async || {
            reads.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok(Some(run(after + 1, bytes)))
        };
        shared.events(wanted(after), read).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn who_asks_for_the_same_meanwhile_or_later_gets_the_same() {
        let (shared, reads) = (SharedReads::default(), AtomicUsize::new(0));
        let (one, two) = tokio::join!(ask(&shared, &reads, 5, 10), ask(&shared, &reads, 5, 10));
        let three = ask(&shared, &reads, 5, 10).await;
        assert!(Arc::ptr_eq(&one, &two) && Arc::ptr_eq(&one, &three));
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        assert_eq!(ask(&shared, &reads, 6, 10).await.first(), EventId(7));
        assert_eq!(reads.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn only_so_much_is_kept_and_nothing_of_a_session_that_is_gone() {
        let (shared, reads) = (SharedReads::default(), AtomicUsize::new(0));
        for after in 0..=KEPT_RUNS as u64 {
            ask(&shared, &reads, after, 10).await;
        }
        assert_eq!(shared.lock().len(), KEPT_RUNS);
        ask(&shared, &reads, 1_000, LARGEST_KEPT).await;
        assert!(shared.lock().iter().all(|(kept, _)| *kept != wanted(1_000)));
        shared.forget(SessionNumber(1));
        assert!(shared.lock().is_empty());
    }

    #[tokio::test]
    async fn nothing_and_a_failure_are_asked_for_again() {
        let (shared, reads) = (SharedReads::default(), AtomicUsize::new(0));
        let nothing = shared.events(wanted(5), async || Ok(None)).await;
        assert_eq!(nothing.unwrap(), None);
        let failed = shared.events(wanted(5), async || Err(StoreError::Closed)).await;
        assert!(failed.is_err());
        ask(&shared, &reads, 5, 10).await;
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }
}
