//! The extensions that a session can have.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Caller, Role};
use super::host::Extension;
use super::problem::Problem;

/// A list of extensions. It is short: there is only this page.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExtensionList {
    /// The extensions.
    extensions: Vec<Extension>,
    /// Always null.
    next_cursor: Option<String>,
    /// Why `effective` is null everywhere; null when it is known.
    effective_error: Option<String>,
}

/// The extensions that a session can have
///
/// Also those that only the goose of this gateway has, and the servers that its configuration brings. Which of them a
/// session has loaded is in its snapshot.
#[utoipa::path(
    get,
    path = "/v1/extensions",
    operation_id = "listExtensions",
    tag = "gateway",
    responses(
        (status = 200, description = "The catalogue.", body = ExtensionList),
        (status = "4XX", response = super::openapi::Refused),
    )
)]
pub async fn list(State(api): State<Api>, caller: Caller) -> Result<Json<ExtensionList>, Problem> {
    caller.require(Role::Read)?;
    let found = api.host.extensions().await;
    Ok(Json(ExtensionList {
        extensions: found.extensions,
        next_cursor: None,
        effective_error: found.effective_error,
    }))
}
