//! Spans of what happens in sessions, from their committed events.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry_proto::tonic::trace::v1::span::Event;

use super::Shared;
use super::attributes::{Attributes, fail};
use super::context::{Context, nanos};
use crate::observer::told::{ToldCall, ToldPermission, ToldTurn};
use crate::observer::{Observed, Observer, OpenTurns};
use crate::session::event::EventKind;
use crate::session::id::{SessionNumber, Timestamp, TurnId};
use crate::session::turn::TurnState;

/// Tool calls that are open in one turn at a time; of more there is no span.
const OPEN_CALLS: usize = 256;

/// Makes spans.
pub(super) struct TurnSpans {
    shared: Arc<Shared>,
    /// What is known of turns that have not ended.
    open: OpenTurns<OpenTurn>,
}

struct OpenTurn {
    context: Context,
    prompt: Option<String>,
    calls: HashMap<String, OpenCall>,
}

struct OpenCall {
    start: SystemTime,
    tool: Option<String>,
    extension: Option<String>,
    input: Option<String>,
}

impl TurnSpans {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, open: OpenTurns::default() }
    }

    /// Remembers a turn from its first event on.
    fn begun(&mut self, session: SessionNumber, turn: &ToldTurn<'_>) {
        let prompt = self.shared.excerpt(turn.prompt);
        let open = self.open.remember(session, turn.id, || {
            let (context, _) = Context::of_turn(turn.id, turn.traceparent.as_deref(), &self.shared.sampling);
            OpenTurn { context, prompt: None, calls: HashMap::new() }
        });
        if prompt.is_some() {
            open.prompt = prompt;
        }
    }

    fn call_begun(&mut self, turn: TurnId, at: Timestamp, call: &ToldCall<'_>) {
        let Some(open) = self.open.get_mut(turn).filter(|open| open.calls.len() < OPEN_CALLS) else {
            return;
        };
        let begun = OpenCall {
            start: at.into(),
            tool: call.tool.as_deref().map(ToOwned::to_owned),
            extension: call.extension.as_deref().map(ToOwned::to_owned),
            input: self.shared.excerpt(call.input),
        };
        open.calls.insert(call.id.clone().into_owned(), begun);
    }

    fn call_ended(&mut self, turn: TurnId, at: Timestamp, call: &ToldCall<'_>) {
        let Some(open) = self.open.get_mut(turn) else { return };
        let Some(begun) = open.calls.remove(call.id.as_ref()) else { return };
        let tool = call.tool.as_deref().or(begun.tool.as_deref());
        let input = self.shared.excerpt(call.input).or(begun.input);
        let failed = call.status.as_deref() == Some("failed");
        let attributes = Attributes::new()
            .text("gen_ai.operation.name", "execute_tool")
            .text("gen_ai.tool.name", tool)
            .text("gen_ai.tool.call.id", call.id.as_ref())
            .text("gander.tool.extension", call.extension.as_deref().or(begun.extension.as_deref()))
            .text("gander.tool_call.status", call.status.as_deref())
            .text("error.type", failed.then_some("tool_failed"))
            .content("gen_ai.tool.call.arguments", input)
            .content("gen_ai.tool.call.result", self.shared.excerpt(call.content));
        let context = open.context.below();
        let name = named("execute_tool", tool);
        let mut span = context.span(Some(open.context), name, (begun.start, at.into()), attributes);
        if failed {
            fail(&mut span);
        }
        self.shared.end(context, span);
    }

    fn decided(&self, turn: TurnId, permission: &ToldPermission<'_>) {
        let Some((open, outcome)) = self.open.get(turn).zip(permission.outcome.as_ref()) else { return };
        let tool = permission.tool_call.tool.as_deref();
        let attributes = Attributes::new()
            .text("gander.permission.id", permission.id.to_string().as_str())
            .text("gander.permission.decision", outcome.decision.as_ref())
            .text("gander.permission.by", outcome.by())
            .text("gen_ai.tool.name", tool)
            .text("gen_ai.tool.call.id", permission.tool_call.id.as_ref());
        let context = open.context.below();
        let times = (permission.requested_at.into(), outcome.at.into());
        self.shared
            .end(context, context.span(Some(open.context), named("permission", tool), times, attributes));
    }

    fn ended(&mut self, session: &str, owner: &str, turn: &ToldTurn<'_>) {
        // Also of a turn that began before this gander did: its own record has all that it takes.
        let open = self.open.remove(turn.id);
        let (context, parent) = Context::of_turn(turn.id, turn.traceparent.as_deref(), &self.shared.sampling);
        let usage = turn.usage.as_ref();
        let attributes = Attributes::new()
            .text("gen_ai.operation.name", "invoke_agent")
            .text("gen_ai.agent.name", "goose")
            .text("gen_ai.conversation.id", session)
            .list("gen_ai.response.finish_reasons", turn.stop_reason.as_deref())
            .number("gen_ai.usage.input_tokens", usage.and_then(|usage| usage.input_tokens))
            .number("gen_ai.usage.output_tokens", usage.and_then(|usage| usage.output_tokens))
            .text("error.type", turn.class())
            .text("gander.session.owner", owner)
            .text("gander.turn.id", turn.id.to_string().as_str())
            .text("gander.turn.state", turn.state.as_str())
            .text("gander.request_id", turn.request_id.as_deref())
            .content("gen_ai.input.messages", open.and_then(|open| open.prompt))
            .content("gen_ai.output.messages", self.shared.excerpt(turn.text));
        let created = turn.created_at.into();
        let times = (created, turn.ended_at.map_or(created, SystemTime::from));
        let mut span = context.span(parent, named("invoke_agent", Some("goose")), times, attributes);
        if let Some(started) = turn.started_at {
            // What is before it is the wait in the queue.
            let time_unix_nano = nanos(started.into());
            span.events.push(Event {
                time_unix_nano,
                name: "gander.turn.started".into(),
                ..Event::default()
            });
        }
        if matches!(turn.state, TurnState::Failed | TurnState::Interrupted) {
            fail(&mut span);
        }
        self.shared.end(context, span);
    }
}

fn named(operation: &str, what: Option<&str>) -> String {
    let name = what.map_or_else(|| operation.to_owned(), |what| format!("{operation} {what}"));
    name[..name.floor_char_boundary(128)].to_owned()
}

impl Observer for TurnSpans {
    fn event(&mut self, event: &Observed<'_>) {
        if event.kind == EventKind::SessionDeleted {
            self.open.remove_session(event.session);
        }
        let Some(told) = &event.told else { return };
        match (event.kind, &told.turn, event.turn) {
            (EventKind::TurnQueued | EventKind::TurnStarted, Some(turn), _) => {
                self.begun(event.session, turn);
            }
            (kind, Some(turn), _) if kind.ends_turn() => {
                self.ended(&told.session_id.to_string(), event.owner, turn);
            }
            (kind, _, Some(turn)) => match (kind, &told.tool_call, &told.permission) {
                (EventKind::ToolCallStarted, Some(call), _) => self.call_begun(turn, told.time, call),
                (EventKind::ToolCallFinished, Some(call), _) => self.call_ended(turn, told.time, call),
                (EventKind::PermissionResolved, _, Some(permission)) => self.decided(turn, permission),
                _ => {}
            },
            _ => {}
        }
    }

    fn events_lost(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests;
