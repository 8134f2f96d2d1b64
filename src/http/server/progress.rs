//! A socket that gives up when its peer takes nothing for too long.
//!
//! A subscriber that never reads would else hold its connection, and the memory of what is in flight, for ever. What
//! counts is progress, not speed: whoever reads slowly stays, and so does one that has read everything.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SendFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// The socket of one connection.
pub(super) struct Progressing {
    stream: TcpStream,
    /// How long a write may wait.
    timeout: Duration,
    /// Runs while a write waits. Boxed: most connections never have one.
    waiting: Option<Pin<Box<Sleep>>>,
    /// Whether there was room that the system did not tell of, and may be more.
    has_untold_room: bool,
}

impl Progressing {
    pub(super) fn new(stream: TcpStream, timeout: Duration) -> Self {
        Self { stream, timeout, waiting: None, has_untold_room: false }
    }

    /// Writes something that begins with `bytes`, by `write` when the system tells of room.
    ///
    /// It tells only when there is much room, which a slow reader may not make in the time. So when the time is up the
    /// room that there is gets used, all of it: any that is found the next time shows that the peer has read.
    fn write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.has_untold_room {
            match send(&self.stream, bytes) {
                Err(Errno::AGAIN) => self.has_untold_room = false,
                sent => return Poll::Ready(sent.map_err(io::Error::from)),
            }
        }
        let written = write(Pin::new(&mut self.stream), context);
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let timeout = self.timeout;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(waiting.as_mut().poll(context));
        self.waiting = None;
        match send(&self.stream, bytes) {
            Err(Errno::AGAIN) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            sent => {
                self.has_untold_room = true;
                Poll::Ready(sent.map_err(io::Error::from))
            }
        }
    }
}

/// Without waiting, whatever the runtime knows of the socket.
fn send(stream: &TcpStream, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}

impl AsyncRead for Progressing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Progressing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(context, bytes, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // Writing nothing never waits, so there is a slice with something in it.
        let bytes = slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
        self.write(context, bytes, |stream, context| stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
