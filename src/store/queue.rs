//! What waits for the writer: bounded in bytes, in order per session, and shared out so that a session that floods
//! delays no other.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::audit::AuditRow;
use super::record::Record;
use crate::session::id::SessionNumber;
use crate::session::log::{Append, SessionLog, StoreError};
use crate::session::run::Run;

/// A session's share of one commit ends with the append that reaches this. Measured: about 4 ms of writing.
const SHARE_BYTES: usize = 1024 * 1024;
/// Likewise, in events.
pub(super) const SHARE_EVENTS: usize = 2000;
/// All shares of one commit together end with the one that reaches this.
const COMMIT_BYTES: usize = 8 * 1024 * 1024;
/// What an append costs besides its contents, so that the number of queued appends is bounded too.
const APPEND_BYTES: usize = 256;

/// An [`Append`] that is ready to be written.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) log: SessionLog,
    pub(super) run: Option<Arc<Run>>,
    pub(super) records: Vec<Record>,
    pub(super) audit: Vec<AuditRow>,
    bytes: usize,
}

impl Prepared {
    /// Serialises the records here, in the appender's task, to spare the one writer.
    pub(super) fn new(append: Append) -> Result<Self, serde_json::Error> {
        let Append { log, run, changes, audit } = append;
        let records = changes.iter().map(Record::new).collect::<Result<Vec<_>, _>>()?;
        let audit = audit.into_iter().map(AuditRow::new).collect::<Result<Vec<_>, _>>()?;
        let run = run.map(Arc::new);
        let bytes =
            run.as_ref().map_or(0, |run| run.weight()) + records.iter().map(Record::bytes).sum::<usize>();
        let bytes = bytes + audit.iter().map(AuditRow::bytes).sum::<usize>();
        Ok(Self { log, run, records, audit, bytes: bytes + APPEND_BYTES })
    }

    fn events(&self) -> usize {
        self.run.as_ref().map_or(0, |run| run.len())
    }
}

/// The room that a queued append takes, given back when this is dropped.
#[derive(Debug)]
pub(super) struct Room {
    _of_session: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// How much may be queued: of one session, so that it cannot fill the queue alone, and of all together.
#[derive(Debug)]
pub(super) struct Backlog {
    all: Arc<Semaphore>,
    all_bytes: u32,
    session_bytes: u32,
    /// An entry per session that has appended. A standard mutex: it is held for a look-up, never across an await.
    sessions: Mutex<HashMap<SessionNumber, Arc<Semaphore>>>,
}

impl Backlog {
    pub(super) fn new(all_bytes: u32, session_bytes: u32) -> Self {
        // Without any room nothing would be counted.
        let (all_bytes, session_bytes) = (all_bytes.max(1), session_bytes.max(1));
        let all = Arc::new(Semaphore::new(all_bytes as usize));
        Self { all, all_bytes, session_bytes, sessions: Mutex::default() }
    }

    /// Waits until there is room. What is larger than the whole room takes all of it.
    pub(super) async fn room(&self, append: &Prepared) -> Result<Room, StoreError> {
        let bytes = u32::try_from(append.bytes).unwrap_or(u32::MAX);
        let session = {
            let mut sessions = self.lock();
            let new = || Arc::new(Semaphore::new(self.session_bytes as usize));
            Arc::clone(sessions.entry(append.log.number()).or_insert_with(new))
        };
        let closed = |_| StoreError::Closed;
        let of_session = session.acquire_many_owned(bytes.min(self.session_bytes)).await.map_err(closed)?;
        let all = Arc::clone(&self.all);
        let of_all = all.acquire_many_owned(bytes.min(self.all_bytes)).await.map_err(closed)?;
        Ok(Room { _of_session: of_session, _of_all: of_all })
    }

    /// Bytes that are queued.
    pub(super) fn queued_bytes(&self) -> usize {
        (self.all_bytes as usize).saturating_sub(self.all.available_permits())
    }

    /// Drops the entry of a session that is gone.
    pub(super) fn forget(&self, session: SessionNumber) {
        self.lock().remove(&session);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionNumber, Arc<Semaphore>>> {
        // Nothing can be half done within a look-up.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Told when everything of a session is gone.
pub(super) type Deleted = oneshot::Sender<Result<(), StoreError>>;

/// A session that is to go.
#[derive(Debug)]
pub(super) struct Deletion {
    /// Who deletes it.
    pub(super) entry: AuditRow,
    pub(super) deleted: Deleted,
}

/// One thing to do for a session, in order with the others.
#[derive(Debug)]
pub(super) enum Step {
    Append(Prepared, Room),
    Delete(Deletion),
}

/// What one commit writes of one session.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) session: SessionNumber,
    pub(super) appends: Vec<Prepared>,
    /// Ends the share and the session.
    pub(super) delete: Option<Deletion>,
    pub(super) bytes: usize,
    /// Held until the commit is done.
    rooms: Vec<Room>,
}

impl Share {
    fn empty(session: SessionNumber) -> Self {
        Self { session, appends: Vec::new(), delete: None, bytes: 0, rooms: Vec::new() }
    }

    fn cut(session: SessionNumber, lane: &mut VecDeque<Step>) -> Self {
        let mut share = Self::empty(session);
        let mut events = 0;
        while share.bytes < SHARE_BYTES && events < SHARE_EVENTS && share.delete.is_none() {
            match lane.pop_front() {
                // Its readers have been told that nothing follows.
                Some(Step::Append(append, _)) if append.log.head().failed => {}
                Some(Step::Append(append, room)) => {
                    share.bytes += append.bytes;
                    events += append.events();
                    share.appends.push(append);
                    share.rooms.push(room);
                }
                Some(Step::Delete(deletion)) => share.delete = Some(deletion),
                None => break,
            }
        }
        share
    }

    /// Gives up what was to be written: its sessions' readers are told that nothing follows.
    pub(super) fn give_up(&mut self) {
        for append in self.take_appends() {
            append.log.failed();
        }
    }

    /// Drops what was given up in the meantime. Whether anything is left.
    pub(super) fn drop_given_up(&mut self) -> bool {
        self.appends.retain(|append| !append.log.head().failed);
        !self.appends.is_empty() || self.delete.is_some()
    }

    /// Takes out what was to be written; its room is free from then on.
    pub(super) fn take_appends(&mut self) -> Vec<Prepared> {
        self.rooms.clear();
        mem::take(&mut self.appends)
    }
}

/// What the writer has taken from its channel and not written yet: a queue per session that has something.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: HashMap<SessionNumber, VecDeque<Step>>,
    /// The sessions of `lanes`, in the order of their turns.
    turns: VecDeque<SessionNumber>,
}

impl Lanes {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub(super) fn push(&mut self, session: SessionNumber, step: Step) {
        let lane = self.lanes.entry(session).or_default();
        if lane.is_empty() {
            self.turns.push_back(session);
        }
        lane.push_back(step);
    }

    /// Takes out the sessions that are to be deleted, with what is queued before that given up: for when there is no
    /// room to write it.
    pub(super) fn take_deletions(&mut self) -> Vec<Share> {
        let doomed = |steps: &VecDeque<Step>| steps.iter().any(|step| matches!(step, Step::Delete(_)));
        let sessions: Vec<_> =
            self.lanes.iter().filter(|(_, lane)| doomed(lane)).map(|(session, _)| *session).collect();
        self.turns.retain(|session| !sessions.contains(session));
        let lanes = sessions.into_iter().filter_map(|session| self.lanes.remove_entry(&session));
        let shares = lanes.map(|(session, mut lane)| {
            let mut whole = Share::empty(session);
            while whole.delete.is_none() && !lane.is_empty() {
                let mut share = Share::cut(session, &mut lane);
                share.give_up();
                whole.delete = share.delete;
            }
            whole
        });
        shares.collect()
    }

    /// What the next commit writes: a share of every session whose turn it is. The rest stays, in order.
    pub(super) fn take(&mut self) -> Vec<Share> {
        let mut shares = Vec::new();
        let mut bytes = 0;
        for _ in 0..self.turns.len() {
            if bytes >= COMMIT_BYTES {
                break;
            }
            let Some(session) = self.turns.pop_front() else { break };
            let Some(lane) = self.lanes.get_mut(&session) else { continue };
            let share = Share::cut(session, lane);
            bytes += share.bytes;
            if lane.is_empty() {
                self.lanes.remove(&session);
            } else {
                self.turns.push_back(session);
            }
            shares.push(share);
        }
        shares
    }
}
