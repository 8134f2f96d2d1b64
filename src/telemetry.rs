//! Log output: to standard error, as text for people or JSON for machines.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogFormat, LogSettings};

/// Starts to log. Once per process; a second call changes nothing.
pub fn start(settings: &LogSettings) {
    // The configuration has been checked; should the filter not parse all the same, too much is logged, not nothing.
    let filter = EnvFilter::try_new(&settings.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = fmt().with_env_filter(filter).with_writer(stderr);
    let started = match settings.format {
        LogFormat::Text => builder.with_ansi(stderr().is_terminal()).finish().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
}
