//! A running goose, as the core sees it.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::guard::Guard;
use super::process::AgentProcess;
use crate::acp::{Connection, StderrTail};
use crate::client_tools::SessionTools;
use crate::goose::belonging;
use crate::goose::skills::SkillPlaces;
use crate::goose::steer::{self, ActiveRun, SteerParams};
use crate::mcp_proxy::McpProxy;
use crate::process::{ChildControl, DescendantSnapshot};
use crate::session::agent::{
    Agent, AgentCommand, AgentExit, AgentGone, BoxFuture, Mode, Notice, SteerFailure, Sweep, Unfit,
};
use crate::session::id::{MessageId, TurnId};
use crate::session::turn::TurnErrorClass;
use crate::shutdown::Tasks;

/// A running goose.
pub(super) struct GooseAgent {
    pub(super) connection: Arc<Connection>,
    pub(super) process: AgentProcess,
    /// What ran when goose was ready: servers, and what they leave to themselves. None of it is a tool's.
    at_start: DescendantSnapshot,
    /// What ran when the turn began. A standard mutex: held for a copy, never across an await.
    mark: Arc<Mutex<DescendantSnapshot>>,
    guard: Arc<Guard>,
    /// The run of the turn.
    run: ActiveRun,
    skills: Skills,
    tasks: Tasks,
    /// What it reaches some of its tool servers through.
    proxy: Option<McpProxy>,
    /// What runs its commands, if it does not do so itself.
    tools: Option<SessionTools>,
}

/// What it takes to say where goose's skills are.
#[derive(Clone)]
pub(super) struct Skills {
    pub(super) places: SkillPlaces,
    /// The session's directory, as goose was told it.
    pub(super) cwd: PathBuf,
}

/// How long goose may take from a prompt to naming its run, which it does at once.
const RUN_PATIENCE: Duration = Duration::from_secs(10);

impl GooseAgent {
    pub(super) fn new(
        connection: Arc<Connection>,
        process: AgentProcess,
        guard: Arc<Guard>,
        run: ActiveRun,
        skills: Skills,
        tasks: Tasks,
    ) -> Self {
        let at_start = DescendantSnapshot::default();
        let (proxy, tools) = (None, None);
        Self { connection, process, at_start, mark: Arc::default(), guard, run, skills, tasks, proxy, tools }
    }

    /// With what runs its commands.
    pub(super) fn with_tools(mut self, tools: Option<SessionTools>) -> Self {
        self.tools = tools;
        self
    }

    /// Keeps the proxy for as long as goose.
    pub(super) fn keep(&mut self, proxy: Option<McpProxy>) {
        self.proxy = proxy;
    }

    /// goose is ready. A turn that it was woken for begins now, without a mark of its own.
    pub(super) async fn note_start(&mut self) {
        self.at_start = self.process.snapshot().await;
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = self.at_start.clone();
        self.tell_commands();
    }

    /// Has goose say which commands and skills there are now, which it does by itself for a new process alone: the
    /// workspace may have got others since.
    fn tell_commands(&self) {
        let (connection, Skills { places, cwd }) = (Arc::clone(&self.connection), self.skills.clone());
        self.tasks.spawn(async move {
            if connection.tell_commands().await
                && let Some(asked) = places.to_ask_for()
                && let Some(folders) = connection.skill_folders(&cwd).await
            {
                places.learn(asked, &folders, &cwd);
                connection.tell_commands().await;
            }
        });
    }

    /// Puts words into the running turn, as soon as goose has named its run.
    fn steer(
        &self,
        turn: TurnId,
        message: MessageId,
        prompt: Vec<Value>,
        done: oneshot::Sender<Result<(), SteerFailure>>,
    ) {
        let (connection, run) = (Arc::clone(&self.connection), self.run.clone());
        self.tasks.spawn(async move {
            let asked = async {
                let named = tokio::time::timeout(RUN_PATIENCE, run.of(turn)).await;
                let expected_run_id = named.unwrap_or(Err(SteerFailure::NotBegun))?;
                let session_id = connection.session().ok_or(SteerFailure::NotBegun)?.to_owned();
                let params = SteerParams { session_id, expected_run_id, prompt };
                let taken = move |answer: &RawValue| steer::taken(message, answer);
                connection.request_told(steer::METHOD, &params, taken).await.map_err(steer::refused)
            };
            // Whoever asked may have gone meanwhile.
            let _ = done.send(asked.await);
        });
    }
}

/// An agent that nobody holds, or whose start fails halfway, must not run on: the reader would keep it.
impl Drop for GooseAgent {
    fn drop(&mut self) {
        self.process.kill();
        if let Some(tools) = &self.tools {
            tools.end_now();
        }
    }
}

impl Agent for GooseAgent {
    fn send(&self, command: AgentCommand) -> Result<(), AgentGone> {
        match command {
            AgentCommand::Steer { turn, message, content, done } => {
                self.steer(turn, message, content, done);
                return Ok(());
            }
            AgentCommand::Prompt { turn, .. } => self.run.begin(turn),
            _ => {}
        }
        self.connection.send(command)
    }

    fn prepare_turn(&self) -> BoxFuture<Result<(), Unfit>> {
        self.tell_commands();
        let (process, mark, guard) = (self.process.clone(), Arc::clone(&self.mark), Arc::clone(&self.guard));
        Box::pin(async move {
            let (remembers_nothing, snapshot) = tokio::join!(guard.check_memory(), process.snapshot());
            *mark.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
            remembers_nothing
        })
    }

    fn check_extensions(&self, mode: Mode) -> BoxFuture<Result<Vec<Notice>, Unfit>> {
        let (connection, guard) = (Arc::clone(&self.connection), Arc::clone(&self.guard));
        Box::pin(async move {
            let removed = guard.tidy(&connection, None).await?;
            let removed = removed.iter().map(|name| belonging::removed(name));
            Ok(removed.chain(guard.belonging.warnings(mode)).collect())
        })
    }

    fn sweep(&self) -> BoxFuture<Sweep> {
        let (process, tools) = (self.process.clone(), self.tools.clone());
        let mark = self.mark.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            let commands = async {
                match tools {
                    Some(tools) => tools.sweep().await,
                    None => (0, true),
                }
            };
            let ((killed, complete), (commands_killed, commands_complete)) =
                tokio::join!(process.sweep(&mark), commands);
            Sweep { killed: killed + commands_killed, complete: complete && commands_complete }
        })
    }

    fn background(&self) -> BoxFuture<usize> {
        let (process, at_start, tools) = (self.process.clone(), self.at_start.clone(), self.tools.clone());
        Box::pin(async move {
            let commands = async {
                match tools {
                    Some(tools) => tools.background().await,
                    None => 0,
                }
            };
            let (own, commands) = tokio::join!(process.background(&at_start), commands);
            own + commands
        })
    }

    fn end(&self, grace: Duration) -> BoxFuture<()> {
        let (connection, process, tools) =
            (Arc::clone(&self.connection), self.process.clone(), self.tools.clone());
        Box::pin(async move {
            let commands = async {
                if let Some(tools) = tools {
                    tools.end().await;
                }
            };
            tokio::join!(process.end(&connection, grace), commands);
        })
    }
}

/// How goose ends; known when nothing is left of it and of its commands.
pub(super) fn exit_of(
    control: ChildControl,
    stderr: StderrTail,
    tools: Option<SessionTools>,
) -> BoxFuture<AgentExit> {
    Box::pin(async move {
        let status = control.exited().await;
        if let Some(tools) = tools {
            tools.end().await;
        }
        AgentExit {
            how: described(status),
            stderr_tail: stderr.text_at_exit().await,
            class: TurnErrorClass::AgentExited,
        }
    })
}

pub(super) fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown end".into(),
    }
}
