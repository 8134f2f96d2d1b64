//! The task that owns a session: it alone changes the session's state and appends its events.
//!
//! Each turn of the loop takes one input, lets the [`Machine`] decide, appends the events it made, and only when they
//! are committed sends commands to the agent and answers callers. Agent events are appended without waiting for the
//! commit, so that the next batch is read meanwhile; the store bounds how much may be under way.

mod agent;
mod child;
mod deadlines;
mod ending;
mod links;
mod permissions;
mod queue;
mod reports;
mod settings;
mod steer;
mod stopping;
mod storage;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::Instant;

pub(super) use self::child::Child;
pub(super) use self::deadlines::Deadlines;
use self::queue::{ReadyTurn, Upcoming};
pub(super) use self::reports::Reports;
use self::reports::{Finished, ModeSet};
use self::storage::Waiting;
use super::agent::{AgentEvents, AgentLauncher};
use super::audit::By;
use super::handle::{Command, Refusal, Reply, SessionPatch, Status};
use super::id::{EventId, Timestamp};
use super::log::{SessionLog, Store, StoreError};
use super::registry::{Place, Registry};
use super::snapshot::{SessionState, Snapshot};
use super::state::{Machine, Step};
use crate::shutdown::Tasks;

/// Everything that ends with the session.
pub(super) struct SessionActor {
    pub(super) machine: Machine,
    pub(super) log: SessionLog,
    pub(super) store: Arc<dyn Store>,
    pub(super) launcher: Arc<dyn AgentLauncher>,
    pub(super) tasks: Tasks,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) status: watch::Sender<Status>,
    pub(super) child: Child,
    pub(super) reports: Reports,
    pub(super) end_grace: Duration,
    /// After how long without a turn the agent is let go; zero: never.
    pub(super) idle_hibernate: Duration,
    pub(super) event_queue: usize,
    /// Bytes that the files which one prompt links may have together.
    pub(super) linked_file_bytes: u64,
    /// How long the agent may take to end a turn that is being stopped.
    pub(super) stop_grace: Duration,
    /// When such a turn has to be over.
    pub(super) stop_until: Option<Instant>,
    /// When pending permissions expire, and when the turn has taken as long as it may.
    pub(super) deadlines: Deadlines,
    /// When to look again whether somebody would see what is pending.
    pub(super) look_again: Option<Instant>,
    /// A change of settings that waits for the agent's start.
    pub(super) waiting_patch: Option<(By, SessionPatch, Reply<Snapshot>)>,
    /// When the agent was last kept although idle, since something in the background still ran.
    pub(super) kept_since: Option<Instant>,
    /// Why the log takes nothing more.
    pub(super) broken: Option<StoreError>,
    /// A deletion that was asked for while the store could not write; it comes before all other input.
    pub(super) deletion: Option<Command>,
    /// The next queued turn, on its way to begin.
    pub(super) upcoming: Option<Upcoming>,
    pub(super) registry: Registry,
    /// The place among all sessions; given back when the session leaves the registry.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

enum Input {
    Finished(Finished),
    Command(Command),
    Agent(Option<AgentEvents>),
    Deadline,
    StopOverdue,
    Upcoming(Result<ReadyTurn, StoreError>),
    Idle,
    Stop,
}

/// Whether the actor goes on.
enum Next {
    GoOn,
    End,
}

impl SessionActor {
    /// A new session: tells that it exists and starts its agent.
    pub(super) async fn run_new(mut self, by: By, place: Place) {
        let mut step = Step::new(Timestamp::now());
        self.child.place = Some(place);
        self.machine.created(&mut step, by);
        self.machine.start(&mut step);
        self.finish_step(step).await;
        self.run().await;
    }

    /// A session of an earlier run: closes what that run left open.
    pub(super) async fn run_restored(mut self) {
        if self.machine.is_deleting() {
            let by = self.machine.deleted_by();
            if let Err(error) = self.finish_delete(&by).await {
                tracing::error!(session = %self.log.session(), %error, "a deletion begun earlier could not be finished");
            }
            self.leave_registry();
            return;
        }
        let mut step = Step::new(Timestamp::now());
        if self.machine.snapshot().last_event_id == EventId(0) {
            // The last run ended between the session's record and its first event.
            let owner = By::caller(&self.machine.snapshot().owner);
            self.machine.created(&mut step, owner);
        }
        self.machine.gateway_restarted(&mut step);
        self.finish_step(step).await;
        self.run().await;
    }

    async fn run(mut self) {
        let soft = self.tasks.soft().clone();
        let hard = self.tasks.hard().clone();
        loop {
            if let Some(deletion) = self.deletion.take() {
                if let Next::End = self.command(deletion).await {
                    break;
                }
                continue;
            }
            self.prepare_queued();
            let has_turn = self.machine.current_turn().is_some();
            let deadline = self.next_deadline();
            let let_go_at = self.let_go_at();
            let stop_until = self.stop_until;
            let input = tokio::select! {
                biased;
                // The end has its own path: nothing queued delays it. An idle session ends as soon as gander begins to
                // stop, a busy one when its time is up.
                () = hard.cancelled() => Input::Stop,
                () = soft.cancelled(), if !has_turn => Input::Stop,
                Some(news) = self.reports.receiver.recv() => Input::Finished(news),
                () = sleep_until(deadline), if deadline.is_some() => Input::Deadline,
                () = sleep_until(stop_until), if stop_until.is_some() => Input::StopOverdue,
                ready = queue::ready(&mut self.upcoming), if self.upcoming.is_some() => Input::Upcoming(ready),
                // Callers and agent in fair turns: neither a flood nor a crowd of callers may starve the other.
                input = next_input(&mut self.commands, &mut self.child.events, self.child.listening) => input,
                () = sleep_until(let_go_at), if let_go_at.is_some() => Input::Idle,
            };
            let next = match input {
                Input::Stop => {
                    self.stop().await;
                    Next::End
                }
                Input::Finished(Finished::Launch(result)) => self.launched(result).await,
                Input::Finished(Finished::Mode { mode, result }) => self.mode_set(mode, result).await,
                Input::Finished(Finished::Patch { by, patch, agent_mode, reply, result }) => {
                    // What the agent told of its settings on the way comes first: the caller gets them as they are.
                    self.take_what_was_told().await;
                    self.patched(by, &patch, agent_mode, reply, result).await
                }
                Input::Finished(Finished::Steer { message, reply, result }) => {
                    self.take_what_was_told().await;
                    self.steer_answered(message, reply, result).await
                }
                Input::Command(command) => self.command(command).await,
                Input::Agent(Some(events)) => self.agent_events(events).await,
                Input::Agent(None) => self.channel_closed().await,
                Input::Deadline => self.deadline_passed().await,
                Input::StopOverdue => self.stop_overdue().await,
                Input::Upcoming(ready) => self.begin_queued(ready).await,
                Input::Idle => self.idle_too_long().await,
            };
            if matches!(next, Next::End) {
                break;
            }
        }
        self.leave_registry();
    }

    /// Takes what the agent has told before now.
    async fn take_what_was_told(&mut self) {
        for _ in 0..self.child.events.len() {
            let Ok(events) = self.child.events.try_recv() else { break };
            self.agent_events(events).await;
        }
    }

    /// Takes the session out of the registry and gives its place back.
    fn leave_registry(&mut self) {
        self.registry.forget(self.log.session());
        self.place = None;
    }

    async fn command(&mut self, command: Command) -> Next {
        let mut step = Step::new(Timestamp::now());
        let command = match (&self.broken, command) {
            (_, command @ Command::Delete { .. }) | (None, command) => command,
            (Some(error), command) => {
                command.refuse(Refusal::Store(error.clone()));
                return Next::GoOn;
            }
        };
        match command {
            Command::Snapshot { choices, reply } => {
                let snapshot = self.machine.snapshot_with(choices);
                self.answer_when_committed(reply, Ok(snapshot)).await;
                Next::GoOn
            }
            Command::Prompt { reply, .. } if self.tasks.soft().is_cancelled() => {
                let _ = reply.send(Err(Refusal::Draining));
                Next::GoOn
            }
            Command::Prompt { by, prompt, when_busy, reply } => {
                self.prompted(by, prompt, when_busy, reply).await
            }
            Command::Cancel { by, turn, reply } if self.machine.is_queued(turn) => {
                let result = self.cancel_queued(&mut step, by, turn).await;
                self.finish_command(step, reply, result).await
            }
            Command::Cancel { by, turn, reply } => {
                let result = self.machine.cancel(&mut step, by, turn);
                self.begin_stopping(&mut step);
                self.finish_command(step, reply, result).await
            }
            Command::Steer { by, turn, prompt, reply } => self.steer(by, turn, prompt, reply).await,
            Command::Permission(command) => self.permission_command(command).await,
            Command::Patch { by, patch, reply } if patch.needs_agent() => {
                self.begin_patch(by, patch, reply).await
            }
            Command::Patch { by, patch, reply } => {
                let result = self.machine.apply_patch(&mut step, by, &patch);
                let next = self.finish_step(step).await;
                let result = result.map(|()| self.machine.snapshot().clone());
                self.answer_when_committed(reply, result).await;
                next
            }
            Command::Hibernate { by, reply } => {
                let next = match self.machine.hibernate() {
                    Ok(true) => self.let_go(by).await,
                    Ok(false) => Next::GoOn,
                    Err(refusal) => {
                        let _ = reply.send(Err(refusal));
                        return Next::GoOn;
                    }
                };
                self.answer_when_committed(reply, Ok(self.machine.snapshot().clone())).await;
                next
            }
            Command::Delete { by, unless_running, reply } => {
                if let Some(turn) = self.machine.open_turn().filter(|_| unless_running) {
                    let _ = reply.send(Err(Refusal::TurnInProgress(turn)));
                    return Next::GoOn;
                }
                if let Err(refusal) = self.machine.begin_delete(&mut step, &by) {
                    let _ = reply.send(Err(refusal));
                    return Next::GoOn;
                }
                // A broken log does not keep the data from going.
                let result = match self.append(&mut step).await {
                    // Nor does a full disk: deleting makes room.
                    Err(error) if self.broken.is_none() && !matches!(error, StoreError::Unavailable(_)) => {
                        // A restart finds the session as it was; until then there is nothing that could go on.
                        self.end_agent(self.end_grace).await;
                        self.log.close();
                        Err(error)
                    }
                    _ => self.finish_delete(&by).await,
                };
                if let Err(error) = &result {
                    tracing::error!(session = %self.log.session(), %error, "a session could not be deleted whole");
                }
                // First, so that a caller who has the answer does not find the session any more.
                self.leave_registry();
                let _ = reply.send(result.map_err(Refusal::Store));
                Next::End
            }
        }
    }

    async fn finish_command<T>(&mut self, step: Step, reply: Reply<T>, result: Result<T, Refusal>) -> Next {
        let next = self.finish_step(step).await;
        self.answer_when_committed(reply, result).await;
        next
    }

    /// A refusal too is answered only when all before it is committed: the caller may look into the log next.
    async fn answer_when_committed<T>(&mut self, reply: Reply<T>, result: Result<T, Refusal>) {
        let committed = self.committed(Waiting::WhileItWrites).await;
        if let Err(error) = &committed
            && self.log.head().failed
        {
            self.log_failed(error);
        }
        // A caller that has left does not want the answer; what was done stays done.
        let _ = reply.send(committed.map_err(Refusal::Store).and(result));
    }

    /// Appends a step's events and then does what it asks for. The session ends when the log can take no more.
    async fn finish_step(&mut self, mut step: Step) -> Next {
        let commands = std::mem::take(&mut step.commands);
        let appended = self.append(&mut step).await;
        let news = self.status_news();
        let committed = match appended {
            // Log first: the agent acts, and callers are woken, only on what a restarted gateway would know.
            Ok(()) if !commands.is_empty() || news.is_some() => self.committed(Waiting::ForRoom).await,
            // What was taken before may have failed since: an agent must not go on that nobody hears.
            Ok(()) if self.log.head().failed => Err(StoreError::failed("a commit failed")),
            appended => appended,
        };
        if let Err(error) = committed {
            return self.log_failed(&error);
        }
        self.send_commands(commands);
        if step.start_agent {
            self.start_agent();
        }
        if let Some(mode) = step.set_mode {
            self.set_mode(mode);
        }
        if !self.machine.is_stopping() {
            self.stop_until = None;
        }
        if let Some(status) = news {
            let is_idle = status.idle_since.is_some();
            self.status.send_replace(status);
            if is_idle {
                self.registry.tell_idle();
            }
        }
        Next::GoOn
    }

    /// What the status has to say, when that is another than what it says.
    fn status_news(&self) -> Option<Status> {
        let told = self.status.borrow();
        let state = self.machine.snapshot().state;
        let is_news = told.state != state || !self.machine.open_turns().eq(told.turns.iter().copied());
        is_news.then(|| Status {
            state,
            turns: self.machine.open_turns().collect(),
            start_failure: told.start_failure.clone(),
            idle_since: (state == SessionState::Idle).then(Instant::now),
        })
    }
}

/// However the task ends, a panic included: nobody waits for the session any more.
impl Drop for SessionActor {
    fn drop(&mut self) {
        self.log.close();
        self.leave_registry();
    }
}

/// The next thing from a caller or the agent, in fair turns.
async fn next_input(
    commands: &mut mpsc::Receiver<Command>,
    events: &mut mpsc::Receiver<AgentEvents>,
    listening: bool,
) -> Input {
    tokio::select! {
        Some(command) = commands.recv() => Input::Command(command),
        events = events.recv(), if listening => Input::Agent(events),
        else => std::future::pending().await,
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        // A timer is never ready when it is made, and each turn of the loop makes one: under a flood it would never be.
        Some(moment) if moment <= Instant::now() => {}
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
