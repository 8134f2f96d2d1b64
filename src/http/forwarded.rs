//! Where a request comes from and whom it was addressed to, when proxies stand between.
//!
//! Anybody can write these headers. They are believed only as far as the addresses that wrote them are trusted
//! (`server.trusted_proxies`): the connection's peer has added the last entry, and whoever that names the one before.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue};

use crate::ip_range::IpRange;

/// The other end of the connection that a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Which headers the proxies write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyHeaders {
    /// `X-Forwarded-For` alone. What the others say may be their callers' own words.
    #[default]
    XForwardedFor,
    /// `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`, each of them.
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// Which proxies are believed, and how they tell. Not both kinds of headers at a time: a proxy that writes one kind passes
/// on whatever its caller has written in the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Their addresses.
    pub ranges: Vec<IpRange>,
    /// What they write.
    pub headers: ProxyHeaders,
}

/// The caller's end of a request, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Client {
    /// The nearest address that is no trusted proxy's.
    pub(super) address: Option<IpAddr>,
    /// `http` or `https`, as the caller spoke to the outermost trusted proxy; `None` when nobody says.
    pub(super) scheme: Option<Arc<str>>,
    /// The host that the caller asked the outermost trusted proxy for; `None` when nobody says.
    pub(super) host: Option<Arc<str>>,
}

impl TrustedProxies {
    /// Reads who sends a request that came from `peer`.
    pub(super) fn client(&self, peer: Option<Peer>, headers: &HeaderMap) -> Client {
        let Some(Peer(peer)) = peer else { return Client::default() };
        let peer = peer.ip().to_canonical();
        if !self.trusts(peer) {
            return Client { address: Some(peer), ..Client::default() };
        }
        let (address, scheme, host) = match self.headers {
            ProxyHeaders::XForwardedFor | ProxyHeaders::XForwarded => {
                let names = listed(headers, "x-forwarded-for");
                let (address, count) = self.walk(peer, names.iter().map(String::as_str));
                // A proxy that writes over what it gets leaves one entry, however many there are.
                let tells = |name| {
                    if self.headers == ProxyHeaders::XForwardedFor {
                        return None;
                    }
                    let list = listed(headers, name);
                    let at = list.len().saturating_sub(count.max(1));
                    list.into_iter().nth(at)
                };
                (address, tells("x-forwarded-proto"), tells("x-forwarded-host"))
            }
            ProxyHeaders::Forwarded => {
                let elements = elements(headers);
                let names: Vec<_> =
                    elements.iter().map(|element| parameter(element, "for").unwrap_or_default()).collect();
                let (address, count) = self.walk(peer, names.iter().map(String::as_str));
                let outermost = elements.len().checked_sub(count).and_then(|at| elements.get(at));
                let tells = |name| outermost.and_then(|element| parameter(element, name));
                (address, tells("proto"), tells("host"))
            }
        };
        let scheme = scheme.map(|scheme| scheme.to_ascii_lowercase());
        Client {
            address: Some(address),
            scheme: scheme.filter(|scheme| matches!(scheme.as_str(), "http" | "https")).map(Into::into),
            host: host.map(Into::into),
        }
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    /// Goes back from proxy to proxy. Gives the first address that is none, or the last one that is known, and how many
    /// entries trusted proxies have written.
    fn walk<'text>(
        &self,
        peer: IpAddr,
        names: impl DoubleEndedIterator<Item = &'text str>,
    ) -> (IpAddr, usize) {
        let (mut address, mut count) = (peer, 0);
        for name in names.rev() {
            if !self.trusts(address) {
                break;
            }
            count += 1;
            match node(name) {
                Some(before) => address = before,
                // "unknown", a name that a proxy has made up, or what is no text.
                None => break,
            }
        }
        (address, count)
    }
}

/// An address with or without a port; IPv6 with a port has brackets (RFC 7239, section 6).
fn node(text: &str) -> Option<IpAddr> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = inner.parse().ok().or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

/// What all headers of the name say, as one list: so they are meant (RFC 9110, section 5.3).
fn joined(headers: &HeaderMap, name: &str) -> Vec<u8> {
    headers.get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>().join(&b',')
}

/// The entries of a list without quotes.
fn listed(headers: &HeaderMap, name: &str) -> Vec<String> {
    joined(headers, name).split(|byte| *byte == b',').filter_map(part).collect()
}

/// The elements of `Forwarded`.
fn elements(headers: &HeaderMap) -> Vec<String> {
    split(&joined(headers, "forwarded"), b',')
}

/// A part of a list; `None` when there is nothing in it. Each is made text by itself, so that what a caller has written
/// spoils nothing of what a proxy has added.
fn part(bytes: &[u8]) -> Option<String> {
    let bytes = bytes.trim_ascii();
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
}

/// Cuts at a separator that is not within quotes, from the right and as far as the quotes are closed: what a proxy has
/// added stands at the right and reads the same, whatever its caller has written before it.
fn split(text: &[u8], separator: u8) -> Vec<String> {
    let (mut parts, mut end, mut quoted) = (Vec::new(), text.len(), false);
    for (at, byte) in text.iter().enumerate().rev() {
        if *byte == separator && !quoted {
            parts.extend(part(&text[at + 1..end]));
            end = at;
        } else if *byte == b'"' {
            let backslashes = text[..at].iter().rev().take_while(|before| **before == b'\\').count();
            quoted = !quoted || backslashes % 2 == 1;
        }
    }
    if !quoted {
        parts.extend(part(&text[..end]));
    }
    parts.reverse();
    parts
}

/// What an element of `Forwarded` says of a name, without quotes.
fn parameter(element: &str, name: &str) -> Option<String> {
    split(element.as_bytes(), b';').iter().find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        let value = match value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) {
            Some(inner) => inner.replace('\\', ""),
            None => value.to_owned(),
        };
        key.trim_end().eq_ignore_ascii_case(name).then_some(value)
    })
}

#[cfg(test)]
mod tests;
