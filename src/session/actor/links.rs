//! Looking at what a prompt links, before the agent does.

use std::path::PathBuf;

use super::SessionActor;
use crate::session::handle::Refusal;
use crate::session::links::{LinkFault, has_links, moved, resolve};
use crate::session::state::Step;
use crate::session::turn::{Prompt, Turn, TurnError, TurnErrorClass};

/// Why a prompt with links goes no further.
enum LinkTrouble {
    /// What it links is not taken.
    Refused(Vec<LinkFault>),
    /// The disk does not say.
    Unknown,
}

impl SessionActor {
    /// The prompt with the real paths of the files that it links, or what is wrong with them.
    pub(super) async fn with_real_links(&mut self, prompt: Prompt) -> Result<Prompt, Refusal> {
        self.look_at_links(prompt).await.map_err(|trouble| match trouble {
            LinkTrouble::Refused(faults) => Refusal::LinkRefused(faults),
            LinkTrouble::Unknown => Refusal::Busy("its directory cannot be read at the moment"),
        })
    }

    /// Looks again at what a turn links that has waited: meanwhile others have worked in the directory. The error is what
    /// the turn ends with.
    pub(super) async fn look_again_at_links(&mut self, turn: &Turn) -> Result<(), TurnError> {
        let Some(prompt) = &turn.prompt else { return Ok(()) };
        let now = self.look_at_links(prompt.clone()).await.map_err(unsent)?;
        let moved = moved(prompt, &now);
        if moved.is_empty() { Ok(()) } else { Err(unsent(LinkTrouble::Refused(moved))) }
    }

    /// The same for the running turn, when its prompt has waited for the agent: a turn whose links have moved fails.
    pub(super) async fn refuse_waiting_links(&mut self, step: &mut Step) {
        let Some(turn) = self.machine.waiting_turn() else { return };
        if let Err(error) = self.look_again_at_links(&turn).await {
            self.machine.refuse_waiting(step, error);
        }
    }

    async fn look_at_links(&mut self, prompt: Prompt) -> Result<Prompt, LinkTrouble> {
        if !has_links(&prompt) {
            return Ok(prompt);
        }
        let directory = self.machine.snapshot().cwd.clone().map(PathBuf::from);
        let most_bytes = self.linked_file_bytes;
        let looked = self.tasks.spawn_blocking(move || resolve(prompt, directory.as_deref(), most_bytes));
        match tokio::time::timeout(super::permissions::LOOK_UP, looked).await {
            Ok(Ok(resolved)) => resolved.map_err(LinkTrouble::Refused),
            _ => {
                tracing::warn!(session = %self.log.session(), "the disk does not say where a prompt's links lead");
                Err(LinkTrouble::Unknown)
            }
        }
    }
}

/// What a turn ends with whose prompt was not sent.
fn unsent(trouble: LinkTrouble) -> TurnError {
    let (message, retryable) = match trouble {
        LinkTrouble::Refused(faults) => (Refusal::LinkRefused(faults).to_string(), false),
        LinkTrouble::Unknown => (
            "the session's directory cannot be read at the moment, so what the prompt links is unknown"
                .into(),
            true,
        ),
    };
    TurnError { class: TurnErrorClass::PromptRefused, message, retryable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_disk_that_does_not_answer_is_worth_another_try() {
        let fault = LinkFault { block: 1, detail: "must be another file".into() };
        let moved = unsent(LinkTrouble::Refused(vec![fault]));
        assert!(!moved.retryable && moved.message.contains("must be another file"), "{moved:?}");
        let unknown = unsent(LinkTrouble::Unknown);
        assert!(unknown.retryable && unknown.message.contains("cannot be read at the moment"), "{unknown:?}");
    }
}
