//! How a session's agent, its log or the session itself ends.

use std::time::Duration;

use tokio::sync::mpsc;

use super::storage::Waiting;
use super::{Child, Finished, Next, SessionActor};
use crate::session::id::Timestamp;
use crate::session::log::StoreError;
use crate::session::snapshot::SessionState;
use crate::session::state::Step;

impl SessionActor {
    /// The log takes nothing more, so the agent must do nothing more. Callers are told until a restart, which begins
    /// from what is in the log.
    pub(super) fn log_failed(&mut self, child: &mut Child, error: &StoreError) -> Next {
        if self.broken.is_none() {
            tracing::error!(session = %self.log.session(), %error, "the session's log cannot be written: the agent is ended");
            self.broken = Some(error.clone());
            self.log.failed();
            child.cancel.cancel();
            child.events.close();
            self.agent_gone(child);
            self.status.send_modify(|status| {
                status.state = SessionState::Failed;
                status.turn = None;
            });
        }
        Next::GoOn
    }

    pub(super) fn agent_gone(&mut self, child: &mut Child) {
        child.permit = None;
        if let Some(agent) = child.agent.take() {
            // What it started is killed by its shim; waiting for that is nobody's business here.
            let end = agent.end(Duration::ZERO);
            self.tasks.spawn(async move {
                end.await;
                drop(agent);
            });
        }
    }

    /// Ends the agent: by itself within `grace`, else by force.
    pub(super) async fn end_agent(
        &mut self,
        child: &mut Child,
        results: &mut mpsc::Receiver<Finished>,
        grace: Duration,
    ) {
        child.cancel.cancel();
        // What it still says is for nobody, and it must not wait for us to take it.
        child.events.close();
        while child.launching {
            match results.recv().await {
                Some(Finished::Launch(result)) => {
                    child.launching = false;
                    child.agent = result.ok().map(|launched| launched.agent);
                }
                Some(Finished::Patch { reply, .. }) => drop(reply),
                None => break,
            }
        }
        if let Some(agent) = child.agent.take() {
            agent.end(grace).await;
        }
        child.permit = None;
    }

    pub(super) async fn finish_delete(
        &mut self,
        by: &str,
        child: &mut Child,
        results: &mut mpsc::Receiver<Finished>,
    ) -> Result<(), StoreError> {
        self.end_agent(child, results, self.end_grace).await;
        let mut step = Step::new(Timestamp::now());
        self.machine.deleted(&mut step, by);
        // With a broken log nobody can be told; the data goes all the same.
        if self.append(&mut step).await.is_ok() {
            let _ = self.committed(Waiting::WhileItWrites).await;
        }
        self.log.close();
        if let Err(error) = self.launcher.discard(self.log.session()).await {
            return Err(StoreError::failed(error));
        }
        self.store.delete_session(self.log.number()).await
    }

    /// gander stops: what still runs is interrupted.
    pub(super) async fn stop(&mut self, child: &mut Child, results: &mut mpsc::Receiver<Finished>) {
        if self.machine.current_turn().is_some() && self.broken.is_none() {
            let mut step = Step::new(Timestamp::now());
            self.machine.gateway_restarted(&mut step);
            if self.append(&mut step).await.is_ok() {
                let _ = self.committed(Waiting::WhileItWrites).await;
            }
        }
        self.end_agent(child, results, self.end_grace).await;
        self.log.close();
    }
}
