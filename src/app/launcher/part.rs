//! A session in the `goose serve` that all share: its connection, its processes, and what is left of it in goose.
//!
//! Measured on goose 1.52: a connection that is closed drops the run at once, but not the session with its tool servers,
//! nor the shells that it runs. Those carry goose's name of the session in their environment.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::agent::{GooseAgent, Skills, described};
use super::process::{AgentProcess, Run};
use super::serve::{Serve, Served};
use super::{GooseLauncher, failed};
use crate::acp::{AgentSocket, Connection, Redactor, SocketCloser, WebSocket, WebSocketError};
use crate::goose::extensions::{ExtensionChoice, ExtensionLevel};
use crate::goose::launch::Launch;
use crate::goose::serve::SESSION_VARIABLE;
use crate::goose::updates::GooseUpdates;
use crate::process::{ChildControl, DescendantSnapshot, ProcessMark};
use crate::session::agent::{AgentEvents, AgentExit, LaunchError, LaunchSpec, Mode};
use crate::session::id::SessionId;
use crate::session::turn::TurnErrorClass;

/// How long it may take to tell goose that a session is over whose connection is gone.
const CLOSING: Duration = Duration::from_secs(1);
/// For how long a goose that cannot be reached may still look as if it ran.
const REPLACED: Duration = Duration::from_secs(10);

/// One session's part of the goose that all share. Cheap to clone.
#[derive(Clone)]
pub(super) struct SessionPart {
    served: Arc<Served>,
    closer: SocketCloser,
    /// Which knows goose's name of the session, once there is one.
    connection: Arc<OnceLock<Arc<Connection>>>,
    /// The folder that is the session's alone, if it has one.
    workspace: PathBuf,
    /// Whether goose has let go of the session.
    is_closed: Arc<AtomicBool>,
    /// Set once, when nothing of the session runs any more.
    exit: watch::Receiver<Option<AgentExit>>,
}

impl SessionPart {
    pub(super) fn control(&self) -> &ChildControl {
        &self.served.control
    }

    /// Closes the connection, with which goose drops the run.
    pub(super) fn close(&self) {
        self.closer.close();
    }

    /// goose has let go of the session.
    pub(super) fn note_closed(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Waits until nothing of the session runs any more.
    pub(super) async fn ended(&self) -> AgentExit {
        let mut exit = self.exit.clone();
        let ended = exit.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone());
        // Only a runtime that is shut down drops the task that tells.
        ended.unwrap_or_else(lost)
    }

    pub(super) async fn sweep(&self, since: &DescendantSnapshot) -> (usize, bool) {
        self.control().sweep_of(&self.mark(), since).await
    }

    pub(super) async fn background(&self, since: &DescendantSnapshot) -> usize {
        self.control().background_of(&self.mark(), since).await
    }

    fn name(&self) -> Option<&str> {
        self.connection.get()?.session()
    }

    /// What tells the session's processes. Those that goose starts before it has named the session, its tool servers,
    /// work in the session's own folder at least, if it has one.
    fn mark(&self) -> ProcessMark {
        ProcessMark::new(self.name().map(|name| (SESSION_VARIABLE, name)), self.workspace.clone())
    }

    /// Waits until the connection is closed, and ends what is left of the session then.
    async fn see_to_the_end(self, launcher: &GooseLauncher) -> AgentExit {
        tokio::select! {
            biased;
            status = self.control().exited() => return gone(&described(status)),
            () = self.closer.closed() => {}
        }
        if !self.is_closed.load(Ordering::Acquire) {
            // First, since it takes no answer of goose's, which may hang.
            self.kill_processes().await;
            let closing = async {
                let connection = launcher.connection_to(&self.served).await.map_err(|_| ())?;
                match self.name() {
                    Some(name) => connection.close_kept_session(name, CLOSING).await.map_err(|_| ()),
                    None => Ok(()),
                }
            };
            if !matches!(timeout(CLOSING, closing).await, Ok(Ok(()))) {
                // Usually since it is on its way out: then its shim sees to everything.
                if let Ok(status) = timeout(CLOSING, self.control().exited()).await {
                    return gone(&described(status));
                }
                tracing::warn!("goose does not let go of a session whose connection is closed");
            }
        }
        // goose may have started something until it let go.
        self.kill_processes().await;
        lost()
    }

    /// Kills all that runs for the session: its shells, its tool servers and what they have started.
    async fn kill_processes(&self) {
        let (_, complete) = self.control().kill_all_of(&self.mark()).await;
        if !complete {
            tracing::warn!("processes of a session that is over do not end");
        }
    }
}

/// A connection that closes when it is dropped.
pub(super) struct ShortConnection {
    connection: Arc<Connection>,
    closer: SocketCloser,
}

impl std::ops::Deref for ShortConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for ShortConnection {
    fn drop(&mut self) {
        self.closer.close();
    }
}

fn gone(how: &str) -> AgentExit {
    AgentExit {
        how: format!("goose serve, which all sessions share, ended: {how}"),
        stderr_tail: String::new(),
        class: TurnErrorClass::AgentExited,
    }
}

fn lost() -> AgentExit {
    AgentExit {
        how: "its connection to goose serve was lost".to_owned(),
        stderr_tail: String::new(),
        class: TurnErrorClass::AgentExited,
    }
}

impl GooseLauncher {
    /// Connects to the goose that all share and listens to it.
    pub(super) async fn run_part(
        &self,
        serve: &Serve,
        session: SessionId,
        Run { mode, guard, cwd, tools }: Run,
        redactor: &Redactor,
        events: mpsc::Sender<AgentEvents>,
    ) -> Result<GooseAgent, LaunchError> {
        let ended = self.shared.parts(|parts| parts.get(&session).cloned());
        if let Some(part) = ended {
            // What is still being ended of its last connection must not hit what runs from now on.
            part.ended().await;
        }
        let (served, socket) = self.connect(serve).await?;
        let redactor = served.redactor(redactor);
        let (report, exit) = watch::channel(None);
        let (part_of, is_closed) = (Arc::<OnceLock<Arc<Connection>>>::default(), Arc::default());
        let workspace = self.shared.settings.workspaces.join(session.to_string());
        let part = SessionPart {
            served,
            closer: socket.closer(),
            connection: Arc::clone(&part_of),
            workspace,
            is_closed,
            exit,
        };
        self.shared.parts(|parts| parts.insert(session, part.clone()));
        self.shared.tasks.spawn({
            let (launcher, part) = (self.clone(), part.clone());
            async move {
                report.send_replace(Some(part.clone().see_to_the_end(&launcher).await));
                launcher.shared.parts(|parts| {
                    if parts.get(&session).is_some_and(|now| Arc::ptr_eq(&now.connection, &part.connection)) {
                        parts.remove(&session);
                    }
                });
            }
        });
        let (tools, tool_port) = tools.unzip();
        let exit = {
            let (part, tools) = (part.clone(), tools.clone());
            Box::pin(async move {
                let exit = part.ended().await;
                if let Some(tools) = tools {
                    tools.end().await;
                }
                exit
            })
        };
        let link = AgentSocket { socket, exit, redactor, tools: tool_port };
        let diff_bytes = self.shared.settings.tools.diff_bytes;
        let filter = Box::new(GooseUpdates::new(mode).in_folder(cwd.clone(), diff_bytes));
        let (run, places) = (filter.run(), filter.places());
        let tasks = &self.shared.tasks;
        let connection = Connection::open_socket(link, filter, events, self.limits(), tasks);
        // It is new.
        let _ = part_of.set(Arc::clone(&connection));
        let (process, skills) = (AgentProcess::Part(part), Skills { places, cwd });
        let agent = GooseAgent::new(connection, process, guard, run, skills, tasks.clone());
        Ok(agent.with_tools(tools))
    }

    /// A connection for something else than a session's turns; it closes when it is dropped.
    async fn connection_to(&self, served: &Served) -> Result<ShortConnection, WebSocketError> {
        let Some(serve) = &self.shared.serve else {
            return Err(io::Error::other("nothing is shared").into());
        };
        let socket = served.connect(serve.limits).await?;
        let closer = socket.closer();
        let exit = {
            let closer = closer.clone();
            Box::pin(async move {
                closer.closed().await;
                lost()
            })
        };
        let redactor = served.redactor(&self.shared.settings.redactor);
        let link = AgentSocket { socket, exit, redactor, tools: None };
        let filter = Box::new(GooseUpdates::new(Mode::Chat));
        let (events, tasks) = (self.nobody_listens(), &self.shared.tasks);
        let connection = Connection::open_socket(link, filter, events, self.limits(), tasks);
        Ok(ShortConnection { connection, closer })
    }

    /// A connection to delete sessions over, if the goose that all share runs.
    pub(super) async fn connect_to_delete(&self) -> Option<ShortConnection> {
        let served = self.shared.serve.as_ref()?.running()?;
        self.connection_to(&served).await.ok()
    }

    /// Waits until it runs, if it has just ended.
    async fn connect(&self, serve: &Serve) -> Result<(Arc<Served>, WebSocket), LaunchError> {
        loop {
            let served = serve.up().await?;
            match served.connect(serve.limits).await {
                Ok(socket) => return Ok((served, socket)),
                Err(WebSocketError::Refused(401)) => {
                    return Err(failed("goose serve refuses the secret that the gateway has given it (401)"));
                }
                Err(WebSocketError::Refused(status)) => {
                    return Err(failed(format!("goose serve refuses the connection with status {status}")));
                }
                Err(WebSocketError::Failed(error)) => {
                    if timeout(REPLACED, serve.replaced(&served)).await.is_err() {
                        return Err(failed(format!("goose serve cannot be reached: {error}")));
                    }
                }
            }
        }
    }

    /// The same for a start: it has its time, and may be given up.
    pub(super) async fn in_time<T>(
        &self,
        starting: impl Future<Output = Result<T, LaunchError>>,
        cancel: &CancellationToken,
    ) -> Result<T, LaunchError> {
        let after = self.shared.settings.start_timeout;
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(LaunchError::Cancelled),
            started = timeout(after, starting) => started.unwrap_or_else(|_| {
                let fault = self.serve_fault();
                let waiting_for = fault.unwrap_or_else(|| "goose serve does not take a connection".to_owned());
                Err(LaunchError::Timeout { after, waiting_for, extensions: Vec::new() })
            }),
        }
    }

    /// The mode that a new session is in by itself.
    pub(super) fn first_mode(&self, spec: &LaunchSpec) -> Mode {
        self.shared.serve.as_ref().map_or(spec.mode, |serve| serve.spec.mode)
    }

    /// Takes from what goose was started with for all what the session has not asked for in its own list.
    pub(super) fn narrow(&self, launch: &mut Launch, spec: &LaunchSpec) {
        if self.one_serves_all() && spec.builtins.is_some() {
            let server = &self.shared.settings.launch.extensions;
            let for_all = ExtensionChoice::resolve(server, &ExtensionLevel::default()).unwrap_or_default();
            let unasked = for_all.builtins.into_iter().filter(|name| !launch.builtins.contains(name));
            launch.switched_off.extend(unasked);
        }
    }
}

/// The home of the goose that all sessions share.
pub(super) fn home_of_all(homes: &Path) -> PathBuf {
    homes.join("serve")
}
