//! A WebSocket to an agent that serves several sessions: a message is a text frame.
//!
//! Only plain connections: the agent is on this machine, or on a network that its owner trusts with its messages.

use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout_at};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::rpc::{HEAD_BYTES, Line};
use super::transport::{Incoming, Outgoing};

/// The buffer that frames are read into; longer ones grow it. In bytes.
const BUFFER_BYTES: usize = 32 * 1024;
/// How much of what has arrived is taken at once, in bytes.
const READ_BYTES: usize = 256 * 1024;
/// How many times longer than allowed a message may be and still be left out like a line that is too long; a longer one
/// costs the connection.
const TOO_LONG_FACTOR: usize = 4;

/// What bounds a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketLimits {
    /// The longest message that the agent takes, in bytes.
    pub sent_bytes: usize,
    /// The longest message that is taken from the agent, in bytes, as [`super::Limits::line_bytes`].
    pub received_bytes: usize,
    /// How often the peer is asked for a sign of life.
    pub ping_interval: Duration,
    /// For how long nothing may be heard of it.
    pub ping_timeout: Duration,
}

/// Why there is no WebSocket.
#[derive(Debug, thiserror::Error)]
pub enum WebSocketError {
    /// The peer answers with another status than 101.
    #[error("it refuses the connection with status {0}")]
    Refused(u16),
    /// The connection broke, or what was said on it is no WebSocket.
    #[error("the connection failed: {0}")]
    Failed(#[from] io::Error),
}

/// An open WebSocket.
pub struct WebSocket {
    stream: WebSocketStream<TcpStream>,
    closer: SocketCloser,
    limits: WebSocketLimits,
}

/// Closes a WebSocket's connection from outside, at once. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SocketCloser {
    socket: Arc<std::net::TcpStream>,
    closed: CancellationToken,
}

impl SocketCloser {
    /// Closes the connection, whatever is on its way.
    pub fn close(&self) {
        // It fails on a connection that is closed already.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.closed.cancel();
    }

    /// Waits until nothing comes any more, whoever closed it.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

impl WebSocket {
    /// Opens one on a connection, for `path`, with one header of the client's own.
    pub async fn open(
        connection: TcpStream,
        path: &str,
        (header, value): (&'static str, &str),
        limits: WebSocketLimits,
    ) -> Result<Self, WebSocketError> {
        connection.set_nodelay(true)?;
        let peer = connection.peer_addr()?;
        let connection = connection.into_std()?;
        let socket = Arc::new(connection.try_clone()?);
        let connection = TcpStream::from_std(connection)?;
        let mut request = format!("ws://{peer}{path}").into_client_request().map_err(failed)?;
        let mut value = HeaderValue::from_str(value).map_err(io::Error::other)?;
        value.set_sensitive(true);
        request.headers_mut().insert(header, value);
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(0)
            .max_message_size(Some(limits.received_bytes.saturating_mul(TOO_LONG_FACTOR)))
            .max_frame_size(Some(limits.received_bytes.saturating_mul(TOO_LONG_FACTOR)));
        let opened = client_async_with_config(request, connection, Some(config)).await;
        let (stream, _response) = opened.map_err(failed)?;
        let closer = SocketCloser { socket, closed: CancellationToken::new() };
        Ok(Self { stream, closer, limits })
    }

    /// To close it from outside.
    #[must_use]
    pub fn closer(&self) -> SocketCloser {
        self.closer.clone()
    }

    pub(super) fn split(self) -> (TextFrames, FrameSink) {
        let Self { stream, closer, limits } = self;
        let (sink, stream) = stream.split();
        let silence = Silence { limit: limits.ping_timeout, until: None };
        let limit = limits.received_bytes;
        let mut pings = interval_at(Instant::now() + limits.ping_interval, limits.ping_interval);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        (
            TextFrames { stream, closer, read: Vec::new(), limit, silence, ended: false },
            FrameSink { sink, limit: limits.sent_bytes, pings },
        )
    }
}

fn failed(error: Error) -> WebSocketError {
    match error {
        Error::Http(response) => WebSocketError::Refused(response.status().as_u16()),
        Error::Io(error) => WebSocketError::Failed(error),
        error => WebSocketError::Failed(io::Error::other(error)),
    }
}

/// How long the agent has been silent while it was listened to: when gander is behind, that is not the agent's silence.
#[derive(Debug)]
struct Silence {
    limit: Duration,
    until: Option<Instant>,
}

/// What comes from the agent.
pub(super) struct TextFrames {
    stream: SplitStream<WebSocketStream<TcpStream>>,
    closer: SocketCloser,
    /// What the last read brought.
    read: Vec<Utf8Bytes>,
    limit: usize,
    silence: Silence,
    ended: bool,
}

impl TextFrames {
    /// Takes a frame; how many bytes it counts for.
    fn frame(&mut self, frame: Option<Result<Message, Error>>) -> usize {
        self.silence.until = None;
        match frame {
            Some(Ok(Message::Text(text))) => {
                let bytes = text.len() + 1;
                self.read.push(text);
                bytes
            }
            // goose 1.52 sends no others.
            Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => 0,
            Some(Ok(Message::Close(_))) | None => self.end(),
            Some(Err(error)) => {
                debug!(%error, "the agent's connection is lost");
                self.end()
            }
        }
    }

    fn end(&mut self) -> usize {
        self.ended = true;
        0
    }
}

impl Incoming for TextFrames {
    async fn read(&mut self) -> usize {
        let mut bytes = 0;
        while bytes == 0 && !self.ended {
            let until = *self.silence.until.get_or_insert_with(|| Instant::now() + self.silence.limit);
            match timeout_at(until, self.stream.next()).await {
                Ok(frame) => bytes = self.frame(frame),
                Err(_) => {
                    tracing::warn!("nothing is heard on the agent's connection any more: it is given up");
                    self.end();
                }
            }
        }
        // What has arrived with it is one batch. Nothing is awaited from here on.
        while bytes < READ_BYTES && !self.ended {
            let Some(frame) = self.stream.next().now_or_never() else { break };
            bytes += self.frame(frame);
        }
        if bytes == 0 {
            self.closer.close();
        }
        bytes
    }

    fn take(&mut self, mut each: impl FnMut(Line<'_>)) {
        for text in self.read.drain(..) {
            let text = text.as_bytes();
            if text.len() > self.limit {
                each(Line::TooLong { head: &text[..HEAD_BYTES.min(text.len())], bytes: text.len() as u64 });
            } else {
                each(Line::Whole(text));
            }
        }
    }

    fn unfinished_too_long(&self) -> Option<(&[u8], u64)> {
        None
    }

    fn finish(&mut self, each: impl FnMut(Line<'_>)) {
        self.take(each);
    }
}

/// However the reader ends, the connection does.
impl Drop for TextFrames {
    fn drop(&mut self) {
        self.closer.close();
    }
}

/// What goes to the agent.
pub(super) struct FrameSink {
    sink: SplitSink<WebSocketStream<TcpStream>, Message>,
    limit: usize,
    pings: Interval,
}

impl Outgoing for FrameSink {
    fn longest(&self) -> usize {
        self.limit
    }

    async fn send(&mut self, mut message: Vec<u8>) -> io::Result<()> {
        // The line end is the pipes' affair.
        message.pop_if(|last| *last == b'\n');
        if message.len() > self.limit {
            // The agent would drop the connection in the middle of it.
            let error = format!("a message of {} bytes is too long for the agent", message.len());
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
        }
        let text = Utf8Bytes::try_from(message).map_err(io::Error::other)?;
        self.sink.send(Message::Text(text)).await.map_err(io::Error::other)
    }

    async fn keep_alive(&mut self) -> io::Error {
        loop {
            self.pings.tick().await;
            if let Err(error) = self.sink.send(Message::Ping(Vec::new().into())).await {
                return io::Error::other(error);
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        self.sink.close().map(|closed| closed.map_err(io::Error::other))
    }
}

#[cfg(test)]
mod tests;
