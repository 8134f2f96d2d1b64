//! The hosts that callers' servers may be on.

use std::fmt;

use url::{Host, Url};

/// A host, or all below a domain; on one port, or on any.
///
/// Compared with what goose's own parser of URLs makes of an address, so that no way of writing one means another host
/// here than there: `http://127.1/` is `127.0.0.1` for both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    host: Host,
    /// Whether it stands for the hosts below that domain, and not for the domain.
    below: bool,
    port: Option<u16>,
}

impl HostPattern {
    /// Reads `host`, `host:port`, `[::1]:port` or `*.example.org`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => {
                // `parse` would take a sign too.
                let digits = port.bytes().all(|byte| byte.is_ascii_digit());
                (name, Some(port.parse().ok().filter(|port| digits && *port != 0)?))
            }
            _ => (text, None),
        };
        let (name, below) = name.strip_prefix("*.").map_or((name, false), |domain| (domain, true));
        let plain =
            |letter: char| letter.is_alphanumeric() || matches!(letter, '.' | '-' | '_' | '[' | ']' | ':');
        if !name.chars().all(plain) || name.starts_with('.') {
            return None;
        }
        let host = Host::parse(name).ok()?;
        if below && !matches!(host, Host::Domain(_)) {
            return None;
        }
        Some(Self { host, below, port })
    }

    /// Whether the address is of such a host.
    #[must_use]
    pub fn matches(&self, url: &str) -> bool {
        let Ok(url) = Url::parse(url) else { return false };
        if self.port.is_some() && url.port_or_known_default() != self.port {
            return false;
        }
        match (&self.host, url.host()) {
            (Host::Domain(domain), Some(Host::Domain(name))) if self.below => name
                .strip_suffix(domain.as_str())
                .is_some_and(|start| start.len() > 1 && start.ends_with('.')),
            (host, Some(name)) => name.to_owned() == *host,
            (_, None) => false,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = if self.below { "*." } else { "" };
        write!(formatter, "{start}{}", self.host)?;
        self.port.map_or(Ok(()), |port| write!(formatter, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::HostPattern;

    #[test]
    fn hosts_are_matched_as_goose_understands_them() {
        for (pattern, inside, outside) in [
            (
                "example.org",
                &["http://example.org/", "https://EXAMPLE.org:8443/a?b", "http://example.org\\@evil.net/"][..],
                &[
                    "http://a.example.org/",
                    "http://example.org.evil.net/",
                    "http://evil.net/example.org",
                    "http://example.org@evil.net/",
                    "http://evil.net?@example.org",
                    "http://evil.net#example.org",
                    "http://evil.net\\example.org",
                ][..],
            ),
            (
                "example.org:443",
                &["https://example.org/", "http://example.org:443/"],
                &["http://example.org/", "https://example.org:8443/"],
            ),
            (
                "*.example.org",
                &["http://a.example.org/", "http://a.b.example.org:1/", "http://xn--bcher-kva.example.org/"],
                &[
                    "http://example.org/",
                    "http://badexample.org/",
                    "http://.example.org/",
                    "http://a.example.org.x/",
                ],
            ),
            (
                "127.0.0.1:9000",
                &[
                    "http://127.0.0.1:9000/mcp",
                    "http://127.1:9000/",
                    "http://0x7f.0.0.1:9000/",
                    "http://2130706433:9000",
                ],
                &[
                    "http://127.0.0.1/",
                    "http://127.0.0.2:9000/",
                    "http://localhost:9000/",
                    "http://[::1]:9000/",
                ],
            ),
            (
                "[::1]",
                &["http://[::1]:9000/", "http://[0:0::1]/"],
                &["http://127.0.0.1/", "http://[::2]/", "no url"],
            ),
            ("[::1]:80", &["http://[::1]/"], &["https://[::1]/"]),
            (
                "Bücher.example",
                &["http://bücher.example/", "http://xn--bcher-kva.example"],
                &["http://bucher.example/"],
            ),
        ] {
            let host = HostPattern::parse(pattern).unwrap();
            for url in inside {
                assert!(host.matches(url), "{pattern} {url}");
            }
            for url in outside {
                assert!(!host.matches(url), "{pattern} {url}");
            }
        }
    }

    #[test]
    fn what_is_no_host_is_no_pattern() {
        for text in [
            "",
            "*",
            "*.",
            "a:",
            "a:0",
            "a:+1",
            "a:70000",
            "::1",
            "[::1",
            "a/b",
            "user@a",
            "http://a",
            "a b",
            "*.1.2.3.4",
            "*.*.a",
            ".a",
            "a?b",
            "[::1]x",
        ] {
            assert_eq!(HostPattern::parse(text), None, "{text:?}");
        }
        for text in ["a.example:8080", "[::1]:80", "*.example.org", "10.0.0.1"] {
            assert_eq!(HostPattern::parse(text).unwrap().to_string(), text);
        }
    }
}
