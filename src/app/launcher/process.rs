//! The process that a session's goose is: one of its own, or its part of the one that all sessions share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::guard::Guard;
use super::part::SessionPart;
use crate::acp::{Connection, StderrTail, ToolPort};
use crate::client_tools::SessionTools;
use crate::goose::launch::Launch;
use crate::process::{ChildControl, DescendantSnapshot, ProcessSpec};
use crate::session::agent::Mode;

/// What can be done to the process of a session's goose. Cheap to clone.
#[derive(Clone)]
pub(super) enum AgentProcess {
    /// A `goose acp` of the session's own.
    Own(ChildControl, StderrTail),
    /// The session in the `goose serve` of all.
    Part(SessionPart),
}

impl AgentProcess {
    fn control(&self) -> &ChildControl {
        match self {
            Self::Own(control, _) => control,
            Self::Part(part) => part.control(),
        }
    }

    /// How gander talks to it, in the API's word.
    pub(super) fn transport(&self) -> &'static str {
        match self {
            Self::Own(..) => "stdio",
            Self::Part(_) => "websocket",
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.control().pid()
    }

    /// Ends it at once, with all that it has started; of one that others share, the session's part.
    pub(super) fn kill(&self) {
        match self {
            Self::Own(control, _) => control.kill(),
            Self::Part(part) => part.close(),
        }
    }

    /// What runs now.
    pub(super) async fn snapshot(&self) -> DescendantSnapshot {
        self.control().snapshot().await
    }

    /// Kills what tools have started since. How many, and whether none is left.
    pub(super) async fn sweep(&self, since: &DescendantSnapshot) -> (usize, bool) {
        match self {
            Self::Own(control, _) => control.sweep(since).await,
            Self::Part(part) => part.sweep(since).await,
        }
    }

    /// How many processes tools have left running since.
    pub(super) async fn background(&self, since: &DescendantSnapshot) -> usize {
        match self {
            Self::Own(control, _) => control.background(since).await,
            Self::Part(part) => part.background(since).await,
        }
    }

    /// Ends a process of the session's own, whose start has failed, and gives what it wrote to its standard error. What
    /// others share may have written of them.
    pub(super) async fn last_words(&self) -> Option<String> {
        let Self::Own(control, stderr) = self else { return None };
        control.kill();
        control.exited().await;
        Some(stderr.text_at_exit().await).filter(|tail| !tail.is_empty())
    }

    /// The command lines of its children.
    pub(super) async fn child_command_lines(&self) -> Vec<Vec<String>> {
        self.control().child_command_lines().await
    }

    /// Ends it: by itself within `grace`, else by force. Done when nothing is left.
    pub(super) async fn end(&self, connection: &Connection, grace: Duration) {
        match self {
            Self::Own(control, _) => {
                connection.close_stdin();
                control.end(grace).await;
            }
            Self::Part(part) => {
                if !grace.is_zero() && connection.close_session(grace).await.is_ok() {
                    part.note_closed();
                    connection.close_stdin();
                    if timeout(grace, part.ended()).await.is_ok() {
                        return;
                    }
                }
                part.close();
                part.ended().await;
            }
        }
    }
}

/// How the program is started.
pub(super) fn process_spec(program: PathBuf, launch: &Launch, cwd: PathBuf) -> ProcessSpec {
    ProcessSpec {
        program,
        arguments: launch.arguments.iter().map(Into::into).collect(),
        environment: launch.environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        cwd,
    }
}

/// What a goose is run for.
pub(super) struct Run {
    pub(super) mode: Mode,
    pub(super) guard: Arc<Guard>,
    /// Where it works.
    pub(super) cwd: PathBuf,
    /// What it is offered, and who does it.
    pub(super) tools: Option<(SessionTools, ToolPort)>,
}
