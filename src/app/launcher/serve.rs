//! The one `goose serve` of all sessions (`goose.transport = "websocket"`): started, watched, and started again.

mod attempt;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::agent::described;
use super::{GooseLauncher, failed};
use crate::acp::{Redactor, StderrTail, WebSocket, WebSocketError, WebSocketLimits};
use crate::config::{Secret, ServeSettings};
use crate::goose::serve;
use crate::process::ChildControl;
use crate::session::agent::{LaunchError, LaunchSpec};

/// After so many failures in a row nobody waits for the next start any more.
const NOT_WAITED_FOR: u32 = 3;
/// How many times in a row it may be asked in vain whether it is well.
const MISSED: u32 = 2;
/// How much of its answer is read, in bytes.
const HEALTH_BYTES: u64 = 1024;

/// The goose that all sessions share.
pub(in crate::app) struct Serve {
    pub(super) settings: ServeSettings,
    /// What its sessions have that say nothing: what it is started with.
    pub(super) spec: LaunchSpec,
    /// What bounds a session's connection.
    pub(super) limits: WebSocketLimits,
    /// How many sessions it is to keep in memory.
    pub(super) sessions: usize,
    state: watch::Sender<State>,
    stop: CancellationToken,
}

#[derive(Clone)]
enum State {
    /// It is being started; with why it does not run any more when that is not the first time.
    Starting(Option<Fault>),
    Up(Arc<Served>),
    /// It is started again after a while.
    Down(Fault),
    /// gander stops.
    Ended,
}

/// Why it does not run.
#[derive(Clone, Debug)]
struct Fault {
    /// For people, without a path.
    why: String,
    /// How many times in a row.
    times: u32,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "goose serve does not run: {}", self.why)?;
        if self.times > 1 {
            write!(formatter, " ({} times in a row)", self.times)?;
        }
        Ok(())
    }
}

/// One that runs.
pub(super) struct Served {
    pub(super) control: ChildControl,
    address: SocketAddr,
    /// What it wants to be told with every connection.
    secret: Secret,
    /// What it says of its own end.
    stderr: StderrTail,
}

impl Served {
    /// Opens a connection. Only the process that was started is told the secret: who answers on the port is looked at
    /// after the connection is there, and whoever listens then has had the port all the time.
    pub(super) async fn connect(&self, limits: WebSocketLimits) -> Result<WebSocket, WebSocketError> {
        let connection = TcpStream::connect(self.address).await?;
        if !self.control.listens_on(self.address.port()).await {
            return Err(std::io::Error::other("another process has taken its port").into());
        }
        let header = (serve::SECRET_HEADER, self.secret.expose());
        WebSocket::open(connection, serve::WEBSOCKET_PATH, header, limits).await
    }

    /// Takes its secret out of what is said of it, too.
    pub(super) fn redactor(&self, redactor: &Redactor) -> Redactor {
        redactor.with_secrets([self.secret.expose().to_owned()])
    }

    async fn is_well(&self) -> bool {
        ask_health(self.address).await.is_ok_and(|well| well)
    }
}

impl Serve {
    pub(in crate::app) fn new(
        settings: ServeSettings,
        spec: LaunchSpec,
        limits: WebSocketLimits,
        sessions: usize,
        hard: &CancellationToken,
    ) -> Self {
        let state = watch::Sender::new(State::Starting(None));
        Self { settings, spec, limits, sessions, state, stop: hard.child_token() }
    }

    /// Waits until it runs. One that does not come up again and again is not waited for.
    pub(super) async fn up(&self) -> Result<Arc<Served>, LaunchError> {
        let mut state = self.state.subscribe();
        loop {
            match &*state.borrow_and_update() {
                State::Up(served) => return Ok(Arc::clone(served)),
                State::Down(fault) if fault.times >= NOT_WAITED_FOR => return Err(failed(fault.to_string())),
                State::Starting(_) | State::Down(_) => {}
                State::Ended => return Err(LaunchError::Cancelled),
            }
            if state.changed().await.is_err() {
                return Err(LaunchError::Cancelled);
            }
        }
    }

    /// Waits until this one is not the one that runs any more.
    pub(super) async fn replaced(&self, served: &Arc<Served>) {
        let mut state = self.state.subscribe();
        let other = |state: &State| !matches!(state, State::Up(now) if Arc::ptr_eq(now, served));
        // It fails only when the sender is gone, which this holds.
        let _ = state.wait_for(other).await;
    }

    /// Why no session can be started now; for people, without a path.
    pub(super) fn fault(&self) -> Option<String> {
        match &*self.state.borrow() {
            State::Up(_) => None,
            State::Starting(None) => Some("goose serve is being started".to_owned()),
            State::Starting(Some(fault)) | State::Down(fault) => Some(fault.to_string()),
            State::Ended => Some("goose serve has been stopped".to_owned()),
        }
    }

    /// The one that runs, if one does.
    pub(super) fn running(&self) -> Option<Arc<Served>> {
        match &*self.state.borrow() {
            State::Up(served) => Some(Arc::clone(served)),
            _ => None,
        }
    }

    /// How long to wait before the next start.
    fn pause(&self, times: u32) -> Duration {
        let ServeSettings { restart_backoff, restart_backoff_max, .. } = self.settings;
        let doubled =
            restart_backoff.saturating_mul(1_u32.checked_shl(times.saturating_sub(1)).unwrap_or(u32::MAX));
        let longest = doubled.min(restart_backoff_max);
        // Without random numbers it is the longest.
        let part = getrandom::u64().map_or(1.0, |random| {
            let random = u32::try_from(random >> 32).unwrap_or(u32::MAX);
            0.5 + f64::from(random) / f64::from(u32::MAX) / 2.0
        });
        longest.mul_f64(part)
    }
}

impl GooseLauncher {
    /// Whether all sessions share one goose.
    pub(in crate::app) fn one_serves_all(&self) -> bool {
        self.shared.serve.is_some()
    }

    /// Why the goose that all sessions share does not run; for people. `None` also when there is none.
    pub(in crate::app) fn serve_fault(&self) -> Option<String> {
        self.shared.serve.as_ref().and_then(Serve::fault)
    }

    /// Starts the goose that all sessions share, if they do, and sees to it that it runs.
    pub(in crate::app) fn supervise(&self) {
        if self.one_serves_all() {
            self.shared.tasks.spawn(self.clone().keep_serving());
        }
    }

    /// Ends it before everything ends.
    pub(in crate::app) async fn stop_serving(&self) {
        let Some(serve) = &self.shared.serve else { return };
        serve.stop.cancel();
        // It fails only when the sender is gone, which this holds.
        let _ = serve.state.subscribe().wait_for(|state| matches!(state, State::Ended)).await;
    }

    async fn keep_serving(self) {
        let Some(serve) = &self.shared.serve else { return };
        let mut times = 0;
        while !serve.stop.is_cancelled() {
            let begun = Instant::now();
            let started = tokio::select! {
                biased;
                () = serve.stop.cancelled() => break,
                started = self.start_serving(serve) => started,
            };
            let why = match started {
                Ok(served) => {
                    let (pid, address) = (served.control.pid(), served.address);
                    tracing::info!(pid, %address, "goose serves");
                    serve.state.send_replace(State::Up(Arc::clone(&served)));
                    let Some(how) = self.watch(serve, &served).await else { break };
                    let said = served.stderr.text_at_exit().await;
                    tracing::error!(stderr = said, "goose serve has ended");
                    if begun.elapsed() > serve.settings.restart_backoff_max {
                        times = 0;
                    }
                    how
                }
                Err(why) => why,
            };
            times += 1;
            let fault = Fault { why, times };
            let pause = serve.pause(times);
            tracing::error!(%fault, again_in = %humantime::format_duration(pause), "the agent of all sessions is gone");
            serve.state.send_replace(State::Down(fault.clone()));
            tokio::select! {
                biased;
                () = serve.stop.cancelled() => break,
                () = sleep(pause) => {}
            }
            serve.state.send_replace(State::Starting(Some(fault)));
        }
        serve.state.send_replace(State::Ended);
    }

    /// Waits until it has ended, and sees to that when it does not answer. How it ended; `None`: gander stops.
    async fn watch(&self, serve: &Serve, served: &Served) -> Option<String> {
        let ServeSettings { health_interval, health_timeout, .. } = serve.settings;
        let mut missed = 0;
        loop {
            tokio::select! {
                biased;
                () = serve.stop.cancelled() => {
                    served.control.kill();
                    served.control.exited().await;
                    return None;
                }
                status = served.control.exited() => return Some(described(status)),
                () = sleep(health_interval) => {}
            }
            missed = match timeout(health_timeout, served.is_well()).await {
                Ok(true) => 0,
                _ => missed + 1,
            };
            if missed >= MISSED {
                served.control.kill();
                served.control.exited().await;
                return Some(format!("it did not answer {} and was killed", serve::HEALTH_PATH));
            }
        }
    }
}

/// Whether the one who listens there says that it is well.
async fn ask_health(address: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let request =
        format!("GET {} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n", serve::HEALTH_PATH);
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(HEALTH_BYTES).read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200"))
}

#[cfg(test)]
mod tests;
