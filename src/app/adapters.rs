//! The ports of the HTTP side, on the store and on goose.

use std::sync::Arc;

use super::launcher::GooseLauncher;
use crate::goose::catalogue::{self, EXTENSIONS};
use crate::goose::extensions::{DisabledByServer, ExtensionChoice, ExtensionLevel};
use crate::http::host::{AgentProgram, AgentUnusable, Extension, ExtensionRefusal, ExtensionWish, HostFacts};
use crate::http::idempotency::{AnswerKey, Begin, BodyHash, RememberedAnswers, StoredAnswer};
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
    launcher: GooseLauncher,
    store: Arc<SqliteStore>,
    extensions: ExtensionLevel,
    demo: bool,
}

impl Host {
    pub(super) fn new(
        launcher: GooseLauncher,
        store: Arc<SqliteStore>,
        extensions: ExtensionLevel,
        demo: bool,
    ) -> Self {
        Self { launcher, store, extensions, demo }
    }
}

impl HostFacts for Host {
    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    fn transport(&self) -> &'static str {
        "stdio"
    }

    fn demo(&self) -> bool {
        self.demo
    }

    fn agent(&self) -> BoxFuture<Result<AgentProgram, AgentUnusable>> {
        let launcher = self.launcher.clone();
        Box::pin(async move {
            match launcher.find().await {
                Ok((_, version)) => Ok(AgentProgram { name: "goose".into(), version: version.to_string() }),
                Err(error) => Err(AgentUnusable(error.to_string())),
            }
        })
    }

    fn storage_writable(&self) -> BoxFuture<bool> {
        let store = Arc::clone(&self.store);
        Box::pin(async move { store.check_writable().await.is_ok() })
    }

    fn extensions(&self) -> Vec<Extension> {
        let nothing = ExtensionLevel::default();
        let choice = ExtensionChoice::resolve(&self.extensions, &nothing).unwrap_or_default();
        EXTENSIONS
            .iter()
            .map(|extension| Extension {
                name: extension.name.into(),
                default: choice.builtins.iter().any(|name| name == extension.name)
                    || extension.on_by_default && !choice.switched_off.contains(extension.name),
                provides: extension.provides.into(),
            })
            .collect()
    }

    fn choose_servers(
        &self,
        wishes: Option<Vec<McpServerWish>>,
    ) -> Result<Vec<McpServerChoice>, Vec<(usize, McpServerFault)>> {
        self.launcher.servers().choose(wishes)
    }

    fn check_extension(&self, name: &str, wish: ExtensionWish) -> Result<(), ExtensionRefusal> {
        if catalogue::find(name).is_none() {
            return Err(ExtensionRefusal::Unknown { nearest: catalogue::nearest(name) });
        }
        if wish == ExtensionWish::BeWithout {
            return Ok(());
        }
        let session = ExtensionLevel { builtins: Some(vec![name.to_owned()]), disabled: Vec::new() };
        match ExtensionChoice::resolve(&self.extensions, &session) {
            Ok(_) => Ok(()),
            Err(DisabledByServer { .. }) => Err(ExtensionRefusal::SwitchedOff),
        }
    }
}
