//! Who did what, and when: printed for whoever runs gander, and forgotten when it is old (`storage.keep_audit`).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::config::Config;
use crate::session::audit::AuditFilter;
use crate::session::id::Timestamp;
use crate::shutdown::Tasks;
use crate::store::{AuditLog, OpenError, SqliteStore};

/// The longest time between two looks for what is old.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);
/// The shortest one.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Opens what is kept in the storage folder, whether a gander runs on it or not.
pub fn read_audit(config: &Config, filter: AuditFilter) -> Result<AuditLog, OpenError> {
    AuditLog::open(&config.storage.dir, filter)
}

/// Forgets now and then what is older than `keep`, in steps that other writes come between. Zero: never.
pub(super) fn forget_old(store: &Arc<SqliteStore>, keep: Duration, tasks: &Tasks) {
    if keep.is_zero() {
        return;
    }
    let (store, soft) = (Arc::clone(store), tasks.soft().clone());
    let pause = (keep / 10).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    let forgetting = async move {
        loop {
            if let Some(before) = SystemTime::now().checked_sub(keep) {
                while let Some(more) = forget_some(&store, before.into()).await
                    && more
                {}
            }
            tokio::time::sleep(pause).await;
        }
    };
    tasks.spawn(async move {
        soft.run_until_cancelled(forgetting).await;
    });
}

/// Whether there is more; `None` when that is to be seen later.
async fn forget_some(store: &SqliteStore, before: Timestamp) -> Option<bool> {
    let forgotten = store.forget_audit(before).await;
    forgotten
        .inspect_err(|error| tracing::warn!(%error, "old entries of the audit could not be removed"))
        .ok()
}
