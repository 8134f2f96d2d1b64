//! Putting words into the running turn.

use tokio::sync::oneshot;

use super::{Finished, Next, SessionActor};
use crate::session::agent::{AgentCommand, SteerFailure};
use crate::session::audit::By;
use crate::session::handle::{Refusal, Reply};
use crate::session::id::{MessageId, TurnId};
use crate::session::turn::{Prompt, TurnErrorClass};

impl SessionActor {
    /// Asks the agent to take words for the running turn, in a task of its own, which reports.
    pub(super) async fn steer(&mut self, by: By, turn: TurnId, prompt: Prompt, reply: Reply<()>) -> Next {
        let trouble = self.store.trouble().borrow().clone();
        if let Some(error) = trouble {
            // What could not be told of must not be done.
            let _ = reply.send(Err(Refusal::Store(error)));
            return Next::GoOn;
        }
        let prompt = match self.with_real_links(prompt).await {
            Ok(prompt) => prompt,
            Err(refusal) => {
                let _ = reply.send(Err(refusal));
                return Next::GoOn;
            }
        };
        let message = MessageId::new();
        let content = prompt.clone().into_blocks();
        if let Err(refusal) = self.machine.steer(turn, message, by, prompt) {
            let _ = reply.send(Err(refusal));
            return Next::GoOn;
        }
        let (done, answer) = oneshot::channel();
        if let Some(agent) = &self.child.agent {
            // An agent that takes no commands drops `done`: the turn is about to be told as over.
            let _ = agent.send(AgentCommand::Steer { turn, message, content, done });
        }
        let reports = self.reports.sender.clone();
        self.tasks.spawn(async move {
            let result = answer.await.unwrap_or(Err(SteerFailure::TurnOver));
            let _ = reports.send(Finished::Steer { message, reply, result }).await;
        });
        Next::GoOn
    }

    /// The agent has answered; what it told before has been taken.
    pub(super) async fn steer_answered(
        &mut self,
        message: MessageId,
        reply: Reply<()>,
        result: Result<(), SteerFailure>,
    ) -> Next {
        let is_told = self.machine.steer_answered(message);
        let result = match result {
            Ok(()) if is_told => Ok(()),
            // Its turn had ended otherwise when it took them.
            Ok(()) | Err(SteerFailure::TurnOver) => Err(Refusal::TurnNotRunning),
            Err(SteerFailure::NotBegun) => Err(Refusal::Busy("its agent has not begun the turn yet")),
            Err(SteerFailure::Unsupported) => Err(Refusal::SteeringUnsupported),
            Err(SteerFailure::Failed(failure)) => Err(match failure.class {
                TurnErrorClass::AgentExited => Refusal::TurnNotRunning,
                TurnErrorClass::AgentUnresponsive => Refusal::Failed(failure.message),
                _ => Refusal::SteerRefused(failure),
            }),
        };
        self.answer_when_committed(reply, result).await;
        Next::GoOn
    }
}
