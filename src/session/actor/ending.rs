//! How a session's agent, its log or the session itself ends.

use std::time::Duration;

use super::storage::Waiting;
use super::{Child, Finished, Next, SessionActor};
use crate::session::agent::Unfit;
use crate::session::audit::{AuditEntry, By};
use crate::session::handle::Refusal;
use crate::session::id::Timestamp;
use crate::session::log::StoreError;
use crate::session::snapshot::SessionState;
use crate::session::state::Step;

/// How long a deletion waits until what belonged to the session is removed.
const DISCARDING: Duration = Duration::from_secs(10);

impl SessionActor {
    /// The log takes nothing more, so the agent must do nothing more. Callers are told until a restart, which begins
    /// from what is in the log.
    pub(super) fn log_failed(&mut self, error: &StoreError) -> Next {
        if self.broken.is_none() {
            tracing::error!(session = %self.log.session(), %error, "the session's log cannot be written: the agent is ended");
            self.broken = Some(error.clone());
            self.log.failed();
            self.status.send_modify(|status| {
                status.state = SessionState::Failed;
                status.turns = [].into();
                status.idle_since = None;
            });
        }
        // Each time: the agent's start may have been on its way here the first time.
        self.child.cancel.cancel();
        self.child.events.close();
        self.child.listening = false;
        self.agent_gone();
        Next::GoOn
    }

    /// Ends the agent: by itself within `grace`, else by force.
    pub(super) async fn end_agent(&mut self, grace: Duration) {
        self.child.cancel.cancel();
        // What it still says is for nobody, and it must not wait for us to take it.
        self.child.events.close();
        while self.child.launching {
            match self.reports.receiver.recv().await {
                Some(Finished::Launch(result)) => {
                    self.child.launching = false;
                    self.child.agent = result.ok().map(|launched| launched.agent);
                }
                Some(Finished::Patch { reply, .. }) => drop(reply),
                Some(Finished::Steer { message, reply, .. }) => {
                    self.machine.steer_answered(message);
                    let _ = reply.send(Err(Refusal::TurnNotRunning));
                }
                Some(Finished::Mode { .. }) => {}
                None => break,
            }
        }
        if let Some(agent) = self.child.agent.take() {
            agent.end(grace).await;
        }
        // With what it had said and nobody has taken yet: that would open again what is closed now.
        self.child = Child::none();
    }

    /// The agent would do things unasked: it is ended, and the session has failed.
    pub(super) async fn give_up_agent(&mut self, unfit: &Unfit) -> Next {
        tracing::error!(session = %self.log.session(), %unfit, "the agent must not go on: it is ended");
        self.end_agent(Duration::ZERO).await;
        let mut step = Step::new(Timestamp::now());
        self.machine.agent_unfit(&mut step, unfit);
        self.finish_step(step).await
    }

    pub(super) async fn finish_delete(&mut self, by: &By) -> Result<(), StoreError> {
        self.end_agent(self.end_grace).await;
        let mut step = Step::new(Timestamp::now());
        self.machine.deleted(&mut step, by);
        // With a broken log nobody can be told; the data goes all the same.
        if self.append(&mut step).await.is_ok() {
            let _ = self.committed(Waiting::WhileItWrites).await;
        }
        self.log.close();
        self.discard().await;
        // The rows go in any case: nobody finds the session any more, so no list may have it.
        let entry = AuditEntry::session_deleted(self.log.session(), by);
        self.store.delete_session(self.log.number(), entry).await
    }

    /// Has what belongs to the session removed. What fails is for the log alone, and what takes long goes on by itself:
    /// the session is deleted all the same, and the next start removes what is left of sessions that do not exist.
    async fn discard(&mut self) {
        let session = self.log.session();
        let discarding = self.launcher.discard(session);
        let hard = self.tasks.hard().clone();
        let discarding = self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = hard.cancelled() => {}
                discarded = discarding => {
                    if let Err(error) = discarded {
                        tracing::error!(%session, %error, "what belonged to a deleted session is left: the next start tries again");
                    }
                }
            }
        });
        if tokio::time::timeout(DISCARDING, discarding).await.is_err() {
            tracing::warn!(%session, "removing what belonged to a deleted session takes long");
        }
    }

    /// gander stops: what still runs is interrupted.
    pub(super) async fn stop(&mut self) {
        if self.machine.current_turn().is_some() && self.broken.is_none() {
            let mut step = Step::new(Timestamp::now());
            self.machine.gateway_restarted(&mut step);
            if self.append(&mut step).await.is_ok() {
                let _ = self.committed(Waiting::WhileItWrites).await;
            }
        }
        self.end_agent(self.end_grace).await;
        self.log.close();
    }
}
