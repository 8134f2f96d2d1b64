//! `[turns]`, `[cancel]` and `[crash]`: how long turns may take, how they are stopped, and what becomes of a session
//! whose goose dies again and again.

use std::time::Duration;

use serde::Deserialize;

use super::error::Violation;
use super::limits::check_count;
use super::parse;
use super::server::check_positive;

/// `[turns]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnSettings {
    /// How long a turn may take; zero: as long as it likes.
    #[serde(deserialize_with = "parse::duration")]
    pub max_duration: Duration,
}

/// `[cancel]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelSettings {
    /// How long goose may take to end a turn that it was told to end, before it is killed.
    #[serde(deserialize_with = "parse::duration")]
    pub grace: Duration,
}

/// `[crash]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrashSettings {
    /// How many deaths of a session's goose, with no turn finished between them, make the session fail.
    pub deaths: usize,
    /// Within how long.
    #[serde(deserialize_with = "parse::duration")]
    pub within: Duration,
    /// How long such a session then takes no turn.
    #[serde(deserialize_with = "parse::duration")]
    pub cooldown: Duration,
}

impl CrashSettings {
    pub(super) fn validate(&self) -> Result<(), Violation> {
        check_count("crash.deaths", self.deaths)?;
        check_positive("crash.within", self.within)
    }
}
