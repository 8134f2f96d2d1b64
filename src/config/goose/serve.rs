//! `[goose.serve]`: the one goose that all sessions share when `goose.transport` is "websocket".

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;

use crate::config::error::{Problem, Violation};
use crate::config::parse;
use crate::config::server::check_positive;

/// How gander talks to goose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GooseTransport {
    /// A `goose acp` per session, over its pipes.
    Stdio,
    /// One `goose serve` for all sessions, with a WebSocket for each.
    Websocket,
}

/// `[goose.serve]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeSettings {
    /// The address that it listens on.
    #[serde(deserialize_with = "parse::word")]
    pub host: IpAddr,
    /// Whether `host` may be another address than a loopback one.
    pub allow_remote_host: bool,
    /// The port that it listens on; 0: a free one.
    pub port: u16,
    /// How long it may take until it answers `GET /health`.
    #[serde(deserialize_with = "parse::duration")]
    pub startup_timeout: Duration,
    /// How often it is asked whether it is healthy.
    #[serde(deserialize_with = "parse::duration")]
    pub health_interval: Duration,
    /// How long it may take to answer that.
    #[serde(deserialize_with = "parse::duration")]
    pub health_timeout: Duration,
    /// How long to wait before it is started again, the first time; each time in a row it is twice as long.
    #[serde(deserialize_with = "parse::duration")]
    pub restart_backoff: Duration,
    /// The longest of these waits.
    #[serde(deserialize_with = "parse::duration")]
    pub restart_backoff_max: Duration,
    /// How often each connection to it is tried when nothing is heard.
    #[serde(deserialize_with = "parse::duration")]
    pub ping_interval: Duration,
    /// For how long nothing may be heard on a connection before it is given up.
    #[serde(deserialize_with = "parse::duration")]
    pub ping_timeout: Duration,
}

impl ServeSettings {
    pub(super) fn validate(&self) -> Result<(), Violation> {
        if !self.host.is_loopback() && !self.allow_remote_host {
            return Err(Violation::new(
                "goose.serve.host",
                Problem::GooseOpenToTheNetwork { host: self.host },
            ));
        }
        for (key, duration) in [
            ("goose.serve.startup_timeout", self.startup_timeout),
            ("goose.serve.health_interval", self.health_interval),
            ("goose.serve.health_timeout", self.health_timeout),
            ("goose.serve.restart_backoff", self.restart_backoff),
            ("goose.serve.ping_interval", self.ping_interval),
        ] {
            check_positive(key, duration)?;
        }
        for (key, longer, other, shorter) in [
            (
                "goose.serve.restart_backoff_max",
                self.restart_backoff_max,
                "goose.serve.restart_backoff",
                self.restart_backoff,
            ),
            ("goose.serve.ping_timeout", self.ping_timeout, "goose.serve.ping_interval", self.ping_interval),
        ] {
            if longer < shorter {
                return Err(Violation::new(key, Problem::ShorterThan { other }));
            }
        }
        Ok(())
    }
}
