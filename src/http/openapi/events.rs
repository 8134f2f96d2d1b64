//! The schemas of events: one named schema for each type, and `Event`, which is one of them.

use utoipa::openapi::schema::{
    ArrayBuilder, Discriminator, KnownFormat, ObjectBuilder, OneOfBuilder, Ref, Schema, SchemaFormat,
    SchemaType, Type,
};
use utoipa::openapi::{Components, OpenApi as Document, RefOr};
use utoipa::{Modify, ToSchema};

use crate::http::stream::{StreamCursor, StreamCursorType, StreamReset, StreamResetType};
use crate::session::agent::{NoticeLevel, Skill, SlashCommand};
use crate::session::event::{EventKind, SessionChange};
use crate::session::permission::Permission;
use crate::session::plan::Plan;
use crate::session::snapshot::{SessionState, SessionUsage};
use crate::session::tool_call::ToolCall;
use crate::session::turn::{Prompt, Turn};

/// Adds the events' schemas. What they refer to has to be among the document's schemas.
pub(super) struct EventSchemas;

impl Modify for EventSchemas {
    fn modify(&self, document: &mut Document) {
        let schemas = &mut document.components.get_or_insert_with(Components::new).schemas;
        let mut one_of = OneOfBuilder::new().description(Some(
            "An event. Open: there will be more types, and callers ignore those that they do not know.",
        ));
        let mut discriminator = Discriminator::new("type");
        for kind in EventKind::ALL.iter().copied() {
            let name = schema_name(kind);
            let reference = Ref::from_schema_name(&name);
            discriminator.mapping.insert(kind.as_str().to_owned(), reference.ref_location.clone());
            one_of = one_of.item(reference);
            schemas.insert(name, Schema::from(event(kind)).into());
        }
        for (name, schema) in
            [(StreamResetType::NAME, StreamReset::name()), (StreamCursorType::NAME, StreamCursor::name())]
        {
            let reference = Ref::from_schema_name(schema);
            discriminator.mapping.insert(name.to_owned(), reference.ref_location.clone());
            one_of = one_of.item(reference);
        }
        let event = one_of.discriminator(Some(discriminator)).build();
        schemas.insert("Event".to_owned(), Schema::OneOf(event).into());
    }
}

/// `tool_call.started` → `ToolCallStartedEvent`.
fn schema_name(kind: EventKind) -> String {
    let words = kind.as_str().split(['.', '_']);
    let mut name: String = words
        .flat_map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            [first.to_ascii_uppercase(), rest.to_owned()]
        })
        .collect();
    name.push_str("Event");
    name
}

fn event(kind: EventKind) -> ObjectBuilder {
    let base = ObjectBuilder::new()
        .description(Some(format!("The event `{}`.", kind.as_str())))
        .property("id", described(integer(), "The event's number in its session: 1, 2, 3, …"))
        .property("type", of_type(Type::String).enum_values(Some([kind.as_str()])))
        .property("session_id", formatted(KnownFormat::Uuid))
        .property(
            "turn_id",
            nullable(Type::String).format(Some(SchemaFormat::KnownFormat(KnownFormat::Uuid))),
        )
        .property("time", formatted(KnownFormat::DateTime))
        .required("id")
        .required("type")
        .required("session_id")
        .required("turn_id")
        .required("time");
    body(kind, base)
}

/// What [`EventBody`](crate::session::event::EventBody) adds.
fn body(kind: EventKind, event: ObjectBuilder) -> ObjectBuilder {
    match kind {
        EventKind::SessionCreated | EventKind::SessionUpdated | EventKind::SessionDeleted => {
            with(event, "session", reference::<SessionChange>())
        }
        EventKind::SessionState => {
            let event = with(event, "state", reference::<SessionState>());
            let by =
                "The caller who asked for it, when the session hibernates or its turn is being cancelled.";
            with(event, "reason", described(nullable(Type::String), "Why, for people."))
                .property("by", described(of_type(Type::String), by))
        }
        EventKind::TurnQueued
        | EventKind::TurnStarted
        | EventKind::TurnCompleted
        | EventKind::TurnFailed
        | EventKind::TurnCancelled
        | EventKind::TurnInterrupted => {
            let by = described(of_type(Type::String), "The caller who caused it, if one did.");
            with(event, "turn", reference::<Turn>()).property("by", by)
        }
        EventKind::TurnSteered => {
            let event = with(event, "turn", reference::<Turn>());
            let message = formatted(KnownFormat::Uuid)
                .description(Some("The id of the `message.user` that comes when the agent uses the words."));
            let event = with(event, "message_id", message);
            let event = with(event, "prompt", reference::<Prompt>());
            with(event, "by", described(of_type(Type::String), "The caller whose words they are."))
        }
        EventKind::MessageDelta | EventKind::ThoughtDelta | EventKind::MessageUser => {
            let message = formatted(KnownFormat::Uuid)
                .description(Some("All pieces of one message carry the same id."));
            let event = with(event, "message_id", message);
            with(event, "text", of_type(Type::String))
        }
        EventKind::ToolCallStarted | EventKind::ToolCallUpdated | EventKind::ToolCallFinished => {
            with(event, "tool_call", reference::<ToolCall>())
        }
        EventKind::ToolCallOutput => {
            let event = with(event, "tool_call_id", of_type(Type::String));
            let stream = described(of_type(Type::String), "`stdout` or `stderr`.");
            let event = with(event, "stream", stream);
            let event = with(event, "text", of_type(Type::String));
            let truncated = described(
                of_type(Type::Boolean),
                "Present and true on the last one when there was more than is passed on.",
            );
            event.property("truncated", truncated)
        }
        EventKind::PlanUpdated => with(event, "plan", reference::<Plan>()),
        EventKind::PermissionRequested | EventKind::PermissionResolved => {
            with(event, "permission", reference::<Permission>())
        }
        EventKind::UsageUpdated => with(event, "usage", reference::<SessionUsage>()),
        EventKind::CommandsUpdated => {
            let event = with(event, "commands", ArrayBuilder::new().items(reference::<SlashCommand>()));
            with(event, "skills", ArrayBuilder::new().items(reference::<Skill>()))
        }
        EventKind::Notice => {
            let event = with(event, "level", reference::<NoticeLevel>());
            let event = with(event, "code", of_type(Type::String));
            with(event, "message", of_type(Type::String))
        }
        EventKind::AgentUpdate => {
            let raw = of_type(SchemaType::AnyValue);
            with(event, "raw", described(raw, "The agent's update as it came."))
        }
    }
}

fn with(event: ObjectBuilder, name: &str, schema: impl Into<RefOr<Schema>>) -> ObjectBuilder {
    event.property(name, schema).required(name)
}

fn reference<T: ToSchema>() -> Ref {
    Ref::from_schema_name(T::name())
}

fn described(schema: ObjectBuilder, text: &str) -> ObjectBuilder {
    schema.description(Some(text))
}

fn of_type(schema_type: impl Into<SchemaType>) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(schema_type)
}

fn integer() -> ObjectBuilder {
    of_type(Type::Integer).format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
}

fn formatted(format: KnownFormat) -> ObjectBuilder {
    of_type(Type::String).format(Some(SchemaFormat::KnownFormat(format)))
}

fn nullable(value: Type) -> ObjectBuilder {
    of_type(SchemaType::Array(vec![value, Type::Null]))
}
