//! The reader task: takes what the agent writes, in order, and tells the core.
//!
//! All that one read brought is one batch of events. The task ends with the agent, and its last event is `Exited`.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, PROTOCOL_LEVEL_METHOD_NAMES, RequestPermissionOutcome, RequestPermissionResponse,
};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};

use super::Connection;
use super::client_requests::INTERNAL_ERROR;
use super::link::ExpectedExit;
use super::pending::{Pending, RequestAnswer, failure_of};
use super::ties::ToolTies;
use super::writer::WriterEnds;
use crate::acp::rpc::{self, Line, Message, RpcError};
use crate::acp::translate;
use crate::acp::transport::Incoming;
use crate::session::agent::client_tools::ClientToolEvent;
use crate::session::agent::{
    AgentEvent, AgentEvents, AgentExit, AgentFailure, AgentPermissionRequest, BoxFuture, EventFilter, Notice,
    NoticeLevel,
};
use crate::session::turn::TurnErrorClass;

/// How long, in all, the reader waits for more output when the process is gone. What the agent wrote is in the pipe
/// already; only a process that it left behind can still write. Its end is to be told within 100 ms, also when such a
/// process holds the pipe open.
const DRAIN: Duration = Duration::from_millis(25);
/// How much is read when the process is gone, in bytes: more than a pipe holds (1 MiB for an ordinary user).
const DRAIN_BYTES: usize = 2 * 1024 * 1024;
/// How long a process that was killed may take to be gone.
const KILLED_GRACE: Duration = Duration::from_secs(5);
/// How many bad lines are logged, each; the rest is only counted.
const LOGGED_BAD_LINES: u64 = 3;
/// JSON-RPC's codes.
const METHOD_NOT_FOUND: i64 = -32601;
pub(super) const INVALID_PARAMS: i64 = -32602;

pub(super) struct Reader<I> {
    incoming: I,
    exit: BoxFuture<AgentExit>,
    closed_grace: Option<Duration>,
    events: mpsc::Sender<AgentEvents>,
    ends: WriterEnds,
    /// What happens at what the agent asks of the machine.
    tool_events: Option<mpsc::Receiver<ClientToolEvent>>,
    inbox: Inbox,
}

/// What turns lines into a batch of events.
struct Inbox {
    connection: Arc<Connection>,
    filter: Box<dyn EventFilter>,
    batch: AgentEvents,
    /// Which tool calls the commands and files belong to that the agent asks for.
    ties: ToolTies,
    /// Answers to requests of gander. They are told behind the batch: whoever asked then finds in the events all that
    /// the agent had said before (goose tells a setting's change ahead of its answer).
    answers: Vec<(RequestAnswer, Result<Box<RawValue>, AgentFailure>)>,
    bad_lines: u64,
}

impl<I: Incoming> Reader<I> {
    pub(super) fn new(
        connection: Arc<Connection>,
        incoming: I,
        ExpectedExit { exit, closed_grace }: ExpectedExit,
        filter: Box<dyn EventFilter>,
        events: mpsc::Sender<AgentEvents>,
        ends: WriterEnds,
    ) -> Self {
        let (batch, answers, ties) = (Vec::new(), Vec::new(), ToolTies::default());
        let inbox = Inbox { connection, filter, batch, ties, answers, bad_lines: 0 };
        Self { incoming, exit, closed_grace, events, ends, tool_events: None, inbox }
    }

    /// Tells what happens at what the agent asks of the machine among what it says itself.
    pub(super) fn with_tool_events(mut self, events: Option<mpsc::Receiver<ClientToolEvent>>) -> Self {
        self.tool_events = events;
        self
    }

    pub(super) async fn run(mut self) {
        let exit = self.read_to_the_end().await;
        self.ends.agent_gone.cancel();
        self.inbox.connection.turn_over();
        let failure =
            AgentFailure { class: exit.class, code: None, message: format!("the agent ended: {}", exit.how) };
        self.inbox.connection.state().end(&failure);
        self.inbox.emit(AgentEvent::Exited(exit));
        self.send_batch().await;
    }

    async fn read_to_the_end(&mut self) -> AgentExit {
        let connection = self.inbox.connection.clone();
        let (mut is_open, mut takes_words) = (true, true);
        // When a process that closed a pipe is to be gone.
        let mut overdue: Option<Instant> = None;
        loop {
            connection.clock.run();
            tokio::select! {
                // The end first: a flood must not hide it. Nothing is lost, since what is in the pipe is drained.
                biased;
                () = connection.given_up.cancelled() => return self.killed().await,
                exit = &mut self.exit => {
                    if is_open {
                        self.drain().await;
                    }
                    return exit;
                }
                () = self.ends.outgoing_lost.cancelled(), if takes_words => {
                    takes_words = false;
                    overdue = overdue.or_else(|| self.see_it_go());
                }
                () = sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => {
                    connection.give_up("the agent closed its pipes and did not exit");
                }
                Some(event) = next_tool_event(&mut self.tool_events) => {
                    self.inbox.tool_event(event);
                    self.send_batch().await;
                }
                read = self.incoming.read(), if is_open => if read > 0 {
                    self.take().await;
                } else {
                    is_open = false;
                    overdue = overdue.or_else(|| self.see_it_go());
                    self.take_last_line().await;
                },
            }
        }
    }

    /// The agent takes or says nothing any more. When it is overdue; `None`: whoever tells of its end sees to that.
    fn see_it_go(&self) -> Option<Instant> {
        if self.closed_grace.is_none() {
            // What is lost on one side is lost on both.
            (self.inbox.connection.kill)();
        }
        self.closed_grace.map(|grace| Instant::now() + grace)
    }

    /// Takes what one read brought.
    async fn take(&mut self) {
        let Self { incoming, inbox, tool_events, .. } = self;
        // What happened before the agent was answered is told before what it says then.
        while let Some(Ok(event)) = tool_events.as_mut().map(mpsc::Receiver::try_recv) {
            inbox.tool_event(event);
        }
        incoming.take(|line| inbox.line(&line));
        if let Some((head, bytes)) =
            incoming.unfinished_too_long().filter(|(head, _)| !inbox.can_do_without(head))
        {
            inbox.too_long(head, bytes);
        }
        self.send_batch().await;
    }

    async fn take_last_line(&mut self) {
        let Self { incoming, inbox, .. } = self;
        incoming.finish(|line| inbox.line(&line));
        self.send_batch().await;
    }

    /// Waits for the core when it is behind: the agent then waits for its pipe.
    async fn send_batch(&mut self) {
        self.inbox.connection.clock.stand();
        let batch = std::mem::take(&mut self.inbox.batch);
        // A core that does not listen any more is about to end the agent, which must not wait for a full pipe then.
        if !batch.is_empty() && self.events.send(batch).await.is_err() {
            debug!("nobody listens to the agent");
        }
        for (answer, outcome) in self.inbox.answers.drain(..) {
            // Whoever asked may have gone meanwhile.
            let _ = answer.send(outcome);
        }
    }

    /// The process is gone: reads what it left in the pipe. The time counts only while nothing comes, so that a slow
    /// core does not cost the last events.
    async fn drain(&mut self) {
        let (mut time, mut drained) = (DRAIN, 0);
        while drained < DRAIN_BYTES {
            let begin = Instant::now();
            let Ok(count @ 1..) = timeout(time, self.incoming.read()).await else { break };
            time = time.saturating_sub(begin.elapsed());
            drained += count;
            self.take().await;
        }
        self.take_last_line().await;
    }

    /// The process was killed, since it was given up.
    async fn killed(&mut self) -> AgentExit {
        let reason = self.inbox.connection.reason.get().cloned().unwrap_or_default();
        let stderr_tail = if let Ok(exit) = timeout(KILLED_GRACE, &mut self.exit).await {
            exit.stderr_tail
        } else {
            warn!("the agent's process lives on after it was killed");
            String::new()
        };
        AgentExit { how: reason, stderr_tail, class: TurnErrorClass::AgentUnresponsive }
    }
}

/// The next event; never, when there are none.
async fn next_tool_event(events: &mut Option<mpsc::Receiver<ClientToolEvent>>) -> Option<ClientToolEvent> {
    match events {
        Some(events) => events.recv().await,
        None => None,
    }
}

/// The replacing conversion alone looks at every byte by itself, also of text that is sound.
fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

impl Inbox {
    fn emit(&mut self, event: AgentEvent) {
        self.filter.filter(event, &mut self.batch);
    }

    fn line(&mut self, line: &Line<'_>) {
        // What an agent says after it was given up is not heard.
        if self.connection.given_up.is_cancelled() {
            return;
        }
        match line {
            Line::Whole(bytes) => {
                let text = text_of(bytes);
                let session = self.connection.session.get().map(String::as_str);
                let event = translate::chunk_of_line(&text, session).filter(|_| !self.is_replaying());
                match event {
                    Some(event) => self.emit(event),
                    None => rpc::read_messages(&text, |message| match message {
                        Ok(message) => self.message(message),
                        Err(rpc::NotJsonRpc) => self.bad_line(bytes.len()),
                    }),
                }
            }
            Line::TooLong { head, bytes } => self.too_long(head, *bytes),
        }
    }

    fn tool_event(&mut self, event: ClientToolEvent) {
        let Self { ties, filter, batch, .. } = self;
        ties.happened(event, &mut |event| filter.filter(event, batch));
    }

    fn is_replaying(&self) -> bool {
        self.connection.replaying.load(Ordering::Acquire)
    }

    fn bad_line(&mut self, bytes: usize) {
        self.bad_lines += 1;
        if self.bad_lines <= LOGGED_BAD_LINES {
            warn!(bytes, "the agent wrote a line that is no JSON-RPC");
        }
        if self.bad_lines > self.connection.limits.bad_lines {
            self.connection.give_up(format!("the agent wrote {} lines that are no JSON-RPC", self.bad_lines));
        }
    }

    /// Whether what begins so can be left out, and nobody waits for ever.
    fn can_do_without(&self, head: &[u8]) -> bool {
        is_update(head) || self.tool_request(head).is_some()
    }

    /// The request for a file or a command that begins so.
    fn tool_request(&self, head: &[u8]) -> Option<(Box<RawValue>, String)> {
        rpc::request_of_head(head).filter(|(_, method)| self.connection.is_client_tool(method))
    }

    fn too_long(&mut self, head: &[u8], bytes: u64) {
        let limit = self.connection.limits.line_bytes;
        if is_update(head) {
            if self.is_replaying() {
                return;
            }
            warn!(bytes, limit, "an update of the agent is longer than the limit");
            let message = format!("an update of {bytes} bytes was left out: a line may have {limit}");
            let code = "update-dropped".to_owned();
            self.emit(AgentEvent::Notice(Notice { level: NoticeLevel::Warning, code, message }));
        } else if let Some((id, _)) = self.tool_request(head) {
            warn!(bytes, limit, "a request of the agent is longer than the limit");
            let reason = format!("the request has {bytes} bytes: at most {limit} are taken");
            self.answer(rpc::error_line(&id, INTERNAL_ERROR, &reason));
        } else {
            // Somebody would wait for ever for what was in it.
            self.connection.give_up(format!("the agent wrote a line of more than {limit} bytes"));
        }
    }

    fn message(&mut self, message: Message<'_>) {
        match message {
            Message::Response { id, outcome } => self.response(id, outcome),
            Message::Request { id, method, params }
                if method == CLIENT_METHOD_NAMES.session_request_permission =>
            {
                self.permission_request(id, params);
            }
            Message::Request { id, method, params } if self.connection.is_client_tool(&method) => {
                self.connection.client_request(id, &method, params);
            }
            Message::Request { id, method, .. } => {
                debug!(%method, "the agent asks for something that gander does not offer");
                self.answer(rpc::error_line(id, METHOD_NOT_FOUND, "Method not found"));
            }
            Message::Notification { method, params }
                if method == PROTOCOL_LEVEL_METHOD_NAMES.cancel_request =>
            {
                self.request_withdrawn(params);
            }
            Message::Notification { .. } if self.is_replaying() => {}
            Message::Notification { method, params } => {
                let Self { connection, filter, batch, ties, .. } = self;
                let session = connection.session.get().map(String::as_str);
                translate::notification(&method, params, session, &mut |event| {
                    ties.said(event, &mut |event| filter.filter(event, batch));
                });
            }
        }
    }

    fn response(&mut self, id: &RawValue, outcome: Result<&RawValue, RpcError>) {
        let outcome = outcome.map_err(|error| failure_of(&error, &self.connection.redactor));
        let pending = id.get().parse().ok().and_then(|id| self.connection.state().take_pending(id));
        match pending {
            None => {
                let code = outcome.err().and_then(|failure| failure.code);
                debug!(code, "an answer of the agent to nothing that is open");
            }
            Some(pending @ (Pending::Load(_) | Pending::Request(_))) => {
                if matches!(pending, Pending::Load(_)) {
                    self.connection.replaying.store(false, Ordering::Release);
                }
                let outcome = outcome.map(ToOwned::to_owned).map_err(|failure| self.filter.explain(failure));
                if let Pending::Load(answer) | Pending::Request(answer) = pending {
                    self.answers.push((answer, outcome));
                }
            }
            Some(Pending::Told { answer, event }) => {
                if let Ok(reply) = outcome {
                    self.emit(event(reply));
                }
                self.answers.push((answer, outcome.map(ToOwned::to_owned)));
            }
            Some(Pending::Prompt(turn)) => {
                let result = outcome.and_then(|result| {
                    let result = translate::fields(Some(result));
                    translate::read(result.get("stopReason").copied()).ok_or_else(|| {
                        super::failure(None, "the agent's answer to the prompt has no stop reason".to_owned())
                    })
                });
                self.connection.turn_over();
                self.ties.turn_over();
                self.emit(AgentEvent::PromptFinished { turn, result });
            }
        }
    }

    fn permission_request(&mut self, id: &RawValue, params: Option<&RawValue>) {
        let params = translate::fields(params);
        let session = self.connection.session.get().map(String::as_str);
        let Some(request) =
            translate::permission_request(&params).filter(|_| translate::is_ours(&params, session))
        else {
            debug!("a permission request of the agent that nobody could decide");
            return self.answer(rpc::error_line(id, INVALID_PARAMS, "Invalid params"));
        };
        let held = self.connection.state().hold(id, self.connection.limits.pending_permissions);
        let Some(reply) = held else {
            warn!("the agent has too many open permission requests");
            return self.answer_cancelled(id);
        };
        let translate::PermissionRequest { tool_call, options } = request;
        let request = AgentPermissionRequest { reply, tool_call, options, plan_write: false };
        self.emit(AgentEvent::PermissionRequested(request));
    }

    /// `$/cancel_request`: the agent does not need an answer any more, and gets one all the same, as JSON-RPC wants.
    fn request_withdrawn(&mut self, params: Option<&RawValue>) {
        let params = translate::fields(params);
        let Some(id) = params.get("requestId").copied() else { return };
        self.connection.state().withdraw_client_request(id);
        let withdrawn = self.connection.state().take_held_by_id(id);
        for reply in withdrawn {
            self.answer_cancelled(id);
            self.emit(AgentEvent::PermissionWithdrawn(reply));
        }
    }

    fn answer_cancelled(&self, id: &RawValue) {
        let cancelled = RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled);
        self.answer(rpc::result_line(id, &cancelled));
    }

    fn answer(&self, line: serde_json::Result<Vec<u8>>) {
        // The queue is full or closed: the agent has been given up or is about to end, and the reader will see that.
        let _ = self.connection.enqueue(line);
    }
}

/// Whether a line that begins like this is a session update, which can be left out.
fn is_update(head: &[u8]) -> bool {
    rpc::method_of_head(head).is_some_and(|method| translate::is_session_update(&method))
}
