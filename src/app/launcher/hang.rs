//! A start that takes too long: what it hangs on, as far as that can be seen.

use std::path::Path;

use super::GooseLauncher;
use crate::goose::starting;
use crate::process::ChildControl;
use crate::session::agent::LaunchError;
use crate::session::agent::servers::McpServer;

impl GooseLauncher {
    /// The error of a start that takes too long. To be asked for while goose still runs.
    pub(super) async fn timed_out(
        &self,
        waiting_for: &'static str,
        home: &Path,
        servers: &[McpServer],
        control: &ChildControl,
    ) -> LaunchError {
        let children = control.child_command_lines().await;
        let (home, servers) = (home.to_owned(), servers.to_vec());
        let looking =
            self.shared.tasks.spawn_blocking(move || starting::silent_servers(&home, &servers, &children));
        let extensions = looking.await.unwrap_or_else(|error| {
            tracing::error!(%error, "looking for what goose waits for failed");
            Vec::new()
        });
        let waiting_for = match extensions.as_slice() {
            [] => waiting_for.to_owned(),
            [name] => format!("{waiting_for}, and waits for the tool server {name}"),
            names => format!("{waiting_for}, and waits for one of the tool servers {}", names.join(", ")),
        };
        LaunchError::Timeout { after: self.shared.settings.start_timeout, waiting_for, extensions }
    }
}
