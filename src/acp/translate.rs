//! ACP's session updates to the core's events.
//!
//! Frequent updates take one typed pass ([`chunk_of_line`]). Everything else is read in steps, params, update, fields,
//! each on its own: a field that cannot be read is left out and never stops the event. An update that gander has no
//! event for, or that says more than the event can carry, goes on as [`AgentEvent::Unknown`], as it came.

mod settings;
mod tool_call;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tracing::debug;

use crate::session::agent::{AgentEvent, ContextUsage, ModelCallUsage, Notice, NoticeLevel};
use crate::session::plan::{PlanEntry, PlanEntryPriority, PlanEntryStatus};
use crate::session::turn::Cost;

pub(super) use settings::{available_commands, config_options, extension_results};
pub(super) use tool_call::{PermissionRequest, permission_request};

/// ACP's notification of what happens in a session.
pub(super) const SESSION_UPDATE: &str = "session/update";

/// The fields of a JSON object, each still to be read.
pub(super) type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// Reads an object's fields; none when it is no object.
pub(super) fn fields(object: Option<&RawValue>) -> Fields<'_> {
    read(object).unwrap_or_default()
}

/// Reads a value; `None` when it is absent, null or of another type.
pub(super) fn read<'a, T: Deserialize<'a>>(value: Option<&'a RawValue>) -> Option<T> {
    value.and_then(|value| serde_json::from_str::<Option<T>>(value.get()).ok().flatten())
}

/// The value as it came. What cannot be held as a value (a lone surrogate, a number out of range) stays JSON text.
fn value(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| Value::String(raw.get().to_owned()))
}

/// Whether a method carries session updates: ACP's own, or an extension's of the same form, which has the agent's own
/// kinds (goose: `_goose/unstable/session/update`, on request by a client capability).
pub(super) fn is_session_update(method: &str) -> bool {
    method == SESSION_UPDATE || (method.starts_with('_') && method.ends_with("/session/update"))
}

/// One pass over a whole line, for the pieces of text that are nearly all of what an agent sends. `None`: it is
/// something else, read it in steps.
pub(super) fn chunk_of_line(line: &str, session: Option<&str>) -> Option<AgentEvent> {
    // Kinds are enums so that every other message fails at its first word.
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(default, deserialize_with = "is_there")]
        id: bool,
        method: Method,
        #[serde(borrow)]
        params: Params<'a>,
    }
    #[derive(Deserialize)]
    enum Method {
        #[serde(rename = "session/update")]
        SessionUpdate,
    }
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "sessionId")]
        session: Cow<'a, str>,
        update: Update,
    }
    #[derive(Deserialize)]
    struct Update {
        #[serde(rename = "sessionUpdate")]
        kind: Kind,
        content: Content,
        #[serde(default, rename = "messageId")]
        message_id: Option<String>,
    }
    #[derive(Deserialize)]
    enum Kind {
        #[serde(rename = "agent_message_chunk")]
        Message,
        #[serde(rename = "agent_thought_chunk")]
        Thought,
    }
    #[derive(Deserialize)]
    struct Content {
        #[serde(rename = "type")]
        _text: TextOnly,
        text: String,
    }
    #[derive(Deserialize)]
    enum TextOnly {
        #[serde(rename = "text")]
        Text,
    }
    fn is_there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| true)
    }

    let Line { id: false, method: Method::SessionUpdate, params } = serde_json::from_str(line).ok()? else {
        return None;
    };
    if session.is_some_and(|session| session != params.session) {
        return None;
    }
    let Update { kind, content: Content { text, .. }, message_id } = params.update;
    Some(match kind {
        Kind::Message => AgentEvent::MessageChunk { message_id, text },
        Kind::Thought => AgentEvent::ThoughtChunk { message_id, text },
    })
}

/// Reads a notification in steps and gives what it means to `emit`. `session`: the agent's id of the session, when it
/// is known; what belongs to another is dropped.
pub(super) fn notification(
    method: &str,
    params: Option<&RawValue>,
    session: Option<&str>,
    emit: &mut impl FnMut(AgentEvent),
) {
    if method.starts_with("$/") {
        debug!(method, "the agent's protocol notification is not for callers");
        return;
    }
    let fields = fields(params);
    if !is_ours(&fields, session) {
        debug!(method, "a notification of another session is dropped");
        return;
    }
    match fields.get("update") {
        Some(raw) if is_session_update(method) => update(raw, method == SESSION_UPDATE, emit),
        _ => emit(unknown_notification(method, params)),
    }
}

/// Whether a message belongs to `session`. What names no session does.
pub(super) fn is_ours(params: &Fields<'_>, session: Option<&str>) -> bool {
    match (read::<String>(params.get("sessionId").copied()), session) {
        (Some(theirs), Some(ours)) => theirs == ours,
        _ => true,
    }
}

/// A notification that is no session update, without the agent's id of the session, which no caller ever sees.
fn unknown_notification(method: &str, params: Option<&RawValue>) -> AgentEvent {
    let mut params = params.map_or(Value::Null, value);
    if let Some(params) = params.as_object_mut() {
        params.shift_remove("sessionId");
    }
    AgentEvent::Unknown(serde_json::json!({"method": method, "params": params}))
}

fn update(raw: &RawValue, is_acp: bool, emit: &mut impl FnMut(AgentEvent)) {
    let fields: Fields<'_> = fields(Some(raw));
    let kind: Option<String> = read(fields.get("sessionUpdate").copied());
    let understood = match kind.as_deref() {
        Some("agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk") => {
            chunk(kind.as_deref(), &fields, emit)
        }
        Some("tool_call") => tool_call::started(&fields, emit),
        Some("tool_call_update") => tool_call::updated(&fields, emit),
        Some("plan") => plan(&fields, emit),
        Some("available_commands_update") => settings::commands(&fields, emit),
        Some("current_mode_update") => settings::mode(&fields, emit),
        Some("config_option_update") => settings::options(&fields, emit),
        Some("session_info_update") => session_info(&fields, emit),
        Some("usage_update") => usage(&fields, emit),
        Some("message_usage") if !is_acp => model_call_usage(&fields, emit),
        Some("status_message") if !is_acp => status_message(&fields, emit),
        _ => false,
    };
    if !understood {
        emit(AgentEvent::Unknown(value(raw)));
    }
}

// Each of these gives its events to `emit` and says whether they carry all that the update says.

fn chunk(kind: Option<&str>, update: &Fields<'_>, emit: &mut impl FnMut(AgentEvent)) -> bool {
    let content = fields(update.get("content").copied());
    let is_text = read::<String>(content.get("type").copied()).is_some_and(|kind| kind == "text");
    let Some(text) = read::<String>(content.get("text").copied()).filter(|_| is_text) else { return false };
    let message_id = read(update.get("messageId").copied());
    emit(match kind {
        Some("user_message_chunk") => AgentEvent::UserMessage { message_id, text },
        Some("agent_thought_chunk") => AgentEvent::ThoughtChunk { message_id, text },
        _ => AgentEvent::MessageChunk { message_id, text },
    });
    true
}

fn plan(update: &Fields<'_>, emit: &mut impl FnMut(AgentEvent)) -> bool {
    let Some(raw_entries) = read::<Vec<&RawValue>>(update.get("entries").copied()) else { return false };
    let mut understood = true;
    let mut entries = Vec::with_capacity(raw_entries.len());
    for raw in raw_entries {
        let entry = fields(Some(raw));
        let Some(content) = read(entry.get("content").copied()) else {
            understood = false;
            continue;
        };
        let status = read(entry.get("status").copied());
        let priority = read(entry.get("priority").copied());
        understood &= status.is_some() && priority.is_some() == entry.contains_key("priority");
        entries.push(PlanEntry {
            content,
            status: status.unwrap_or(PlanEntryStatus::Pending),
            priority: priority.unwrap_or(PlanEntryPriority::Medium),
            depth: 0,
        });
    }
    emit(AgentEvent::PlanUpdated(entries));
    understood
}

fn session_info(update: &Fields<'_>, emit: &mut impl FnMut(AgentEvent)) -> bool {
    let title = read(update.get("title").copied());
    let is_title = title.is_some();
    if let Some(title) = title {
        emit(AgentEvent::TitleChanged(title));
    }
    if let Some(meta) = update.get("_meta") {
        emit(AgentEvent::SessionMeta(value(meta)));
    }
    // Without a title it tells when the session was last used.
    is_title || update.keys().all(|field| matches!(field.as_str(), "sessionUpdate" | "updatedAt" | "_meta"))
}

fn usage(update: &Fields<'_>, emit: &mut impl FnMut(AgentEvent)) -> bool {
    let number = |name: &str| read::<u64>(update.get(name).copied());
    let cost = fields(update.get("cost").copied());
    let cost = match (read(cost.get("amount").copied()), read(cost.get("currency").copied())) {
        (Some(amount), Some(currency)) => Some(Cost { amount, currency }),
        _ => None,
    };
    let usage = ContextUsage {
        context_used: number("used"),
        // The second name is the agent's own kind of this update, which also has the sums.
        context_size: number("size").or_else(|| number("contextLimit")),
        input_tokens: number("accumulatedInputTokens"),
        output_tokens: number("accumulatedOutputTokens"),
        cost,
    };
    let understood = usage != ContextUsage::default();
    if understood {
        emit(AgentEvent::UsageUpdated(usage));
    }
    understood
}

fn model_call_usage(update: &Fields<'_>, emit: &mut impl FnMut(AgentEvent)) -> bool {
    let usage = fields(update.get("usage").copied());
    let number = |name: &str| read::<u64>(usage.get(name).copied());
    emit(AgentEvent::ModelCallUsed(ModelCallUsage {
        message_id: read(update.get("messageId").copied()),
        first_token_ms: number("timeToFirstTokenMs"),
        input_tokens: number("inputTokens"),
        output_tokens: number("outputTokens"),
        total_tokens: number("totalTokens"),
        cost: read(usage.get("cost").copied()),
    }));
    !usage.is_empty()
}

fn status_message(update: &Fields<'_>, emit: &mut impl FnMut(AgentEvent)) -> bool {
    let status = fields(update.get("status").copied());
    let Some(message) = read(status.get("message").copied()) else { return false };
    emit(AgentEvent::Notice(Notice { level: NoticeLevel::Info, code: "agent-status".to_owned(), message }));
    true
}

#[cfg(test)]
mod tests;
