//! The tool calls of a session's agent: each begins once and ends once.

use super::{Machine, OPEN_TOOL_CALLS, REMEMBERED_CALLS, Step, ToolCallNotes};
use crate::session::event::{EventBody, EventKind};
use crate::session::tool_call::{ToolCall, ToolCallStatus};

impl Machine {
    /// A call that is not open begins; an open one changes or ends.
    pub(super) fn tool_call(&mut self, step: &mut Step, update: ToolCall) {
        let open = self.record.snapshot.open_tool_calls.iter().position(|open| open.id == update.id);
        let Some(index) = open else {
            if self.ended_calls.contains(&update.id) {
                // The agent says more about a call that has ended.
                let tool_call = Box::new(update);
                self.push(step, EventKind::ToolCallUpdated, EventBody::ToolCall { tool_call });
                return;
            }
            let ended = update.status.filter(|status| status.is_final());
            self.start_tool_call(step, ToolCall { content: None, output: None, ..update.clone() });
            if ended.is_some() {
                self.tool_call(step, update);
            }
            return;
        };
        let call = &mut self.record.snapshot.open_tool_calls[index];
        let id = update.id.clone();
        if let Some(status) = update.status.filter(|status| status.is_final()) {
            call.merge(update);
            let call = self.record.snapshot.open_tool_calls.remove(index);
            let notes = self.tool_notes.remove(&id).unwrap_or_default();
            let status = if notes.rejected { ToolCallStatus::Rejected } else { status };
            let finished = ToolCall { status: Some(status), input: None, ..call };
            if self.ended_calls.len() < REMEMBERED_CALLS {
                self.ended_calls.insert(id);
            }
            step.session_changed = true;
            let tool_call = Box::new(finished);
            self.push_in(step, EventKind::ToolCallFinished, notes.turn, EventBody::ToolCall { tool_call });
            return;
        }
        let before = call.clone();
        call.merge(update.clone());
        if *call == before {
            return;
        }
        let changed = only_changes(update, &before);
        // Not written down with each change: a call that is open at a crash is only closed.
        self.push(step, EventKind::ToolCallUpdated, EventBody::ToolCall { tool_call: Box::new(changed) });
    }

    /// The agent begins a call of this id: if one is open, nobody can tell any more which of both is meant by it.
    pub(super) fn told_again(&mut self, id: &str) {
        if let Some(notes) = self.tool_notes.get_mut(id) {
            notes.told_twice = true;
        }
    }

    pub(super) fn start_tool_call(&mut self, step: &mut Step, call: ToolCall) {
        let status = call.status.filter(|status| !status.is_final()).unwrap_or(ToolCallStatus::Pending);
        let call = ToolCall { status: Some(status), ..call };
        if self.record.snapshot.open_tool_calls.len() >= OPEN_TOOL_CALLS {
            let oldest = self.record.snapshot.open_tool_calls[0].id.clone();
            let status = Some(ToolCallStatus::Cancelled);
            self.tool_call(step, ToolCall { id: oldest, status, ..ToolCall::default() });
        }
        // Text after a call is another message, also when the model's ids repeat.
        self.message = None;
        self.tool_notes
            .insert(call.id.clone(), ToolCallNotes { turn: self.current_turn(), ..ToolCallNotes::default() });
        self.record.snapshot.open_tool_calls.push(call.clone());
        step.session_changed = true;
        self.push(step, EventKind::ToolCallStarted, EventBody::ToolCall { tool_call: Box::new(call) });
    }

    pub(super) fn tool_output(
        &mut self,
        step: &mut Step,
        id: String,
        stream: String,
        text: &str,
        truncated: bool,
    ) {
        let Some(notes) = self.tool_notes.get_mut(&id) else { return };
        if notes.truncated {
            return;
        }
        let room = self.bounds.output_bytes.saturating_sub(notes.output_bytes);
        let kept = &text[..text.floor_char_boundary(room)];
        notes.output_bytes += kept.len();
        notes.truncated = truncated || kept.len() < text.len();
        let truncated = notes.truncated;
        let body = EventBody::Output { tool_call_id: id, stream, text: kept.to_owned(), truncated };
        self.push(step, EventKind::ToolCallOutput, body);
    }
}

/// Leaves in an update only what differs from before.
fn only_changes(mut update: ToolCall, before: &ToolCall) -> ToolCall {
    fn keep<T: PartialEq>(field: &mut Option<T>, before: Option<&T>) {
        if field.as_ref() == before {
            *field = None;
        }
    }
    keep(&mut update.tool, before.tool.as_ref());
    keep(&mut update.extension, before.extension.as_ref());
    keep(&mut update.title, before.title.as_ref());
    keep(&mut update.kind, before.kind.as_ref());
    keep(&mut update.status, before.status.as_ref());
    keep(&mut update.input, before.input.as_ref());
    keep(&mut update.locations, before.locations.as_ref());
    keep(&mut update.content, before.content.as_ref());
    keep(&mut update.output, before.output.as_ref());
    update
}
