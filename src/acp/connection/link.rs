//! How a connection is tied to a running agent: what carries its messages, and what tells of its end.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{AgentClock, Connection, Limits, QUEUED_LINES, reader, writer};
use crate::acp::stdio::{Lines, Redactor, StandardInput};
use crate::acp::transport::{Incoming, Outgoing};
use crate::acp::websocket::WebSocket;
use crate::session::agent::client_tools::{ClientToolEvent, ClientTools};
use crate::session::agent::{AgentEvents, AgentExit, BoxFuture, EventFilter};
use crate::shutdown::Tasks;

/// An agent that runs: how to talk to it and how it ends.
pub struct AgentPipes<R, W> {
    /// Its standard output.
    pub stdout: R,
    /// Its standard input.
    pub stdin: W,
    /// Resolves when its process is gone.
    pub exit: BoxFuture<AgentExit>,
    /// Ends it by force. Called once at most, when it has to be given up.
    pub kill: Arc<dyn Fn() + Send + Sync>,
    /// What must not be in its words about errors.
    pub redactor: Redactor,
    /// What does what it asks of the machine, and so what it is offered; `None`: nothing.
    pub tools: Option<ToolPort>,
}

/// Who does what an agent asks of the machine that it works on, and what there is to tell of that.
pub struct ToolPort {
    /// Does it.
    pub tools: Arc<dyn ClientTools>,
    /// What happens meanwhile.
    pub events: mpsc::Receiver<ClientToolEvent>,
}

/// An agent that serves several sessions: how to talk to it about one of them, and how that ends.
pub struct AgentSocket {
    /// The connection for the session.
    pub socket: WebSocket,
    /// Resolves when the connection is closed and nothing of the session runs any more.
    pub exit: BoxFuture<AgentExit>,
    /// What must not be in its words about errors.
    pub redactor: Redactor,
    /// As [`AgentPipes::tools`].
    pub tools: Option<ToolPort>,
}

/// How long a process may live on that has closed its output or input: it is usually about to exit.
const CLOSED_GRACE: Duration = Duration::from_secs(1);

/// How the agent's end becomes known.
pub(super) struct ExpectedExit {
    /// Resolves when it is gone.
    pub(super) exit: BoxFuture<AgentExit>,
    /// After how long it is given up that takes or says nothing any more; `None`: never for that.
    pub(super) closed_grace: Option<Duration>,
}

/// What holds an agent, whatever carries its messages.
struct Hold {
    exit: BoxFuture<AgentExit>,
    /// For how long it may live on that takes or says nothing any more; `None`: its end is seen to by whoever tells of it.
    closed_grace: Option<Duration>,
    kill: Arc<dyn Fn() + Send + Sync>,
    redactor: Redactor,
    tools: Option<ToolPort>,
}

impl Connection {
    /// Starts to read and to write. Everything that the agent says goes through `filter` to `events`, which has to be
    /// emptied from now on: also while a request is waited for, since its answer may stand behind a flood.
    ///
    /// The last event is `Exited`, exactly once, however the agent ends. A prompt that is open then gets no
    /// `PromptFinished` of its own; the other open requests fail.
    pub fn open<R, W>(
        pipes: AgentPipes<R, W>,
        filter: Box<dyn EventFilter>,
        events: mpsc::Sender<AgentEvents>,
        limits: Limits,
        tasks: &Tasks,
    ) -> Arc<Self>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let AgentPipes { stdout, stdin, exit, kill, redactor, tools } = pipes;
        let (incoming, outgoing) = (Lines::new(stdout, limits.line_bytes), StandardInput(stdin));
        let hold = Hold { exit, closed_grace: Some(CLOSED_GRACE), kill, redactor, tools };
        Self::open_over(incoming, outgoing, hold, (filter, events), limits, tasks)
    }

    /// As [`Connection::open`], over a WebSocket. An agent that has to be given up loses it; the process goes on for its
    /// other sessions.
    pub fn open_socket(
        AgentSocket { socket, exit, redactor, tools }: AgentSocket,
        filter: Box<dyn EventFilter>,
        events: mpsc::Sender<AgentEvents>,
        limits: Limits,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let closer = socket.closer();
        let (incoming, outgoing) = socket.split();
        // A connection that is lost on one side is lost: that takes as long as it takes to end the session's processes.
        let hold = Hold { exit, closed_grace: None, kill: Arc::new(move || closer.close()), redactor, tools };
        Self::open_over(incoming, outgoing, hold, (filter, events), limits, tasks)
    }

    /// As [`Connection::open`], over whatever carries the messages.
    fn open_over(
        incoming: impl Incoming,
        carrier: impl Outgoing,
        Hold { exit, closed_grace, kill, redactor, tools }: Hold,
        (filter, events): (Box<dyn EventFilter>, mpsc::Sender<AgentEvents>),
        limits: Limits,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let (outgoing, queue) = mpsc::channel(QUEUED_LINES);
        let sent_bytes = carrier.longest();
        let (tools, tool_events) = tools.map(|port| (port.tools, port.events)).unzip();
        let connection = Arc::new(Self {
            limits,
            outgoing,
            sent_bytes,
            state: Mutex::default(),
            clock: AgentClock::default(),
            session: OnceLock::new(),
            tools,
            kill,
            redactor,
            reason: OnceLock::new(),
            given_up: CancellationToken::new(),
            replaying: AtomicBool::new(false),
            closing: CancellationToken::new(),
            tasks: tasks.clone(),
        });
        let writer = writer::Writer::new(carrier, queue, connection.closing.clone());
        let ends = writer.ends();
        tasks.spawn(writer.run());
        let exit = ExpectedExit { exit, closed_grace };
        let reader = reader::Reader::new(connection.clone(), incoming, exit, filter, events, ends);
        tasks.spawn(reader.with_tool_events(tool_events).run());
        connection
    }
}
