//! What a permission needs that the machine does not have: the disk, the clock, and who reads.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::{Next, SessionActor};
use crate::session::agent::AgentPermissionRequest;
use crate::session::audience::{Attention, LINGER};
use crate::session::handle::{AskedCall, PermissionCommand, Reply};
use crate::session::id::Timestamp;
use crate::session::permission::Explanation;
use crate::session::policy::ResolvedPaths;
use crate::session::state::Step;

/// How long the disk may take to say where paths lead. A network's disk that does not answer leaves them unknown, which
/// allows nothing.
pub(super) const LOOK_UP: Duration = Duration::from_secs(5);

impl SessionActor {
    /// Takes a question of the agent, once the disk has said where its paths lead.
    pub(super) async fn permission_requested(&mut self, step: &mut Step, request: AgentPermissionRequest) {
        let mut call = self.machine.judged(&request);
        call.resolved = self.look_up(self.machine.paths_of(&call)).await;
        self.machine.permission_requested(step, request, &call);
        self.reject_unseen(step);
    }

    pub(super) async fn permission_command(&mut self, command: PermissionCommand) -> Next {
        let mut step = Step::new(Timestamp::now());
        match command {
            PermissionCommand::Answer { by, permission, answer, reply } => {
                let result = self.machine.answer(&mut step, by, permission, answer);
                self.finish_command(step, reply, result).await
            }
            PermissionCommand::Explain { call, reply } => {
                self.explain(call, reply).await;
                Next::GoOn
            }
            PermissionCommand::Grants { reply } => {
                let grants = self.machine.grants().to_vec();
                self.answer_when_committed(reply, Ok(grants)).await;
                Next::GoOn
            }
            PermissionCommand::Revoke { by, grant, reply } => {
                let result = self.machine.revoke(&mut step, by, grant);
                self.finish_command(step, reply, result).await
            }
        }
    }

    /// Tells what would become of a call.
    async fn explain(&mut self, call: AskedCall, reply: Reply<Explanation>) {
        let mut call = self.machine.supposed(call);
        call.resolved = self.look_up(self.machine.paths_of(&call)).await;
        let _ = reply.send(Ok(self.machine.explain(&call)));
    }

    /// Asks the disk, on a thread that may wait for it.
    fn look_up(&self, paths: BTreeSet<PathBuf>) -> impl Future<Output = ResolvedPaths> + Send + use<> {
        let session = self.log.session();
        let asked =
            (!paths.is_empty()).then(|| self.tasks.spawn_blocking(move || ResolvedPaths::look_up(paths)));
        async move {
            let Some(asked) = asked else { return ResolvedPaths::default() };
            match tokio::time::timeout(LOOK_UP, asked).await {
                Ok(Ok(found)) => found,
                _ => {
                    tracing::warn!(%session, "the disk does not say where a tool call's paths lead");
                    ResolvedPaths::default()
                }
            }
        }
    }

    /// When a pending permission expires or the turn has taken as long as it may, or when it has to be looked whether
    /// somebody would still see what is pending.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        self.deadlines.follow(self.machine.snapshot());
        let expiry = self.deadlines.next();
        let look = self.attention().map(|attention| match attention {
            Attention::Nobody => Instant::now(),
            Attention::Until(moment) => moment,
            // Who leaves then counts for a while, so this finds it in time.
            Attention::Here => *self.look_again.get_or_insert_with(|| Instant::now() + LINGER),
        });
        expiry.into_iter().chain(look).min()
    }

    /// Stops a turn that takes too long, rejects what has expired, and what nobody would see.
    pub(super) async fn deadline_passed(&mut self) -> Next {
        self.look_again = None;
        let mut step = Step::new(Timestamp::now());
        if let Some(turn) = self.deadlines.due_turn() {
            self.machine.stop_at_deadline(&mut step, turn);
            self.begin_stopping(&mut step);
        }
        self.machine.expire(&mut step, &self.deadlines.due());
        self.reject_unseen(&mut step);
        self.finish_step(step).await
    }

    fn reject_unseen(&mut self, step: &mut Step) {
        if self.attention() == Some(Attention::Nobody) {
            self.machine.nobody_subscribes(step);
        }
    }

    /// Whether somebody would see a question; `None` when no question depends on it.
    fn attention(&self) -> Option<Attention> {
        let session = self.log.session();
        let audience = self.registry.audience();
        self.machine.wants_subscribers().then(|| audience.attention(session, &self.machine.snapshot().owner))
    }
}
