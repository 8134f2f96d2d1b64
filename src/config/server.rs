//! `[server]`: where gander listens and how it serves.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::error::{Problem, Violation};
use super::limits::{check_at_most, check_count};
use super::parse;
use crate::ip_range::IpRange;

/// More padding than any proxy's buffer.
const MOST_PADDING: usize = 65_536;

/// `[server]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSettings {
    /// The address to listen on.
    #[serde(deserialize_with = "parse::socket_address")]
    pub listen: SocketAddr,
    /// The address on which the figures are read without a token; `None`: nowhere.
    #[serde(deserialize_with = "parse::optional_socket_address")]
    pub metrics_listen: Option<SocketAddr>,
    /// Hosts that a request without a token may name besides this machine's own names, in lower case, with
    /// or without a port. Empty: the listen address.
    #[serde(deserialize_with = "parse::list")]
    pub allowed_hosts: Vec<String>,
    /// Origins of browsers that may call, as `scheme://host[:port]` in lower case.
    #[serde(deserialize_with = "parse::list")]
    pub cors_origins: Vec<String>,
    /// What gander is called from outside, without a slash at the end; `None`: as its callers call it.
    #[serde(deserialize_with = "parse::optional_text")]
    pub public_url: Option<String>,
    /// The proxies that are believed when they say for whom they ask: addresses and ranges of them.
    #[serde(deserialize_with = "parse::list")]
    trusted_proxies: Vec<String>,
    /// Which headers those write.
    #[serde(deserialize_with = "parse::word")]
    pub proxy_headers: ProxyHeaders,
    /// How long an event stream may be silent before a comment is sent.
    #[serde(deserialize_with = "parse::duration")]
    pub heartbeat: Duration,
    /// Spaces in that comment, for proxies that hold back what is small.
    pub heartbeat_padding: usize,
    /// How long running turns may go on after the signal to end.
    #[serde(deserialize_with = "parse::duration")]
    pub shutdown_grace: Duration,
    /// How long a connection may take to send its request's headers.
    #[serde(deserialize_with = "parse::duration")]
    pub header_timeout: Duration,
    /// How long a peer may take nothing of what it is sent; then its connection is closed.
    #[serde(deserialize_with = "parse::duration")]
    pub write_timeout: Duration,
    /// Connections served at a time; more wait to be accepted.
    pub max_connections: usize,
}

/// The headers in which proxies say for whom they ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum ProxyHeaders {
    /// `X-Forwarded-For`.
    #[serde(rename = "x-forwarded-for")]
    XForwardedFor,
    /// `X-Forwarded-For`, `-Proto` and `-Host`.
    #[serde(rename = "x-forwarded")]
    XForwarded,
    /// `Forwarded` (RFC 7239).
    #[serde(rename = "forwarded")]
    Forwarded,
}

impl ServerSettings {
    /// The proxies that are believed.
    #[must_use]
    pub fn trusted_proxies(&self) -> Vec<IpRange> {
        // The configuration has been checked.
        self.trusted_proxies.iter().filter_map(|range| range.parse().ok()).collect()
    }

    /// The host of the public URL with its port, unless that is the scheme's own, and its origin as browsers send it.
    #[must_use]
    pub fn public_host_and_origin(&self) -> Option<(String, String)> {
        let url = Url::parse(self.public_url.as_ref()?).ok()?;
        let host = url.host_str()?;
        let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        Some((host, url.origin().ascii_serialization()))
    }

    pub(super) fn validate(&self) -> Result<(), Violation> {
        for host in &self.allowed_hosts {
            if !is_host(host) {
                return Err(Violation::new(
                    "server.allowed_hosts",
                    Problem::NotAHost { found: host.clone() },
                ));
            }
        }
        for origin in &self.cors_origins {
            if !is_origin(origin) {
                let problem = Problem::NotAnOrigin { found: origin.clone() };
                return Err(Violation::new("server.cors_origins", problem));
            }
        }
        if let Some(url) = self.public_url.as_ref().filter(|url| !is_public_url(url)) {
            let problem = Problem::NotAPublicUrl { found: url.clone() };
            return Err(Violation::new("server.public_url", problem));
        }
        for range in &self.trusted_proxies {
            if IpRange::from_str(range).is_err() {
                let problem = Problem::NotAnIpRange { found: range.clone() };
                return Err(Violation::new("server.trusted_proxies", problem));
            }
        }
        for (key, duration) in [
            ("server.heartbeat", self.heartbeat),
            ("server.header_timeout", self.header_timeout),
            ("server.write_timeout", self.write_timeout),
        ] {
            check_positive(key, duration)?;
        }
        check_at_most("server.heartbeat_padding", self.heartbeat_padding, MOST_PADDING)?;
        check_count("server.max_connections", self.max_connections)
    }

    /// The comparisons are on exact bytes, and browsers send hosts in lower case.
    pub(super) fn resolve(&mut self) {
        for entry in self.allowed_hosts.iter_mut().chain(&mut self.cors_origins) {
            entry.make_ascii_lowercase();
        }
        if let Some(url) = &mut self.public_url {
            url.truncate(url.trim_end_matches('/').len());
        }
    }
}

/// Fails when nothing would ever be waited for.
pub(super) fn check_positive(key: &str, duration: Duration) -> Result<(), Violation> {
    if duration.is_zero() { Err(Violation::new(key, Problem::ZeroDuration)) } else { Ok(()) }
}

/// Whether the text is `scheme://host[:port]` and nothing more (RFC 6454, section 6.2).
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(is_host)
}

/// Whether the text is the address of a place below which gander can be: no user, query or fragment.
fn is_public_url(text: &str) -> bool {
    let is_written_out = text.starts_with("http://") || text.starts_with("https://");
    is_written_out
        && Url::parse(text).is_ok_and(|url| {
            let authority = (url.username().is_empty(), url.password().is_none(), url.has_host());
            authority == (true, true, true) && url.query().is_none() && url.fragment().is_none()
        })
}

/// Whether the text is a host name, IPv4 address or bracketed IPv6 address, perhaps with a port.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let host_is_fine = match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
        }
    };
    host_is_fine && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|number| number > 0))
}

#[cfg(test)]
mod tests {
    use super::{is_host, is_origin, is_public_url};

    #[test]
    fn a_public_url_names_a_place_and_nothing_more() {
        for url in [
            "https://gander.example.org",
            "http://127.0.0.1:8080",
            "https://a.example/gander",
            "https://[::1]:1",
        ] {
            assert!(is_public_url(url), "{url}");
        }
        for url in [
            "gander.example.org",
            "ftp://a",
            "https://",
            "https://u:p@a",
            "https://a/?b",
            "https://a/#b",
            "https:a",
        ] {
            assert!(!is_public_url(url), "{url}");
        }
    }

    #[test]
    fn hosts_and_origins_are_told_from_addresses_of_pages() {
        for host in
            ["localhost", "a.example.org", "a.example.org:8080", "127.0.0.1:4665", "[::1]", "[::1]:80"]
        {
            assert!(is_host(host), "{host}");
            assert!(is_origin(&format!("https://{host}")), "{host}");
        }
        for host in ["", "a b", "a/b", "::1", "[::1", "a:", "a:0", "a:70000", "*", "user@a", "https://a"] {
            assert!(!is_host(host), "{host}");
            assert!(!is_origin(&format!("http://{host}")), "{host}");
        }
        for origin in ["null", "*", "a.example.org", "https://a/", "https://a/b", "ftp://a", "https://"] {
            assert!(!is_origin(origin), "{origin}");
        }
    }
}
