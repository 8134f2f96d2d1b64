//! Which slash commands and skills an agent has now. ACP's agents tell of their commands when they like; goose does once
//! for each process, and has requests of its own for what has come since.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tracing::debug;

use super::pending::Pending;
use super::{Connection, Forget};
use crate::acp::translate;
use crate::session::agent::{AgentEvent, AgentFailure};

/// goose's requests, whose names say that they may change: whoever asks has to live with no answer.
const COMMANDS_LIST: &str = "_goose/unstable/slash-commands/list";
const SOURCES_LIST: &str = "_goose/unstable/sources/list";

impl Connection {
    /// Asks for the commands, which are told as an event before this returns. `false`: the agent does not say.
    pub async fn tell_commands(&self) -> bool {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            session_id: &'a str,
        }
        let Some(session_id) = self.session() else { return false };
        let event = |reply: &RawValue| {
            let told = translate::available_commands(&translate::fields(Some(reply)));
            // An answer without a list says nothing.
            told.unwrap_or(AgentEvent::SessionMeta(serde_json::Value::Null))
        };
        let told = |answer| Pending::Told { answer, event: Box::new(event) };
        self.ask_gently(COMMANDS_LIST, &Params { session_id }, told).await.is_some()
    }

    /// The folders of the skills in a session's directory, and of its user's, by the skills' names. `None`: the agent does
    /// not say.
    pub async fn skill_folders(&self, cwd: &Path) -> Option<BTreeMap<String, PathBuf>> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            r#type: &'a str,
            project_dir: &'a Path,
        }
        let params = Params { r#type: "skill", project_dir: cwd };
        let reply = self.ask_gently(SOURCES_LIST, &params, Pending::Request).await?;
        let fields = translate::fields(Some(&reply));
        let sources: Vec<&RawValue> = translate::read(fields.get("sources").copied())?;
        let sources = sources.into_iter().filter_map(|source| {
            let source = translate::fields(Some(source));
            let name: String = translate::read(source.get("name").copied())?;
            Some((name, translate::read::<PathBuf>(source.get("path").copied())?))
        });
        Some(sources.collect())
    }

    /// Asks what the agent may leave without an answer: it is not given up for that.
    async fn ask_gently(
        &self,
        method: &str,
        params: &impl Serialize,
        pending: impl FnOnce(oneshot::Sender<Result<Box<RawValue>, AgentFailure>>) -> Pending,
    ) -> Option<Box<RawValue>> {
        let (answer, answered) = oneshot::channel();
        let id = self.begin(method, params, pending(answer)).ok()?;
        let _forget = Forget { connection: self, id };
        match tokio::time::timeout(self.limits.request_timeout, answered).await {
            Ok(Ok(Ok(reply))) => Some(reply),
            Ok(Ok(Err(failure))) => {
                debug!(method, %failure, "the agent does not say what it was asked");
                None
            }
            Ok(Err(_)) | Err(_) => None,
        }
    }
}
