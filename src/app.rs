//! Wires everything together: the only module that knows all others.
//!
//! [`App::start`] opens and binds, [`App::run`] serves until gander is told to stop. The order of the start matters:
//! the store's lock first (two gateways on one folder must not end each other's children), then the children that an
//! earlier run left, then the sessions, then the listener.

mod adapters;
mod audit;
mod expiry;
mod figures;
mod observing;
mod extensions;
mod launcher;
mod service_manager;
mod settings;
mod trial;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use self::adapters::{Host, SqliteAnswers};
pub use self::audit::read_audit;
use self::figures::HostFigures;
use self::observing::Observing;
use self::service_manager::ServiceManager;
use self::settings::{extension_facts, http_settings, launcher, session_settings, tenancy};
pub use self::trial::{Trial, try_goose};
use crate::config::{Config, StorageSync};
use crate::demo::ScriptedModel;
use crate::goose::version::Version;
use crate::http::auth::{self, Callers};
use crate::http::openapi::ServedDocument;
use crate::http::stream::OpenStreams;
use crate::http::{Api, server};
use crate::metrics::Metrics;
use crate::process::Spawner;
use crate::session::agent::LaunchError;
use crate::session::log::{Store, StoreError};
use crate::session::registry::Registry;
use crate::shutdown::Tasks;
use crate::store::{OnCommit, OpenError, SqliteStore, StoreConfig, Synchronous};
use crate::traces::ExporterError;

/// How long callers may take to read the end of their answers, once no turn runs any more.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// How long, after everything was told to end at once, it may take.
const HARD_END: Duration = Duration::from_secs(5);

/// How long the process may then take to exit.
const TO_EXIT: Duration = Duration::from_secs(2);

/// Why gander does not start. One line each.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A folder or file of the storage.
    #[error("the storage folder {} cannot be used: {source}", dir.display())]
    Storage {
        /// `storage.dir`.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database, once open.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The tokens file.
    #[error(transparent)]
    Tokens(#[from] auth::TokensError),
    /// The way to the collector of traces.
    #[error("traces cannot be sent: {0}")]
    Traces(#[from] ExporterError),
    /// The listen address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// `server.listen`.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The built-in model, or the watch over child processes.
    #[error("cannot start {what}: {source}")]
    System {
        /// What.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything has ended.
    Clean,
    /// Something did not end in time.
    Forced,
}

/// A gander that listens and is ready to serve.
pub struct App {
    listener: server::Listener,
    metrics_listener: Option<server::Listener>,
    api: Api,
    store: Arc<SqliteStore>,
    tasks: Tasks,
    observing: Observing,
    shutdown_grace: Duration,
    service_manager: ServiceManager,
    /// For the people who started it.
    pub welcome: Welcome,
}

/// What there is to say at the start.
#[derive(Debug)]
pub struct Welcome {
    /// Where it listens.
    pub address: SocketAddr,
    /// `server.public_url`.
    pub public_url: Option<String>,
    /// Where the generated token is; `None` with a tokens file or without authentication.
    pub token_file: Option<PathBuf>,
    /// Whether callers need a token.
    pub auth_required: bool,
    /// goose's version, or why it cannot be used.
    pub goose: Result<Version, LaunchError>,
    /// The provider that goose will use; `None` when none is set up.
    pub provider: Option<String>,
    /// Whether the built-in model stands in for a provider.
    pub demo: bool,
}

impl App {
    /// Opens the store, ends what an earlier run left, and binds the address.
    pub async fn start(config: &Config, demo: bool, tasks: &Tasks) -> Result<Self, StartError> {
        let dir = &config.storage.dir;
        let storage = |source| StartError::Storage { dir: dir.clone(), source };
        launcher::make_private_folder(dir).map_err(storage)?;
        warn_if_open_to_others(dir).map_err(storage)?;
        let metrics = Metrics::new();
        let store = open_store(config, &metrics, tasks).await?;
        let callers = callers(config, dir).map_err(|error| match error {
            CallersError::Tokens(error) => StartError::Tokens(error),
            CallersError::Token(source) => storage(source),
        })?;
        let spawner = spawner(dir, tasks)?;
        spawner
            .adopt_and_kill_strays()
            .map_err(|source| StartError::System { what: "the watch over child processes", source })?;
        let left_over = spawner.kill_left_over().await;
        if left_over > 0 {
            tracing::warn!(count = left_over, "processes of an earlier run were killed");
        }
        let model = if demo {
            let model = ScriptedModel::start(tasks).await;
            Some(model.map_err(|source| StartError::System { what: "the built-in model", source })?)
        } else {
            None
        };
        let figures = HostFigures::new(config, spawner.clone());
        let launcher = launcher(config, model.as_ref(), spawner, tasks);
        let observing = Observing::start(config, Arc::clone(&store) as Arc<dyn Store>, &metrics)?;
        let registry = Registry::open(
            Arc::clone(&store) as Arc<dyn Store>,
            Arc::new(launcher.clone()),
            session_settings(config),
            tasks.clone(),
        )
        .await?;
        // A crash can come between a session's folders and its row.
        let existing = registry.clone();
        launcher.remove_orphans(move |session| existing.find(session).is_some()).await;
        launcher.supervise();
        audit::forget_old(&store, config.storage.keep_audit, tasks);
        expiry::delete_unused(&registry, config.sessions.expire_after, tasks);

        let address = config.server.listen;
        let listener =
            server::bind(address).await.map_err(|source| StartError::Listen { address, source })?;
        let metrics_listener = figures::bind(config.server.metrics_listen).await?;
        let goose = launcher.find().await.map(|(_, version)| version);
        let tickets = auth::Tickets::kept_in(dir.join("stream-tickets"));
        let CallersAndToken { callers, token_file } = callers;
        let callers = callers.with_tickets(tickets);
        callers.watch(tasks);
        let welcome = Welcome {
            address: listener.address(),
            public_url: config.server.public_url.clone(),
            token_file,
            auth_required: config.auth.required,
            goose,
            provider: config.provider(),
            demo,
        };
        let api = Api {
            registry,
            callers,
            settings: Arc::new(http_settings(config, listener.address())),
            answers: Arc::new(SqliteAnswers(Arc::clone(&store))),
            host: Arc::new(Host::new(Arc::clone(&store), figures, extension_facts(config, launcher), demo)),
            tracer: observing.tracer.clone(),
            document: ServedDocument::default(),
            metrics,
            streams: OpenStreams::default(),
            tasks: tasks.clone(),
        };
        Ok(Self {
            listener,
            metrics_listener,
            api,
            store,
            tasks: tasks.clone(),
            observing,
            shutdown_grace: config.server.shutdown_grace,
            service_manager: ServiceManager::new(config.notify_socket()),
            welcome,
        })
    }

    /// Serves until the tasks' soft signal, then lets what runs end: within the grace by itself, then by force.
    pub async fn run(self) -> Ended {
        let Self { listener, metrics_listener, api, store, tasks, observing, shutdown_grace, .. } = self;
        let service_manager = self.service_manager;
        let registry = api.registry.clone();
        let settings = Arc::clone(&api.settings);
        if let Some(listener) = metrics_listener {
            figures::serve(listener, &api);
        }
        let router = crate::http::router(api);
        let closing = CancellationToken::new();
        let serving = tasks.spawn({
            let (tasks, closing) = (tasks.clone(), closing.clone());
            async move { server::serve(listener, router, &settings, &tasks, &closing).await }
        });
        service_manager.ready();
        tasks.soft().cancelled().await;
        service_manager.stopping(shutdown_grace + LAST_ANSWERS + HARD_END + TO_EXIT);
        let grace = humantime::format_duration(shutdown_grace);
        tracing::info!(
            "stopping: nothing new is taken, running turns may end within {grace}; a second signal ends them at once"
        );
        let all_ended = tokio::select! {
            ended = tokio::time::timeout(shutdown_grace, registry.all_ended()) => ended.is_ok(),
            () = tasks.hard().cancelled() => false,
        };
        if !all_ended {
            tracing::warn!("running turns are interrupted");
        }
        closing.cancel();
        // Callers get what is on its way to them, unless they do not take it.
        if all_ended && tokio::time::timeout(LAST_ANSWERS, serving).await.is_err() {
            tracing::warn!("callers that did not take their answers are cut off");
        }
        tasks.hard().cancel();
        let ended = tokio::time::timeout(HARD_END, async {
            tasks.finished().await;
            store.close().await;
            observing.finish().await;
        })
        .await;
        match ended {
            Ok(()) => Ended::Clean,
            Err(_) => {
                tracing::error!("something could not be ended");
                Ended::Forced
            }
        }
    }
}

/// A folder that was there before may be one in which others can put a token or a database of theirs.
fn warn_if_open_to_others(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(dir)?.permissions().mode() & 0o777;
    if mode & 0o022 != 0 {
        tracing::warn!(
            dir = %dir.display(),
            mode = %format_args!("{mode:o}"),
            "other users can write in the storage folder: take that from them (chmod 700)"
        );
    }
    Ok(())
}

/// Opens the store on a thread that may wait for the disk.
async fn open_store(
    config: &Config,
    metrics: &Metrics,
    tasks: &Tasks,
) -> Result<Arc<SqliteStore>, StartError> {
    let storage = &config.storage;
    let metrics = metrics.clone();
    let settings = StoreConfig {
        on_commit: OnCommit(Arc::new(move |bytes, took| metrics.committed(bytes, took))),
        synchronous: match storage.sync {
            StorageSync::Normal => Synchronous::Normal,
            StorageSync::Full => Synchronous::Full,
        },
        queue_bytes: storage.queue_bytes,
        tail_bytes: storage.tail_bytes,
        answers_kept: storage.idempotency_keep,
        max_bytes: storage.max_bytes,
        reserve_bytes: storage.reserve_bytes,
        ..StoreConfig::new(storage.dir.clone())
    };
    let opened = tasks.spawn_blocking(move || SqliteStore::open(settings)).await;
    let opened = opened.map_err(StoreError::failed)?;
    Ok(opened?)
}

fn spawner(dir: &Path, tasks: &Tasks) -> Result<Spawner, StartError> {
    // Children of every run on this folder carry its hash, by which a later run finds them. The path itself is nothing
    // for a child to know.
    let hash = Sha256::digest(dir.as_os_str().as_encoded_bytes());
    let storage_id = u64::from_be_bytes(std::array::from_fn(|index| hash[index]));
    // The link stays right when the file is replaced by an upgrade.
    Spawner::new(PathBuf::from("/proc/self/exe"), format!("{storage_id:016x}"), tasks.clone())
        .map_err(|source| StartError::System { what: "the watch over child processes", source })
}

struct CallersAndToken {
    callers: Callers,
    token_file: Option<PathBuf>,
}

enum CallersError {
    Tokens(auth::TokensError),
    Token(io::Error),
}

fn callers(config: &Config, dir: &Path) -> Result<CallersAndToken, CallersError> {
    if !config.auth.required {
        tracing::warn!(
            "auth.required = false: whatever runs on this host can call gander, also the agent's own shell, which \
             could answer its own permission requests"
        );
        return Ok(CallersAndToken { callers: Callers::anyone(), token_file: None });
    }
    if let Some(file) = &config.auth.tokens_file {
        let callers = Callers::of_file(file.clone(), tenancy(config)).map_err(CallersError::Tokens)?;
        return Ok(CallersAndToken { callers, token_file: None });
    }
    let token = auth::ensure_token(dir).map_err(CallersError::Token)?;
    let token_file = Some(token.path().to_owned());
    Ok(CallersAndToken { callers: Callers::of_generated(&token), token_file })
}
