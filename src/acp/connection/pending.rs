//! What is open between gander and an agent: requests of gander that wait for an answer, and permission requests of
//! the agent that wait for a caller's.

use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::acp::rpc::RpcError;
use crate::acp::stdio::Redactor;
use crate::session::agent::{AgentEvent, AgentFailure, ReplyToken};
use crate::session::id::TurnId;
use crate::session::turn::TurnErrorClass;

/// How many requests of gander may be open at once.
const OPEN_REQUESTS: usize = 64;
/// How much of an agent's words about an error is passed on, in bytes.
const ERROR_BYTES: usize = 2000;
/// ACP's code for "authentication required".
const AUTH_REQUIRED: i64 = -32000;

/// Takes the answer to a request of gander.
pub(super) type RequestAnswer = oneshot::Sender<Result<Box<RawValue>, AgentFailure>>;

/// Who gets the answer to a request.
pub(super) enum Pending {
    /// The core, as an event.
    Prompt(TurnId),
    /// Whoever waits for it; what the agent tells before it answers is the history, told before.
    Load(oneshot::Sender<Result<Box<RawValue>, AgentFailure>>),
    /// Whoever waits for it.
    Request(RequestAnswer),
    /// Whoever waits for it, and, when it is a success, the core as this event.
    Told { answer: RequestAnswer, event: Box<dyn FnOnce(&RawValue) -> AgentEvent + Send> },
}

/// A request of the agent that is under way.
struct ClientRequest {
    /// The agent's id of it, as raw JSON.
    id: Box<RawValue>,
    /// Given when the agent needs no answer any more.
    withdrawn: CancellationToken,
}

#[derive(Default)]
pub(super) struct State {
    /// The last id given to a request. Ids are gander's own and never given twice.
    last_id: u64,
    pending: HashMap<u64, Pending>,
    /// The agent's ids, as raw JSON, of the permission requests that are not answered. Agents may use an id twice and
    /// of any type, so gander's own random token is the key.
    held: HashMap<ReplyToken, Box<RawValue>>,
    /// The agent's requests for files and commands that are under way, by numbers of gander's own.
    client_requests: HashMap<u64, ClientRequest>,
    last_client_request: u64,
    /// Set when the agent is gone.
    pub(super) ended: Option<AgentFailure>,
}

impl State {
    /// Gives the request an id. `None` when too many are open or the agent is gone.
    pub(super) fn open(&mut self, pending: Pending) -> Option<u64> {
        if self.ended.is_some() || self.pending.len() >= OPEN_REQUESTS {
            return None;
        }
        self.last_id += 1;
        self.pending.insert(self.last_id, pending);
        Some(self.last_id)
    }

    pub(super) fn take_pending(&mut self, id: u64) -> Option<Pending> {
        self.pending.remove(&id)
    }

    /// Holds a permission request of the agent. `None` when `limit` are held.
    pub(super) fn hold(&mut self, id: &RawValue, limit: usize) -> Option<ReplyToken> {
        if self.held.len() >= limit {
            return None;
        }
        let token = ReplyToken(Uuid::now_v7().to_string());
        self.held.insert(token.clone(), id.to_owned());
        Some(token)
    }

    pub(super) fn take_held(&mut self, token: &ReplyToken) -> Option<Box<RawValue>> {
        self.held.remove(token)
    }

    /// Takes the requests that the agent sent under `id`.
    pub(super) fn take_held_by_id(&mut self, id: &RawValue) -> Vec<ReplyToken> {
        let tokens: Vec<_> = self
            .held
            .iter()
            .filter(|(_, held)| held.get() == id.get())
            .map(|(token, _)| token.clone())
            .collect();
        for token in &tokens {
            self.held.remove(token);
        }
        tokens
    }

    /// Enters a request of the agent: its number, and what is given when the agent withdraws it. `None` when `limit` are
    /// under way.
    pub(super) fn begin_client_request(
        &mut self,
        id: &RawValue,
        limit: usize,
    ) -> Option<(u64, CancellationToken)> {
        if self.client_requests.len() >= limit {
            return None;
        }
        self.last_client_request += 1;
        let withdrawn = CancellationToken::new();
        let request = ClientRequest { id: id.to_owned(), withdrawn: withdrawn.clone() };
        self.client_requests.insert(self.last_client_request, request);
        Some((self.last_client_request, withdrawn))
    }

    pub(super) fn end_client_request(&mut self, number: u64) {
        self.client_requests.remove(&number);
    }

    /// The agent needs no answer to what it sent under `id`.
    pub(super) fn withdraw_client_request(&self, id: &RawValue) {
        let same = self.client_requests.values().filter(|request| request.id.get() == id.get());
        same.for_each(|request| request.withdrawn.cancel());
    }

    /// The agent is gone: whoever waits is told, what it asked needs no answer. An open prompt is told by the
    /// agent's last event.
    pub(super) fn end(&mut self, failure: &AgentFailure) {
        self.ended = Some(failure.clone());
        self.held.clear();
        self.client_requests.values().for_each(|request| request.withdrawn.cancel());
        for (_, pending) in self.pending.drain() {
            match pending {
                Pending::Request(answer) | Pending::Load(answer) | Pending::Told { answer, .. } => {
                    // Whoever asked may have gone meanwhile.
                    let _ = answer.send(Err(failure.clone()));
                }
                Pending::Prompt(_) => {}
            }
        }
    }
}

/// The error of an answer. The message carries `data` too: goose puts the cause there.
pub(super) fn failure_of(error: &RpcError, redactor: &Redactor) -> AgentFailure {
    let detail = match &error.data {
        Some(Value::String(detail)) => Some(detail.as_str()),
        Some(Value::Object(data)) => {
            data.get("message").or_else(|| data.get("error")).and_then(Value::as_str)
        }
        _ => None,
    };
    let message = match (error.message.as_str(), detail) {
        ("", None) => "the agent gave no reason".to_owned(),
        (message, None) => message.to_owned(),
        ("", Some(detail)) => detail.to_owned(),
        (message, Some(detail)) => format!("{message}: {detail}"),
    };
    // Cut after it is redacted: half a secret is not recognised.
    let mut message = redactor.redact(&message);
    message.truncate(message.floor_char_boundary(ERROR_BYTES));
    let class =
        if error.code == AUTH_REQUIRED { TurnErrorClass::ProviderAuth } else { TurnErrorClass::AgentError };
    AgentFailure { class, code: Some(error.code), message }
}
