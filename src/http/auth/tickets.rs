//! Stream tickets: what a browser's `EventSource` shows in place of a token.
//!
//! An `EventSource` sends no headers and connects again, by itself, with the address it was made with; one that is
//! refused then never tries again. So a ticket is part of an address, can be used again and again, and stays valid for
//! as long as it is used, also when gander is started anew in between. In return it is good for reading one caller's
//! events and for nothing else, and ends with the token it was made with.
//!
//! gander keeps only the SHA-256 of a ticket, as of a token.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use super::TokenHash;
use super::secret;
use crate::shutdown::Tasks;

mod kept;

/// How long a ticket is good for when nothing uses it.
pub const VALID_UNUSED: Duration = Duration::from_mins(10);

/// How often the tickets in use are written down. After a crash a ticket may seem to have been used last so much
/// earlier than it was.
const WRITE_EVERY: Duration = Duration::from_secs(30);

/// Tells people, and secret scanners, what it is.
const PREFIX: &str = "gander_ticket_";

/// All tickets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tickets(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// A standard mutex: held for a look-up or a change, never across an await.
    book: Mutex<Book>,
    /// Where they are kept; `None`: nowhere.
    path: Option<PathBuf>,
}

/// The SHA-256 of a ticket.
type TicketHash = [u8; 32];

#[derive(Debug, Default)]
struct Book {
    tickets: HashMap<TicketHash, Ticket>,
    /// Whether there is something that has not been written down.
    changed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ticket {
    /// The token it was made with; `None` where no token is needed.
    token: Option<TokenHash>,
    /// Requests that show it now.
    uses: usize,
    /// When it was made or the last of them ended.
    last_used: SystemTime,
}

impl Ticket {
    fn is_valid(&self, now: SystemTime) -> bool {
        // A clock that was set back makes nothing invalid.
        self.uses > 0
            || now.duration_since(self.last_used).is_ok_and(|unused| unused < VALID_UNUSED)
            || now < self.last_used
    }
}

impl Book {
    fn remove_invalid(&mut self, now: SystemTime) {
        let before = self.tickets.len();
        self.tickets.retain(|_, ticket| ticket.is_valid(now));
        self.changed |= self.tickets.len() != before;
    }

    fn make(&mut self, hash: TicketHash, token: Option<TokenHash>, limit: usize, now: SystemTime) -> bool {
        self.remove_invalid(now);
        if self.tickets.values().filter(|ticket| ticket.token == token).count() >= limit {
            return false;
        }
        self.tickets.insert(hash, Ticket { token, uses: 0, last_used: now });
        self.changed = true;
        true
    }

    fn begin_use(&mut self, hash: &TicketHash, now: SystemTime) -> Option<&Ticket> {
        let ticket = self.tickets.get_mut(hash).filter(|ticket| ticket.is_valid(now))?;
        ticket.uses += 1;
        Some(ticket)
    }

    fn end_use(&mut self, hash: &TicketHash, now: SystemTime) {
        if let Some(ticket) = self.tickets.get_mut(hash) {
            ticket.uses -= 1;
            ticket.last_used = now;
            self.changed = true;
        }
    }
}

/// A ticket that was just made: the only time it is there in clear.
pub struct NewTicket(String);

impl NewTicket {
    /// The ticket itself.
    #[must_use]
    pub fn into_secret(self) -> String {
        self.0
    }
}

impl Tickets {
    /// Tickets that end with this process.
    #[must_use]
    pub fn unkept() -> Self {
        Self(Arc::new(Shared { book: Mutex::default(), path: None }))
    }

    /// The tickets kept in `path`, and those to come. A file that cannot be read costs the tickets in it and is told:
    /// pages then have to be loaded anew.
    #[must_use]
    pub fn kept_in(path: PathBuf) -> Self {
        let tickets = kept::read(&path).unwrap_or_else(|error| {
            tracing::warn!(%error, "the stream tickets of the last run cannot be read: open pages have to be loaded anew");
            HashMap::new()
        });
        let mut book = Book { tickets, changed: false };
        book.remove_invalid(SystemTime::now());
        Self(Arc::new(Shared { book: Mutex::new(book), path: Some(path) }))
    }

    /// Makes a ticket for the holder of a token; `None` when it has `limit` valid ones. The ticket is written down
    /// before it is given out.
    pub(super) async fn make(
        &self,
        token: Option<TokenHash>,
        limit: usize,
        tasks: &Tasks,
    ) -> io::Result<Option<NewTicket>> {
        let secret = secret::random(PREFIX)?;
        if !self.lock().make(hash(&secret), token, limit, SystemTime::now()) {
            return Ok(None);
        }
        let tickets = self.clone();
        tasks.spawn_blocking(move || tickets.write()).await.map_err(io::Error::other)??;
        Ok(Some(NewTicket(secret)))
    }

    /// Begins to use a ticket; `None` when it is not valid.
    pub(super) fn begin_use(&self, secret: &str) -> Option<TicketInUse> {
        let hash = hash(secret);
        let token = self.lock().begin_use(&hash, SystemTime::now())?.token;
        Some(TicketInUse { tickets: self.clone(), hash, token })
    }

    /// Writes down now and then what has changed, and at the end, until the gateway stops.
    pub fn keep(&self, tasks: &Tasks) {
        if self.0.path.is_none() {
            return;
        }
        let (tickets, stop, tracker) = (self.clone(), tasks.hard().clone(), tasks.clone());
        tasks.spawn(async move {
            loop {
                let goes_on = stop.run_until_cancelled(tokio::time::sleep(WRITE_EVERY)).await.is_some();
                let now = SystemTime::now();
                tickets.lock().touch(now);
                let writer = tickets.clone();
                let written = tracker.spawn_blocking(move || writer.write()).await;
                if let Err(error) = written.map_err(io::Error::other).flatten() {
                    tracing::warn!(%error, "the stream tickets in use cannot be written down");
                }
                if !goes_on {
                    break;
                }
            }
        });
    }

    /// Writes the tickets down if they have changed.
    fn write(&self) -> io::Result<()> {
        let Some(path) = &self.0.path else { return Ok(()) };
        // Two writers at once each write a whole file of what they see; the later rename may be of the older view,
        // which the next round puts right.
        let (tickets, changed) = {
            let mut book = self.lock();
            book.remove_invalid(SystemTime::now());
            (book.tickets.clone(), std::mem::take(&mut book.changed))
        };
        if !changed {
            return Ok(());
        }
        kept::write(path, &tickets).inspect_err(|_| self.lock().changed = true)
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        // The book is whole after any panic: each change is one insertion, removal or assignment.
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// What is in use now was used last now.
    fn touch(&mut self, now: SystemTime) {
        for ticket in self.tickets.values_mut().filter(|ticket| ticket.uses > 0) {
            ticket.last_used = now;
            self.changed = true;
        }
    }
}

/// A ticket that a request shows. It does not grow old before this is dropped.
#[derive(Debug)]
pub(super) struct TicketInUse {
    tickets: Tickets,
    hash: TicketHash,
    /// The token it was made with.
    pub(super) token: Option<TokenHash>,
}

impl Drop for TicketInUse {
    fn drop(&mut self) {
        self.tickets.lock().end_use(&self.hash, SystemTime::now());
    }
}

fn hash(secret: &str) -> TicketHash {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests;
