//! Asking goose which extensions a session would get, once per program and configuration.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::sync::OnceCell;

use super::GooseLauncher;
use super::folders::make_places;
use super::program::{ProgramStamp, Stamp};
use crate::goose::home;
use crate::goose::listing::{self, Listed};
use crate::process::ProcessSpec;
use crate::session::agent::{LaunchSpec, Mode};
use crate::session::id::SessionId;

/// How long `goose info -v` may take, unless `goose.start_timeout` is shorter. It took 0.1 s on two slow cores.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How much of its answer is read, in bytes. Version 1.52 writes 3 KB.
const OUTPUT_BYTES: u64 = 1 << 20;
/// For how long a failure is remembered: a goose that hangs must not be started by every request.
const FAILURE_KEPT: Duration = Duration::from_secs(30);

/// What goose listed, or why it did not; for people, without a path.
type Listing = Result<Arc<[Listed]>, String>;

/// The last listing. A standard mutex: held for a look-up, never across an await.
#[derive(Default)]
pub(super) struct ListingCache(Mutex<Option<Cached>>);

#[derive(Clone)]
struct Cached {
    of: ListingOf,
    cell: Arc<OnceCell<Asked>>,
}

/// What a listing depends on.
#[derive(Clone, PartialEq, Eq)]
struct ListingOf {
    program: ProgramStamp,
    /// goose's configuration file, as it was.
    configuration: Option<Stamp>,
}

struct Asked {
    at: Instant,
    listing: Listing,
}

impl Asked {
    fn is_worth_keeping(&self) -> bool {
        self.listing.is_ok() || self.at.elapsed() < FAILURE_KEPT
    }
}

impl ListingCache {
    /// The cell for this program and configuration: that of an earlier listing, or an empty one.
    fn cell(&self, of: ListingOf) -> Arc<OnceCell<Asked>> {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = cached
            .take()
            .filter(|cached| cached.of == of && cached.cell.get().is_none_or(Asked::is_worth_keeping));
        let usable = usable.unwrap_or_else(|| Cached { of, cell: Arc::default() });
        cached.insert(usable).cell.clone()
    }

    /// What is known without asking.
    fn known(&self) -> Option<Arc<[Listed]>> {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.as_ref()?.cell.get()?.listing.clone().ok()
    }
}

impl GooseLauncher {
    /// The extensions as goose lists them for a session that says nothing of them. Asked once at a time, and not again
    /// while program and configuration are the same.
    pub(in crate::app) async fn listing(&self) -> Listing {
        let (program, _) = self.find().await.map_err(|error| error.to_string())?;
        let unreadable = |_| "goose cannot be read: see goose.command".to_owned();
        let configuration = match &self.shared.settings.config_dir {
            Some(folder) => Stamp::of(&home::configuration_in(folder)).await.ok(),
            None => None,
        };
        let of = ListingOf { program: ProgramStamp::of(&program).await.map_err(unreadable)?, configuration };
        let cell = self.shared.listing.cell(of);
        // A task of its own: who asks may leave, and the next one is not to start goose again.
        let asking = self.shared.tasks.spawn({
            let launcher = self.clone();
            async move {
                let ask = async || Asked { at: Instant::now(), listing: launcher.ask_listing(program).await };
                cell.get_or_init(ask).await.listing.clone()
            }
        });
        asking.await.unwrap_or_else(|error| {
            tracing::error!(%error, "asking goose for its extensions failed");
            Err("the gateway could not ask goose".into())
        })
    }

    /// The listing, when goose has been asked before.
    pub(in crate::app) fn known_listing(&self) -> Option<Arc<[Listed]>> {
        self.shared.listing.known()
    }

    async fn ask_listing(&self, program: PathBuf) -> Listing {
        // Like a session's, so that it lists what a session gets; one that is left over goes at the next start.
        let session = SessionId::new();
        let listing = self.ask_in(program, session).await;
        if let Err(error) = self.clone().remove_folders(session).await {
            tracing::warn!(%error, "a goose home is left");
        }
        if let Err(reason) = &listing {
            tracing::warn!(reason, "goose's extensions are unknown");
        }
        listing
    }

    async fn ask_in(&self, program: PathBuf, session: SessionId) -> Listing {
        let settings = &self.shared.settings;
        let spec = LaunchSpec::new(Mode::SmartApprove);
        let places = self.new_places(session).map_err(|error| error.to_string())?;
        let launch = settings.launch.launch(&spec, &places).map_err(|error| error.to_string())?;
        let prepared = self.shared.tasks.spawn_blocking({
            let (launch, config_dir) = (launch.clone(), settings.config_dir.clone());
            move || make_places(&places, config_dir.as_deref(), &launch)
        });
        prepared.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let spec = ProcessSpec {
            program,
            arguments: ["info", "-v"].map(OsString::from).into(),
            environment: launch
                .environment
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            cwd: PathBuf::from("/"),
        };
        let child = self.shared.spawner.spawn(spec).await.map_err(|error| {
            tracing::warn!(%error, "goose cannot be run");
            "goose could not be run".to_owned()
        })?;
        let control = child.control();
        drop(child.stdin);
        let mut output = Vec::new();
        let limit = TIMEOUT.min(settings.start_timeout);
        let read =
            tokio::time::timeout(limit, child.stdout.take(OUTPUT_BYTES).read_to_end(&mut output)).await;
        // Its home is removed next.
        control.kill();
        control.exited().await;
        let in_time =
            || format!("goose did not list its extensions within {}", humantime::format_duration(limit));
        read.map_err(|_| in_time())?.map_err(|_| "goose's answer could not be read".to_owned())?;
        let listed = listing::parse(&String::from_utf8_lossy(&output)).map_err(|error| error.to_string())?;
        Ok(listed.into())
    }
}
