//! The one writer: takes what has gathered, commits it in one transaction, and only then makes it visible.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use rusqlite::Connection;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};

use super::OnCommit;
use super::call::Call;
use super::checkpoint::Wal;
use super::commit::{Written, next_position, write};
use super::ordered;
use super::queue::{Backlog, Deletion, Lanes, Prepared, Room, Share, Step};
use super::reader;
use super::record::{Fault, LAST_ID, may_pass};
use super::removal::{Removals, STEP_ROWS};
use super::reserve::Reserve;
use super::trouble::{NoRoom, Trouble};
use crate::session::id::{EventId, SessionNumber};
use crate::session::log::StoreError;
use crate::session::order::{EventOrder, PlacedRun, Position};

/// Jobs taken from the channel before a commit, so that jobs which keep coming do not put it off.
const GATHER_JOBS: usize = 4096;
/// What a step of a removal writes, about.
const REMOVAL_BYTES: usize = 400 * STEP_ROWS as usize;
/// As the database is made.
const PAGE_BYTES: u64 = 4096;

/// What the writer is asked.
pub(super) enum Job {
    /// Events and records.
    Append(Prepared, Room),
    /// Everything of a session is to go, behind what is queued for it.
    Delete(SessionNumber, Deletion),
    /// Anything else.
    Call(Box<dyn Call>),
    /// Write what is queued, then end.
    Close,
}

/// What the writer knows of a session it has heard of.
#[derive(Clone, Copy, Debug)]
enum Progress {
    /// The last event that was queued.
    At(EventId),
    /// Its deletion is queued.
    Going,
}

/// The most bytes that the database may have, in pages of 4 KiB. `SQLite` refuses to grow it further.
fn limit_pages(connection: &Connection, max_bytes: u64) -> rusqlite::Result<()> {
    let pages = if max_bytes == 0 { u64::from(u32::MAX) - 1 } else { (max_bytes / PAGE_BYTES).max(1) };
    // Never below what it has: then it keeps its size.
    connection.query_row(&format!("PRAGMA max_page_count = {pages}"), (), |_| Ok(()))
}

/// Writes what is there already: a write that changes nothing, but a write.
pub(super) fn check_writable(connection: &Connection) -> Result<(), Fault> {
    let version: i64 = connection.query_row("PRAGMA user_version", (), |row| row.get(0))?;
    Ok(connection.pragma_update(None, "user_version", version)?)
}

/// What the writer works with.
pub(super) struct WriterParts {
    pub(super) connection: Connection,
    pub(super) jobs: mpsc::Receiver<Job>,
    pub(super) backlog: Arc<Backlog>,
    pub(super) wal: Arc<Wal>,
    pub(super) reserve: Reserve,
    /// The most bytes that the database may have; 0 for no limit.
    pub(super) max_bytes: u64,
    /// Told of every commit.
    pub(super) on_commit: OnCommit,
    /// Told what keeps it from writing.
    pub(super) told: watch::Sender<Option<StoreError>>,
    /// Bytes of the newest events of all sessions together that are kept in memory.
    pub(super) tail_bytes: usize,
}

/// A session and whose it is.
#[derive(Clone, Debug)]
struct Known {
    owner: Arc<str>,
    progress: Progress,
}

pub(super) struct Writer {
    pub(super) parts: WriterParts,
    pub(super) lanes: Lanes,
    calls: Vec<Box<dyn Call>>,
    /// An entry per session that has appended since the start and is not deleted.
    sessions: HashMap<SessionNumber, Known>,
    pub(super) removals: Removals,
    order: EventOrder,
    /// The position of the next event in the order of all.
    next_position: i64,
    /// Set while nothing can be written.
    pub(super) trouble: Option<Trouble>,
}

impl Writer {
    pub(super) fn new(parts: WriterParts) -> rusqlite::Result<Self> {
        limit_pages(&parts.connection, parts.max_bytes)?;
        parts.reserve.hold();
        let next_position = next_position(&parts.connection)?;
        let (tag, head) = ordered::state(&parts.connection, next_position)?;
        Ok(Self {
            removals: Removals::left(&parts.connection)?,
            order: EventOrder::new(tag, head, parts.tail_bytes),
            next_position,
            parts,
            lanes: Lanes::default(),
            calls: Vec::new(),
            sessions: HashMap::new(),
            trouble: None,
        })
    }

    /// The order that it adds to.
    pub(super) fn order(&self) -> EventOrder {
        self.order.clone()
    }

    /// The thread. Ends when it is told to, or when nobody can ask any more; gives the connection back.
    pub(super) fn run(mut self) -> Connection {
        while self.gather() {
            self.commit();
            self.remove();
            self.parts.wal.finish(&self.parts.connection);
        }
        // Removals go on at the next start.
        while self.trouble.is_none() && !(self.lanes.is_empty() && self.calls.is_empty()) {
            self.commit();
        }
        self.give_up();
        self.parts.connection
    }

    /// Takes what is in the channel; waits when there is nothing to do. False at the end.
    fn gather(&mut self) -> bool {
        if let Some(trouble) = &self.trouble {
            trouble.wait();
        } else if self.lanes.is_empty() && self.calls.is_empty() && self.removals.is_empty() {
            match self.parts.jobs.blocking_recv() {
                Some(job) => self.admit(job),
                None => return false,
            }
        }
        for _ in 0..GATHER_JOBS {
            match self.parts.jobs.try_recv() {
                Ok(job) => self.admit(job),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        true
    }

    fn admit(&mut self, job: Job) {
        match job {
            Job::Append(append, room) => self.admit_append(append, room),
            Job::Delete(session, deletion) => self.admit_delete(session, deletion),
            Job::Call(call) => self.calls.push(call),
            Job::Close => self.parts.jobs.close(),
        }
    }

    /// Queues an append, unless it cannot be written: then its session has failed.
    fn admit_append(&mut self, append: Prepared, room: Room) {
        let session = append.log.number();
        match self.progress(session) {
            Ok(Some(Progress::At(last))) if fits(&append, last) && !append.log.head().failed => {
                let last = append.run.as_ref().map_or(last, |run| run.last());
                self.went_on(session, Progress::At(last));
                self.lanes.push(session, Step::Append(append, room));
            }
            Ok(Some(Progress::At(last))) => {
                // After a failure this is only what was on its way.
                if !append.log.head().failed {
                    let first = append.run.as_ref().map(|run| run.first().0);
                    tracing::error!(session = %append.log.session(), %last, first, "events out of order");
                    append.log.failed();
                }
            }
            Ok(Some(Progress::Going) | None) => {
                tracing::debug!(session = %append.log.session(), "events of a deleted session are dropped");
                append.log.failed();
                self.parts.backlog.forget(session);
            }
            Err(error) => {
                tracing::error!(session = %append.log.session(), %error, "a session cannot be read");
                append.log.failed();
            }
        }
    }

    fn admit_delete(&mut self, session: SessionNumber, deletion: Deletion) {
        match self.progress(session) {
            Ok(Some(_)) => {
                self.went_on(session, Progress::Going);
                self.lanes.push(session, Step::Delete(deletion));
            }
            // It is gone; nobody waits when the caller has left.
            Ok(None) => drop(deletion.deleted.send(Ok(()))),
            Err(error) => drop(deletion.deleted.send(Err(Fault::from(error).into()))),
        }
    }

    fn progress(&mut self, session: SessionNumber) -> rusqlite::Result<Option<Progress>> {
        if let Some(known) = self.sessions.get(&session) {
            return Ok(Some(known.progress));
        }
        let Some((last, owner)) = reader::head(&self.parts.connection, session)? else { return Ok(None) };
        let progress = Progress::At(last);
        self.sessions.insert(session, Known { owner: owner.into(), progress });
        Ok(Some(progress))
    }

    fn went_on(&mut self, session: SessionNumber, progress: Progress) {
        if let Some(known) = self.sessions.get_mut(&session) {
            known.progress = progress;
        }
    }

    fn commit(&mut self) {
        let calls = mem::take(&mut self.calls);
        if self.trouble.is_some() {
            return self.commit_in_trouble(calls);
        }
        let shares = self.lanes.take();
        if shares.is_empty() && calls.is_empty() {
            return;
        }
        if let Some(no_room) = self.try_commit(shares, calls) {
            self.begin_trouble(no_room);
        }
    }

    /// One commit. What found no room comes back, with the reason; everything else is concluded.
    pub(super) fn try_commit(&mut self, shares: Vec<Share>, mut calls: Vec<Box<dyn Call>>) -> Option<NoRoom> {
        let bytes = shares.iter().map(|share| share.bytes).sum();
        let began = Instant::now();
        let forgotten = self.order.head().forgotten;
        let connection = &mut self.parts.connection;
        let outcome = write(connection, &mut calls, &shares, self.next_position, forgotten);
        self.parts.wal.wrote(bytes);
        if outcome.is_ok() && bytes > 0 {
            (self.parts.on_commit.0)(bytes, began.elapsed());
        }
        let committed = match outcome {
            Ok(Written { next_position, forgotten }) => {
                let first = mem::replace(&mut self.next_position, next_position);
                // Before the sessions' logs: who sees that one is closed has to find its last event here.
                self.order.committed(self.placed(&shares, first), forgotten);
                Ok(())
            }
            Err(error) => {
                // It may be in the database all the same: its positions are not given again.
                self.next_position = next_position(connection).unwrap_or(self.next_position);
                let may_pass = may_pass(&error);
                let error = StoreError::from(Fault::from(error));
                if may_pass {
                    return Some(NoRoom { error, shares, calls });
                }
                tracing::error!(%error, sessions = shares.len(), requests = calls.len(), "a commit failed");
                Err(error)
            }
        };
        for call in calls {
            call.conclude(committed.clone());
        }
        if committed.is_err() && shares.len() > 1 {
            return self.commit_each(shares);
        }
        for share in shares {
            self.conclude(share, &committed);
        }
        None
    }

    /// Commits the shares one by one, so that one that cannot be written harms its own session only.
    fn commit_each(&mut self, shares: Vec<Share>) -> Option<NoRoom> {
        let mut no_room: Option<NoRoom> = None;
        for share in shares {
            match &mut no_room {
                Some(no_room) => no_room.shares.push(share),
                None => no_room = self.try_commit(vec![share], Vec::new()),
            }
        }
        no_room
    }

    /// Writes something, to see whether that works.
    pub(super) fn probe(&mut self) -> Result<(), StoreError> {
        check_writable(&self.parts.connection).map_err(StoreError::from)
    }

    pub(super) fn take_calls(&mut self) -> Vec<Box<dyn Call>> {
        mem::take(&mut self.calls)
    }

    /// One step of the removals.
    fn remove(&mut self) {
        let connection = &self.parts.connection;
        let may_remove = self.trouble.as_mut().is_none_or(|trouble| trouble.may_remove(connection));
        if self.removals.is_empty() || !may_remove {
            return;
        }
        self.lift_bound(true);
        let step = self.removals.step(&mut self.parts.connection);
        self.lift_bound(false);
        match step {
            Ok(true) => {
                self.parts.wal.wrote(REMOVAL_BYTES);
                self.removed_in_trouble(true);
                if self.removals.is_empty() {
                    self.parts.wal.erase();
                }
            }
            Ok(false) => {}
            Err(error) => {
                self.removed_in_trouble(false);
                if self.trouble.is_none() {
                    self.begin_trouble(NoRoom::of(Fault::from(error).into()));
                }
            }
        }
    }

    /// Lets the database grow beyond its bound or not: a deletion may have to, before it becomes smaller.
    pub(super) fn lift_bound(&self, lifted: bool) {
        let max_bytes = if lifted { 0 } else { self.parts.max_bytes };
        if self.parts.max_bytes > 0
            && let Err(error) = limit_pages(&self.parts.connection, max_bytes)
        {
            tracing::warn!(%error, "the database's bound could not be set");
        }
    }

    /// What was committed, with its places from `position` on: as the commit gave them.
    fn placed(&self, shares: &[Share], position: i64) -> Vec<PlacedRun> {
        let mut position = Position(position.cast_unsigned());
        let mut placed = Vec::new();
        for share in shares {
            let owner = self.sessions.get(&share.session).map(|known| &known.owner);
            for run in share.appends.iter().filter_map(|append| append.run.as_ref()) {
                // What is not told here readers find in the database.
                if let Some(owner) = owner {
                    let (owner, run) = (Arc::clone(owner), Arc::clone(run));
                    placed.push(PlacedRun { position, owner, session: share.session, run });
                }
                position.0 += run.len() as u64;
            }
        }
        placed
    }

    /// The only place where the store makes a session's events visible.
    fn conclude(&mut self, mut share: Share, committed: &Result<(), StoreError>) {
        for append in share.take_appends() {
            match (committed, append.run) {
                (Ok(()), Some(run)) => append.log.committed(run),
                (Ok(()), None) => {}
                (Err(_), _) => append.log.failed(),
            }
        }
        match (committed, share.delete) {
            (_, None) => {}
            (Ok(()), Some(Deletion { deleted, .. })) => {
                self.sessions.remove(&share.session);
                self.parts.backlog.forget(share.session);
                self.removals.push(share.session, deleted);
            }
            // The session stays, takes no more events, and can be deleted again.
            (Err(error), Some(deletion)) => drop(deletion.deleted.send(Err(error.clone()))),
        }
    }
}

/// Whether an append's events follow the last one: an id is never given twice, none is left out.
fn fits(append: &Prepared, last: EventId) -> bool {
    append.run.as_ref().is_none_or(|run| run.first() == last.next() && run.last() <= LAST_ID)
}
