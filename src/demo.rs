//! The built-in scripted model: an OpenAI-compatible endpoint on loopback, in place of a provider.
//!
//! It answers `POST /v1/chat/completions` (streamed or not) and `GET /v1/models`. `gander serve --demo` and the
//! integration tests point the real goose at it: everything is real but the model. It keeps no state between
//! calls; what comes next is read from the conversation that goose sends along.
//!
//! # Without a script
//! The model plays a small job: it writes a todo list, runs a harmless shell command, updates the list and ends
//! with a summary. See `demo/job.rs`.
//!
//! # Scripts
//! A prompt can carry a script: a fenced block whose body is a JSON list of replies, each a list of steps. The
//! first model call after that prompt gets the first reply, the second call the second, and so on; after the last
//! one, and for later prompts without a script, the model says that the script is over. A steer belongs to the
//! script it interrupts; a later prompt with a script of its own starts that one.
//!
//! ````text
//! Any words.
//! ```script
//! [
//!   [{"text": "I look "}, {"wait_ms": 20}, {"text": "around."}, {"call": {"tool": "shell", "input": {"command": "ls"}}}],
//!   [{"reasoning": "An empty folder."}, {"text": "Nothing here."}, {"usage": {"input": 10, "output": 6}}]
//! ]
//! ```
//! ````
//!
//! | step | does |
//! |---|---|
//! | `{"text": "…"}` | one chunk of text |
//! | `{"reasoning": "…"}` | one chunk of `reasoning_content` |
//! | `{"wait_ms": 20}` | sends nothing for so many milliseconds |
//! | `{"call": {"tool": "…", "input": {…}}}` | a tool call; several in one reply are several calls in one message |
//! | `{"usage": {"input": 1, "output": 2}}` | the reply's token numbers, else estimated |
//! | `{"finish": "length"}` | the finish reason, else `stop` or `tool_calls` |
//! | `{"error": {"status": 429, "body": {…}, "headers": {"retry-after": "3"}}}` | an HTTP answer in place of the reply; a body that is a text is sent as it is |
//! | `"hang"` | sends nothing more until the connection closes; as the first step not even response headers |
//! | `"drop"` | cuts the connection |
//! | `{"malformed": "{oops"}` | an event whose data is this text |
//! | `"no_id"` | the reply's chunks have no id, as those of some providers |
//!
//! Text comes before the calls of its reply: what goose keeps of text after a call looks like another reply.
//!
//! An empty list is an empty reply. goose asks again after an HTTP error or an empty reply, with the same
//! conversation: it then gets the same step again. A script that cannot be read gives a reply that says why.

mod conversation;
mod job;
mod reply;
mod script;
mod side_call;

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::{StreamExt, future, stream};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::shutdown::Tasks;
use conversation::ChatRequest;
use reply::{Envelope, Piece};
use script::{Cue, HttpError, Step};
use side_call::SideCall;

/// The model's name, for goose and in every answer.
const MODEL: &str = "demo";
/// The pause after each chunk of the demo job's text, so that it is seen to stream.
const PACE: Duration = Duration::from_millis(30);
/// Largest request body: a conversation with a prompt of several megabytes fits.
const BODY_BYTES: usize = 32 * 1024 * 1024;
/// Connections served at once; more are turned away.
const CONNECTIONS: usize = 512;
/// How many request bodies are kept for [`ScriptedModel::requests`], and their bytes together.
const KEPT_REQUESTS: usize = 64;
const KEPT_BYTES: usize = 8 * 1024 * 1024;
/// The pause after a failed accept (usually: no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const SCRIPT_OVER: &str = "That was the last reply of the script.";

/// The running model. It lives as long as the [`Tasks`] it was started on; see [`ScriptedModel::start`].
#[derive(Debug, Clone)]
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pace: Duration,
    /// A plain mutex: it is held for a push or a copy, never across an await.
    recent: Mutex<Recent>,
}

/// The latest request bodies, oldest first.
#[derive(Debug, Default)]
struct Recent {
    bodies: VecDeque<Bytes>,
    bytes: usize,
}

impl ScriptedModel {
    /// Listens on a free port of 127.0.0.1 and serves until shutdown: the hard signal ends every connection at
    /// once; after the soft one the model goes on as long as someone is connected, so that turns can end.
    ///
    /// # Errors
    /// No port could be bound.
    pub async fn start(tasks: &Tasks) -> io::Result<Self> {
        Self::start_with_pace(tasks, PACE).await
    }

    /// As [`ScriptedModel::start`], with another pause after each chunk of the demo job's text.
    ///
    /// # Errors
    /// No port could be bound.
    pub async fn start_with_pace(tasks: &Tasks, pace: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { pace, recent: Mutex::default() });
        tasks.spawn(serve(listener, router(Arc::clone(&shared)), tasks.clone()));
        Ok(Self { address, shared })
    }

    /// Where the model listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The environment that makes goose use this model. The key is a placeholder that the model never looks at;
    /// the proxy exception keeps the calls on this machine.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let variables = [
            ("GOOSE_PROVIDER", "openai".to_owned()),
            ("GOOSE_MODEL", MODEL.to_owned()),
            ("OPENAI_HOST", format!("http://{}", self.address)),
            ("OPENAI_BASE_PATH", "v1/chat/completions".to_owned()),
            ("OPENAI_API_KEY", "demo".to_owned()),
            ("NO_PROXY", "127.0.0.1,localhost".to_owned()),
        ];
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The latest chat completion requests, oldest first: at most 64 and 8 MiB of them. One that is no JSON is
    /// `null`.
    #[must_use]
    pub fn requests(&self) -> Vec<Value> {
        let recent = self.shared.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let bodies: Vec<Bytes> = recent.bodies.iter().cloned().collect();
        drop(recent);
        bodies.iter().map(|body| serde_json::from_slice(body).unwrap_or_default()).collect()
    }
}

impl Recent {
    fn push(&mut self, body: Bytes) {
        self.bytes += body.len();
        self.bodies.push_back(body);
        while self.bodies.len() > KEPT_REQUESTS || self.bytes > KEPT_BYTES {
            let Some(oldest) = self.bodies.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }
}

async fn serve(listener: TcpListener, router: Router, tasks: Tasks) {
    let connections = TaskTracker::new();
    let drained = async {
        tasks.soft().cancelled().await;
        connections.close();
        connections.wait().await;
    };
    tokio::pin!(drained);
    loop {
        // Shutdown first: a stream of new connections must not hold it up.
        let accepted = tokio::select! {
            biased;
            () = tasks.hard().cancelled() => return,
            () = &mut drained => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(_) if connections.len() >= CONNECTIONS => warn!("scripted model: too many connections"),
            Ok((stream, _)) => {
                let connection = serve_connection(stream, router.clone(), tasks.clone());
                tasks.spawn(connections.track_future(connection));
            }
            Err(error) => {
                warn!(%error, "scripted model: accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, router: Router, tasks: Tasks) {
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        biased;
        () = tasks.hard().cancelled() => {}
        ended = connection => {
            if let Err(error) = ended {
                debug!(%error, "scripted model: connection ended early");
            }
        }
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/models", get(models))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .with_state(shared)
}

async fn models() -> Json<Value> {
    Json(
        json!({ "object": "list", "data": [{ "id": MODEL, "object": "model", "created": 0, "owned_by": "gander" }] }),
    )
}

async fn chat_completions(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let request = serde_json::from_slice::<ChatRequest>(&body);
    let prompt_tokens = reply::tokens(body.len());
    shared.recent.lock().unwrap_or_else(PoisonError::into_inner).push(body);
    let request = match request {
        Ok(request) => request,
        Err(error) => {
            let body = json!({ "error": { "message": error.to_string(), "type": "invalid_request_error" } });
            return (StatusCode::BAD_REQUEST, Json(body)).into_response();
        }
    };
    let steps = next_reply(&request, shared.pace);
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let model = request.model.unwrap_or_else(|| MODEL.to_owned());
    play(steps, &Envelope::new(model, created, prompt_tokens), request.stream).await
}

fn next_reply(request: &ChatRequest, pace: Duration) -> Vec<Step> {
    if let Some(side_call) = SideCall::of(request) {
        return side_call.answer(request);
    }
    match script::cue(request) {
        Cue::Unscripted => job::next_reply(request, pace),
        Cue::Reply(steps) => steps,
        Cue::Over => vec![Step::Text(SCRIPT_OVER.to_owned())],
        Cue::Malformed(error) => vec![Step::Text(format!("I cannot play this script: {error}."))],
    }
}

/// Acts the steps out. What comes before anything is sent happens before the response headers.
async fn play(mut steps: Vec<Step>, envelope: &Envelope, streamed: bool) -> Response {
    let mut opening = 0;
    for step in &steps {
        match step {
            Step::WaitMs(wait_ms) => tokio::time::sleep(Duration::from_millis(*wait_ms)).await,
            Step::Error(error) => return http_error(error),
            Step::Hang => future::pending().await,
            _ => break,
        }
        opening += 1;
    }
    let steps = steps.split_off(opening);
    if streamed {
        return streamed_body(envelope.pieces(&steps));
    }
    for step in &steps {
        match step {
            Step::WaitMs(wait_ms) => tokio::time::sleep(Duration::from_millis(*wait_ms)).await,
            Step::Hang => future::pending().await,
            Step::Drop => return streamed_body(vec![Piece::Cut]),
            Step::Malformed(text) => return text.clone().into_response(),
            _ => {}
        }
    }
    Json(envelope.document(&steps)).into_response()
}

fn streamed_body(pieces: Vec<Piece>) -> Response {
    let frames = stream::iter(pieces).filter_map(async |piece| match piece {
        Piece::Frame(bytes) => Some(Ok(bytes)),
        Piece::Wait(pause) => {
            tokio::time::sleep(pause).await;
            None
        }
        Piece::Hang => future::pending().await,
        Piece::Cut => {
            // An error in the body makes the server cut the connection; what was sent before is flushed first.
            tokio::task::yield_now().await;
            Some(Err(io::Error::from(io::ErrorKind::ConnectionAborted)))
        }
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(frames)).into_response()
}

/// The script was checked when it was read: what does not fit here is left out.
fn http_error(error: &HttpError) -> Response {
    let mut response = match &error.body {
        Value::Null => StatusCode::OK.into_response(),
        Value::String(text) => text.clone().into_response(),
        other => Json(other).into_response(),
    };
    *response.status_mut() = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in &error.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests;
