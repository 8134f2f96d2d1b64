//! The OpenAPI document, gathered from the handlers' own descriptions.

mod events;
mod examples;
mod links;

use std::sync::{Arc, OnceLock};

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{OpenApi as Document, RefOr};
use utoipa::{Modify, OpenApi, ToResponse, ToSchema};

use events::EventSchemas;
use examples::Examples;
use links::{EventStreams, Links, Servers};

use super::Api;
use super::problem::{Code, FieldError, Problem};
use super::stream::{StreamCursor, StreamReset};
use crate::session::agent::{ExtensionStatus, NoticeLevel, Skill, SlashCommand};
use crate::session::event::SessionChange;
use crate::session::id::TurnId;
use crate::session::permission::Permission;
use crate::session::plan::Plan;
use crate::session::snapshot::{SessionState, SessionUsage};
use crate::session::tool_call::ToolCall;
use crate::session::turn::Turn;

/// What the gateway says when it does not do what it was asked (RFC 9457). Which members a problem has
/// besides depends on its code; there may be more.
#[derive(ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "only describes what `problem::Problem` writes")]
pub(super) struct ProblemSchema {
    /// `urn:gander:problem:<code>`.
    #[schema(examples("urn:gander:problem:turn-in-progress"))]
    r#type: String,
    /// The code in words.
    title: String,
    /// The HTTP status.
    status: u16,
    /// What happened, for people.
    detail: String,
    /// What happened, for programs. Open.
    #[schema(examples("turn-in-progress"))]
    code: String,
    /// The request's id, which is in the gateway's log, too.
    request_id: String,
    /// Which parts of the body are wrong.
    #[schema(nullable = false)]
    errors: Option<Vec<FieldError>>,
    /// When to try again, in seconds.
    #[schema(nullable = false)]
    retry_after_s: Option<u64>,
    /// Of `turn-in-progress`: the turn that runs.
    #[schema(nullable = false)]
    turn_id: Option<TurnId>,
    /// Of `permission-already-resolved`: the request with its outcome.
    #[schema(nullable = false)]
    permission: Option<Permission>,
    /// Of `role-missing`: the role that it takes.
    #[schema(nullable = false)]
    role: Option<String>,
    /// Of `extension-required` and `agent-start-timeout`: those that are missing, and why.
    #[schema(nullable = false)]
    extensions: Option<Vec<ExtensionStatus>>,
    /// Of `agent-start-failed`: the end of what the agent wrote to its standard error.
    #[schema(nullable = false)]
    stderr_tail: Option<String>,
    /// Of `agent-start-timeout`: what the agent did not answer.
    #[schema(nullable = false)]
    waiting_for: Option<String>,
}

/// The request was refused; `code` says why.
#[derive(ToResponse)]
#[response(description = "Refused; `code` says why.", content_type = "application/problem+json")]
#[expect(dead_code, reason = "only describes what `problem::Problem` writes")]
pub(super) struct Refused(ProblemSchema);

#[derive(OpenApi)]
#[openapi(
    info(
        title = "gander",
        description = "An HTTP and server-sent events gateway in front of the goose agent."
    ),
    paths(
        super::health::healthz,
        super::health::readyz,
        super::info::info,
        super::catalogue::list,
        super::sessions::create_session,
        super::sessions::list_sessions,
        super::sessions::get_session,
        super::sessions::update_session,
        super::sessions::delete_session,
        super::sessions::hibernate_session,
        super::turns::create_turn,
        super::turns::list_turns,
        super::turns::get_turn,
        super::turns::cancel_turn,
        super::steer::steer_turn,
        super::events::stream_events,
        super::all_events::stream_all_events,
        super::messages::list_messages,
        super::stream_tickets::create_stream_ticket,
        super::inbox::list_permissions,
        super::permissions::list_session_permissions,
        super::permissions::get_permission,
        super::permissions::answer_permission,
        super::permissions::explain_permission,
        super::permission_grants::list_permission_grants,
        super::permission_grants::revoke_permission_grants,
        super::permission_grants::revoke_permission_grant,
        super::plan::get_plan,
        openapi_json,
        super::metrics::metrics,
    ),
    components(
        schemas(
            ProblemSchema,
            // What events refer to.
            SessionChange,
            SessionState,
            Turn,
            ToolCall,
            Plan,
            Permission,
            SessionUsage,
            SlashCommand,
            Skill,
            NoticeLevel,
            StreamReset,
            StreamCursor,
        ),
        responses(Refused)
    ),
    security(("token" = [])),
    modifiers(&TokenScheme, &ProblemCodes, &InlineSchemas, &OpenEnums, &OptionalBodies, &EventSchemas, &Servers, &Links, &EventStreams, &Examples),
    tags(
        (name = "sessions", description = "Sessions: an agent each, with its plan and its messages."),
        (name = "turns", description = "Prompts, and what became of them."),
        (name = "events", description = "Everything that happens in a session, as it happens."),
        (name = "permissions", description = "What the agent asks for, and the answers."),
        (name = "gateway", description = "The gateway itself."),
    ),
)]
struct Gathered;

/// How callers show who they are.
struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, document: &mut Document) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// Lists the problem codes where people look for them: in the description of `Problem`'s `code`.
struct ProblemCodes;

impl Modify for ProblemCodes {
    fn modify(&self, document: &mut Document) {
        let Some(RefOr::T(Schema::Object(problem))) =
            document.components.as_mut().and_then(|components| components.schemas.get_mut("Problem"))
        else {
            return;
        };
        if let Some(RefOr::T(Schema::Object(code))) = problem.properties.get_mut("code") {
            let codes: Vec<_> = Code::ALL
                .iter()
                .map(|code| format!("`{}` ({})", code.as_str(), code.status().as_u16()))
                .collect();
            code.description =
                Some(format!("What happened, for programs. Open. One of {}.", codes.join(", ")));
        }
    }
}

/// Opens the enums: there will be more values, and code made from this document must not refuse them. The values known
/// now stay in `x-extensible-enum`. An enum of one value is what tells schemas apart and stays closed, unless its
/// description calls it open.
struct OpenEnums;

impl Modify for OpenEnums {
    fn modify(&self, document: &mut Document) {
        let Some(components) = document.components.as_mut() else { return };
        for schema in components.schemas.values_mut() {
            let RefOr::T(Schema::Object(object)) = schema else { continue };
            let called_open = object.description.as_ref().is_some_and(|text| text.contains("Open"));
            if let Some(values) = object.enum_values.take_if(|values| values.len() > 1 || called_open) {
                let known = ExtensionsBuilder::new().add("x-extensible-enum", values).build();
                object.extensions.get_or_insert_default().merge(known);
            }
        }
    }
}

/// Mends schemas that are written in place and described there, too: they come as "a text that is also an object", which
/// nothing can be. The place's description is what counts.
struct InlineSchemas;

impl Modify for InlineSchemas {
    fn modify(&self, document: &mut Document) {
        let components = document.components.get_or_insert_default();
        components.schemas.values_mut().for_each(mend_inline);
    }
}

fn mend_inline(schema: &mut RefOr<Schema>) {
    let RefOr::T(value) = schema else { return };
    match value {
        Schema::Object(object) => object.properties.values_mut().for_each(mend_inline),
        Schema::OneOf(one_of) => one_of.items.iter_mut().for_each(mend_inline),
        Schema::AllOf(all_of) => match all_of.items.as_mut_slice() {
            [RefOr::T(Schema::Object(inline)), RefOr::T(Schema::Object(place))]
                if inline.enum_values.is_some() && place.properties.is_empty() =>
            {
                let mut inline = std::mem::take(inline);
                inline.description = place.description.take();
                *value = Schema::Object(inline);
            }
            items => items.iter_mut().for_each(mend_inline),
        },
        _ => {}
    }
}

/// A session can be made without a body. The attribute has no word for that: an `Option` there would allow `null`, too,
/// which is refused.
struct OptionalBodies;

impl Modify for OptionalBodies {
    fn modify(&self, document: &mut Document) {
        let path = document.paths.paths.get_mut("/v1/sessions");
        let create = path.and_then(|path| path.post.as_mut());
        if let Some(RefOr::T(body)) = create.and_then(|create| create.request_body.as_mut()) {
            body.required = None;
        }
    }
}

/// The whole document.
#[must_use]
pub fn document() -> Document {
    Gathered::openapi()
}

/// The whole document as it is printed and served: indented JSON in a stable order, with a line end.
pub fn document_json() -> Result<String, serde_json::Error> {
    to_text(&document())
}

fn to_text(document: &Document) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    Ok(text)
}

/// The document as this gateway serves it, made when it is asked for. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ServedDocument(Arc<OnceLock<axum::body::Bytes>>);

/// This document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "getOpenApi",
    tag = "gateway",
    security(()),
    responses(
        (status = 200, description = "The OpenAPI document.", content_type = "application/json"),
        (status = 421, response = Refused),
    )
)]
pub async fn openapi_json(State(api): State<Api>) -> Result<Response, Problem> {
    let ServedDocument(served) = &api.document;
    let text = match served.get() {
        Some(text) => text.clone(),
        None => {
            let mut document = document();
            if let Some(url) = &api.settings.public_url {
                links::served_at(&mut document, url);
            }
            let text = axum::body::Bytes::from(to_text(&document).map_err(Problem::internal)?);
            served.get_or_init(|| text).clone()
        }
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

#[cfg(test)]
mod tests;
