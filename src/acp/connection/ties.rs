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
/// How many commands, and how many calls, of a turn are known. Nothing is told of what comes after them.
const KNOWN: usize = 1024;
/// How much text may wait for its call, or for that one's end, in bytes. What comes after that is left out: an agent that
/// never says which call it was for must not fill the memory.
const WAITING_BYTES: usize = 64 << 20;

/// What one command has told so far.
#[derive(Debug, Default)]
struct Command {
    /// The call that it belongs to, once that is known.
    call: Option<String>,
    /// What it wrote until then. As much as is told of a command's output at all.
    held: Vec<Piece>,
    /// Its content, once it has ended.
    content: Option<Value>,
    /// Whether its call is over: nothing is told of it any more.
    is_over: bool,
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
    /// The bytes of text in all of these.
    waiting: usize,
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
                if self.writes.len() >= WRITES
                    && let Some((_, oldest)) = self.writes.pop_front()
                {
                    self.waiting -= bytes_of(&oldest);
                }
                if self.has_room(bytes_of(&content)) {
                    self.writes.push_back((path.to_string_lossy().into_owned(), content));
                }
            }
            ClientToolEvent::Ended { terminal, content } => {
                if self.command(&terminal).is_some() && self.has_room(bytes_of(&content)) {
                    self.commands.entry(terminal).or_default().content = Some(content);
                }
            }
            ClientToolEvent::Output { terminal, stream, text, truncated } => {
                let piece = Piece { stream, text, truncated };
                let Some(command) = self.command(&terminal) else { return };
                if let Some(call) = &command.call {
                    return emit(piece.of(call));
                }
                if self.has_room(piece.text.len()) {
                    self.commands.entry(terminal).or_default().held.push(piece);
                }
            }
        }
    }

    /// Whether so much more text may wait, which it then does.
    fn has_room(&mut self, bytes: usize) -> bool {
        let is_room = self.waiting + bytes <= WAITING_BYTES;
        if is_room {
            self.waiting += bytes;
        }
        is_room
    }

    /// A command of which there is something to tell.
    fn command(&mut self, terminal: &TerminalId) -> Option<&mut Command> {
        if self.commands.len() >= KNOWN && !self.commands.contains_key(terminal) {
            return None;
        }
        Some(self.commands.entry(terminal.clone()).or_default()).filter(|command| !command.is_over)
    }

    /// The agent says something; what it says of calls is completed.
    pub(super) fn said(&mut self, event: AgentEvent, emit: &mut impl FnMut(AgentEvent)) {
        match event {
            AgentEvent::ToolCallStarted(mut call) => {
                // Models repeat ids.
                if let Some(Given { diffs, .. }) = self.calls.remove(&call.id) {
                    self.waiting -= diffs.iter().map(bytes_of).sum::<usize>();
                }
                let tied = self.take_named(&mut call);
                if call.status.is_some_and(ToolCallStatus::is_final) {
                    self.complete(&mut call);
                }
                let id = call.id.clone();
                emit(AgentEvent::ToolCallStarted(call));
                self.tell_held(tied, &id, emit);
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
                self.tell_held(tied, &id, emit);
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
            match (kind, text("terminal_id"), text("path"), text("new_text")) {
                (Some("terminal"), Some(terminal), ..) => terminals.push(terminal.to_owned()),
                (Some("diff"), _, Some(path), Some(new)) if self.can_give(&call.id) => {
                    match self.take_write(path, new) {
                        Some(diff) => self.calls.entry(call.id.clone()).or_default().diffs.push(diff),
                        None => rest.push(block),
                    }
                }
                _ => rest.push(block),
            }
        }
        if !terminals.is_empty() && self.can_give(&call.id) {
            self.calls.entry(call.id.clone()).or_default().terminals.extend(terminals.iter().cloned());
        }
        call.content = (!rest.is_empty()).then_some(rest);
        terminals
    }

    /// The write that the agent tells of: the last of that text in that file. Earlier ones of the same, which it has not
    /// told of, are none of anybody's.
    fn take_write(&mut self, path: &str, new: &str) -> Option<Value> {
        let is_meant = |(written, diff): &(String, Value)| written == path && has_text(diff, new);
        let place = self.writes.iter().rposition(is_meant)?;
        let (_, diff) = self.writes.remove(place)?;
        let waiting = &mut self.waiting;
        self.writes.retain(|write| {
            let is_stale = is_meant(write);
            *waiting -= if is_stale { bytes_of(&write.1) } else { 0 };
            !is_stale
        });
        Some(diff)
    }

    /// Whether there is room for what a call gives.
    fn can_give(&self, call: &str) -> bool {
        self.calls.len() < KNOWN || self.calls.contains_key(call)
    }

    /// Tells what commands wrote until it was known to which call they belong.
    fn tell_held(&mut self, tied: Vec<TerminalId>, call: &str, emit: &mut impl FnMut(AgentEvent)) {
        for held in tied.into_iter().flat_map(|terminal| self.tie(&terminal, call)) {
            emit(held.of(call));
        }
    }

    /// A command belongs to a call: what it wrote until now.
    fn tie(&mut self, terminal: &TerminalId, call: &str) -> Vec<Piece> {
        let Some(command) = self.command(terminal) else { return Vec::new() };
        command.call = Some(call.to_owned());
        let held = std::mem::take(&mut command.held);
        self.waiting -= held.iter().map(|piece| piece.text.len()).sum::<usize>();
        held
    }

    /// Gives a call that ends its content: what gander knows first, then what the agent says of it.
    fn complete(&mut self, call: &mut ToolCall) {
        let Some(Given { terminals, diffs: mut known }) = self.calls.remove(&call.id) else { return };
        for terminal in &terminals {
            let Some(command) = self.commands.get_mut(terminal) else { continue };
            // It may write on, or end only now.
            command.is_over = true;
            known.extend(command.content.take());
        }
        self.waiting -= known.iter().map(bytes_of).sum::<usize>();
        if !known.is_empty() {
            known.extend(call.content.take().into_iter().flatten());
            call.content = Some(known);
        }
    }
}

/// Whether a write's diff has this text, as far as it tells.
fn has_text(diff: &Value, new: &str) -> bool {
    let Some(told) = diff.get("new_text").and_then(Value::as_str) else { return false };
    let is_cut = diff.get("truncated").and_then(Value::as_bool) == Some(true);
    if is_cut { new.starts_with(told) } else { new == told }
}

/// The bytes of text in a call's content.
fn bytes_of(content: &Value) -> usize {
    let fields = content.as_object().into_iter().flat_map(serde_json::Map::values);
    fields.filter_map(Value::as_str).map(str::len).sum()
}

#[cfg(test)]
mod tests;
