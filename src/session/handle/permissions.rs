//! A session's permission requests, for callers.

use serde_json::Value;

use super::{Command, Refusal, Reply, SessionHandle};
use crate::session::audit::By;
use crate::session::id::{GrantId, PermissionId};
use crate::session::permission::{Answer, Explanation, Permission, PermissionGrant, PermissionState};

/// A tool call that a caller asks about.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedCall {
    /// The tool's name.
    pub tool: String,
    /// The extension that provides it; `None`: what is known of the tool.
    pub extension: Option<String>,
    /// Its arguments.
    pub input: Value,
}

/// What can be asked about a session's permission requests.
#[derive(Debug)]
pub(in crate::session) enum PermissionCommand {
    Answer { by: By, permission: PermissionId, answer: Answer, reply: Reply<Permission> },
    Explain { call: AskedCall, reply: Reply<Explanation> },
    Grants { reply: Reply<Vec<PermissionGrant>> },
    Revoke { by: By, grant: Option<GrantId>, reply: Reply<()> },
}

impl PermissionCommand {
    /// Answers without doing it; gives whether anybody listened.
    pub(super) fn refuse(self, refusal: Refusal) -> bool {
        match self {
            Self::Answer { reply, .. } => reply.send(Err(refusal)).is_ok(),
            Self::Explain { reply, .. } => reply.send(Err(refusal)).is_ok(),
            Self::Grants { reply } => reply.send(Err(refusal)).is_ok(),
            Self::Revoke { reply, .. } => reply.send(Err(refusal)).is_ok(),
        }
    }
}

impl SessionHandle {
    /// Answers a permission request. The same decision again is not refused.
    pub async fn answer(
        &self,
        by: &By,
        permission: PermissionId,
        answer: Answer,
    ) -> Result<Permission, Refusal> {
        let (decision, scope) = (answer.decision, answer.scope);
        match self
            .ask(|reply| {
                Command::Permission(PermissionCommand::Answer { by: by.clone(), permission, answer, reply })
            })
            .await
        {
            Err(Refusal::PermissionNotFound) => {}
            result => return result,
        }
        // It was decided before, or there never was one.
        let decided = self.permission(permission).await?;
        match &decided.outcome {
            Some(outcome)
                if decided.state == PermissionState::Resolved
                    && (outcome.decision, outcome.scope) == (decision, scope) =>
            {
                Ok(decided)
            }
            _ => Err(Refusal::PermissionAlreadyResolved(Box::new(decided))),
        }
    }

    /// What the policy would make of a tool call.
    pub async fn explain(&self, call: AskedCall) -> Result<Explanation, Refusal> {
        self.ask(|reply| Command::Permission(PermissionCommand::Explain { call, reply })).await
    }

    /// What "always" has remembered, oldest first.
    pub async fn grants(&self) -> Result<Vec<PermissionGrant>, Refusal> {
        self.ask(|reply| Command::Permission(PermissionCommand::Grants { reply })).await
    }

    /// Takes remembered answers back: one, or all.
    pub async fn revoke(&self, by: &By, grant: Option<GrantId>) -> Result<(), Refusal> {
        self.ask(|reply| Command::Permission(PermissionCommand::Revoke { by: by.clone(), grant, reply }))
            .await
    }

    /// One permission, as committed.
    pub async fn permission(&self, permission: PermissionId) -> Result<Permission, Refusal> {
        self.store.permission(self.number(), permission).await?.ok_or(Refusal::PermissionNotFound)
    }
}
