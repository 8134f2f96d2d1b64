//! Starts goose for a session: process, connection and checks put together behind the core's port.

mod agent;
mod folders;
mod guard;
mod hang;
mod hearing;
mod listing;
mod opening;
mod part;
mod process;
mod program;
mod serve;
mod servers;
mod settle;
mod shared_home;
mod tools;

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use self::agent::{GooseAgent, Skills, exit_of};
pub(super) use self::folders::make_private_folder;
use self::guard::Guard;
use self::listing::ListingCache;
use self::part::SessionPart;
use self::process::{AgentProcess, Run, process_spec};
use self::program::ProgramStamp;
pub(super) use self::serve::Serve;
use self::servers::Proxies;
use self::settle::{NotReady, Settled, Started, settle};
use crate::acp::{AgentPipes, Connection, Limits, Redactor, StderrTail};
use crate::client_tools::ToolSettings;
use crate::goose::belonging::Belonging;
use crate::goose::launch::{self, LaunchSettings, Mismatch};
use crate::goose::outcome;
use crate::goose::places::{HomeKind, SharedHome};
use crate::goose::servers::Servers;
use crate::goose::updates::GooseUpdates;
use crate::goose::version::Version;
use crate::process::{ProcessSpec, SpawnError, Spawner};
use crate::session::agent::{
    Agent, AgentEvents, AgentFacts, AgentLauncher, BoxFuture, ExtensionStatus, LaunchError, LaunchSpec,
    LaunchedAgent, Resume, ResumeToken, Unfit,
};
use crate::session::id::SessionId;
use crate::session::turn::TurnErrorClass;
use crate::shutdown::Tasks;

/// What every goose is started with.
pub(super) struct GooseSettings {
    /// Where the program is now; looked for at each start, so that one installed later is found.
    pub(super) find_program: Box<dyn Fn() -> Option<PathBuf> + Send + Sync>,
    pub(super) launch: LaunchSettings,
    /// The tool servers that sessions get.
    pub(super) servers: Servers,
    /// What goose is offered of gander's own file system and terminal.
    pub(super) tools: ToolSettings,
    /// Whose home new sessions work in.
    pub(super) home: HomeKind,
    /// The one that goose shares with its user, if the variables tell where that is.
    pub(super) shared_home: Option<SharedHome>,
    /// What a session's own home starts from; with the shared one the folder of its configuration.
    pub(super) config_dir: Option<PathBuf>,
    /// Where goose writes its log; `None`: where it does so by itself.
    pub(super) log_dir: Option<PathBuf>,
    /// Where the sessions' homes are, or what they have beside the shared one.
    pub(super) homes: PathBuf,
    /// Where the folders of sessions without a `cwd` are.
    pub(super) workspaces: PathBuf,
    pub(super) start_timeout: Duration,
    pub(super) request_timeout: Duration,
    pub(super) line_bytes: usize,
    pub(super) stderr_bytes: usize,
    pub(super) pending_permissions: usize,
    /// What callers must not see in a child's standard error.
    pub(super) redactor: Redactor,
}

/// Starts goose.
#[derive(Clone)]
pub(super) struct GooseLauncher {
    shared: Arc<Shared>,
}

struct Shared {
    settings: GooseSettings,
    spawner: Spawner,
    tasks: Tasks,
    /// The versions of the programs seen, by what tells a program from a later one in its place.
    /// A standard mutex: held for a look-up, never across an await.
    versions: Mutex<HashMap<ProgramStamp, Version>>,
    listing: ListingCache,
    proxies: Proxies,
    /// To start a goose that is to delete something.
    deleting: Semaphore,
    /// The goose that all sessions share; `None`: each has its own.
    serve: Option<Serve>,
    /// The sessions' parts of it, until nothing of them runs any more. A standard mutex, as above.
    parts: Mutex<HashMap<SessionId, SessionPart>>,
}

impl Shared {
    fn parts<T>(&self, look: impl FnOnce(&mut HashMap<SessionId, SessionPart>) -> T) -> T {
        look(&mut self.parts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl GooseLauncher {
    /// `serve`: the goose that all sessions share, if they do.
    pub(super) fn new(settings: GooseSettings, serve: Option<Serve>, spawner: Spawner, tasks: Tasks) -> Self {
        let (versions, parts, listing) = (Mutex::default(), Mutex::default(), ListingCache::default());
        let environment = settings.launch.inherited.iter().chain(&settings.launch.last).cloned().collect();
        let proxies = Proxies::new(environment, tasks.clone());
        let deleting = Semaphore::new(shared_home::DELETING);
        let shared = Shared { settings, spawner, tasks, versions, listing, proxies, deleting, serve, parts };
        Self { shared: Arc::new(shared) }
    }

    async fn launch(
        self,
        session: SessionId,
        spec: LaunchSpec,
        resume: Option<Resume>,
        events: mpsc::Sender<AgentEvents>,
        cancel: CancellationToken,
    ) -> Result<LaunchedAgent, LaunchError> {
        let settings = &self.shared.settings;
        let (program, version) = self.find().await?;
        let places = match &resume {
            Some(_) => self.kept_places(session).await?,
            None => self.new_places(session)?,
        };
        let mut launch = settings.launch.launch(&spec, &places).map_err(|error| failed(error.to_string()))?;
        self.narrow(&mut launch, &spec);
        refuse_without(launch.ruled_out(&spec.require_extensions))?;
        let earlier = resume.as_ref().map(|resume| resume.extensions.as_slice());
        let cwd = self.prepare(session, &spec, earlier, &places, &mut launch).await?;
        let mut servers = self.servers_for(&spec, &mut launch).await?;
        let belonging = Belonging::new(&launch.builtins, &launch.switched_off, earlier);
        let belonging = belonging.with_servers(&servers.names(), &servers.left_out());
        let guard = Arc::new(Guard { places, belonging, tasks: self.shared.tasks.clone() });
        guard.check_memory().await.map_err(|Unfit(reason)| failed(reason))?;
        // From here on every way out but the last one ends goose, since it drops this.
        let redactor = servers.redactor(&settings.redactor);
        let hearing = self.hearing(session, &guard.places, &redactor, &events);
        let tools = self.tools_for(&spec, guard.places.root(), cwd.clone());
        let run = Run { mode: spec.mode, guard: Arc::clone(&guard), cwd: cwd.clone(), tools };
        let mut agent = match &self.shared.serve {
            None => self.run(process_spec(program, &launch, cwd.clone()), run, &redactor, events).await?,
            Some(serve) => {
                let run = self.run_part(serve, session, run, &redactor, events);
                self.in_time(run, &cancel).await?
            }
        };
        agent.keep(servers.proxy.take());
        let GooseAgent { connection, process, .. } = &agent;
        let waiting = Waiting::for_what("goose has not answered initialize");
        let ready = async {
            let about = connection.initialize().await?;
            let (origin, session) =
                self.open_session(connection, &cwd, &servers, resume.as_ref(), &guard, &waiting).await?;
            let session = servers.without_left_out(hearing.complete(connection, session).await);
            waiting.now("goose has not taken the session's settings");
            let (provider, mode) = (settings.launch.own_provider(), self.first_mode(&spec));
            let started = Started { launch: &launch, provider, mode, origin };
            let settled = settle(connection, &spec, started, session).await?;
            waiting.now("goose has not told which extensions it has loaded");
            let removed = guard.tidy(connection, settled.session.extensions.as_deref()).await;
            Ok((about, settled, removed))
        };
        let ready = tokio::select! {
            ready = tokio::time::timeout(settings.start_timeout, ready) => match ready {
                Ok(Ok(ready)) => Ok(ready),
                Ok(Err(error)) => Err(self.start_failure(error, &redactor, process).await),
                Err(_) => {
                    let (waits, places) = (waiting.for_now(), &guard.places);
                    Err(self.timed_out(waits, &hearing, places, &servers.servers, process).await)
                }
            },
            () = cancel.cancelled() => Err(LaunchError::Cancelled),
        };
        let checked = ready.and_then(|(about, settled, removed)| {
            let removed = removed.map_err(|Unfit(reason)| failed(reason))?;
            let Settled { session: mut new, default_effort, notices } = settled;
            // In the shared home goose starts what is switched off here before it can be told to unload it.
            if let Some(found) = &mut new.extensions {
                found.retain(|extension| !guard.belonging.is_off(&extension.name));
            }
            let checked = launch::check(spec.mode, new.mode, new.config_options, new.extensions);
            let mut checked = checked.map_err(|mismatch| mismatched(&mismatch))?;
            checked.extensions.retain(|extension| !extension.loaded || guard.belonging.has(&extension.name));
            checked.notices.extend(notices.into_iter().chain(servers.notices()));
            checked.notices.extend(guard.notices(&removed, &checked.extensions, spec.mode, resume.is_none()));
            hearing.warn_of(&checked.extensions);
            refuse_without(launch::missing(&spec.require_extensions, &checked.extensions))?;
            let session = connection.session().ok_or_else(|| failed("goose did not name its session"))?;
            Ok((about, checked, default_effort, ResumeToken(session.to_owned())))
        });
        let (about, checked, default_effort, resume) = match checked {
            Ok(ready) => ready,
            Err(error) => {
                // A failed start leaves nothing running.
                agent.end(Duration::ZERO).await;
                return Err(error);
            }
        };
        let facts = AgentFacts {
            name: if about.name.is_empty() { "goose".into() } else { about.name },
            version: if about.version.is_empty() { version.to_string() } else { about.version },
            transport: process.transport(),
            pid: Some(process.pid()),
            cwd,
            mode: spec.mode,
            extensions: checked.extensions,
            config_options: checked.config_options,
            default_effort,
        };
        agent.note_start().await;
        Ok(LaunchedAgent { agent: Arc::new(agent), facts, resume, notices: checked.notices })
    }

    /// Starts the program and listens to it.
    async fn run(
        &self,
        process: ProcessSpec,
        Run { mode, guard, cwd, tools }: Run,
        redactor: &Redactor,
        events: mpsc::Sender<AgentEvents>,
    ) -> Result<GooseAgent, LaunchError> {
        let settings = &self.shared.settings;
        let child = self.shared.spawner.spawn(process).await.map_err(|error| not_spawned(&error))?;
        let control = child.control();
        let stderr =
            StderrTail::read(child.stderr, settings.stderr_bytes, redactor.clone(), &self.shared.tasks);
        let (tools, port) = tools.unzip();
        let pipes = AgentPipes {
            stdout: child.stdout,
            stdin: child.stdin,
            exit: exit_of(control.clone(), stderr.clone(), tools.clone()),
            kill: {
                let control = control.clone();
                Arc::new(move || control.kill())
            },
            redactor: redactor.clone(),
            tools: port,
        };
        let filter = Box::new(GooseUpdates::new(mode).in_folder(cwd.clone(), settings.tools.diff_bytes));
        let (run, places) = (filter.run(), filter.places());
        let connection = Connection::open(pipes, filter, events, self.limits(), &self.shared.tasks);
        let (process, skills) = (AgentProcess::Own(control, stderr), Skills { places, cwd });
        let agent = GooseAgent::new(connection, process, guard, run, skills, self.shared.tasks.clone());
        Ok(agent.with_tools(tools))
    }

    /// What bounds a connection.
    fn limits(&self) -> Limits {
        let settings = &self.shared.settings;
        Limits {
            line_bytes: settings.line_bytes,
            pending_permissions: settings.pending_permissions,
            // Besides the waits for the ends of all commands.
            client_requests: settings.tools.terminals + Limits::default().client_requests,
            // The whole start has this limit; what hangs is looked for when it is over, before goose is killed.
            start_timeout: 2 * settings.start_timeout,
            request_timeout: settings.request_timeout,
            ..Limits::default()
        }
    }

    async fn start_failure(
        &self,
        error: NotReady,
        redactor: &Redactor,
        process: &AgentProcess,
    ) -> LaunchError {
        let failure = match error {
            NotReady::Failed(failure) => failure,
            NotReady::Refused(error) => return error,
        };
        let message = outcome::without_addresses(&redactor.redact(&failure.message));
        let detail = format!("goose did not start a session: {message}");
        match failure.class {
            TurnErrorClass::ProviderNotConfigured => LaunchError::ProviderNotConfigured { detail },
            TurnErrorClass::AgentUnresponsive => LaunchError::Timeout {
                after: self.shared.settings.start_timeout,
                waiting_for: message,
                extensions: Vec::new(),
            },
            _ => LaunchError::Failed { detail, stderr_tail: process.last_words().await },
        }
    }
}

/// What a start waits for, for the one who has to say so when it takes too long. A standard mutex: held for a copy.
struct Waiting(Mutex<&'static str>);

impl Waiting {
    fn for_what(first: &'static str) -> Self {
        Self(Mutex::new(first))
    }

    fn now(&self, next: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    fn for_now(&self) -> &'static str {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AgentLauncher for GooseLauncher {
    fn launch(
        &self,
        session: SessionId,
        spec: LaunchSpec,
        resume: Option<Resume>,
        events: mpsc::Sender<AgentEvents>,
        cancel: CancellationToken,
    ) -> BoxFuture<Result<LaunchedAgent, LaunchError>> {
        Box::pin(self.clone().launch(session, spec, resume, events, cancel))
    }

    fn discard(&self, session: SessionId) -> BoxFuture<io::Result<()>> {
        Box::pin(self.clone().remove_folders(session))
    }
}

/// What it means that a session is not the one that was asked for.
fn mismatched(mismatch: &Mismatch) -> LaunchError {
    let detail = mismatch.to_string();
    match mismatch {
        Mismatch::ProviderNotConfigured => LaunchError::ProviderNotConfigured { detail },
        Mismatch::Mode { .. } => failed(detail),
    }
}

/// Whether an extension that the session requires is missing.
fn refuse_without(extensions: Vec<ExtensionStatus>) -> Result<(), LaunchError> {
    if extensions.is_empty() { Ok(()) } else { Err(LaunchError::ExtensionRequired { extensions }) }
}

fn not_spawned(error: &SpawnError) -> LaunchError {
    // The cause says what an operator has to change, e.g. that too many files are open.
    let cause = std::error::Error::source(error).map(ToString::to_string);
    tracing::error!(%error, cause, "goose cannot be run");
    if is_no_room(error) {
        return no_room();
    }
    failed(match error {
        SpawnError::ProgramNotFound { .. } => "goose was not found: set goose.command to its path",
        SpawnError::NotExecutable { .. } => "what goose.command names cannot be executed",
        SpawnError::WorkingDirectory { .. } => "the session's working directory cannot be entered",
        SpawnError::Invalid(_) | SpawnError::System(_) | SpawnError::HelperEnded => {
            "the system did not let goose start"
        }
    })
}

/// What a failure with files means: the detail is for people, without a path.
fn not_made(detail: &str, error: &(dyn Error + 'static)) -> LaunchError {
    if is_no_room(error) { no_room() } else { failed(detail) }
}

/// Whether the host has run out of something of which there may be more in a while.
fn is_no_room(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let errno = error.downcast_ref::<io::Error>().and_then(Errno::from_io_error);
        if matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOMEM)) {
            return true;
        }
        next = error.source();
    }
    false
}

fn no_room() -> LaunchError {
    LaunchError::NoRoom { detail: "the host has no file descriptor, process or memory left for goose".into() }
}

fn failed(detail: impl Into<String>) -> LaunchError {
    LaunchError::Failed { detail: detail.into(), stderr_tail: None }
}

#[cfg(test)]
mod tests;
