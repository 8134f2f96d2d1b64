//! The one writer: takes what has gathered, commits it in one transaction, and only then makes it visible.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::Wal;
use super::ordered;
use super::queue::{Backlog, Deleted, Lanes, Prepared, Room, Share, Step};
use super::reader;
use super::record::{Fault, LAST_ID, write_events};
use super::removal::{Removals, STEP_ROWS};
use crate::session::id::{EventId, SessionNumber};
use crate::session::log::StoreError;
use crate::session::order::{EventOrder, PlacedRun, Position};

/// Jobs taken from the channel before a commit, so that jobs which keep coming do not put it off.
const GATHER_JOBS: usize = 4096;
/// What a step of a removal writes, about.
const REMOVAL_BYTES: usize = 400 * STEP_ROWS as usize;

/// What the writer is asked.
pub(super) enum Job {
    /// Events and records.
    Append(Prepared, Room),
    /// Everything of a session is to go, behind what is queued for it.
    Delete(SessionNumber, Deleted),
    /// Anything else.
    Call(Box<dyn Call>),
    /// Write what is queued, then end.
    Close,
}

/// Work within a commit, whose answer is sent when the commit is done.
pub(super) trait Call: Send {
    /// Does it. What fails must leave nothing behind.
    fn run(&mut self, connection: &Connection);
    /// Answers.
    fn conclude(self: Box<Self>, committed: Result<(), StoreError>);
}

struct CallOf<T, F> {
    work: Option<F>,
    result: Option<Result<T, Fault>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Call for CallOf<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, Fault> + Send,
{
    fn run(&mut self, connection: &Connection) {
        self.result = self.work.take().map(|work| work(connection));
    }

    fn conclude(self: Box<Self>, committed: Result<(), StoreError>) {
        let result = match self.result {
            Some(result) => committed.and_then(|()| result.map_err(StoreError::from)),
            None => committed.and(Err(StoreError::Closed)),
        };
        // Who asked may have left; the work is done all the same.
        let _ = self.reply.send(result);
    }
}

/// Asks the writer to do `work` within a commit.
pub(super) async fn call<T, F>(jobs: mpsc::Sender<Job>, work: F) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    let call = Box::new(CallOf { work: Some(work), result: None, reply });
    jobs.send(Job::Call(call)).await.map_err(|_| StoreError::Closed)?;
    answer.await.unwrap_or(Err(StoreError::Closed))
}

/// What the writer knows of a session it has heard of.
#[derive(Clone, Copy, Debug)]
enum Progress {
    /// The last event that was queued.
    At(EventId),
    /// Its deletion is queued.
    Going,
}

/// A session and whose it is.
#[derive(Clone, Debug)]
struct Known {
    owner: Arc<str>,
    progress: Progress,
}

pub(super) struct Writer {
    connection: Connection,
    jobs: mpsc::Receiver<Job>,
    backlog: Arc<Backlog>,
    wal: Arc<Wal>,
    lanes: Lanes,
    calls: Vec<Box<dyn Call>>,
    /// An entry per session that has appended since the start and is not deleted.
    sessions: HashMap<SessionNumber, Known>,
    removals: Removals,
    order: EventOrder,
    /// The position of the next event in the order of all.
    next_position: i64,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        jobs: mpsc::Receiver<Job>,
        backlog: Arc<Backlog>,
        wal: Arc<Wal>,
        tail_bytes: usize,
    ) -> rusqlite::Result<Self> {
        let removals = Removals::left(&connection)?;
        let next_position = next_position(&connection)?;
        let (tag, head) = ordered::state(&connection, next_position)?;
        let order = EventOrder::new(tag, head, tail_bytes);
        Ok(Self {
            connection,
            jobs,
            backlog,
            wal,
            lanes: Lanes::default(),
            calls: Vec::new(),
            sessions: HashMap::new(),
            removals,
            order,
            next_position,
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
            if self.removals.step(&mut self.connection) {
                self.wal.wrote(REMOVAL_BYTES);
            }
            self.wal.finish(&self.connection);
        }
        // Removals go on at the next start.
        while !self.lanes.is_empty() || !self.calls.is_empty() {
            self.commit();
        }
        self.connection
    }

    /// Takes what is in the channel; waits when there is nothing to do. False at the end.
    fn gather(&mut self) -> bool {
        if self.lanes.is_empty() && self.calls.is_empty() && self.removals.is_empty() {
            match self.jobs.blocking_recv() {
                Some(job) => self.admit(job),
                None => return false,
            }
        }
        for _ in 0..GATHER_JOBS {
            match self.jobs.try_recv() {
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
            Job::Delete(session, deleted) => self.admit_delete(session, deleted),
            Job::Call(call) => self.calls.push(call),
            Job::Close => self.jobs.close(),
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
                self.backlog.forget(session);
            }
            Err(error) => {
                tracing::error!(session = %append.log.session(), %error, "a session cannot be read");
                append.log.failed();
            }
        }
    }

    fn admit_delete(&mut self, session: SessionNumber, deleted: Deleted) {
        match self.progress(session) {
            Ok(Some(_)) => {
                self.went_on(session, Progress::Going);
                self.lanes.push(session, Step::Delete(deleted));
            }
            // It is gone; nobody waits when the caller has left.
            Ok(None) => drop(deleted.send(Ok(()))),
            Err(error) => drop(deleted.send(Err(Fault::from(error).into()))),
        }
    }

    fn progress(&mut self, session: SessionNumber) -> rusqlite::Result<Option<Progress>> {
        if let Some(known) = self.sessions.get(&session) {
            return Ok(Some(known.progress));
        }
        let Some((last, owner)) = reader::head(&self.connection, session)? else { return Ok(None) };
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
        let shares = self.lanes.take();
        let mut calls = mem::take(&mut self.calls);
        if shares.is_empty() && calls.is_empty() {
            return;
        }
        let bytes = shares.iter().map(|share| share.bytes).sum();
        let forgotten = self.order.head().forgotten;
        let outcome = write(&mut self.connection, &mut calls, &shares, self.next_position, forgotten);
        self.wal.wrote(bytes);
        let committed = match outcome {
            Ok(Written { next_position, forgotten }) => {
                let first = mem::replace(&mut self.next_position, next_position);
                // Before the sessions' logs: who sees that one is closed has to find its last event here.
                self.order.committed(self.placed(&shares, first), forgotten);
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, sessions = shares.len(), requests = calls.len(), "a commit failed");
                // It may be in the database all the same: its positions are not given again.
                self.next_position = next_position(&self.connection).unwrap_or(self.next_position);
                Err(StoreError::from(Fault::from(error)))
            }
        };
        for share in shares {
            self.conclude(share, &committed);
        }
        for call in calls {
            call.conclude(committed.clone());
        }
    }

    /// What was committed, with its places from `position` on: as [`write_share`] gave them.
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
            (Ok(()), Some(deleted)) => {
                self.sessions.remove(&share.session);
                self.backlog.forget(share.session);
                self.removals.push(share.session, deleted);
            }
            // The session stays, takes no more events, and can be deleted again.
            (Err(error), Some(deleted)) => drop(deleted.send(Err(error.clone()))),
        }
    }
}

/// Whether an append's events follow the last one: an id is never given twice, none is left out.
fn fits(append: &Prepared, last: EventId) -> bool {
    append.run.as_ref().is_none_or(|run| run.first() == last.next() && run.last() <= LAST_ID)
}

/// What a commit says of the order of all events.
struct Written {
    next_position: i64,
    forgotten: Position,
}

/// One transaction.
fn write(
    connection: &mut Connection,
    calls: &mut [Box<dyn Call>],
    shares: &[Share],
    mut position: i64,
    mut forgotten: Position,
) -> rusqlite::Result<Written> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for call in calls {
        call.run(&transaction);
        // A severe error ends the transaction, and what followed would be written outside one: this commit fails.
        if transaction.is_autocommit() {
            return transaction.commit().map(|()| Written { next_position: position, forgotten });
        }
    }
    for share in shares {
        position = write_share(&transaction, share, position)?;
    }
    if shares.iter().any(|share| share.delete.is_some()) {
        transaction.execute("UPDATE next_position SET position = ?1", (position,))?;
        forgotten = ordered::forget_ends(&transaction)?;
    }
    transaction.commit()?;
    Ok(Written { next_position: position, forgotten })
}

fn write_share(connection: &Connection, share: &Share, position: i64) -> rusqlite::Result<i64> {
    let mut events = None;
    for append in &share.appends {
        if let Some(run) = &append.run {
            write_events(connection, share.session, run)?;
            let (first, _) = events.unwrap_or((run.first(), run.last()));
            events = Some((first, run.last()));
        }
        for record in &append.records {
            record.write(connection, share.session)?;
        }
    }
    let mut next_position = position;
    if let Some((first, last)) = events {
        // A share's runs follow each other: one row is enough for all.
        let (first, count) = (first.0.cast_signed(), (last.0 - first.0 + 1).cast_signed());
        connection
            .prepare_cached("INSERT INTO runs (position, session, first, count) VALUES (?1, ?2, ?3, ?4)")?
            .execute((position, share.session.0, first, count))?;
        next_position += count;
    }
    if share.delete.is_some() {
        ordered::keep_end(connection, share.session)?;
        // From here on nobody can read it; the rest goes step by step.
        connection.execute("DELETE FROM sessions WHERE number = ?1", (share.session.0,))?;
        connection.execute("INSERT OR IGNORE INTO deletions (session) VALUES (?1)", (share.session.0,))?;
    }
    Ok(next_position)
}

/// Behind every position that was ever given.
fn next_position(connection: &Connection) -> rusqlite::Result<i64> {
    let kept: i64 = connection.query_row("SELECT position FROM next_position", (), |row| row.get(0))?;
    let behind_runs: Option<i64> = connection
        .query_row("SELECT position + count FROM runs ORDER BY position DESC LIMIT 1", (), |row| row.get(0))
        .optional()?;
    Ok(behind_runs.unwrap_or(kept).max(kept))
}
