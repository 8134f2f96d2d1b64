//! Which children the gateway started itself, and what becomes of those it did not.
//!
//! The gateway is a subreaper for one case alone: when a shim is killed, what was below it becomes the gateway's.
//! As the first process of a container it also inherits whatever else loses its parent.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::process::{Pid, WaitOptions, getpid, waitpid};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use crate::shutdown::Tasks;

use super::sweep::{SWEEP_LIMIT, kill_trees};
use super::table::{Entry, Identity, ProcessTable, positive};

/// The gateway's own children, and the killing of others.
pub(super) struct Registry {
    /// Numbers of children that were started here and not reaped yet. Starting and entering happen under the one
    /// lock, and so does telling strays apart: a child is never seen before it is entered.
    children: Mutex<HashSet<Pid>>,
    /// Children that this process had before it was a gateway (a shell's `job & exec gander`): not ours to kill.
    inherited: HashSet<Identity>,
    /// One round against strays at a time: more would only do the same work.
    rounds: Semaphore,
    /// Whether strays are to be killed at all.
    adopting: AtomicBool,
    /// Strays killed since the start.
    killed: AtomicU64,
    tasks: Tasks,
}

impl Registry {
    pub(super) fn new(tasks: Tasks) -> Self {
        Self {
            children: Mutex::default(),
            inherited: ProcessTable::read().children(getpid()).map(|entry| entry.identity).collect(),
            rounds: Semaphore::new(1),
            adopting: AtomicBool::new(false),
            killed: AtomicU64::new(0),
            tasks,
        }
    }

    fn children(&self) -> MutexGuard<'_, HashSet<Pid>> {
        // A set of numbers is whole after every single operation.
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a child and enters it.
    pub(super) fn start(self: &Arc<Self>, command: &mut Command) -> io::Result<(Child, Registration)> {
        let mut children = self.children();
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| positive(i32::try_from(id).ok()?));
        let pid = pid.ok_or(rustix::io::Errno::SRCH)?;
        children.insert(pid);
        Ok((child, Registration { registry: Arc::clone(self), pid }))
    }

    /// Kills and reaps strays from now on, whenever a child ends, until the hard shutdown.
    pub(super) fn adopt(self: &Arc<Self>) -> io::Result<()> {
        let mut child_ended = signal(SignalKind::child())?;
        self.adopting.store(true, Ordering::Relaxed);
        let registry = Arc::clone(self);
        self.tasks.spawn(async move {
            loop {
                registry.clear_strays().await;
                tokio::select! {
                    biased;
                    () = registry.tasks.hard().cancelled() => break,
                    _ = child_ended.recv() => {}
                }
            }
        });
        Ok(())
    }

    /// Strays killed since the start.
    pub(super) fn killed(&self) -> u64 {
        self.killed.load(Ordering::Relaxed)
    }

    /// Counts processes of an earlier run among the killed.
    pub(super) fn count_killed(&self, count: usize) {
        self.killed.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Kills and reaps the strays there are now, if that was asked for at all.
    pub(super) async fn clear_strays(self: &Arc<Self>) {
        if !self.adopting.load(Ordering::Relaxed) {
            return;
        }
        // The semaphore is never closed.
        let Ok(_round) = self.rounds.acquire().await else { return };
        let registry = Arc::clone(self);
        let cleared = self.tasks.spawn_blocking(move || registry.clear_strays_blocking()).await;
        if let Err(error) = cleared {
            tracing::error!(%error, "looking for stray processes failed");
        }
    }

    fn clear_strays_blocking(&self) {
        let deadline = Instant::now() + SWEEP_LIMIT;
        loop {
            let (table, strays) = self.strays();
            if strays.is_empty() {
                return;
            }
            if Instant::now() > deadline {
                tracing::warn!(count = strays.len(), "stray processes do not end");
                return;
            }
            let living: Vec<Entry> = strays.iter().filter(|stray| !stray.zombie).copied().collect();
            if !living.is_empty() {
                tracing::warn!(count = living.len(), "killing processes whose shim is gone");
                self.killed.fetch_add(living.len() as u64, Ordering::Relaxed);
                kill_trees(&table, &living);
            }
            for stray in strays {
                // By number, never "any child": that would take the status of a registered one. The number cannot
                // mean another child, since only this line reaps a stray.
                let _running = waitpid(Some(stray.identity.pid), WaitOptions::NOHANG);
            }
        }
    }

    /// Children that were not started here; of the inherited ones only the dead.
    fn strays(&self) -> (ProcessTable, Vec<Entry>) {
        let children = self.children();
        let table = ProcessTable::read();
        let strays = table
            .children(getpid())
            .filter(|entry| !children.contains(&entry.identity.pid))
            .filter(|entry| entry.zombie || !self.inherited.contains(&entry.identity))
            .copied()
            .collect();
        (table, strays)
    }
}

/// A child's entry in the registry. Dropped when the child is reaped; a child that nobody waits for any more becomes
/// a stray by it.
pub(super) struct Registration {
    registry: Arc<Registry>,
    pub(super) pid: Pid,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.children().remove(&self.pid);
    }
}
