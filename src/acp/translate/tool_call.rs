//! Tool calls, their live output, and permission requests.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Fields, fields, read, value};
use crate::session::agent::{AgentEvent, AgentOption};
use crate::session::tool_call::{ToolCall, ToolCallStatus};

/// A permission request of the agent, read.
pub(in crate::acp) struct PermissionRequest {
    /// The call, as far as the request tells.
    pub(in crate::acp) tool_call: ToolCall,
    /// The answers the agent takes.
    pub(in crate::acp) options: Vec<AgentOption>,
}

/// Reads a permission request's params. `None` when they name no call or no answer: nobody could decide it.
pub(in crate::acp) fn permission_request(params: &Fields<'_>) -> Option<PermissionRequest> {
    let (tool_call, _) = tool_call(&fields(params.get("toolCall").copied()))?;
    let options: Vec<AgentOption> = read::<Vec<&RawValue>>(params.get("options").copied())?
        .into_iter()
        .filter_map(|option| {
            let option = fields(Some(option));
            let id = read(option.get("optionId").copied())?;
            Some(AgentOption { id, kind: read(option.get("kind").copied()).unwrap_or_default() })
        })
        .collect();
    (!options.is_empty()).then_some(PermissionRequest { tool_call, options })
}

pub(super) fn started(update: &Fields<'_>, emit: &mut impl FnMut(AgentEvent)) -> bool {
    let Some((tool_call, understood)) = tool_call(update) else { return false };
    emit(AgentEvent::ToolCallStarted(tool_call));
    understood
}

pub(super) fn updated(update: &Fields<'_>, emit: &mut impl FnMut(AgentEvent)) -> bool {
    let Some((mut tool_call, understood)) = tool_call(update) else { return false };
    let notification = fields(update.get("_meta").copied()).remove("toolNotification");
    let Some(notification) = notification else {
        emit(AgentEvent::ToolCallUpdated(tool_call));
        return understood;
    };
    let Some(output) = live_output(notification) else {
        if !tool_call.is_empty_update() {
            emit(AgentEvent::ToolCallUpdated(tool_call));
        }
        return false;
    };
    // Every piece of output says again that the call is in progress. Once is enough.
    if tool_call.status == Some(ToolCallStatus::InProgress)
        && output.sequence.is_some_and(|number| number > 1)
    {
        tool_call.status = None;
    }
    let id = tool_call.id.clone();
    if !tool_call.is_empty_update() {
        emit(AgentEvent::ToolCallUpdated(tool_call));
    }
    output.emit(&id, emit);
    understood
}

/// What a tool wrote while it runs (goose: `_meta.toolNotification` of the type `live_output`).
#[derive(Deserialize)]
struct LiveOutput {
    #[serde(default)]
    sequence: Option<u64>,
    chunks: Vec<OutputChunk>,
    #[serde(default)]
    truncated: bool,
}

#[derive(Deserialize)]
struct OutputChunk {
    stream: String,
    output: String,
}

fn live_output(notification: &RawValue) -> Option<LiveOutput> {
    let notification = fields(Some(notification));
    let kind: String = read(notification.get("type").copied())?;
    if kind == "live_output" { read(notification.get("params").copied()) } else { None }
}

impl LiveOutput {
    fn emit(mut self, tool_call_id: &str, emit: &mut impl FnMut(AgentEvent)) {
        if self.chunks.is_empty() && self.truncated {
            self.chunks.push(OutputChunk { stream: "stdout".to_owned(), output: String::new() });
        }
        let last = self.chunks.len().saturating_sub(1);
        for (position, OutputChunk { stream, output }) in self.chunks.into_iter().enumerate() {
            emit(AgentEvent::ToolOutput {
                tool_call_id: tool_call_id.to_owned(),
                stream,
                text: output,
                truncated: self.truncated && position == last,
            });
        }
    }
}

/// The call, and whether all that was said of it could be read. `None` without an id: it is nobody's.
fn tool_call(update: &Fields<'_>) -> Option<(ToolCall, bool)> {
    let id = read(update.get("toolCallId").copied())?;
    let mut understood = true;
    let naming = naming(update);
    let status = get(update, "status", &mut understood).and_then(|status: String| {
        let known = status_of(&status);
        understood &= known.is_some();
        known
    });
    let call = ToolCall {
        id,
        tool: naming.tool_name,
        extension: naming.extension_name,
        title: get(update, "title", &mut understood),
        kind: get(update, "kind", &mut understood),
        status,
        input: get_value(update, "rawInput"),
        locations: get(update, "locations", &mut understood).map(values),
        content: get(update, "content", &mut understood)
            .map(|content| values(content).into_iter().map(tool_content).collect()),
        output: get_value(update, "rawOutput"),
    };
    Some((call, understood))
}

fn get<'a, T: Deserialize<'a>>(update: &Fields<'a>, name: &str, understood: &mut bool) -> Option<T> {
    let raw = update.get(name).copied().filter(|raw| raw.get() != "null");
    let read = read(raw);
    *understood &= raw.is_some() == read.is_some();
    read
}

fn get_value(update: &Fields<'_>, name: &str) -> Option<Value> {
    update.get(name).map(|raw| value(raw)).filter(|value| !value.is_null())
}

fn values(list: Vec<&RawValue>) -> Vec<Value> {
    list.into_iter().map(value).collect()
}

/// ACP's words for how far a call is. `None` for one that gander does not know.
fn status_of(status: &str) -> Option<ToolCallStatus> {
    match status {
        "pending" => Some(ToolCallStatus::Pending),
        "in_progress" => Some(ToolCallStatus::InProgress),
        "completed" => Some(ToolCallStatus::Completed),
        "failed" => Some(ToolCallStatus::Failed),
        "cancelled" => Some(ToolCallStatus::Cancelled),
        _ => None,
    }
}

/// Who the call is to. ACP has no field for it; goose tells in `_meta.goose.toolCall`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Naming {
    #[serde(default)]
    tool_name: Option<String>,
    #[serde(default)]
    extension_name: Option<String>,
}

fn naming(update: &Fields<'_>) -> Naming {
    let meta = fields(update.get("_meta").copied());
    let own = fields(meta.get("goose").copied());
    read(own.get("toolCall").copied()).unwrap_or_default()
}

/// ACP's tool content in the API's words: `snake_case`, except inside content blocks, which stay ACP's own.
fn tool_content(mut content: Value) -> Value {
    let Some(fields) = content.as_object_mut() else { return content };
    let renamed: &[(&str, &str)] = match fields.get("type").and_then(Value::as_str) {
        Some("diff") => &[("oldText", "old_text"), ("newText", "new_text")],
        Some("terminal") => &[("terminalId", "terminal_id")],
        _ => &[],
    };
    for (theirs, ours) in renamed {
        let value = fields.shift_remove(*theirs).unwrap_or_default();
        fields.insert((*ours).to_owned(), value);
    }
    content
}
