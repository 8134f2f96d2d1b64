//! The accept loop: connections in, requests to the router, an orderly end.
//!
//! What axum's own loop leaves open is bounded here: how many connections there are, how long a peer may take to say
//! what it wants, how long it may take nothing of what it is sent, how much is read ahead of a slow handler, and how long
//! a connection outlives the shutdown.
//!
//! Over the bound nothing is accepted: new connections wait in the kernel's backlog until one ends. A busy moment then
//! costs callers a wait, where a refusal would cost them an error; and what holds places for long, peers that do not
//! say what they want, is cut off by the timeouts.

mod progress;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::progress::Progressing;
use super::HttpSettings;
use super::forwarded::Peer;
use crate::shutdown::Tasks;

/// What is read of a request's head, or ahead of a body's reader, in bytes. The least that hyper takes. A longer head
/// is answered 431.
const READ_BUFFER_BYTES: usize = 8192;

/// What waits in a stream of HTTP/2 for its reader, in bytes.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Streams in one HTTP/2 connection.
const STREAMS_PER_CONNECTION: u32 = 128;

/// How often an HTTP/2 peer is asked whether it is still there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// How long to wait when nothing can be accepted, e.g. for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A bound socket: connections queue from now on, and are served by [`serve`].
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Where it listens; with the real port when 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Binds a socket.
pub async fn bind(listen: SocketAddr) -> io::Result<Listener> {
    let socket = TcpListener::bind(listen).await?;
    let address = socket.local_addr()?;
    Ok(Listener { socket, address })
}

/// Serves until `closing`, and then until every connection has ended: when its running requests have, on the hard
/// shutdown at once.
///
/// Not until the soft shutdown: while turns still run, callers ask for them and answer what they ask.
pub async fn serve(
    listener: Listener,
    router: Router,
    settings: &HttpSettings,
    tasks: &Tasks,
    closing: &CancellationToken,
) {
    let places = Arc::new(Semaphore::new(settings.max_connections));
    let connections = Connections::new(router, settings, tasks.clone(), closing.clone());
    let accepting = async {
        loop {
            // The semaphore is never closed.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match listener.socket.accept().await {
                Ok((stream, peer)) => connections.spawn(stream, Peer(peer), place),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted at the moment");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    closing.run_until_cancelled(accepting).await;
    drop(listener);
    // Each connection gives its place back at its end. More places than a u32 has are more than a socket has ports.
    let every = u32::try_from(settings.max_connections).unwrap_or(u32::MAX);
    let _all_ended = places.acquire_many(every).await;
}

/// The peer gave up before it was accepted: nothing is wrong here.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

struct Connections {
    router: Router,
    builder: Builder<OnTasks>,
    header_timeout: Duration,
    write_timeout: Duration,
    tasks: Tasks,
    closing: CancellationToken,
}

impl Connections {
    fn new(router: Router, settings: &HttpSettings, tasks: Tasks, closing: CancellationToken) -> Self {
        let HttpSettings { header_timeout, write_timeout, .. } = *settings;
        let mut builder = Builder::new(OnTasks(tasks.clone()));
        builder
            .http1()
            .timer(TokioTimer::new())
            // Also counts between two requests: an idle connection ends after so long.
            .header_read_timeout(header_timeout)
            .max_buf_size(READ_BUFFER_BYTES);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(16 * 1024)
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT);
        Self { router, builder, header_timeout, write_timeout, tasks, closing }
    }

    fn spawn(&self, stream: TcpStream, peer: Peer, place: OwnedSemaphorePermit) {
        // Events are small and have to go out at once. A socket that refuses is about to fail anyway.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
        let stream = Progressing::new(stream, self.write_timeout);
        let (asked, asks) = watch::channel(false);
        let service = Asked { inner: TowerToHyperService::new(self.router.clone()), peer, used: asked };
        let (builder, header_timeout, tasks) =
            (self.builder.clone(), self.header_timeout, self.tasks.clone());
        let closing = self.closing.clone();
        self.tasks.spawn(async move {
            let _place = place;
            let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
            let silent = pin!(silent(asks, header_timeout));
            let ended = async {
                // In this order, so that a hard shutdown is not put off by traffic.
                tokio::select! {
                    biased;
                    () = closing.cancelled() => connection.as_mut().graceful_shutdown(),
                    ended = connection.as_mut() => return ended,
                    () = silent => return Ok(()),
                }
                connection.await
            };
            if let Some(Err(error)) = tasks.hard().run_until_cancelled(ended).await {
                // Most often a peer that went away; nothing that an operator has to act on.
                tracing::debug!(error, "a connection ended");
            }
        });
    }
}

/// Completes when no request has come within the time. hyper's own timeouts begin only when it knows which HTTP version
/// the peer speaks, and a peer that says nothing never tells.
async fn silent(mut asks: watch::Receiver<bool>, header_timeout: Duration) {
    // An error means that the connection is over.
    if timeout(header_timeout, asks.wait_for(|asked| *asked)).await.is_ok() {
        std::future::pending::<()>().await;
    }
}

/// The router, which hears who asks and tells when it is asked for the first time.
#[derive(Clone)]
struct Asked {
    inner: TowerToHyperService<Router>,
    peer: Peer,
    used: watch::Sender<bool>,
}

impl Service<Request<Incoming>> for Asked {
    type Response = Response;
    type Error = std::convert::Infallible;
    type Future = <TowerToHyperService<Router> as Service<Request<Body>>>::Future;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.used.send_if_modified(|used| !std::mem::replace(used, true));
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(self.peer);
        self.inner.call(request)
    }
}

/// Runs HTTP/2's streams as tasks that shutdown knows.
#[derive(Clone)]
struct OnTasks(Tasks);

impl<F> Executor<F> for OnTasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        let hard = self.0.hard().clone();
        self.0.spawn(async move { hard.run_until_cancelled(future).await });
    }
}

#[cfg(test)]
mod tests;
