//! Who reads the events of which sessions, and so could answer what their agents ask.
//!
//! A session may be told not to wait for an answer when nobody would see the question. Who shows a session's events to
//! somebody who may answer says so here for as long as it does. One that leaves counts a moment longer
//! ([`LINGER`]): a browser that connects again, or asks for the next page, was never really gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::id::SessionId;
use super::log::Owner;

/// How long a reader that has left still counts.
pub const LINGER: Duration = Duration::from_secs(5);

/// Which sessions' events somebody reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Readership {
    /// One session's.
    Session(SessionId),
    /// Those of all sessions of an owner.
    SessionsOf(Owner),
}

/// Whether somebody would see a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Somebody reads.
    Here,
    /// The last reader has left, and counts until then.
    Until(Instant),
    /// Nobody reads.
    Nobody,
}

#[derive(Debug)]
struct Readers {
    count: usize,
    /// When the last one left; of no meaning while there is one.
    left: Instant,
}

/// Everybody who reads. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Audience {
    /// What nobody reads is not in it, once the last reader no longer counts. A standard mutex: held for one change or
    /// three look-ups, never across an await.
    readers: Arc<Mutex<HashMap<Readership, Readers>>>,
}

impl Audience {
    /// Counts a reader until what is given back is dropped.
    #[must_use]
    pub fn join(&self, of: Readership) -> Reader {
        let mut readers = self.lock();
        readers.entry(of.clone()).or_insert_with(|| Readers { count: 0, left: Instant::now() }).count += 1;
        drop(readers);
        Reader { audience: self.clone(), of }
    }

    /// Whether somebody reads the events of a session of `owner`.
    pub(super) fn attention(&self, session: SessionId, owner: &str) -> Attention {
        let readers = self.lock();
        let all = [
            Readership::Session(session),
            Readership::SessionsOf(Owner::Caller(owner.to_owned())),
            Readership::SessionsOf(Owner::Anyone),
        ];
        let mut until = None;
        for found in all.iter().filter_map(|of| readers.get(of)) {
            if found.count > 0 {
                return Attention::Here;
            }
            until = until.max(Some(found.left + LINGER));
        }
        match until {
            Some(until) if until > Instant::now() => Attention::Until(until),
            _ => Attention::Nobody,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Readership, Readers>> {
        // Nothing that could panic happens while it is held.
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who reads, until it is dropped.
#[derive(Debug)]
pub struct Reader {
    audience: Audience,
    of: Readership,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut readers = self.audience.lock();
        if let Some(found) = readers.get_mut(&self.of) {
            found.count -= 1;
            found.left = now;
        }
        readers.retain(|_, found| found.count > 0 || found.left + LINGER > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_reads_a_session_is_whoever_reads_it_all_of_its_owners_or_everybodys() {
        let audience = Audience::default();
        let (session, other) = (SessionId::new(), SessionId::new());
        let attention = |session| audience.attention(session, "alice");
        for of in [
            Readership::Session(session),
            Readership::SessionsOf(Owner::Caller("alice".into())),
            Readership::SessionsOf(Owner::Anyone),
        ] {
            let is_other = of != Readership::Session(session);
            let reader = audience.join(of);
            assert_eq!(attention(session), Attention::Here);
            assert_eq!(attention(other) == Attention::Here, is_other);
            drop(reader);
            assert_eq!(attention(session), Attention::Until(Instant::now() + LINGER));
            tokio::time::advance(LINGER).await;
            assert_eq!(attention(session), Attention::Nobody);
        }
        let _bob = audience.join(Readership::SessionsOf(Owner::Caller("bob".into())));
        assert_eq!(attention(session), Attention::Nobody);
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_two_leaves_nobody_alone_and_those_long_gone_are_forgotten() {
        let audience = Audience::default();
        let session = SessionId::new();
        let (first, second) =
            (audience.join(Readership::Session(session)), audience.join(Readership::Session(session)));
        drop(first);
        assert_eq!(audience.attention(session, "alice"), Attention::Here);
        drop(second);
        tokio::time::advance(LINGER).await;
        drop(audience.join(Readership::Session(SessionId::new())));
        assert_eq!(audience.lock().len(), 1);
    }
}
