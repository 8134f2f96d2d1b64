//! `POST /v1/stream-tickets`: for a browser's `EventSource`, which cannot send a token.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Caller, Role, VALID_UNUSED};
use super::problem::{Code, Problem};
use super::request::JsonBody;
use super::turns::NoFields;
use crate::session::audit::AuditEntry;

/// A stream ticket.
#[derive(Debug, Serialize, ToSchema)]
pub struct StreamTicket {
    /// Goes into the address of an event stream, as `?ticket=`. A secret like the token: who has it reads this caller's
    /// events.
    #[schema(examples("gander_ticket_41b3…"))]
    ticket: String,
    /// For how many seconds it is good when nothing uses it. While a stream is open with it, it stays good.
    #[schema(examples(600))]
    valid_unused_s: u64,
}

/// Make a ticket for event streams
///
/// A browser's `EventSource` sends no headers, so no token; it connects again by itself, always with the same address.
/// A ticket in that address (`?ticket=`) stands for the caller on `GET /v1/events` and
/// `GET /v1/sessions/{session_id}/events`, and for nothing else. It can be used again and again, by several streams at
/// once, stays valid while it is used and ten minutes after, also over a restart of the gateway, and ends with the
/// token it was made with. gander logs no queries; a proxy in front of it may.
#[utoipa::path(
    post,
    path = "/v1/stream-tickets",
    operation_id = "createStreamTicket",
    tag = "events",
    responses(
        (status = 201, description = "The ticket.", body = StreamTicket),
        (status = "4XX", response = super::openapi::Refused),
        (status = 503, description = "`at-capacity`: the token has as many valid tickets as it may; `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn create_stream_ticket(
    State(api): State<Api>,
    caller: Caller,
    JsonBody(NoFields {}): JsonBody<NoFields>,
) -> Result<Response, Problem> {
    caller.require(Role::Read)?;
    let limit = api.settings.stream_tickets_per_caller;
    let made = api.callers.make_ticket(&caller, limit, &api.tasks).await.map_err(Problem::internal)?;
    let ticket = made.ok_or_else(|| {
        let detail = format!(
            "this token has {limit} stream tickets, as many as it may (limits.stream_tickets_per_caller)"
        );
        Problem::new(Code::AtCapacity, detail)
    })?;
    // Before anybody has the ticket.
    let entry = AuditEntry::of_gateway(&caller.by(), "stream_ticket.created");
    api.registry.store().note(entry).await?;
    let body = StreamTicket { ticket: ticket.into_secret(), valid_unused_s: VALID_UNUSED.as_secs() };
    let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok((StatusCode::CREATED, [no_store], Json(body)).into_response())
}
