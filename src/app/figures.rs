//! The figures' own listener, and what they ask of this host.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::StartError;
use crate::config::Config;
use crate::http::{Api, metrics, server};
use crate::metrics::Moment;
use crate::process::Spawner;
use crate::store::SqliteStore;

/// Linux' pages on the machines that goose is built for.
const PAGE_BYTES: u64 = 4096;

/// What the figures ask of this host. Cheap to clone.
#[derive(Clone)]
pub(super) struct HostFigures {
    dir: Arc<Path>,
    spawner: Spawner,
    limits: [(&'static str, u64); 4],
}

impl HostFigures {
    pub(super) fn new(config: &Config, spawner: Spawner) -> Self {
        let limits = [
            ("sessions.max", config.sessions.max as u64),
            ("sessions.max_running", config.sessions.max_running as u64),
            ("storage.max_bytes", config.storage.max_bytes),
            ("storage.queue_bytes", u64::from(config.storage.queue_bytes)),
        ];
        Self { dir: config.storage.dir.as_path().into(), spawner, limits }
    }

    pub(super) async fn moment(self, store: Arc<SqliteStore>) -> Moment {
        let mut storage_bytes = 0;
        for name in ["gander.db", "gander.db-wal"] {
            storage_bytes += tokio::fs::metadata(self.dir.join(name)).await.map_or(0, |file| file.len());
        }
        Moment {
            queued_bytes: store.queued_bytes(),
            storage_bytes,
            storage_writable: store.check_writable().await.is_ok(),
            limits: self.limits.to_vec(),
            processes_killed: self.spawner.killed(),
            resident_bytes: resident_bytes().await,
            ..Moment::default()
        }
    }
}

/// This process's memory, as proc(5) tells it in pages; 0 where it does not.
async fn resident_bytes() -> u64 {
    let text = tokio::fs::read_to_string(PathBuf::from("/proc/self/statm")).await.unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * PAGE_BYTES
}

pub(super) async fn bind(address: Option<SocketAddr>) -> Result<Option<server::Listener>, StartError> {
    let Some(address) = address else { return Ok(None) };
    let listener = server::bind(address).await.map_err(|source| StartError::Listen { address, source })?;
    tracing::info!(address = %listener.address(), "figures are served without a token");
    Ok(Some(listener))
}

/// Serves the figures until the gateway ends.
pub(super) fn serve(listener: server::Listener, api: &Api) {
    let (router, api) = (metrics::router(api.clone()), api.clone());
    api.tasks.clone().spawn(async move {
        server::serve(listener, router, &api.settings, &api.tasks, api.tasks.hard()).await;
    });
}
