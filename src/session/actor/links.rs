//! Looking at what a prompt links, before the agent does.

use std::path::PathBuf;

use super::SessionActor;
use crate::session::handle::Refusal;
use crate::session::links::{has_links, moved, resolve};
use crate::session::turn::{Prompt, Turn};

impl SessionActor {
    /// The prompt with the real paths of the files that it links, or what is wrong with them.
    pub(super) async fn with_real_links(&mut self, prompt: Prompt) -> Result<Prompt, Refusal> {
        if !has_links(&prompt) {
            return Ok(prompt);
        }
        let directory = self.machine.snapshot().cwd.clone().map(PathBuf::from);
        let most_bytes = self.linked_file_bytes;
        let looked = self.tasks.spawn_blocking(move || resolve(prompt, directory.as_deref(), most_bytes));
        match tokio::time::timeout(super::permissions::LOOK_UP, looked).await {
            Ok(Ok(resolved)) => resolved.map_err(Refusal::LinkRefused),
            _ => {
                tracing::warn!(session = %self.log.session(), "the disk does not say where a prompt's links lead");
                Err(Refusal::Busy("its directory cannot be read at the moment"))
            }
        }
    }

    /// Looks again at what a turn links that has waited: meanwhile other turns have worked in the directory.
    pub(super) async fn look_again_at_links(&mut self, turn: &Turn) -> Result<(), Refusal> {
        let Some(prompt) = turn.prompt.clone() else { return Ok(()) };
        let now = self.with_real_links(prompt).await?;
        let moved = turn.prompt.as_ref().map(|before| moved(before, &now)).unwrap_or_default();
        if moved.is_empty() { Ok(()) } else { Err(Refusal::LinkRefused(moved)) }
    }
}
