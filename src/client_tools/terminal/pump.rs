//! Takes what one command writes, for as long as anything may write.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::exit_of;
use crate::client_tools::output::{Decoder, KeptEnd};
use crate::process::{LingeringChild, LingeringControl};
use crate::session::agent::client_tools::{ClientToolEvent, TerminalExit, TerminalId};
use crate::session::tool_call::content;

/// How much one read takes, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// How long more is waited for when a command has ended: what it wrote is in its pipes by then.
const DRAIN: Duration = Duration::from_millis(25);
/// How much more is read then, in bytes: more than both pipes hold. What runs on may write for ever.
const DRAIN_BYTES: usize = 3 * 1024 * 1024;

/// Reads a command's output.
pub(super) struct Pump {
    pub(super) id: TerminalId,
    pub(super) control: LingeringControl,
    pub(super) output: Arc<Mutex<KeptEnd>>,
    pub(super) events: mpsc::Sender<ClientToolEvent>,
    /// How much is still told as it comes; `None` once it was told that there is more.
    pub(super) live_left: Option<usize>,
    /// How long the command may run, with what it started; zero: for ever.
    pub(super) duration: Duration,
    pub(super) exit: watch::Sender<Option<TerminalExit>>,
}

/// One of the two streams.
struct Stream<R> {
    name: &'static str,
    pipe: R,
    is_open: bool,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Stream<R> {
    fn new(name: &'static str, pipe: R) -> Self {
        Self { name, pipe, is_open: true, decoder: Decoder::default(), buffer: Vec::new() }
    }

    /// What one read brought; `None` at the end. Nothing is lost when the future is dropped.
    async fn read(&mut self) -> Option<usize> {
        self.buffer.clear();
        self.buffer.reserve(READ_BYTES);
        match self.pipe.read_buf(&mut self.buffer).await {
            Ok(count @ 1..) => Some(count),
            Ok(0) | Err(_) => {
                self.is_open = false;
                None
            }
        }
    }

    fn text(&mut self) -> String {
        if self.is_open { self.decoder.decode(&self.buffer) } else { self.decoder.finish() }
    }
}

impl Pump {
    /// Reads until nothing is left of the command, which is ended when its time is over: whatever the reading waits for,
    /// whoever is told what was read among it.
    pub(super) async fn run(mut self, child: LingeringChild) {
        let (control, duration) = (self.control.clone(), self.duration);
        let overdue = CancellationToken::new();
        let clock = async {
            if !duration.is_zero() {
                sleep(duration).await;
                overdue.cancel();
                control.end();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.read(child, &overdue) => {}
            () = clock => {}
        }
    }

    async fn read(&mut self, child: LingeringChild, overdue: &CancellationToken) {
        let control = self.control.clone();
        let mut stdout = Stream::new("stdout", child.stdout);
        let mut stderr = Stream::new("stderr", child.stderr);
        let ended = control.ended();
        tokio::pin!(ended);
        let status = loop {
            tokio::select! {
                // In turns: neither of two floods hides the other, nor the end.
                status = &mut ended => break status,
                read = stdout.read(), if stdout.is_open => self.take(&mut stdout, read).await,
                read = stderr.read(), if stderr.is_open => self.take(&mut stderr, read).await,
            }
        };
        let was_overdue = overdue.is_cancelled();
        self.drain(&mut stdout, &mut stderr).await;
        if was_overdue {
            let limit = humantime::format_duration(self.duration);
            self.take_text("stderr", format!("\nThe command was ended: it ran longer than {limit}.\n")).await;
        }
        self.tell_end(exit_of(status)).await;
        // What is left writes into nothing: a closed pipe would end it.
        let gone = control.gone();
        tokio::pin!(gone);
        loop {
            tokio::select! {
                () = &mut gone => break,
                _ = stdout.read(), if stdout.is_open => {}
                _ = stderr.read(), if stderr.is_open => {}
            }
        }
    }

    /// Takes what the command wrote before it ended.
    async fn drain<O, E>(&mut self, stdout: &mut Stream<O>, stderr: &mut Stream<E>)
    where
        O: AsyncRead + Unpin,
        E: AsyncRead + Unpin,
    {
        let mut drained = 0;
        while drained < DRAIN_BYTES && (stdout.is_open || stderr.is_open) {
            let read = async {
                tokio::select! {
                    read = stdout.read(), if stdout.is_open => (true, read),
                    read = stderr.read(), if stderr.is_open => (false, read),
                }
            };
            let Ok((is_stdout, read)) = timeout(DRAIN, read).await else { break };
            drained += read.unwrap_or_default();
            if is_stdout { self.take(stdout, read).await } else { self.take(stderr, read).await }
        }
        // The beginning of a character that nobody has finished.
        for (name, left) in [("stdout", stdout.decoder.finish()), ("stderr", stderr.decoder.finish())] {
            self.take_text(name, left).await;
        }
    }

    async fn take<R: AsyncRead + Unpin>(&mut self, stream: &mut Stream<R>, _read: Option<usize>) {
        let text = stream.text();
        self.take_text(stream.name, text).await;
    }

    /// Keeps what was written and tells it, as long as there is room for that.
    async fn take_text(&mut self, stream: &'static str, mut text: String) {
        if text.is_empty() {
            return;
        }
        self.keep(&text);
        let Some(room) = self.live_left else { return };
        let truncated = text.len() > room;
        text.truncate(text.floor_char_boundary(room));
        self.live_left = (!truncated).then(|| room - text.len());
        let terminal = self.id.clone();
        // Nobody listens when the agent is gone.
        let _ = self.events.send(ClientToolEvent::Output { terminal, stream, text, truncated }).await;
    }

    fn keep(&self, text: &str) {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    async fn tell_end(&self, exit: TerminalExit) {
        let content = {
            let mut kept = self.output.lock().unwrap_or_else(PoisonError::into_inner);
            let (output, truncated) = kept.get();
            let code = exit.exit_code.map(i64::from);
            content::terminal(output, code, exit.signal.as_deref(), truncated)
        };
        let _ = self.events.send(ClientToolEvent::Ended { terminal: self.id.clone(), content }).await;
        self.exit.send_replace(Some(exit));
    }
}
