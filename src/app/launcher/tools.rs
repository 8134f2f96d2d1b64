//! gander's own file system and terminal, for one goose.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::GooseLauncher;
use crate::acp::ToolPort;
use crate::client_tools::{SessionTools, ToolSettings};
use crate::config::is_secret_name;
use crate::goose::home;
use crate::session::agent::LaunchSpec;

impl GooseLauncher {
    /// What a goose is offered that works in `cwd`; `None`: nothing.
    pub(super) fn tools_for(
        &self,
        spec: &LaunchSpec,
        home: &Path,
        cwd: PathBuf,
    ) -> Option<(SessionTools, ToolPort)> {
        let settings = &self.shared.settings.tools;
        if !settings.offered.filesystem && !settings.offered.terminal {
            return None;
        }
        let mut environment = settings.environment.clone();
        let temporary = home::temporary_folder(home).to_string_lossy().into_owned();
        environment.push(("TMPDIR".to_owned(), temporary));
        // The caller's own, and only those that a caller may set; a secret among them is for goose.
        let own = spec.env.iter().filter(|(name, _)| !is_secret_name(name));
        environment.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        let settings = ToolSettings { environment, ..settings.clone() };
        let (tools, events) =
            SessionTools::new(settings, cwd, self.shared.spawner.clone(), self.shared.tasks.clone());
        Some((tools.clone(), ToolPort { tools: Arc::new(tools), events }))
    }
}
