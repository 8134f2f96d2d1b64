//! Which tool call a command or a written file belongs to.
//!
//! The agent says so in the call's content, some time after it has asked for the command or the file. What a command
//! writes until then waits here. The content that callers get is gander's own, which knows more: a command's output and
//! end in place of its name, a file's old text as it was. It comes with the call's end.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use crate::session::agent::AgentEvent;
use crate::session::agent::client_tools::{ClientToolEvent, TerminalId};
use crate::session::tool_call::{ToolCall, ToolCallStatus};

/// How many written files wait for the call that they belong to. goose names it right after the write.
const WRITES: usize = 16;
/// How many commands or calls are known. No turn has so many; what is over that is forgotten, the oldest first.
const KNOWN: usize = 1024;

/// What one command has told so far.
#[derive(Debug, Default)]
struct Command {
    /// The call that it belongs to, once that is known.
    call: Option<String>,
    /// What it wrote until then. As much as is told of a command's output at all.
    held: Vec<Piece>,
    /// Its content, once it has ended.
    content: Option<Value>,
}

/// A piece of a command's output.
#[derive(Debug)]
struct Piece {
    stream: &'static str,
    text: String,
    truncated: bool,
}

impl Piece {
    fn of(self, tool_call_id: &str) -> AgentEvent {
        let Self { stream, text, truncated } = self;
        AgentEvent::ToolOutput {
            tool_call_id: tool_call_id.to_owned(),
            stream: stream.to_owned(),
            text,
            truncated,
        }
    }
}

/// Ties commands and files to calls. Forgets all when the turn is over.
#[derive(Debug, Default)]
pub(super) struct ToolTies {
    commands: HashMap<TerminalId, Command>,
    /// The files written last, with their diffs, the oldest first.
    writes: VecDeque<(String, Value)>,
    /// What calls that are open have given.
    calls: HashMap<String, Given>,
}

/// What one call has given so far.
#[derive(Debug, Default)]
struct Given {
    terminals: Vec<TerminalId>,
    diffs: Vec<Value>,
}

impl ToolTies {
    /// Nothing that is told from now on belongs to what was told before.
    pub(super) fn turn_over(&mut self) {
        *self = Self::default();
    }

    /// Something has happened at what the agent asked for.
    pub(super) fn happened(&mut self, event: ClientToolEvent, emit: &mut impl FnMut(AgentEvent)) {
        match event {
            ClientToolEvent::Written { path, content } => {
                if self.writes.len() >= WRITES {
                    self.writes.pop_front();
                }
                self.writes.push_back((path.to_string_lossy().into_owned(), content));
            }
            ClientToolEvent::Ended { terminal, content } => {
                if let Some(command) = self.command(&terminal) {
                    command.content = Some(content);
                }
            }
            ClientToolEvent::Output { terminal, stream, text, truncated } => {
                let piece = Piece { stream, text, truncated };
                let Some(command) = self.command(&terminal) else { return };
                match &command.call {
                    Some(call) => emit(piece.of(call)),
                    None => command.held.push(piece),
                }
            }
        }
    }

    fn command(&mut self, terminal: &TerminalId) -> Option<&mut Command> {
        if self.commands.len() >= KNOWN && !self.commands.contains_key(terminal) {
            return None;
        }
        Some(self.commands.entry(terminal.clone()).or_default())
    }

    /// The agent says something; what it says of calls is completed.
    pub(super) fn said(&mut self, event: AgentEvent, emit: &mut impl FnMut(AgentEvent)) {
        match event {
            AgentEvent::ToolCallStarted(call) => {
                // Models repeat ids.
                self.calls.remove(&call.id);
                emit(AgentEvent::ToolCallStarted(call));
            }
            AgentEvent::ToolCallUpdated(mut call) => {
                let tied = self.take_named(&mut call);
                if call.status.is_some_and(ToolCallStatus::is_final) {
                    self.complete(&mut call);
                } else if !tied.is_empty() {
                    // The agent does not say so itself.
                    call.status = call.status.or(Some(ToolCallStatus::InProgress));
                }
                let id = call.id.clone();
                if !call.is_empty_update() {
                    emit(AgentEvent::ToolCallUpdated(call));
                }
                for held in tied.into_iter().flat_map(|terminal| self.tie(&terminal, &id)) {
                    emit(held.of(&id));
                }
            }
            event => emit(event),
        }
    }

    /// Takes out of a call's content what gander knows better, and gives the commands among it.
    fn take_named(&mut self, call: &mut ToolCall) -> Vec<TerminalId> {
        let Some(content) = call.content.take() else { return Vec::new() };
        let mut terminals = Vec::new();
        let mut rest = Vec::new();
        for block in content {
            let kind = block.get("type").and_then(Value::as_str);
            let text = |field: &str| block.get(field).and_then(Value::as_str);
            match (kind, text("terminal_id"), text("path")) {
                (Some("terminal"), Some(terminal), _) => terminals.push(terminal.to_owned()),
                (Some("diff"), _, Some(path)) => match self.take_write(path) {
                    Some(diff) => self.given(&call.id).diffs.push(diff),
                    None => rest.push(block),
                },
                _ => rest.push(block),
            }
        }
        if !terminals.is_empty() {
            self.given(&call.id).terminals.extend(terminals.iter().cloned());
        }
        call.content = (!rest.is_empty()).then_some(rest);
        terminals
    }

    fn take_write(&mut self, path: &str) -> Option<Value> {
        let place = self.writes.iter().position(|(written, _)| written == path)?;
        self.writes.remove(place).map(|(_, diff)| diff)
    }

    fn given(&mut self, call: &str) -> &mut Given {
        if self.calls.len() >= KNOWN {
            self.calls.clear();
        }
        self.calls.entry(call.to_owned()).or_default()
    }

    /// A command belongs to a call: what it wrote until now.
    fn tie(&mut self, terminal: &TerminalId, call: &str) -> Vec<Piece> {
        let Some(command) = self.command(terminal) else { return Vec::new() };
        command.call = Some(call.to_owned());
        std::mem::take(&mut command.held)
    }

    /// Gives a call that ends its content: what gander knows first, then what the agent says of it.
    fn complete(&mut self, call: &mut ToolCall) {
        let Some(Given { terminals, mut diffs }) = self.calls.remove(&call.id) else { return };
        let ended = terminals.iter().filter_map(|terminal| self.commands.remove(terminal)?.content);
        diffs.extend(ended.collect::<Vec<_>>());
        if !diffs.is_empty() {
            diffs.extend(call.content.take().into_iter().flatten());
            call.content = Some(diffs);
        }
    }
}
