//! Where a request comes from and whom it was addressed to, when proxies stand between.
//!
//! Anybody can write these headers. They are believed only as far as the addresses that wrote them are trusted
//! (`server.trusted_proxies`): the connection's peer has added the last entry, and whoever that names the one before.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::HeaderMap;

use crate::ip_range::IpRange;

/// The other end of the connection that a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Which headers the proxies write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyHeaders {
    /// `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
    #[default]
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
            ProxyHeaders::XForwarded => {
                let names = listed(headers, "x-forwarded-for");
                let (address, count) = self.walk(peer, names.iter().map(String::as_str));
                // A proxy that writes over what it gets leaves one entry, however many there are.
                let tells = |name| {
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
                // "unknown", or a name that a proxy has made up.
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

/// What all headers of the name say, one behind the other. Entries that are no text are nobody's name.
fn values<'headers>(headers: &'headers HeaderMap, name: &str) -> impl Iterator<Item = &'headers str> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("unknown"))
}

/// A list that may be spread over several headers of the name.
fn listed(headers: &HeaderMap, name: &str) -> Vec<String> {
    let entries = values(headers, name).flat_map(|value| value.split(','));
    entries.map(|entry| entry.trim().to_owned()).filter(|entry| !entry.is_empty()).collect()
}

/// The elements of `Forwarded`. None at all when a quote is not closed: what a proxy has added behind it cannot be told
/// from what its caller has written before it.
fn elements(headers: &HeaderMap) -> Vec<String> {
    let all: Vec<&str> = values(headers, "forwarded").collect();
    split(&all.join(","), ',').unwrap_or_default()
}

/// Cuts at a separator that is not within quotes; `None` when a quote is not closed.
fn split(text: &str, separator: char) -> Option<Vec<String>> {
    let mut parts = vec![String::new()];
    let (mut quoted, mut escaped) = (false, false);
    for letter in text.chars() {
        if letter == separator && !quoted {
            parts.push(String::new());
            continue;
        }
        quoted ^= letter == '"' && !escaped;
        escaped = letter == '\\' && quoted && !escaped;
        parts.last_mut()?.push(letter);
    }
    let parts = parts.iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty());
    (!quoted).then(|| parts.collect())
}

/// What an element of `Forwarded` says of a name, without quotes.
fn parameter(element: &str, name: &str) -> Option<String> {
    split(element, ';')?.iter().find_map(|pair| {
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
