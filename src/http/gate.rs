//! Who comes in: the checks on host name, origin and token, before any handler runs.
//!
//! A web page that somebody on this machine looks at can send requests here. The origin check stops pages that say
//! where they come from. The host check stops DNS rebinding: a page whose own name is made to point here is "of the
//! same origin" to its browser, and only the name gives it away. A caller with a valid token is no such page, so its
//! host name is not looked at, and proxies need not be listed.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::HttpSettings;
use super::auth::{Caller, Callers, unauthenticated};
use super::forwarded::Client;
use super::problem::{Code, Problem};

/// Names of this machine that no DNS answer can take over.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// What pages of listed origins may send and see.
const CORS_METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PATCH, DELETE");
const CORS_REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, accept, idempotency-key, last-event-id, prefer, traceparent, tracestate, x-request-id",
);
const CORS_ANSWER_HEADERS: HeaderValue =
    HeaderValue::from_static("location, retry-after, preference-applied, x-request-id");

/// The host names for [`HttpSettings::allowed_hosts`]: the configured ones, else the address that is listened on, and
/// always those of this machine itself. `0.0.0.0` and `[::]` stand for every address, as they do when listening: who
/// asks an address by its number, as a health probe does, has not been led here by a name.
#[must_use]
pub fn allowed_hosts(configured: &[String], listen: SocketAddr) -> Vec<String> {
    let mut hosts = configured.to_vec();
    if hosts.is_empty() {
        hosts.push(match listen {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        });
    }
    hosts.extend(LOCAL_NAMES.map(str::to_owned));
    hosts
}

/// What the layer works with. Cheap to clone.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) settings: Arc<HttpSettings>,
    pub(super) callers: Callers,
}

/// The layer: lets a request in, with its [`Caller`] as an extension, or answers 421, 403, 401 or 400.
pub(super) async fn admit(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let origin = Origin::of(request.headers(), &gate.settings);
    // A browser asks what a page may do. Such a question carries no token and gets no data.
    let asks_first = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match &origin {
        Origin::Listed(_) if asks_first => preflight(),
        _ => match gate.check(&origin, &mut request) {
            Ok(()) => next.run(request).await,
            Err(problem) => problem.into_response(),
        },
    };
    if let Origin::Listed(origin) = origin {
        show_to(origin, response.headers_mut());
    }
    response
}

impl Gate {
    /// Who asks: by its token, else by its ticket. A ticket that is shown and not valid is not passed over.
    fn identify(&self, request: &Request) -> Result<Option<Caller>, Problem> {
        Ok(match ticket(request)? {
            Some(ticket) => self.callers.identify_ticket(ticket),
            None => self.callers.identify(request.headers()),
        })
    }

    fn check(&self, origin: &Origin, request: &mut Request) -> Result<(), Problem> {
        let caller = self.identify(request)?;
        let client = request.extensions().get::<Client>().cloned().unwrap_or_default();
        let own = match &client.host {
            Some(host) => parse_authority(host),
            None => own_authority(request.uri(), request.headers()),
        };
        let host_allowed = own.as_ref().is_some_and(|own| is_allowed(own, &self.settings.allowed_hosts));
        if !host_allowed && !caller.as_ref().is_some_and(Caller::showed_token) {
            return Err(Problem::new(
                Code::HostNotAllowed,
                "the request is addressed to a host name that is not this gateway's (server.allowed_hosts)",
            ));
        }
        if let Origin::Other(site) = origin
            && !(host_allowed
                && site.as_ref().is_some_and(|site| site.is(own.as_ref(), client.scheme.as_deref())))
        {
            return Err(Problem::new(
                Code::OriginNotAllowed,
                "pages of this origin may not call this gateway (server.cors_origins)",
            ));
        }
        match caller {
            Some(caller) => {
                request.extensions_mut().insert(caller);
                Ok(())
            }
            None if needs_caller(request.uri().path()) => Err(unauthenticated()),
            None => Ok(()),
        }
    }
}

/// The routes that take a ticket in place of a token.
const TICKET_ROUTES: [&str; 2] = ["/v1/events", "/v1/sessions/{session_id}/events"];

/// The ticket that a request shows, if it is one that may; `None` when it shows a token too. Two are refused: which of
/// them counts, a proxy that hides tickets in its log could see otherwise.
fn ticket(request: &Request) -> Result<Option<&str>, Problem> {
    let route = request.extensions().get::<MatchedPath>();
    let may_show_one = request.method() == Method::GET
        && route.is_some_and(|route| TICKET_ROUTES.contains(&route.as_str()))
        && !request.headers().contains_key(header::AUTHORIZATION);
    if !may_show_one {
        return Ok(None);
    }
    // A ticket has nothing in it that a query would have to encode.
    let parameters = request.uri().query().unwrap_or_default().split('&');
    let mut tickets = parameters.filter_map(|parameter| parameter.strip_prefix("ticket="));
    match (tickets.next(), tickets.next()) {
        (_, Some(_)) => {
            Err(Problem::new(Code::MalformedRequest, "in the query: ticket is there more than once"))
        }
        (ticket, None) => Ok(ticket),
    }
}

/// Under `/v1` even what does not exist needs a token.
fn needs_caller(path: &str) -> bool {
    path == "/v1" || path.starts_with("/v1/")
}

/// Where the page that sends the request comes from.
enum Origin {
    /// No page, or one that need not say.
    None,
    /// One of `server.cors_origins`.
    Listed(HeaderValue),
    /// Another one; `None` when it is not a web site's.
    Other(Option<Site>),
}

/// What a browser calls an origin.
struct Site {
    scheme: &'static str,
    authority: Authority,
}

impl Site {
    /// Whether it is what the request is addressed to. By which scheme that was, only a trusted proxy tells.
    fn is(&self, own: Option<&Authority>, scheme: Option<&str>) -> bool {
        scheme.is_none_or(|scheme| scheme == self.scheme)
            && own.is_some_and(|own| own.as_str().eq_ignore_ascii_case(self.authority.as_str()))
    }
}

impl Origin {
    fn of(headers: &HeaderMap, settings: &HttpSettings) -> Self {
        let mut values = headers.get_all(header::ORIGIN).iter();
        let Some(value) = values.next() else { return Self::None };
        let text = value.to_str().unwrap_or("");
        if values.next().is_some() {
            return Self::Other(None);
        }
        if settings.cors_origins.iter().any(|listed| listed.eq_ignore_ascii_case(text)) {
            return Self::Listed(value.clone());
        }
        let site = ["http", "https"].into_iter().find_map(|scheme| {
            let authority = parse_authority(text.strip_prefix(scheme)?.strip_prefix("://")?)?;
            Some(Site { scheme, authority })
        });
        Self::Other(site)
    }
}

/// Whom the request is addressed to: in HTTP/2 the URI says it, in HTTP/1 the one `Host` header.
fn own_authority(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    if let Some(authority) = uri.authority() {
        return parse_authority(authority.as_str());
    }
    let mut values = headers.get_all(header::HOST).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() { None } else { parse_authority(value) }
}

/// A host with an optional port; nothing with user information or a path.
fn parse_authority(text: &str) -> Option<Authority> {
    let authority: Authority = text.parse().ok()?;
    (!text.contains('@') && !authority.host().is_empty()).then_some(authority)
}

fn is_allowed(own: &Authority, allowed_hosts: &[String]) -> bool {
    // `example.org.` is the same name as `example.org`.
    fn name(authority: &Authority) -> &str {
        authority.host().strip_suffix('.').unwrap_or(authority.host())
    }
    // Not with a dot behind it: that makes a name of a number.
    fn address(authority: &Authority) -> Option<IpAddr> {
        let host = authority.host();
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        match inner {
            Some(inner) => inner.parse().ok().map(IpAddr::V6),
            None => host.parse().ok().map(IpAddr::V4),
        }
    }
    allowed_hosts.iter().filter_map(|allowed| parse_authority(allowed)).any(|allowed| {
        let port_fits = allowed.port().is_none() || allowed.port_u16() == own.port_u16();
        let every_address = address(&allowed).is_some_and(|allowed| allowed.is_unspecified());
        let host_fits = name(&allowed).eq_ignore_ascii_case(name(own));
        port_fits && (host_fits || every_address && address(own).is_some())
    })
}

fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, CORS_METHODS);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, CORS_REQUEST_HEADERS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

fn show_to(origin: HeaderValue, headers: &mut HeaderMap) {
    const ORIGIN_NAME: HeaderName = header::ORIGIN;
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, CORS_ANSWER_HEADERS);
    headers.append(header::VARY, ORIGIN_NAME.into());
}

#[cfg(test)]
mod tests;
