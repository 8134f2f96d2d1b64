//! A proxy on loopback between one agent and its MCP servers, for servers that goose's first question would lose.
//!
//! goose begins with `server/discover`, which servers of today do not know. Measured on goose 1.52: it goes on with
//! `initialize` after an error under the question's own id, but gives the server up after one under another, and that is
//! how servers made with the Python SDK 1.x answer (`"id": "server-error"`). The proxy answers the question itself, with
//! "method not found", and passes everything else on as it is, both ways, without holding back what streams.
//!
//! Everything on the host can reach loopback. So each server has a path of its own that nobody can guess and that goose
//! alone is told; anything else is 404. The proxy is there for as long as its agent: dropping it closes the port and
//! every connection.

mod client;
mod discover;
mod forward;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::client::{ProxyClient, ProxyClientError};
use self::discover::Outcome;
use self::forward::{Body, Upstream};
use crate::shutdown::Tasks;

/// Connections at a time; goose has a few for each server.
const CONNECTIONS: usize = 64;
/// How long a connection may take to say what it wants.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may take to hear that goose has left.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the proxy waits before it accepts again when the system refuses it a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server behind the proxy.
#[derive(Clone)]
pub struct ProxiedServer {
    /// Its address, `http:` or `https:`.
    pub url: String,
    /// Headers that every request to it gets.
    pub headers: BTreeMap<String, String>,
}

/// Why there is no proxy.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// No port, or no random number.
    #[error("no proxy for tool servers can be opened: {0}")]
    Io(#[from] io::Error),
    /// Nothing to ask servers with.
    #[error(transparent)]
    Client(#[from] ProxyClientError),
    /// A server's address or header cannot be used.
    #[error("a tool server's {0} cannot be used")]
    Server(&'static str),
}

/// The proxy of one agent; ends when it is dropped.
pub struct McpProxy {
    /// What the agent is told in place of each server's own address, in the servers' order.
    pub urls: Vec<String>,
    _ends: DropGuard,
}

/// The addresses are as good as a password.
impl fmt::Debug for McpProxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("McpProxy").field("servers", &self.urls.len()).finish_non_exhaustive()
    }
}

impl McpProxy {
    /// Opens a proxy on a free port of 127.0.0.1.
    pub async fn open(
        servers: &[ProxiedServer],
        client: &ProxyClient,
        tasks: &Tasks,
    ) -> Result<Self, ProxyError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let mut upstreams = HashMap::new();
        let mut urls = Vec::new();
        for server in servers {
            let secret = secret()?;
            let upstream = Upstream::new(server, format!("http://{address}/{secret}"))?;
            urls.push(upstream.local_url());
            upstreams.insert(secret, upstream);
        }
        let ends = tasks.hard().child_token();
        let proxy = Arc::new(Proxy { upstreams, client: client.clone() });
        tasks.spawn(accept(listener, proxy, ends.clone(), tasks.clone()));
        Ok(Self { urls, _ends: ends.drop_guard() })
    }
}

/// 128 random bits, as a segment of a path.
fn secret() -> io::Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(random)))
}

struct Proxy {
    /// By the first segment of the path.
    upstreams: HashMap<String, Upstream>,
    client: ProxyClient,
}

impl Proxy {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        let (secret, _) = path.strip_prefix('/').and_then(|path| path.split_once('/')).unwrap_or_default();
        let Some(upstream) = self.upstreams.get(secret) else {
            return forward::plain(StatusCode::NOT_FOUND, "");
        };
        match discover::answer(request).await {
            Outcome::Answered(response) => response,
            Outcome::Other(request) => upstream.forward(request, &self.client).await,
        }
    }
}

impl Proxy {
    /// goose ends its session with a server and itself at once, so the connection may be gone before the server has
    /// heard of it: what it said last is passed on all the same. Not a part of the future that is given back, since
    /// hyper does not even begin with that when the end of the connection arrives with the request.
    fn say_goodbye(
        self: Arc<Self>,
        request: Request<Incoming>,
        tasks: &Tasks,
    ) -> impl Future<Output = Response<Body>> + use<> {
        let said = tasks.spawn(tokio::time::timeout(GOODBYE_TIMEOUT, self.answer(request)));
        async move {
            let gone = || forward::plain(StatusCode::BAD_GATEWAY, "");
            said.await.ok().and_then(Result::ok).unwrap_or_else(gone)
        }
    }
}

async fn accept(listener: TcpListener, proxy: Arc<Proxy>, ends: CancellationToken, tasks: Tasks) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = async {
        // The semaphore is never closed.
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (proxy, ends, its_tasks) = (Arc::clone(&proxy), ends.clone(), tasks.clone());
                    tasks.spawn(async move {
                        let mut served = pin!(serve(stream, proxy, its_tasks));
                        tokio::select! {
                            biased;
                            () = &mut served => {}
                            // What goose said last may not have been read yet. Its end has closed the connection, which
                            // ends this; the limit is for whoever else has got hold of it.
                            () = ends.cancelled() => drop(tokio::time::timeout(GOODBYE_TIMEOUT, served).await),
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection to a tool server's proxy cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = ends.cancelled() => {}
        () = connections => {}
    }
}

async fn serve(stream: TcpStream, proxy: Arc<Proxy>, tasks: Tasks) {
    let service = service_fn(move |request: Request<Incoming>| {
        let proxy = Arc::clone(&proxy);
        let answer = if request.method() == Method::DELETE {
            proxy.say_goodbye(request, &tasks).boxed()
        } else {
            proxy.answer(request).boxed()
        };
        async { Ok::<_, Infallible>(answer.await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to a tool server's proxy broke off");
    }
}

#[cfg(test)]
mod tests;
