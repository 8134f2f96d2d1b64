//! Waiting for the store, which may have no room for a while.
//!
//! Events that were made stay queued in the store until there is room, and the agent is held back: nothing is lost and
//! nothing is told that is not in the log. Callers are told at once that nothing new is begun. Only a deletion goes on,
//! since it makes room.

use super::queue::Admission;
use super::{Next, SessionActor, sleep_until};
use crate::session::audit::{By, entry_of};
use crate::session::handle::{Command, Refusal, Reply};
use crate::session::id::{EventId, Timestamp, TurnId};
use crate::session::log::{Append, StoreError, StoreFuture};
use crate::session::run::RunBuilder;
use crate::session::state::Step;
use crate::session::turn::{Prompt, Turn};

/// How long the store is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Until there is room.
    ForRoom,
    /// Only while it can write.
    WhileItWrites,
}

impl SessionActor {
    /// Gives the step's events and records to the store.
    pub(super) async fn append(&mut self, step: &mut Step) -> Result<(), StoreError> {
        let changes = self.machine.settle(step);
        let last = self.machine.snapshot().last_event_id;
        let mut run = RunBuilder::new(EventId(last.0 + 1 - step.events.len() as u64));
        let (session, mut audit) = (self.log.session(), Vec::new());
        for (kind, turn, body) in step.events.drain(..) {
            audit.extend(entry_of(session, step.now, kind, turn, &body));
            run.push(self.log.session(), turn, step.now, kind, &body).map_err(StoreError::failed)?;
        }
        let run = run.finish().map_err(StoreError::failed)?;
        if run.is_none() && changes.is_empty() {
            return Ok(());
        }
        let append = self.store.append(Append { log: self.log.clone(), run, changes, audit });
        self.wait_for_store(append, Waiting::ForRoom).await
    }

    /// Waits until everything up to now is committed.
    pub(super) async fn committed(&mut self, waiting: Waiting) -> Result<(), StoreError> {
        let (log, last) = (self.log.clone(), self.machine.snapshot().last_event_id);
        self.wait_for_store(Box::pin(async move { log.wait_committed(last).await }), waiting).await
    }

    /// Waits for work of the store. While the store cannot write, callers are refused, and a deletion or the end of the
    /// gateway ends the waiting.
    pub(super) async fn wait_for_store(
        &mut self,
        mut work: StoreFuture<()>,
        waiting: Waiting,
    ) -> Result<(), StoreError> {
        let mut trouble = self.store.trouble();
        let hard = self.tasks.hard().clone();
        let mut stop_until = self.stop_until.filter(|_| self.machine.is_stopping());
        loop {
            let error = trouble.borrow_and_update().clone();
            let patient = waiting == Waiting::ForRoom && !self.machine.is_deleting() && !hard.is_cancelled();
            let is_unwell = error.is_some();
            tokio::select! {
                // Biased: what is done is done, whatever else there is.
                biased;
                result = &mut work => return result,
                error = std::future::ready(error), if is_unwell && !patient => {
                    return Err(error.unwrap_or(StoreError::Closed));
                }
                Ok(()) = trouble.changed() => {}
                () = hard.cancelled(), if is_unwell => {}
                () = sleep_until(stop_until), if stop_until.is_some() => {
                    // Its end cannot be told yet, but nothing of it runs on.
                    stop_until = None;
                    self.kill_agent();
                }
                Some(command) = self.commands.recv(), if is_unwell => match command {
                    deletion @ Command::Delete { .. } => {
                        self.deletion = Some(deletion);
                        return Err(self.unavailable());
                    }
                    command => command.refuse(Refusal::Store(self.unavailable())),
                },
            }
        }
    }

    fn unavailable(&self) -> StoreError {
        self.store.trouble().borrow().clone().unwrap_or_else(|| StoreError::Unavailable("it was full".into()))
    }

    /// Begins or queues a turn, unless nothing can be written. When that turns out only now, the turn ends at once: its
    /// caller is told that it was not begun, so it must not run later.
    pub(super) async fn begin_turn(
        &mut self,
        by: By,
        prompt: Prompt,
        admission: Admission,
        reply: Reply<Turn>,
    ) -> Next {
        let trouble = self.store.trouble().borrow().clone();
        if let Some(error) = trouble {
            let _ = reply.send(Err(Refusal::Store(error)));
            return Next::GoOn;
        }
        let mut step = Step::new(Timestamp::now());
        let admitted = match admission {
            Admission::AtOnce => self.machine.prompt(&mut step, TurnId::new(), by, prompt),
            Admission::Queued => self.machine.queue(&mut step, TurnId::new(), by, prompt),
        };
        let turn = match admitted {
            Ok(turn) => turn,
            refused => return self.finish_command(step, reply, refused).await,
        };
        let unfit = match &self.child.agent {
            Some(agent) if admission == Admission::AtOnce => agent.prepare_turn().await.err(),
            _ => None,
        };
        let commands = std::mem::take(&mut step.commands);
        let (start_agent, set_mode) = (std::mem::take(&mut step.start_agent), step.set_mode.take());
        let begun = match self.append(&mut step).await {
            Ok(()) => self.committed(Waiting::WhileItWrites).await,
            Err(error) => Err(error),
        };
        let mut step = Step::new(Timestamp::now());
        match begun {
            Ok(()) => match unfit {
                Some(unfit) => {
                    let next = self.give_up_agent(&unfit).await;
                    self.answer_when_committed(reply, Ok(turn)).await;
                    next
                }
                None => {
                    step.commands = commands;
                    step.start_agent = start_agent;
                    step.set_mode = set_mode;
                    self.finish_command(step, reply, Ok(turn)).await
                }
            },
            Err(error @ StoreError::Unavailable(_)) if self.deletion.is_none() => {
                let _ = reply.send(Err(Refusal::Store(error)));
                self.machine.not_begun(&mut step, turn);
                if start_agent {
                    self.child.place = None;
                }
                self.finish_step(step).await
            }
            Err(error) => {
                let _ = reply.send(Err(Refusal::Store(error.clone())));
                self.log_failed(&error)
            }
        }
    }
}
