//! The agent of a session: its start, what it tells, and when it is let go.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Child, Finished, Next, SessionActor};
use crate::session::agent::{
    AgentCommand, AgentEvent, AgentEvents, AgentExit, LaunchError, LaunchSpec, LaunchedAgent, Notice,
    NoticeLevel,
};
use crate::session::audit::By;
use crate::session::handle::Refusal;
use crate::session::id::Timestamp;
use crate::session::state::Step;
use crate::session::turn::TurnErrorClass;

impl SessionActor {
    /// Makes sure of a place among the running agents, should one have to be started.
    pub(super) async fn take_place(&mut self) -> Result<(), Refusal> {
        // First, so that what is refused anyway holds no place and has no other agent let go.
        self.machine.refuse_work(Timestamp::now())?;
        if !self.machine.has_agent() && self.child.place.is_none() {
            let place = self.registry.place_for_agent().await;
            self.child.place = Some(place.map_err(Refusal::AtCapacity)?);
        }
        Ok(())
    }

    /// Gives back the place of an agent that is not to be started after all.
    pub(super) fn give_back_unused_place(&mut self) {
        if !self.machine.has_agent() {
            self.child.place = None;
        }
    }

    pub(super) fn send_commands(&self, commands: Vec<AgentCommand>) {
        for command in commands {
            let Some(agent) = &self.child.agent else { break };
            if agent.send(command).is_err() {
                // The adapter gives such an agent up and tells its end as an event.
                tracing::warn!(session = %self.log.session(), "the agent takes no commands");
                break;
            }
        }
    }

    /// Starts an agent in a task of its own, which reports.
    pub(super) fn start_agent(&mut self) {
        let (events_in, events) = mpsc::channel(self.event_queue);
        let cancel = CancellationToken::new();
        self.child = Child {
            events,
            cancel: cancel.clone(),
            place: self.child.place.take(),
            launching: true,
            listening: true,
            ..Child::none()
        };
        let record = self.machine.record();
        let launch = self.launcher.launch(
            self.log.session(),
            LaunchSpec { mode: self.machine.agent_mode(), ..record.launch.clone() },
            record.resume(),
            events_in,
            cancel,
        );
        // A task of its own within the one that reports: also a launcher that panics is reported.
        let launch = self.tasks.spawn(launch);
        let reports = self.reports.sender.clone();
        self.tasks.spawn(async move {
            let result = launch.await.unwrap_or_else(|error| {
                tracing::error!(%error, "starting an agent failed");
                let detail = "the agent's start failed within the gateway".into();
                Err(LaunchError::Failed { detail, stderr_tail: None })
            });
            // Nobody listens only when the actor has panicked; the agent then ends as its handle is dropped.
            let _ = reports.send(Finished::Launch(result)).await;
        });
    }

    pub(super) async fn launched(&mut self, result: Result<LaunchedAgent, LaunchError>) -> Next {
        self.child.launching = false;
        if let Some(place) = &mut self.child.place {
            place.started();
        }
        let mut step = Step::new(Timestamp::now());
        let failure = match result {
            Ok(LaunchedAgent { agent, facts, resume, notices }) => {
                self.child.agent = Some(agent);
                // Starting takes its time.
                self.refuse_waiting_links(&mut step).await;
                self.machine.started(&mut step, facts, resume, notices);
                if let Some(exit) = self.child.early_exit.take() {
                    self.machine.agent_event(&mut step, AgentEvent::Exited(exit));
                    self.agent_gone();
                }
                None
            }
            Err(error) => {
                tracing::warn!(session = %self.log.session(), %error, "the agent did not start");
                self.machine.start_failed(&mut step, &error);
                self.child = Child::none();
                Some(error)
            }
        };
        self.status.send_modify(|status| status.start_failure.clone_from(&failure));
        let next = self.finish_step(step).await;
        if let Some((by, patch, reply)) = self.waiting_patch.take() {
            match failure {
                None => self.change_settings(by, patch, reply),
                Some(error) => {
                    self.machine.end_patch();
                    let _ = reply.send(Err(Refusal::StartFailed(error)));
                }
            }
        }
        next
    }

    pub(super) async fn agent_events(&mut self, events: AgentEvents) -> Next {
        let mut step = Step::new(Timestamp::now());
        for event in events {
            match event {
                AgentEvent::Exited(exit) if self.child.launching => self.child.early_exit = Some(exit),
                AgentEvent::Exited(exit) => {
                    tracing::warn!(session = %self.log.session(), how = %exit.how, "the agent ended");
                    self.machine.agent_event(&mut step, AgentEvent::Exited(exit));
                    self.agent_gone();
                }
                AgentEvent::PromptFinished { turn, .. }
                    if self.machine.is_stopping() && self.machine.current_turn() == Some(turn) =>
                {
                    // Before the end is told, so that a caller who sees it can rely on it, and so that nothing of the
                    // next turn is taken for this one's.
                    if self.sweep(&mut step).await {
                        self.machine.agent_event(&mut step, event);
                    } else {
                        self.stop_by_force(&mut step).await;
                        break;
                    }
                }
                AgentEvent::PermissionRequested(request) => {
                    self.permission_requested(&mut step, request).await;
                }
                event => self.machine.agent_event(&mut step, event),
            }
        }
        self.finish_step(step).await
    }

    /// The adapter ended without saying so.
    pub(super) async fn channel_closed(&mut self) -> Next {
        self.child.listening = false;
        let exit = AgentExit {
            how: "the connection was lost".into(),
            stderr_tail: String::new(),
            class: TurnErrorClass::AgentExited,
        };
        if self.child.agent.is_none() {
            // Of an agent whose start is still to be told it may be the only sign of its end.
            self.child.early_exit.get_or_insert(exit);
            return Next::GoOn;
        }
        self.agent_events(vec![AgentEvent::Exited(exit)]).await
    }

    /// When the agent is to be let go for having nothing to do.
    pub(super) fn let_go_at(&self) -> Option<Instant> {
        let since = self.status.borrow().idle_since.filter(|_| !self.idle_hibernate.is_zero())?;
        Some(since.max(self.kept_since.unwrap_or(since)) + self.idle_hibernate)
    }

    /// Lets the agent go, unless something that its tools started still runs: that is looked at again later.
    pub(super) async fn idle_too_long(&mut self) -> Next {
        let Some(agent) = &self.child.agent else { return Next::GoOn };
        if agent.background().await > 0 || self.machine.hibernate().is_err() {
            self.kept_since = Some(Instant::now());
            return Next::GoOn;
        }
        self.let_go(None).await
    }

    /// Ends the agent of a session that hibernates, and says what else ended with it.
    pub(super) async fn let_go(&mut self, by: Option<By>) -> Next {
        let background = match &self.child.agent {
            Some(agent) => agent.background().await,
            None => 0,
        };
        self.end_agent(self.end_grace).await;
        let mut step = Step::new(Timestamp::now());
        step.by = by;
        if background > 0 {
            let message =
                format!("{background} processes that tools had left running were ended with the agent");
            let code = "processes-killed".into();
            self.machine.notice(&mut step, Notice { level: NoticeLevel::Warning, code, message });
        }
        let next = self.finish_step(step).await;
        self.log.release_tail();
        next
    }

    pub(super) fn agent_gone(&mut self) {
        self.child.place = None;
        if let Some(agent) = self.child.agent.take() {
            // What it started is killed by its shim; waiting for that is nobody's business here.
            let end = agent.end(Duration::ZERO);
            self.tasks.spawn(async move {
                end.await;
                drop(agent);
            });
        }
    }
}
