//! The ports of the HTTP side, on the store and on goose.

use std::sync::Arc;

use super::extensions::ExtensionFacts;
use super::figures::HostFigures;
use crate::http::host::{
    AgentProgram, AgentUnusable, ExtensionRefusal, ExtensionWish, Extensions, HostFacts,
};
use crate::http::idempotency::{AnswerKey, Begin, BodyHash, RememberedAnswers, StoredAnswer};
use crate::metrics::Moment;
use crate::session::agent::BoxFuture;
use crate::session::agent::servers::{McpServerChoice, McpServerFault, McpServerWish};
use crate::session::id::{SessionId, Timestamp};
use crate::session::log::StoreError;
use crate::store::{self, AnswerState, SqliteStore};

/// Idempotency answers in the store.
pub(super) struct SqliteAnswers(pub(super) Arc<SqliteStore>);

impl RememberedAnswers for SqliteAnswers {
    fn begin(&self, key: AnswerKey, body: BodyHash) -> BoxFuture<Result<Begin, StoreError>> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            let state = store.begin_answer(key, body, Timestamp::now().as_millis()).await?;
            Ok(match state {
                AnswerState::Fresh => Begin::Fresh,
                AnswerState::Stored(store::StoredAnswer { status, headers, body }) => {
                    Begin::Stored(StoredAnswer { status, headers, body: body.into() })
                }
                AnswerState::Mismatch => Begin::Mismatch,
                AnswerState::InProgress => Begin::InProgress,
            })
        })
    }

    fn finish(
        &self,
        key: AnswerKey,
        session: Option<SessionId>,
        answer: StoredAnswer,
    ) -> BoxFuture<Result<(), StoreError>> {
        let store = Arc::clone(&self.0);
        let StoredAnswer { status, headers, body } = answer;
        let answer = store::StoredAnswer { status, headers, body: body.into() };
        Box::pin(async move { store.finish_answer(key, session, answer).await })
    }

    fn forget(&self, key: AnswerKey) -> BoxFuture<Result<(), StoreError>> {
        let store = Arc::clone(&self.0);
        Box::pin(async move { store.forget_answer(key).await })
    }
}

/// What the gateway knows about itself and its host.
pub(super) struct Host {
    store: Arc<SqliteStore>,
    figures: HostFigures,
    extensions: ExtensionFacts,
    demo: bool,
}

impl Host {
    pub(super) fn new(
        store: Arc<SqliteStore>,
        figures: HostFigures,
        extensions: ExtensionFacts,
        demo: bool,
    ) -> Self {
        Self { store, figures, extensions, demo }
    }
}

impl HostFacts for Host {
    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    fn transport(&self) -> &'static str {
        if self.extensions.launcher.one_serves_all() { "websocket" } else { "stdio" }
    }

    fn sessions_have_environments(&self) -> bool {
        !self.extensions.launcher.one_serves_all()
    }

    fn demo(&self) -> bool {
        self.demo
    }

    fn agent(&self) -> BoxFuture<Result<AgentProgram, AgentUnusable>> {
        let launcher = self.extensions.launcher.clone();
        Box::pin(async move {
            match launcher.find().await {
                Ok(_) if let Some(fault) = launcher.serve_fault() => Err(AgentUnusable(fault)),
                Ok((_, version)) => Ok(AgentProgram { name: "goose".into(), version: version.to_string() }),
                Err(error) => Err(AgentUnusable(error.to_string())),
            }
        })
    }

    fn storage_writable(&self) -> BoxFuture<bool> {
        let store = Arc::clone(&self.store);
        Box::pin(async move { store.check_writable().await.is_ok() })
    }

    fn moment(&self) -> BoxFuture<Moment> {
        Box::pin(self.figures.clone().moment(Arc::clone(&self.store)))
    }

    fn extensions(&self) -> BoxFuture<Extensions> {
        Box::pin(self.extensions.clone().list())
    }

    fn choose_servers(
        &self,
        wishes: Option<Vec<McpServerWish>>,
    ) -> Result<Vec<McpServerChoice>, Vec<(usize, McpServerFault)>> {
        self.extensions.choose_servers(wishes)
    }

    fn check_extension(&self, name: &str, wish: ExtensionWish) -> Result<(), ExtensionRefusal> {
        self.extensions.check(name, wish)
    }
}
