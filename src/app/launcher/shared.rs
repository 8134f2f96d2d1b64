//! A session in the `goose serve` that all share: its connection, its processes, and what is left of it in goose.
//!
//! Measured on goose 1.52: a connection that is closed drops the run at once, but not the session with its tool servers,
//! nor the shells that it runs. Those carry goose's name of the session in their environment.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::agent::{GooseAgent, described};
use super::folders::make_private_folder;
use super::guard::Guard;
use super::process::AgentProcess;
use super::serve::{Serve, Served};
use super::settle::NotReady;
use super::{GooseLauncher, failed, not_made};
use crate::acp::{AgentSocket, Connection, Redactor, SocketCloser, WebSocket, WebSocketError};
use crate::acp::{close_session, delete_session};
use crate::goose::belonging;
use crate::goose::catalogue::same;
use crate::goose::extensions::{ExtensionChoice, ExtensionLevel};
use crate::goose::launch::Launch;
use crate::goose::serve::SESSION_VARIABLE;
use crate::goose::updates::GooseUpdates;
use crate::process::{ChildControl, DescendantSnapshot, ProcessMark};
use crate::session::agent::{AgentEvents, AgentExit, LaunchError, LaunchSpec, Mode, Notice};
use crate::session::id::SessionId;
use crate::session::turn::TurnErrorClass;

/// How long it may take to tell goose that a session is over whose connection is gone.
const CLOSING: Duration = Duration::from_secs(1);
/// How long goose may take to delete a session.
const DELETING: Duration = Duration::from_secs(10);
/// For how long a goose that cannot be reached may still look as if it ran.
const REPLACED: Duration = Duration::from_secs(10);
/// The file in a session's folder with goose's name of it.
const NAME: &str = "goose-session";
/// No name of goose's is longer, in bytes.
const NAME_BYTES: u64 = 256;

/// One session's part of the goose that all share. Cheap to clone.
#[derive(Clone)]
pub(super) struct SharedPart {
    served: Arc<Served>,
    closer: SocketCloser,
    /// goose's name of the session, once there is one.
    name: Arc<OnceLock<String>>,
    /// The folder that is the session's alone, if it has one.
    workspace: PathBuf,
    /// Whether goose has let go of the session.
    is_closed: Arc<AtomicBool>,
    /// Set once, when nothing of the session runs any more.
    exit: watch::Receiver<Option<AgentExit>>,
}

impl SharedPart {
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

    /// goose has made the session, or loads it.
    pub(super) fn note_name(&self, name: &str) {
        // A connection has one session.
        let _ = self.name.set(name.to_owned());
    }

    /// Waits until nothing of the session runs any more.
    pub(super) async fn ended(&self) -> AgentExit {
        let mut exit = self.exit.clone();
        let ended = exit.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone());
        // Only a runtime that is shut down drops the task that tells.
        ended.unwrap_or_else(lost)
    }

    pub(super) async fn sweep(&self, since: &DescendantSnapshot) -> (usize, bool) {
        match self.mark() {
            Some(mark) => self.control().sweep_of(&mark, since).await,
            None => (0, true),
        }
    }

    pub(super) async fn background(&self, since: &DescendantSnapshot) -> usize {
        match self.mark() {
            Some(mark) => self.control().background_of(&mark, since).await,
            None => 0,
        }
    }

    fn mark(&self) -> Option<ProcessMark> {
        let name = self.name.get()?;
        Some(ProcessMark::new((SESSION_VARIABLE, name), self.workspace.clone()))
    }

    /// Waits until the connection is closed, and ends what is left of the session then.
    async fn see_to_the_end(self, serve_limits: crate::acp::WebSocketLimits) -> AgentExit {
        tokio::select! {
            biased;
            status = self.control().exited() => return gone(&described(status)),
            () = self.closer.closed() => {}
        }
        if !self.is_closed.load(Ordering::Acquire) {
            // First, since it takes no answer of goose's, which may hang.
            self.kill_processes().await;
            let closing = async {
                let socket = self.served.connect(serve_limits).await.map_err(|error| error.to_string())?;
                match self.name.get() {
                    Some(name) => close_session(socket, name).await.map_err(|failure| failure.message),
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
        let Some(mark) = self.mark() else { return };
        let (_, complete) = self.control().kill_all_of(&mark).await;
        if !complete {
            tracing::warn!("processes of a session that is over do not end");
        }
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
    pub(super) async fn run_shared(
        &self,
        serve: &Serve,
        (session, mode, guard): (SessionId, Mode, Arc<Guard>),
        redactor: &Redactor,
        events: mpsc::Sender<AgentEvents>,
    ) -> Result<GooseAgent, LaunchError> {
        let ended = self.shared.parts(|parts| parts.get(&session).cloned());
        if let Some(part) = ended {
            // What is still being ended of its last connection must not hit what runs from now on.
            part.ended().await;
        }
        let (served, socket) = self.connect(serve).await?;
        let (report, exit) = watch::channel(None);
        let (name, is_closed) = (Arc::default(), Arc::default());
        let workspace = self.shared.settings.workspaces.join(session.to_string());
        let part = SharedPart { served, closer: socket.closer(), name, workspace, is_closed, exit };
        self.shared.parts(|parts| parts.insert(session, part.clone()));
        self.shared.tasks.spawn({
            let (launcher, part, limits) = (self.clone(), part.clone(), serve.limits);
            async move {
                report.send_replace(Some(part.clone().see_to_the_end(limits).await));
                launcher.shared.parts(|parts| {
                    if parts.get(&session).is_some_and(|now| Arc::ptr_eq(&now.name, &part.name)) {
                        parts.remove(&session);
                    }
                });
            }
        });
        let exit = {
            let part = part.clone();
            Box::pin(async move { part.ended().await })
        };
        let link = AgentSocket { socket, exit, redactor: redactor.clone() };
        let filter = Box::new(GooseUpdates::new(mode));
        let run = filter.run();
        let tasks = &self.shared.tasks;
        let connection = Connection::open_socket(link, filter, events, self.limits(), tasks);
        Ok(GooseAgent::new(connection, AgentProcess::Part(part), guard, run, tasks.clone()))
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
        if self.is_shared() && spec.builtins.is_some() {
            let server = &self.shared.settings.launch.extensions;
            let for_all = ExtensionChoice::resolve(server, &ExtensionLevel::default()).unwrap_or_default();
            let unasked = for_all.builtins.into_iter().filter(|name| !launch.builtins.contains(name));
            launch.switched_off.extend(unasked);
        }
    }

    /// What there is to tell of extensions that were unloaded: nothing of those that the session asked to be without, which
    /// all others have.
    pub(super) fn told_of_removed(&self, removed: &[String], spec: &LaunchSpec) -> Vec<Notice> {
        let is_asked_for = |name: &String| {
            spec.builtins.is_some() || spec.disabled_extensions.iter().any(|asked| same(asked, name))
        };
        let told = removed.iter().filter(|name| !(self.is_shared() && is_asked_for(name)));
        told.map(|name| belonging::removed(name)).collect()
    }

    /// goose has made the session.
    pub(super) async fn note_session(
        &self,
        session: SessionId,
        connection: &Connection,
        process: &AgentProcess,
    ) -> Result<(), NotReady> {
        if let (AgentProcess::Part(part), Some(name)) = (process, connection.session()) {
            part.note_name(name);
            if let Some(serve) = &self.shared.serve
                && let Err(why) = self.delete_in(serve, &part.served, session).await
            {
                // An earlier start made it and failed then. With its name nothing can be deleted any more.
                tracing::warn!(%session, why, "goose keeps a session that nobody has");
            }
            self.note_name(session, name).await.map_err(NotReady::Refused)?;
        }
        Ok(())
    }

    /// Notes goose's name of the session, by which what goose keeps of it can be deleted.
    async fn note_name(&self, session: SessionId, name: &str) -> Result<(), LaunchError> {
        let (folder, name) = (self.shared.settings.homes.join(session.to_string()), name.to_owned());
        let written = self.shared.tasks.spawn_blocking(move || fs::write(folder.join(NAME), name)).await;
        written.map_err(io::Error::other).flatten().map_err(|error| {
            tracing::error!(%error, "goose's name of a session cannot be kept");
            not_made("goose's name of the session cannot be kept", &error)
        })
    }

    /// Deletes what goose has kept of a deleted session, and its folders.
    pub(super) async fn discard_shared(self, session: SessionId) -> io::Result<()> {
        let Some(serve) = &self.shared.serve else { return Ok(()) };
        // It may have just ended, and is back in a moment.
        let deleted = match timeout(DELETING, serve.up()).await {
            Ok(Ok(served)) => self.delete_in(serve, &served, session).await,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("goose serve does not run".to_owned()),
        };
        if let Err(why) = deleted {
            tracing::warn!(%session, why, "goose keeps a deleted session until it is started again");
            serve.delete_later(session);
            return Ok(());
        }
        self.clone().remove_folders(session).await
    }

    /// Removes what is left of a session that was deleted in an earlier run. What goose has kept of it is deleted as soon
    /// as it runs.
    pub(in crate::app) async fn discard_orphan(&self, session: SessionId) -> io::Result<()> {
        let folder = self.shared.settings.homes.join(session.to_string());
        match &self.shared.serve {
            Some(serve) if is_shared_folder(&folder) => {
                serve.delete_later(session);
                Ok(())
            }
            _ => self.clone().remove_folders(session).await,
        }
    }

    /// Deletes what could not be deleted earlier. Before any other session is made, which may get the same name.
    pub(super) async fn delete_leftovers(&self, serve: &Serve, served: &Served) {
        for session in serve.take_leftovers() {
            let removed = match self.delete_in(serve, served, session).await {
                Ok(()) => self.clone().remove_folders(session).await.map_err(|error| error.to_string()),
                Err(why) => {
                    serve.delete_later(session);
                    Err(why)
                }
            };
            if let Err(why) = removed {
                tracing::warn!(%session, why, "something of a deleted session is left");
            }
        }
    }

    async fn delete_in(&self, serve: &Serve, served: &Served, session: SessionId) -> Result<(), String> {
        let folder = self.shared.settings.homes.join(session.to_string());
        let Some(name) = name_in(&folder).map_err(|error| error.to_string())? else { return Ok(()) };
        let deleting = async {
            let socket = served.connect(serve.limits).await.map_err(|error| error.to_string())?;
            delete_session(socket, &name).await.map_err(|failure| failure.message)
        };
        timeout(DELETING, deleting).await.map_err(|_| "it did not answer".to_owned())??;
        // goose gives the name to another session next.
        fs::remove_file(folder.join(NAME)).map_err(|error| error.to_string())
    }
}

/// Makes the folder of a session that goose keeps with all others, or looks whether it is one.
pub(super) fn prepare_folder(folder: &Path, resumes: bool) -> Result<(), LaunchError> {
    if !resumes {
        return make_private_folder(folder).map_err(|error| {
            tracing::error!(%error, "a session's folder cannot be made");
            not_made("the session's folder cannot be made", &error)
        });
    }
    match name_in(folder) {
        Ok(Some(_)) => Ok(()),
        _ if folder.is_dir() => {
            Err(failed("the session was made with goose.transport = \"stdio\" and works only with it"))
        }
        _ => Err(failed("what goose remembers of the session is gone")),
    }
}

/// Whether a session's folder is that of one which goose keeps with all others.
pub(super) fn is_shared_folder(folder: &Path) -> bool {
    folder.join(NAME).exists()
}

/// The home of the goose that all sessions share.
pub(super) fn home_of_all(homes: &Path) -> PathBuf {
    homes.join("serve")
}

/// goose's name of the session whose folder it is.
fn name_in(folder: &Path) -> io::Result<Option<String>> {
    use std::io::Read;
    let file = match fs::File::open(folder.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut name = String::new();
    file.take(NAME_BYTES).read_to_string(&mut name)?;
    Ok((!name.is_empty()).then_some(name))
}
