//! A start that takes too long: what it hangs on, as far as that can be seen.

use super::GooseLauncher;
use super::hearing::Hearing;
use super::process::AgentProcess;
use crate::goose::places::Places;
use crate::goose::starting;
use crate::session::agent::servers::McpServer;
use crate::session::agent::{ExtensionStatus, LaunchError};

impl GooseLauncher {
    /// The error of a start that takes too long. To be asked for while goose still runs.
    pub(super) async fn timed_out(
        &self,
        waiting_for: &'static str,
        hearing: &Hearing,
        places: &Places,
        servers: &[McpServer],
        process: &AgentProcess,
    ) -> LaunchError {
        let children = process.child_command_lines().await;
        let failed: Vec<String> = hearing.failures().await.into_iter().map(|failure| failure.name).collect();
        let (configuration, servers) = (places.configuration(), servers.to_vec());
        let looking = self
            .shared
            .tasks
            .spawn_blocking(move || starting::silent_servers(&configuration, &servers, &failed, &children));
        let names = looking.await.unwrap_or_else(|error| {
            tracing::error!(%error, "looking for what goose waits for failed");
            Vec::new()
        });
        let waiting_for = match names.as_slice() {
            [] => waiting_for.to_owned(),
            [name] => format!("{waiting_for}, and waits for the tool server {name}"),
            names => format!("{waiting_for}, and waits for one of the tool servers {}", names.join(", ")),
        };
        let silent = |name| ExtensionStatus { name, loaded: false, error: None };
        let extensions = names.into_iter().map(silent).collect();
        LaunchError::Timeout { after: self.shared.settings.start_timeout, waiting_for, extensions }
    }
}
