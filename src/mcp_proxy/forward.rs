//! Passing a request on, and its answer back.

use std::error::Error;
use std::str::FromStr;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, LOCATION, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::{HeaderMap, Request, Response, StatusCode};
use url::{Position, Url};

use super::{ProxiedServer, ProxyClient, ProxyError};

/// A body on its way, either way.
pub(super) type Body = BoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// What belongs to one connection and is not passed on (RFC 9110, section 7.6.1), besides what `Connection` names.
const OF_THE_CONNECTION: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// A server behind the proxy.
pub(super) struct Upstream {
    url: Url,
    headers: HeaderMap,
    /// What stands for the server's origin: the proxy's, and the server's secret.
    local: String,
}

impl Upstream {
    pub(super) fn new(server: &ProxiedServer, local: String) -> Result<Self, ProxyError> {
        let url = Url::parse(&server.url).map_err(|_| ProxyError::Server("address"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &server.headers {
            let name = HeaderName::from_str(name).map_err(|_| ProxyError::Server("header"))?;
            let mut value = HeaderValue::from_str(value).map_err(|_| ProxyError::Server("header"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Self { url, headers, local })
    }

    /// The server's address by way of the proxy.
    pub(super) fn local_url(&self) -> String {
        self.by_way_of_proxy(&self.url)
    }

    /// An address of the server's origin by way of the proxy.
    fn by_way_of_proxy(&self, url: &Url) -> String {
        format!("{}{}", self.local, &url[Position::BeforePath..])
    }

    /// The address that is meant by one whose path begins with the server's secret.
    fn meant_by(&self, path_and_query: &str) -> Option<Url> {
        let behind_secret = path_and_query.match_indices('/').nth(1)?.0;
        let url = self.url.join(&path_and_query[behind_secret..]).ok()?;
        // Two slashes in a row would name another host.
        (url.origin() == self.url.origin()).then_some(url)
    }

    /// Passes on a request whose path begins with the server's secret.
    pub(super) async fn forward(&self, request: Request<Body>, client: &ProxyClient) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
        let Some(url) = self.meant_by(target) else {
            return plain(StatusCode::NOT_FOUND, "");
        };
        keep_end_to_end(&mut parts.headers);
        // The client sets the server's.
        parts.headers.remove(HOST);
        for (name, value) in &self.headers {
            parts.headers.insert(name, value.clone());
        }
        let body = reqwest::Body::wrap(body);
        let asked = client.0.request(parts.method, url.clone()).headers(parts.headers).body(body);
        match asked.send().await {
            Ok(response) => self.passed_back(&url, response.into()),
            Err(error) => {
                let cause = error.source().map(ToString::to_string);
                tracing::debug!(error = %error.without_url(), cause, "a tool server cannot be asked");
                plain(StatusCode::BAD_GATEWAY, "the server cannot be reached")
            }
        }
    }

    fn passed_back(&self, asked: &Url, response: Response<reqwest::Body>) -> Response<Body> {
        let mut response = response.map(|body| body.map_err(Into::into).boxed());
        let headers = response.headers_mut();
        keep_end_to_end(headers);
        if let Some(location) = headers.get(LOCATION).and_then(|location| location.to_str().ok())
            && let Ok(location) = asked.join(location)
            && location.origin() == self.url.origin()
            && let Ok(location) = HeaderValue::from_str(&self.by_way_of_proxy(&location))
        {
            // goose would else follow it past the proxy, without the server's headers.
            headers.insert(LOCATION, location);
        }
        response
    }
}

fn keep_end_to_end(headers: &mut HeaderMap) {
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|names| names.split(','));
    let named: Vec<_> = named.filter_map(|name| HeaderName::from_str(name.trim()).ok()).collect();
    for name in OF_THE_CONNECTION.iter().chain(&named) {
        headers.remove(name);
    }
}

/// A body as it comes.
pub(super) fn streamed(body: Incoming) -> Body {
    body.map_err(Into::into).boxed()
}

/// A body that is there.
pub(super) fn whole(body: Bytes) -> Body {
    Full::new(body).map_err(|never| match never {}).boxed()
}

pub(super) fn content_type(kind: &'static str) -> HeaderValue {
    HeaderValue::from_static(kind)
}

/// An answer of the proxy's own.
pub(super) fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(whole(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type("text/plain; charset=utf-8"));
    response
}
