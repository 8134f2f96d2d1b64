//! Who is told of commits.

use std::sync::Arc;
use std::time::Duration;

/// Told of every commit that brought events: their bytes, and how long it took. Called by the writer's thread, which
/// waits for it.
#[derive(Clone)]
pub struct OnCommit(pub Arc<dyn Fn(usize, Duration) + Send + Sync>);

impl Default for OnCommit {
    fn default() -> Self {
        Self(Arc::new(|_, _| {}))
    }
}

impl std::fmt::Debug for OnCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnCommit")
    }
}
