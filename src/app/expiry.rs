//! Deletes sessions that nobody has used for long (`sessions.expire_after`).

use std::time::Duration;

use crate::session::audit::By;
use crate::session::handle::{Refusal, SessionHandle};
use crate::session::id::Timestamp;
use crate::session::log::Page;
use crate::session::registry::Registry;
use crate::shutdown::Tasks;

/// The longest time between two looks.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);
/// The shortest one.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Looks now and then for sessions without a turn for `expire_after` and deletes them, one after the other. Zero:
/// never.
pub(super) fn delete_unused(registry: &Registry, expire_after: Duration, tasks: &Tasks) {
    if expire_after.is_zero() {
        return;
    }
    let (registry, soft) = (registry.clone(), tasks.soft().clone());
    let pause = (expire_after / 10).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    let looking = async move {
        loop {
            tokio::time::sleep(pause).await;
            for session in registry.all() {
                if is_unused(&session, expire_after).await {
                    delete(&session).await;
                }
            }
        }
    };
    tasks.spawn(async move {
        soft.run_until_cancelled(looking).await;
    });
}

/// Whether the session's last turn, or its making when it had none, is so long ago, and no turn runs.
async fn is_unused(session: &SessionHandle, expire_after: Duration) -> bool {
    let newest = session.store().turns(session.number(), Page { before: None, limit: 1 }).await;
    let last_used = match newest {
        Ok(turns) => match turns.first() {
            Some(turn) => match turn.ended_at {
                Some(ended_at) => ended_at,
                None => return false,
            },
            None => match session.store().session(session.number()).await {
                Ok(Some(snapshot)) => snapshot.created_at,
                _ => return false,
            },
        },
        Err(_) => return false,
    };
    let age_ms = Timestamp::now().as_millis().saturating_sub(last_used.as_millis());
    u128::try_from(age_ms).is_ok_and(|age_ms| age_ms >= expire_after.as_millis())
}

async fn delete(session: &SessionHandle) {
    match session.delete_unless_running(&By::Expiry).await {
        Ok(()) => tracing::info!(session = %session.id(), "a session that was not used any more is deleted"),
        // It is used, or somebody else deletes it.
        Err(Refusal::TurnInProgress(_) | Refusal::Busy(_) | Refusal::SessionGone) => {}
        Err(error) => {
            tracing::warn!(session = %session.id(), %error, "a session that was not used any more could not be deleted");
        }
    }
}
