//! goose's own methods for the extensions that a session has loaded.
//!
//! Measured on goose 1.52 and 1.50: the names that these answers give are not those of the answers to `session/new` and
//! `session/load`, and only these know what was loaded since. A removal holds for what the model is offered from its next
//! turn on, and for the session when it is loaded again.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Connection, METHOD_NOT_FOUND, failure};
use crate::acp::translate::{fields, read};
use crate::session::agent::AgentFailure;

const LIST: &str = "_goose/unstable/session/extensions/list";
const REMOVE: &str = "_goose/unstable/session/extensions/remove";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    session_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    extension_key: Option<&'a str>,
}

impl Connection {
    /// The extensions that are loaded now, in the names that [`Connection::remove_extension`] takes. `None` when the agent
    /// has no way to tell.
    ///
    /// # Errors
    /// When there is no session yet, or no answer that can be read whole.
    pub async fn loaded_extensions(&self) -> Result<Option<Vec<String>>, AgentFailure> {
        let reply = match self.ask_about_extensions(LIST, None).await {
            Err(failure) if failure.code == Some(METHOD_NOT_FOUND) => return Ok(None),
            reply => reply?,
        };
        let unreadable = || failure(None, format!("the agent's answer to {LIST} cannot be read"));
        let list: Vec<&RawValue> =
            read(fields(Some(&reply)).get("extensions").copied()).ok_or_else(unreadable)?;
        let names = list.into_iter().map(|entry| read(fields(Some(entry)).get("extensionKey").copied()));
        names.collect::<Option<Vec<String>>>().map(Some).ok_or_else(unreadable)
    }

    /// Unloads one of [`Connection::loaded_extensions`].
    ///
    /// # Errors
    /// When the agent refuses, or does not answer.
    pub async fn remove_extension(&self, name: &str) -> Result<(), AgentFailure> {
        self.ask_about_extensions(REMOVE, Some(name)).await.map(drop)
    }

    async fn ask_about_extensions(
        &self,
        method: &'static str,
        extension_key: Option<&str>,
    ) -> Result<Box<RawValue>, AgentFailure> {
        let session_id = self.session().ok_or_else(|| failure(None, "there is no session yet".into()))?;
        self.request(method, &Params { session_id, extension_key }, self.limits.request_timeout).await
    }
}
