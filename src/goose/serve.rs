//! What is to be known of `goose serve`: its command line, what it is asked, and what it says when it cannot start.
//!
//! Measured on goose 1.52: it answers `GET /health` after 12 to 23 ms and without a secret, everything else only with it;
//! the port that it takes for `--port 0` it tells nobody; a message of more than 16 MiB drops the connection.

use std::net::IpAddr;

use super::version::Version;

/// The oldest goose whose `goose serve` gander works with: those before it do not say which extensions of a session have
/// loaded, and of several sessions their log does not tell either.
pub const OLDEST: Version = Version::new(1, 52, 0);

/// The variable that tells goose the secret of this run.
pub const SECRET_VARIABLE: &str = "GOOSE_SERVER__SECRET_KEY";
/// The header that proves the secret.
pub const SECRET_HEADER: &str = "x-secret-key";
/// The path that is asked whether it is well.
pub const HEALTH_PATH: &str = "/health";
/// The path that takes a WebSocket.
pub const WEBSOCKET_PATH: &str = "/acp";
/// The longest message that it takes, in bytes.
pub const MESSAGE_BYTES: usize = 16 << 20;
/// The variable that tells a shell, or a tool server, which of goose's sessions it belongs to.
pub const SESSION_VARIABLE: &str = "AGENT_SESSION_ID";
/// How many sessions goose keeps in memory; others it loads again, with their tool servers, when they are prompted.
pub const MAX_ACTIVE_VARIABLE: &str = "GOOSE_MAX_ACTIVE_AGENTS";

/// The arguments of `goose serve`.
#[must_use]
pub fn arguments(host: IpAddr, port: u16, builtins: &[String], scheduler: bool) -> Vec<String> {
    // Measured: without the brackets an IPv6 address and the port make no socket address.
    let host = match host {
        IpAddr::V4(host) => host.to_string(),
        IpAddr::V6(host) => format!("[{host}]"),
    };
    let mut arguments: Vec<String> =
        ["serve", "--host", &host, "--port", &port.to_string()].map(str::to_owned).into();
    if !builtins.is_empty() {
        arguments.extend(["--with-builtin".to_owned(), builtins.join(",")]);
    }
    if scheduler {
        arguments.push("--enable-scheduler".to_owned());
    }
    arguments
}

/// Whether its last words say that somebody else has the port.
#[must_use]
pub fn says_port_is_taken(stderr: &str) -> bool {
    stderr.contains("Address already in use")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_either_kind_is_an_argument() {
        let todo = ["todo".to_owned(), "memory".to_owned()];
        for (host, builtins, scheduler, line) in [
            ("127.0.0.1", &[][..], false, "serve --host 127.0.0.1 --port 7"),
            ("::1", &todo, true, "serve --host [::1] --port 7 --with-builtin todo,memory --enable-scheduler"),
        ] {
            assert_eq!(arguments(host.parse().unwrap(), 7, builtins, scheduler).join(" "), line);
        }
    }
}
