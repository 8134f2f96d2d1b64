//! What goose 1.52 means by its updates, beyond what ACP says.
//!
//! - Its todo extension's `todo_write` is how it keeps a plan: the call becomes the plan, and is no tool call.
//! - In chat mode it reports a call that it did not run as completed, with a text that says so.
//! - It says in words of its own, and ends the turn as a success, that a model call failed or that a limit is reached.
//! - Its words about an error tell what went wrong.
//! - That it has summed up the conversation it tells as a status, and when a caller asked for it (`/compact`) as a message.
//! - It names the run of a turn, by which words can be put into it.
//! - What its own tools do it tells in one way or the other; here it becomes one.

mod calls;
mod speech;

use std::collections::VecDeque;
use std::path::PathBuf;

use serde_json::Value;

use self::calls::OwnCalls;
use self::speech::Speech;
use super::outcome;
use super::plan::{self, ParsedPlan};
use super::skills::SkillPlaces;
use super::steer::ActiveRun;
use crate::session::agent::{
    AgentEvent, AgentEvents, AgentFailure, AgentPermissionRequest, EventFilter, Mode, Notice, NoticeLevel,
};
use crate::session::plan::{PlanEntry, PlanEntryPriority, PlanEntryStatus};
use crate::session::tool_call::{ToolCall, ToolCallStatus};
use crate::session::turn::TurnErrorClass;

/// The tool and the extension that write the plan.
const PLAN_TOOL: &str = "todo__todo_write";
const PLAN_EXTENSION: &str = "todo";
/// How the result of a write begins that was done.
const WRITTEN: &str = "Updated (";
/// How the result of a call begins that chat mode did not run.
const SKIPPED: &str = "Let the user know the tool call was skipped in goose chat mode.";
/// What it says when it has summed up the conversation.
const COMPACTED: &str = "Compaction complete";
/// The code of a notice about that.
const COMPACTION: &str = "compaction";
/// How many plan writes are remembered, so that what is told of them later is recognised. goose has one open at a
/// time, or the few of one message.
const REMEMBERED_WRITES: usize = 64;

/// A call of the plan's tool, kept from the callers.
struct PlanWrite {
    /// All that was said of it, in case that its permission is shown.
    call: ToolCall,
    /// The plan, if the write is done.
    entries: Vec<PlanEntry>,
    /// Nothing it may still say changes the plan.
    is_over: bool,
}

/// Reads goose's own meanings out of its events.
pub struct GooseUpdates {
    /// Whether goose runs no tools now. Only then is a call that says so skipped: any tool's output can begin with the
    /// same words.
    is_chatting: bool,
    /// Whether goose has sent a plan of ACP's kind, which wins: from then on no todo list sets the plan.
    has_real_plan: bool,
    /// The last plan writes, oldest first.
    writes: VecDeque<PlanWrite>,
    /// The calls of its own tools.
    calls: OwnCalls,
    /// Whether the model speaks, or goose.
    speech: Speech,
    /// The run of the turn.
    run: ActiveRun,
    /// Where its skills are.
    places: SkillPlaces,
    /// Whether it has just echoed a slash command: its answer comes next.
    is_commanded: bool,
}

impl GooseUpdates {
    /// For a goose that starts in `mode`.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self {
            is_chatting: mode == Mode::Chat,
            has_real_plan: false,
            writes: VecDeque::new(),
            calls: OwnCalls::default(),
            speech: Speech::default(),
            run: ActiveRun::default(),
            places: SkillPlaces::default(),
            is_commanded: false,
        }
    }

    /// That goose works in this folder, and how many bytes each of a diff's texts may have.
    #[must_use]
    pub fn in_folder(self, cwd: PathBuf, diff_bytes: usize) -> Self {
        Self { calls: OwnCalls::in_folder(cwd, diff_bytes), ..self }
    }

    /// The run of the turn, as goose tells it.
    #[must_use]
    pub fn run(&self) -> ActiveRun {
        self.run.clone()
    }

    /// Where its skills are, as far as that is known.
    #[must_use]
    pub fn places(&self) -> SkillPlaces {
        self.places.clone()
    }

    fn write_of(&mut self, tool_call_id: &str) -> Option<&mut PlanWrite> {
        self.writes.iter_mut().find(|write| write.call.id == tool_call_id)
    }

    fn call_started(&mut self, mut call: ToolCall, events: &mut AgentEvents) {
        // Models make the ids and may use one again.
        self.writes.retain(|write| write.call.id != call.id);
        let Some(entries) = planned(&call) else {
            self.calls.started(&mut call);
            return events.push(AgentEvent::ToolCallStarted(self.with_skipped(call)));
        };
        if self.writes.len() >= REMEMBERED_WRITES {
            self.writes.pop_front();
        }
        self.writes.push_back(PlanWrite { call: call.clone(), entries, is_over: false });
        // One that is told whole, with its end.
        self.call_updated(call, events);
    }

    fn call_updated(&mut self, update: ToolCall, events: &mut AgentEvents) {
        let has_real_plan = self.has_real_plan;
        let Some(write) = self.write_of(&update.id) else {
            let mut update = self.with_skipped(update);
            self.calls.updated(&mut update);
            return events.push(AgentEvent::ToolCallUpdated(update));
        };
        let is_end = !write.is_over && update.status.is_some_and(ToolCallStatus::is_final);
        let is_done =
            update.status == Some(ToolCallStatus::Completed) && result_begins_with(&update, WRITTEN);
        write.call.merge(update);
        if is_end {
            write.is_over = true;
            let entries = std::mem::take(&mut write.entries);
            if is_done && !has_real_plan {
                events.push(AgentEvent::PlanUpdated(entries));
            }
        }
    }

    /// A request is a plan write's when it asks for just what the call announced. The id alone would not do: a model
    /// that gives a command's call the same id would have it allowed unasked.
    fn permission_requested(&mut self, mut request: AgentPermissionRequest) -> AgentPermissionRequest {
        let asked = &request.tool_call;
        let write = self.write_of(&asked.id).filter(|write| {
            !write.is_over && asked.input == write.call.input && asked.title == write.call.title
        });
        if let Some(write) = write {
            // Nobody was told of the call, so the request tells all.
            let mut call = write.call.clone();
            call.merge(request.tool_call);
            request.tool_call = call;
            request.plan_write = true;
        }
        request
    }

    /// A message of goose's that it has compacted the conversation, as a caller told it to, is told like a compaction that
    /// it does by itself.
    fn message(&mut self, message_id: Option<String>, text: String, events: &mut AgentEvents) {
        let is_answer = std::mem::take(&mut self.is_commanded);
        let is_compaction =
            is_answer && text == COMPACTED && message_id.as_deref().is_some_and(outcome::is_own_id);
        events.push(AgentEvent::MessageChunk { message_id, text });
        if is_compaction {
            let (level, code) = (NoticeLevel::Info, COMPACTION.to_owned());
            events.push(AgentEvent::Notice(Notice { level, code, message: COMPACTED.to_owned() }));
        }
    }

    fn with_skipped(&self, mut call: ToolCall) -> ToolCall {
        if self.is_chatting
            && call.status == Some(ToolCallStatus::Completed)
            && result_begins_with(&call, SKIPPED)
        {
            call.status = Some(ToolCallStatus::Skipped);
        }
        call
    }
}

impl EventFilter for GooseUpdates {
    fn filter(&mut self, event: AgentEvent, events: &mut AgentEvents) {
        if let AgentEvent::SessionMeta(meta) = event {
            return self.run.hear(&meta);
        }
        let Some(event) = self.speech.hear(event, events) else { return };
        match event {
            AgentEvent::MessageChunk { message_id, text } => self.message(message_id, text, events),
            AgentEvent::UserMessage { message_id, text } => {
                self.is_commanded = text.starts_with('/');
                events.push(AgentEvent::UserMessage { message_id, text });
            }
            AgentEvent::CommandsUpdated { commands, mut skills } => {
                self.places.fill_in(&mut skills);
                events.push(AgentEvent::CommandsUpdated { commands, skills });
            }
            AgentEvent::ToolCallStarted(call) => self.call_started(call, events),
            AgentEvent::ToolCallUpdated(update) => self.call_updated(update, events),
            AgentEvent::ToolOutput { ref tool_call_id, .. } if self.write_of(tool_call_id).is_some() => {}
            AgentEvent::ToolOutput { ref tool_call_id, truncated, .. } => {
                self.calls.wrote(tool_call_id, truncated);
                events.push(event);
            }
            AgentEvent::PermissionRequested(request) => {
                events.push(AgentEvent::PermissionRequested(self.permission_requested(request)));
            }
            AgentEvent::PlanUpdated(entries) => {
                self.has_real_plan = true;
                events.push(AgentEvent::PlanUpdated(entries));
            }
            AgentEvent::ModeChanged(mode) => {
                self.is_chatting = mode == Mode::Chat.as_str();
                events.push(AgentEvent::ModeChanged(mode));
            }
            AgentEvent::ConfigOptionsUpdated(options) => {
                let mode = options.iter().find(|option| option.id == "mode");
                if let Some(mode) = mode.and_then(|option| option.current_value.as_deref()) {
                    self.is_chatting = mode == Mode::Chat.as_str();
                }
                events.push(AgentEvent::ConfigOptionsUpdated(options));
            }
            AgentEvent::Notice(mut notice) => {
                if notice.code == "agent-status" {
                    notice.message = outcome::without_addresses(&notice.message);
                    if notice.message.to_lowercase().contains("compact") {
                        COMPACTION.clone_into(&mut notice.code);
                    }
                }
                events.push(AgentEvent::Notice(notice));
            }
            AgentEvent::PromptFinished { turn, result } => {
                self.run.over();
                let result = result.map_err(understood);
                events.push(AgentEvent::PromptFinished { turn, result });
            }
            AgentEvent::Exited(exit) => {
                self.run.over();
                events.push(AgentEvent::Exited(exit));
            }
            event => events.push(event),
        }
    }

    fn explain(&self, failure: AgentFailure) -> AgentFailure {
        understood(failure)
    }
}

/// An error of goose as callers may see it.
fn understood(failure: AgentFailure) -> AgentFailure {
    if !matches!(failure.class, TurnErrorClass::AgentError | TurnErrorClass::ProviderAuth)
        || failure.code.is_none()
    {
        return failure;
    }
    let (class, message) = outcome::of_error(failure.code, &failure.message);
    let message = message.unwrap_or_else(|| outcome::without_addresses(&failure.message));
    AgentFailure { class, message, ..failure }
}

/// The plan that a call would write. `None` for any other call, and for a write without any list item.
fn planned(call: &ToolCall) -> Option<Vec<PlanEntry>> {
    if call.tool.as_deref() != Some(PLAN_TOOL) || call.extension.as_deref() != Some(PLAN_EXTENSION) {
        return None;
    }
    match plan::parse(call.input.as_ref()?.get("content")?.as_str()?) {
        ParsedPlan::Entries(entries) => Some(entries.into_iter().map(plan_entry).collect()),
        ParsedPlan::Cleared => Some(Vec::new()),
        ParsedPlan::NoItems => None,
    }
}

fn plan_entry(entry: plan::PlanEntry) -> PlanEntry {
    let status = match entry.status {
        plan::PlanEntryStatus::Pending => PlanEntryStatus::Pending,
        plan::PlanEntryStatus::InProgress => PlanEntryStatus::InProgress,
        plan::PlanEntryStatus::Completed => PlanEntryStatus::Completed,
    };
    PlanEntry { content: entry.content, status, priority: PlanEntryPriority::Medium, depth: entry.depth }
}

/// Whether the first block of a call's result is text that begins so.
fn result_begins_with(call: &ToolCall, words: &str) -> bool {
    let first = call.content.as_ref().and_then(|content| content.first());
    first
        .and_then(|block| block.pointer("/content/text"))
        .and_then(Value::as_str)
        .is_some_and(|text| text.starts_with(words))
}

#[cfg(test)]
mod tests;
