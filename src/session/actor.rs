//! The task that owns a session: it alone changes the session's state and appends its events.
//!
//! Each turn of the loop takes one input, lets the [`Machine`] decide, appends the events it made, and only when they
//! are committed sends commands to the agent and answers callers. Agent events are appended without waiting for the
//! commit, so that the next batch is read meanwhile; the store bounds how much may be under way.

mod child;
mod ending;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::child::Child;
use super::agent::{
    AgentEvent, AgentEvents, AgentExit, AgentLauncher, LaunchError, LaunchedAgent, Notice, NoticeLevel,
};
use super::handle::{Command, Refusal, Reply, SessionPatch, Status};
use super::id::{EventId, Timestamp, TurnId};
use super::log::{Append, SessionLog, Store, StoreError};
use super::run::RunBuilder;
use super::snapshot::Snapshot;
use super::state::{Machine, Step};
use super::turn::TurnErrorClass;
use crate::shutdown::Tasks;

/// What the actor's own tasks tell it.
enum Finished {
    /// The agent has started, or not.
    Launch(Result<LaunchedAgent, LaunchError>),
    /// The agent has taken new settings, or not.
    Patch { by: String, patch: SessionPatch, reply: Reply<Snapshot>, result: Result<(), Refusal> },
}

/// Everything that ends with the session.
pub(super) struct SessionActor {
    pub(super) machine: Machine,
    pub(super) log: SessionLog,
    pub(super) store: Arc<dyn Store>,
    pub(super) launcher: Arc<dyn AgentLauncher>,
    pub(super) tasks: Tasks,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) status: watch::Sender<Status>,
    pub(super) end_grace: Duration,
    pub(super) event_queue: usize,
    /// Why the log takes nothing more.
    pub(super) broken: Option<StoreError>,
    /// Takes the session off the registry; taken when that is done.
    pub(super) forget: Option<Box<dyn FnOnce() + Send + Sync>>,
}

enum Input {
    Finished(Finished),
    Command(Command),
    Agent(Option<AgentEvents>),
    Expiry,
    Stop,
}

/// Whether the actor goes on.
enum Next {
    GoOn,
    End,
}

impl SessionActor {
    /// A new session: tells that it exists and starts its agent.
    pub(super) async fn run_new(mut self, permit: OwnedSemaphorePermit) {
        let mut step = Step::new(Timestamp::now());
        self.machine.created(&mut step);
        let (finished, results) = mpsc::channel(4);
        let (events_in, events) = mpsc::channel(self.event_queue);
        let cancel = CancellationToken::new();
        let child = Child {
            events,
            cancel: cancel.clone(),
            permit: Some(permit),
            launching: true,
            listening: true,
            ..Child::none()
        };
        if self.append(&mut step).await.is_err() {
            self.leave_registry();
            return;
        }
        let launch =
            self.launcher.launch(self.log.session(), self.machine.record().launch.clone(), events_in, cancel);
        let news = finished.clone();
        self.tasks.spawn(async move {
            let result = launch.await;
            // Nobody listens only when the actor has panicked; the agent then ends as its handle is dropped.
            let _ = news.send(Finished::Launch(result)).await;
        });
        self.run(child, finished, results).await;
    }

    /// A session of an earlier run: closes what that run left open.
    pub(super) async fn run_restored(mut self) {
        let (finished, mut results) = mpsc::channel(4);
        let mut child = Child::none();
        if self.machine.is_deleting() {
            let owner = self.machine.snapshot().owner.clone();
            if let Err(error) = self.finish_delete(&owner, &mut child, &mut results).await {
                tracing::error!(session = %self.log.session(), %error, "a deletion begun earlier could not be finished");
            }
            self.leave_registry();
            return;
        }
        let mut step = Step::new(Timestamp::now());
        self.machine.gateway_restarted(&mut step);
        self.finish_step(&mut child, step).await;
        self.run(child, finished, results).await;
    }

    async fn run(
        mut self,
        mut child: Child,
        finished: mpsc::Sender<Finished>,
        mut results: mpsc::Receiver<Finished>,
    ) {
        let soft = self.tasks.soft().clone();
        let hard = self.tasks.hard().clone();
        loop {
            let idle = self.machine.current_turn().is_none();
            let expiry = self.machine.next_expiry().map(|at| at.remaining(Timestamp::now()));
            let input = tokio::select! {
                biased;
                // The end has its own path: nothing queued delays it. An idle session ends as soon as gander begins to
                // stop, a busy one when its time is up.
                () = hard.cancelled() => Input::Stop,
                () = soft.cancelled(), if idle => Input::Stop,
                Some(news) = results.recv() => Input::Finished(news),
                () = sleep(expiry), if expiry.is_some() => Input::Expiry,
                // Callers and agent in fair turns: neither a flood nor a crowd of callers may starve the other.
                input = next_input(&mut self.commands, &mut child.events, child.listening) => input,
            };
            let next = match input {
                Input::Stop => {
                    self.stop(&mut child, &mut results).await;
                    Next::End
                }
                Input::Finished(Finished::Launch(result)) => self.launched(&mut child, result).await,
                Input::Finished(Finished::Patch { by, patch, reply, result }) => {
                    // What the agent told of its settings on the way comes first: the caller gets them as they are.
                    for _ in 0..child.events.len() {
                        let Ok(events) = child.events.try_recv() else { break };
                        self.agent_events(&mut child, events).await;
                    }
                    self.patched(&mut child, by, &patch, reply, result).await
                }
                Input::Command(command) => self.command(&mut child, command, &finished, &mut results).await,
                Input::Agent(Some(events)) => self.agent_events(&mut child, events).await,
                Input::Agent(None) => self.channel_closed(&mut child).await,
                Input::Expiry => {
                    let mut step = Step::new(Timestamp::now());
                    self.machine.expire(&mut step);
                    self.finish_step(&mut child, step).await
                }
            };
            if matches!(next, Next::End) {
                break;
            }
        }
        self.leave_registry();
    }

    fn leave_registry(&mut self) {
        if let Some(forget) = self.forget.take() {
            forget();
        }
    }

    async fn launched(&mut self, child: &mut Child, result: Result<LaunchedAgent, LaunchError>) -> Next {
        child.launching = false;
        let mut step = Step::new(Timestamp::now());
        let failure = match result {
            Ok(LaunchedAgent { agent, facts, notices }) => {
                child.agent = Some(agent);
                self.machine.started(&mut step, facts, notices);
                if let Some(exit) = child.early_exit.take() {
                    self.machine.agent_event(&mut step, AgentEvent::Exited(exit));
                    self.agent_gone(child);
                }
                None
            }
            Err(error) => {
                tracing::warn!(session = %self.log.session(), %error, "the agent did not start");
                self.machine.start_failed(&error);
                child.permit = None;
                child.events.close();
                Some(error)
            }
        };
        self.status.send_modify(|status| status.start_failure = failure);
        self.finish_step(child, step).await
    }

    async fn agent_events(&mut self, child: &mut Child, events: AgentEvents) -> Next {
        let mut step = Step::new(Timestamp::now());
        for event in events {
            match event {
                AgentEvent::Exited(exit) if child.launching => child.early_exit = Some(exit),
                AgentEvent::Exited(exit) => {
                    tracing::warn!(session = %self.log.session(), how = %exit.how, "the agent ended");
                    self.machine.agent_event(&mut step, AgentEvent::Exited(exit));
                    self.agent_gone(child);
                }
                AgentEvent::PromptFinished { turn, .. }
                    if self.machine.is_cancelling() && self.machine.current_turn() == Some(turn) =>
                {
                    // Before the end is told, so that a caller who sees it can rely on it, and so that nothing of the
                    // next turn is taken for this one's.
                    self.sweep(child, &mut step).await;
                    self.machine.agent_event(&mut step, event);
                }
                event => self.machine.agent_event(&mut step, event),
            }
        }
        self.finish_step(child, step).await
    }

    /// The adapter ended without saying so.
    async fn channel_closed(&mut self, child: &mut Child) -> Next {
        child.listening = false;
        if child.agent.is_none() {
            return Next::GoOn;
        }
        let exit = AgentExit {
            how: "the connection was lost".into(),
            stderr_tail: String::new(),
            class: TurnErrorClass::AgentExited,
        };
        self.agent_events(child, vec![AgentEvent::Exited(exit)]).await
    }

    async fn sweep(&mut self, child: &Child, step: &mut Step) {
        let Some(agent) = &child.agent else { return };
        let killed = agent.sweep().await;
        if killed > 0 {
            let message = format!("{killed} processes that the cancelled turn had started were killed");
            let code = "processes-killed".into();
            self.machine.notice(step, Notice { level: NoticeLevel::Info, code, message });
        }
    }

    async fn command(
        &mut self,
        child: &mut Child,
        command: Command,
        finished: &mpsc::Sender<Finished>,
        results: &mut mpsc::Receiver<Finished>,
    ) -> Next {
        let mut step = Step::new(Timestamp::now());
        let command = match (&self.broken, command) {
            (_, command @ Command::Delete { .. }) | (None, command) => command,
            (Some(error), command) => {
                command.refuse(Refusal::Store(error.clone()));
                return Next::GoOn;
            }
        };
        match command {
            Command::Snapshot { reply } => {
                let snapshot = self.machine.snapshot().clone();
                self.answer_when_committed(reply, Ok(snapshot)).await;
                Next::GoOn
            }
            Command::Prompt { reply, .. } if self.tasks.soft().is_cancelled() => {
                let _ = reply.send(Err(Refusal::Draining));
                Next::GoOn
            }
            Command::Prompt { by, prompt, reply } => {
                let result = self.machine.prompt(&mut step, TurnId::new(), by, prompt);
                if let (Ok(_), Some(agent)) = (&result, &child.agent) {
                    agent.mark_turn().await;
                }
                self.finish_command(child, step, reply, result).await
            }
            Command::Cancel { by, turn, reply } => {
                let result = self.machine.cancel(&mut step, by, turn);
                self.finish_command(child, step, reply, result).await
            }
            Command::Answer { by, permission, answer, reply } => {
                let result = self.machine.answer(&mut step, by, permission, answer);
                self.finish_command(child, step, reply, result).await
            }
            Command::Patch { by, patch, reply } if patch.needs_agent() => {
                self.begin_patch(child, by, patch, reply, finished);
                Next::GoOn
            }
            Command::Patch { by, patch, reply } => {
                let result = self.machine.apply_patch(&mut step, by, &patch);
                let next = self.finish_step(child, step).await;
                let result = result.map(|()| self.machine.snapshot().clone());
                self.answer_when_committed(reply, result).await;
                next
            }
            Command::Delete { by, reply } => {
                if let Err(refusal) = self.machine.begin_delete(&mut step, &by) {
                    let _ = reply.send(Err(refusal));
                    return Next::GoOn;
                }
                // A broken log does not keep the data from going.
                let result = match self.append(&mut step).await {
                    Err(error) if self.broken.is_none() => Err(error),
                    _ => self.finish_delete(&by, child, results).await,
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

    async fn finish_command<T>(
        &mut self,
        child: &mut Child,
        step: Step,
        reply: Reply<T>,
        result: Result<T, Refusal>,
    ) -> Next {
        let next = self.finish_step(child, step).await;
        self.answer_when_committed(reply, result).await;
        next
    }

    /// A refusal too is answered only when all before it is committed: the caller may look into the log next.
    async fn answer_when_committed<T>(&self, reply: Reply<T>, result: Result<T, Refusal>) {
        let committed = self.log.wait_committed(self.machine.snapshot().last_event_id).await;
        // A caller that has left does not want the answer; what was done stays done.
        let _ = reply.send(committed.map_err(Refusal::Store).and(result));
    }

    /// Appends a step's events and then does what it asks for. The session ends when the log can take no more.
    async fn finish_step(&mut self, child: &mut Child, mut step: Step) -> Next {
        let commands = std::mem::take(&mut step.commands);
        let appended = self.append(&mut step).await;
        let news = self.status_news();
        let committed = match appended {
            // Log first: the agent acts, and callers are woken, only on what a restarted gateway would know.
            Ok(()) if !commands.is_empty() || news.is_some() => {
                self.log.wait_committed(self.machine.snapshot().last_event_id).await
            }
            appended => appended,
        };
        if let Err(error) = committed {
            return self.log_failed(child, &error);
        }
        for command in commands {
            let Some(agent) = &child.agent else { break };
            if agent.send(command).is_err() {
                // The adapter gives such an agent up and tells its end as an event.
                tracing::warn!(session = %self.log.session(), "the agent takes no commands");
                break;
            }
        }
        if let Some(status) = news {
            self.status.send_replace(status);
        }
        Next::GoOn
    }

    /// What the status has to say, when that is another than what it says.
    fn status_news(&self) -> Option<Status> {
        let told = self.status.borrow();
        let (state, turn) = (self.machine.snapshot().state, self.machine.current_turn());
        (told.state != state || told.turn != turn).then(|| Status {
            state,
            turn,
            start_failure: told.start_failure.clone(),
        })
    }

    /// Gives the step's events and records to the store.
    async fn append(&mut self, step: &mut Step) -> Result<(), StoreError> {
        let changes = self.machine.settle(step);
        let last = self.machine.snapshot().last_event_id;
        let mut run = RunBuilder::new(EventId(last.0 + 1 - step.events.len() as u64));
        for (kind, turn, body) in step.events.drain(..) {
            run.push(self.log.session(), turn, step.now, kind, &body).map_err(StoreError::failed)?;
        }
        let run = run.finish().map_err(StoreError::failed)?;
        if run.is_none() && changes.is_empty() {
            return Ok(());
        }
        self.store.append(Append { log: self.log.clone(), run, changes }).await
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

async fn sleep(span: Option<Duration>) {
    tokio::time::sleep(span.unwrap_or_default()).await;
}
