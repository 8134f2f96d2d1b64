//! Queued turns: how a prompt gets among them, and how the next one begins.
//!
//! A queued turn begins when those before it are over, when there is a place for an agent if none runs and the last ones
//! have not died again and again, and when the store can write. All of that is waited for in one future, which is made anew whenever what it waits for changes, so
//! that nothing is begun that was cancelled meanwhile.

use std::future::pending;
use std::time::Duration;

use super::{Next, SessionActor};
use crate::session::agent::BoxFuture;
use crate::session::audit::By;
use crate::session::handle::{Refusal, Reply};
use crate::session::id::{Timestamp, TurnId};
use crate::session::log::StoreError;
use crate::session::registry::Place;
use crate::session::state::Step;
use crate::session::turn::{Prompt, Turn, WhenBusy};

/// How long until a record is read again that could not be read.
const READ_PAUSE: Duration = Duration::from_secs(1);

/// How a turn is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It begins.
    AtOnce,
    /// It waits for those before it.
    Queued,
}

/// What a queued turn begins with.
pub(in crate::session) struct ReadyTurn {
    /// Whole, as it is in the store.
    turn: Turn,
    /// The place of the agent that has to be started for it.
    place: Option<Place>,
}

/// The next queued turn.
pub(in crate::session) struct Upcoming {
    turn: TurnId,
    needs_place: bool,
    /// Done when it can begin; an error when its record cannot be read.
    ready: BoxFuture<Result<ReadyTurn, StoreError>>,
}

/// Waits until the next queued turn can begin. May be dropped and called again.
pub(super) async fn ready(upcoming: &mut Option<Upcoming>) -> Result<ReadyTurn, StoreError> {
    match upcoming {
        Some(upcoming) => (&mut upcoming.ready).await,
        None => pending().await,
    }
}

impl SessionActor {
    /// Takes a prompt: begins its turn, or queues it when that is wanted and the turn cannot begin now.
    pub(super) async fn prompted(
        &mut self,
        by: By,
        prompt: Prompt,
        when_busy: WhenBusy,
        reply: Reply<Turn>,
    ) -> Next {
        // Before a place is taken, for which another session may have to let its agent go.
        let prompt = match self.with_real_links(prompt).await {
            Ok(prompt) => prompt,
            Err(refusal) => {
                let _ = reply.send(Err(refusal));
                return Next::GoOn;
            }
        };
        let mut refused = self.machine.refuse_prompt(Timestamp::now());
        if refused.is_ok() {
            refused = self.take_place().await;
        }
        let admission = match refused {
            Ok(()) => Admission::AtOnce,
            Err(
                Refusal::TurnInProgress(_)
                | Refusal::Busy(_)
                | Refusal::AtCapacity(_)
                | Refusal::CoolingDown { .. },
            ) if when_busy == WhenBusy::Queue => Admission::Queued,
            Err(refusal) => {
                let _ = reply.send(Err(refusal));
                return Next::GoOn;
            }
        };
        let next = self.begin_turn(by, prompt, admission, reply).await;
        self.give_back_unused_place();
        next
    }

    /// Sees to it that the next queued turn is waited for, and no other.
    pub(super) fn prepare_queued(&mut self) {
        let may_begin = self.broken.is_none() && !self.tasks.soft().is_cancelled();
        let Some(turn) = self.machine.next_queued().filter(|_| may_begin) else {
            self.upcoming = None;
            return;
        };
        let needs_place = !self.machine.has_agent() && self.child.place.is_none();
        let is_waited_for =
            |upcoming: &Upcoming| (upcoming.turn, upcoming.needs_place) == (turn, needs_place);
        if self.upcoming.as_ref().is_some_and(is_waited_for) {
            return;
        }
        let (store, registry, number) = (self.store.clone(), self.registry.clone(), self.log.number());
        let cooldown = self.machine.cooldown(Timestamp::now());
        let ready = Box::pin(async move {
            if let Some(cooldown) = cooldown {
                tokio::time::sleep(cooldown).await;
            }
            // Its events could not be written: it waits as a prompt would be refused.
            if store.trouble().wait_for(Option::is_none).await.is_err() {
                return Err(StoreError::Closed);
            }
            // Last, so that it keeps no place from others while it waits for something else.
            let place = if needs_place { Some(registry.wait_for_place().await) } else { None };
            loop {
                match store.turn(number, turn).await {
                    Ok(Some(turn)) => return Ok(ReadyTurn { turn, place }),
                    Ok(None) => return Err(StoreError::failed("the record of a queued turn is gone")),
                    Err(StoreError::Unavailable(_)) => tokio::time::sleep(READ_PAUSE).await,
                    Err(error) => return Err(error),
                }
            }
        });
        self.upcoming = Some(Upcoming { turn, needs_place, ready });
    }

    /// Begins the next queued turn.
    pub(super) async fn begin_queued(&mut self, ready: Result<ReadyTurn, StoreError>) -> Next {
        self.upcoming = None;
        let ReadyTurn { turn, place } = match ready {
            Ok(ready) => ready,
            Err(error) => return self.log_failed(&error),
        };
        if place.is_some() {
            self.child.place = place;
        }
        if let Err(error) = self.look_again_at_links(&turn).await {
            let mut step = Step::new(Timestamp::now());
            self.machine.refuse_queued(&mut step, turn, error);
            self.give_back_unused_place();
            return self.finish_step(step).await;
        }
        let unfit = match &self.child.agent {
            Some(agent) => agent.prepare_turn().await.err(),
            None => None,
        };
        let mut step = Step::new(Timestamp::now());
        self.machine.begin_queued(&mut step, turn);
        let Some(unfit) = unfit else { return self.finish_step(step).await };
        // Told as begun, but never sent.
        step.commands.clear();
        step.set_mode = None;
        self.finish_step(step).await;
        self.give_up_agent(&unfit).await
    }

    /// Ends a turn that has not begun.
    pub(super) async fn cancel_queued(
        &mut self,
        step: &mut Step,
        by: By,
        turn: TurnId,
    ) -> Result<Turn, Refusal> {
        let turn = self.store.turn(self.log.number(), turn).await?;
        let turn = turn.ok_or(Refusal::TurnNotFound)?;
        Ok(self.machine.cancel_queued(step, by, turn))
    }
}
