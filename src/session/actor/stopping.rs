//! How a turn is stopped: the agent is told, has its time, and is ended when it does not use it.
//!
//! A stop comes to its end at most a second after the grace, whatever the agent, its tools and the machine do: every
//! wait in it has a limit. (The end that callers are told is an event, though, and waits for the store like all others.)

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::{Child, Next, SessionActor};
use crate::session::agent::{Notice, NoticeLevel, Sweep};
use crate::session::id::Timestamp;
use crate::session::state::Step;

/// How long counting processes may take.
const COUNTING: Duration = Duration::from_millis(100);
/// How much longer than the grace killing what a turn started may take, one by one.
const SWEEPING: Duration = Duration::from_millis(300);
/// How long an agent that is killed is waited for.
const FORCED_END: Duration = Duration::from_millis(500);

impl SessionActor {
    /// Begins to stop the turn, if the step does. The agent hears of it at once and not only when it is written down:
    /// a store that is slow must not keep tools running.
    pub(super) fn begin_stopping(&mut self, step: &mut Step) {
        if !self.machine.is_stopping() || self.stop_until.is_some() {
            return;
        }
        self.stop_until = Some(Instant::now() + self.stop_grace);
        self.send_commands(std::mem::take(&mut step.commands));
    }

    /// Kills what the turn that is being stopped had started. False when not all of it is known to be gone.
    pub(super) async fn sweep(&mut self, step: &mut Step) -> bool {
        let Some(agent) = &self.child.agent else { return true };
        let until = self.stop_until.unwrap_or_else(Instant::now) + SWEEPING;
        let Ok(Sweep { killed, complete }) = timeout_at(until, agent.sweep()).await else { return false };
        if killed > 0 {
            let message = format!("{killed} processes that the stopped turn had started were killed");
            let code = "processes-killed".into();
            self.machine.notice(step, Notice { level: NoticeLevel::Info, code, message });
        }
        complete
    }

    /// The agent did not end a stopped turn in time. Measured: goose does not hear a cancel before its model's first
    /// answer, and not while it retries.
    pub(super) async fn stop_overdue(&mut self) -> Next {
        let mut step = Step::new(Timestamp::now());
        self.stop_by_force(&mut step).await;
        self.finish_step(step).await
    }

    /// Ends the turn with its agent and all that it started; the next turn wakes another.
    pub(super) async fn stop_by_force(&mut self, step: &mut Step) {
        self.stop_until = None;
        tracing::warn!(session = %self.log.session(), "the agent did not end a stopped turn in time: it is killed");
        let background = match &self.child.agent {
            Some(agent) => timeout(COUNTING, agent.background()).await.unwrap_or_default(),
            None => 0,
        };
        self.end_agent_soon().await;
        self.machine.stop_overdue(step, background);
    }

    /// Ends the agent by force. What does not end at once is left to a task.
    async fn end_agent_soon(&mut self) {
        if self.child.launching {
            return self.end_agent(Duration::ZERO).await;
        }
        // With what it had said and nobody has taken yet: that would open again what is closed now.
        let Child { agent, place, .. } = std::mem::replace(&mut self.child, Child::none());
        let end = self.tasks.spawn(async move {
            if let Some(agent) = agent {
                agent.end(Duration::ZERO).await;
            }
            drop(place);
        });
        if timeout(FORCED_END, end).await.is_err() {
            tracing::warn!(session = %self.log.session(), "a killed agent, or what it started, does not end");
        }
    }

    /// Kills the agent and does not wait: for a stop that is overdue while the session waits for the store.
    pub(super) fn kill_agent(&self) {
        if let Some(agent) = &self.child.agent {
            self.tasks.spawn(agent.end(Duration::ZERO));
        }
    }
}
