use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::Router;
use axum::body::to_bytes;
use axum::middleware::from_fn_with_state;
use axum::routing::post;
use futures_util::FutureExt;
use tokio::sync::Semaphore;
use tower::ServiceExt;

use super::*;
use crate::http::auth::Callers;

/// The largest answer that is kept.
const KEPT_BYTES: usize = 32;

/// Remembers in memory, as the store does on disk.
#[derive(Clone, Default)]
struct InMemory(Arc<Mutex<Entries>>);

type Entries = HashMap<AnswerKey, (BodyHash, Option<StoredAnswer>)>;

impl InMemory {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap()
    }

    /// As after a restart in the middle of everything that is kept.
    fn unfinish(&self) {
        for (_, answer) in self.entries().values_mut() {
            *answer = None;
        }
    }
}

impl RememberedAnswers for InMemory {
    fn begin(&self, key: AnswerKey, body: BodyHash) -> BoxFuture<Result<Begin, StoreError>> {
        let begin = match self.entries().entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert((body, None));
                Begin::Fresh
            }
            Entry::Occupied(known) => match known.get() {
                (hash, _) if *hash != body => Begin::Mismatch,
                (_, None) => Begin::InProgress,
                (_, Some(answer)) => Begin::Stored(answer.clone()),
            },
        };
        Box::pin(async { Ok(begin) })
    }

    fn finish(
        &self,
        key: AnswerKey,
        _: Option<SessionId>,
        answer: StoredAnswer,
    ) -> BoxFuture<Result<(), StoreError>> {
        self.entries().get_mut(&key).expect("begun").1 = Some(answer);
        Box::pin(async { Ok(()) })
    }

    fn forget(&self, key: AnswerKey) -> BoxFuture<Result<(), StoreError>> {
        self.entries().remove(&key);
        Box::pin(async { Ok(()) })
    }
}

/// A gateway whose work can be held up.
struct Bench {
    app: Router,
    memory: InMemory,
    tasks: Tasks,
    /// How often work was done, which is also its answer.
    made: Arc<AtomicUsize>,
    /// Whether the caller may have an answer again.
    allowed: Arc<AtomicBool>,
    /// One permit lets one piece of slow work go on.
    go: Arc<Semaphore>,
    /// One permit for each piece of slow work that has begun.
    begun: Arc<Semaphore>,
}

impl Bench {
    fn new() -> Self {
        let (memory, tasks) = (InMemory::default(), Tasks::new());
        let made = Arc::new(AtomicUsize::new(0));
        let (go, begun) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let count = |made: &Arc<AtomicUsize>| {
            let made = Arc::clone(made);
            move || made.fetch_add(1, Ordering::SeqCst) + 1
        };
        let (quick, slow, stream, refuse, long, panic) =
            (count(&made), count(&made), count(&made), count(&made), count(&made), count(&made));
        let (wait, tell) = (Arc::clone(&go), Arc::clone(&begun));
        let made_answer = |number: usize| {
            let location = format!("/v1/things/{number}");
            (StatusCode::CREATED, [(header::LOCATION, location)], format!("made {number}"))
        };
        let again: StreamAgain = Arc::new(|caller, location| {
            Box::pin(async move { Ok(format!("again {location} for {}", caller.name()).into_response()) })
        });
        let allowed = Arc::new(AtomicBool::new(true));
        let layer = {
            let allowed = Arc::clone(&allowed);
            let recheck: Recheck = Arc::new(move |caller, path, session| {
                assert_eq!((caller.name(), session), ("anonymous", None), "{path}");
                if allowed.load(Ordering::SeqCst) {
                    return Ok(());
                }
                Err(Problem::new(Code::RoleMissing, "no longer"))
            });
            Memory::new(Arc::new(memory.clone()), tasks.clone(), (64, KEPT_BYTES), recheck, again)
        };
        let app = Router::new()
            .route("/v1/things", post(move || async move { made_answer(quick()) }).get(async || "list"))
            .route(
                "/v1/slow",
                post(move || async move {
                    tell.add_permits(1);
                    wait.acquire().await.unwrap().forget();
                    made_answer(slow())
                }),
            )
            .route(
                "/v1/stream",
                post(move || async move {
                    let headers = [
                        (header::CONTENT_TYPE, EVENT_STREAM.to_owned()),
                        (header::LOCATION, format!("/v1/turns/{}", stream())),
                    ];
                    (
                        headers,
                        Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>()),
                    )
                }),
            )
            .route(
                "/v1/refused",
                post(move || async move {
                    refuse();
                    Problem::new(Code::SessionBusy, "not now")
                }),
            )
            .route("/v1/long", post(move || async move { "x".repeat(KEPT_BYTES + long()) }))
            .route("/v1/panic", post(move || async move { assert_eq!(panic(), 0, "on purpose") }))
            .layer(from_fn_with_state(layer, remember));
        Self { app, memory, tasks, made, allowed, go, begun }
    }

    async fn send(&self, method: Method, path: &str, key: &str, body: &str) -> Response {
        let caller = Callers::anyone().identify(&HeaderMap::new()).unwrap();
        let mut request =
            Request::builder().method(method).uri(path).body(Body::from(body.to_owned())).unwrap();
        request.headers_mut().insert("idempotency-key", HeaderValue::from_str(key).unwrap());
        request.extensions_mut().insert(caller);
        self.app.clone().oneshot(request).await.unwrap()
    }

    async fn post(&self, path: &str, key: &str, body: &str) -> Response {
        self.send(Method::POST, path, key, body).await
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }
}

async fn text(response: Response) -> String {
    String::from_utf8(to_bytes(response.into_body(), 4096).await.unwrap().to_vec()).unwrap()
}

fn code(response: &Response) -> Option<Code> {
    response.extensions().get::<Problem>().map(Problem::code)
}

#[tokio::test]
async fn the_same_again_gets_the_stored_answer() {
    let bench = Bench::new();
    for _ in 0..3 {
        let response = bench.post("/v1/things", "k", "{}").await;
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(response.headers()[header::LOCATION], "/v1/things/1");
        assert!(response.headers()[header::CONTENT_TYPE].to_str().unwrap().starts_with("text/plain"));
        assert_eq!(text(response).await, "made 1");
    }
    assert_eq!(bench.made(), 1);
}

#[tokio::test]
async fn an_answer_is_only_given_again_to_who_may_have_it() {
    let bench = Bench::new();
    for path in ["/v1/things", "/v1/stream"] {
        let made = bench.post(path, "k", "{}").await.status();
        bench.allowed.store(false, Ordering::SeqCst);
        assert_eq!(code(&bench.post(path, "k", "{}").await), Some(Code::RoleMissing), "{path}");
        bench.allowed.store(true, Ordering::SeqCst);
        assert!(bench.post(path, "k", "{}").await.status().is_success(), "{path} {made}");
    }
    assert_eq!(bench.made(), 2);
}

#[test]
fn the_session_of_an_answer_is_in_the_path_or_was_made() {
    let (one, other) = (SessionId::new(), SessionId::new());
    let answer = |location: Option<SessionId>| StoredAnswer {
        status: 201,
        headers: location
            .map(|id| ("location".to_owned(), format!("/v1/sessions/{id}")))
            .into_iter()
            .collect(),
        body: Bytes::new(),
    };
    assert_eq!(answer(Some(one)).session("/v1/sessions"), Some(one));
    assert_eq!(answer(None).session(&format!("/v1/sessions/{one}/turns/{other}/cancel")), Some(one));
    assert_eq!(answer(Some(other)).session(&format!("/v1/sessions/{one}/turns")), Some(one));
    assert_eq!(answer(None).session("/v1/sessions"), None);
    assert_eq!(answer(None).session("/v1/sessions/x/turns"), None);
}

#[tokio::test]
async fn an_answer_over_the_limit_is_given_but_not_kept() {
    let bench = Bench::new();
    for length in [KEPT_BYTES + 1, KEPT_BYTES + 2] {
        assert_eq!(text(bench.post("/v1/long", "k", "{}").await).await.len(), length);
    }
    assert!(bench.memory.entries().is_empty());
}

#[tokio::test]
async fn key_path_and_caller_are_each_part_of_the_scope() {
    let bench = Bench::new();
    for (path, key) in [("/v1/things", "k"), ("/v1/things", "l"), ("/v1/stream", "k")] {
        bench.post(path, key, "{}").await;
    }
    assert_eq!(bench.made(), 3);
    assert_eq!(bench.memory.entries().len(), 3);
    let caller = Callers::anyone().identify(&HeaderMap::new()).unwrap();
    let parts = |method: Method, path: &str| {
        Request::builder().method(method).uri(path).body(Body::empty()).unwrap().into_parts().0
    };
    let key = answer_key(&caller, &parts(Method::POST, "/v1/ab"), "c");
    assert_ne!(key, answer_key(&caller, &parts(Method::POST, "/v1/a"), "bc"));
    assert_ne!(key, answer_key(&caller, &parts(Method::PUT, "/v1/ab"), "c"));
    assert_eq!(key, answer_key(&caller, &parts(Method::POST, "/v1/ab?x=1"), "c"));
    let dir = tempfile::TempDir::new().unwrap();
    let token = crate::http::auth::ensure_token(dir.path()).unwrap();
    let bearer = HeaderValue::try_from(format!("Bearer {}", token.secret())).unwrap();
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, bearer)]);
    let other = Callers::of_generated(&token).identify(&headers).unwrap();
    assert_ne!(key, answer_key(&other, &parts(Method::POST, "/v1/ab"), "c"));
}

#[tokio::test]
async fn the_key_with_another_body_is_refused() {
    let bench = Bench::new();
    bench.post("/v1/things", "k", "{}").await;
    let other = bench.post("/v1/things", "k", "{ }").await;
    assert_eq!(code(&other), Some(Code::IdempotencyKeyReused));
    assert_eq!(bench.made(), 1);
    assert_eq!(text(bench.post("/v1/things", "k", "{}").await).await, "made 1");
}

#[tokio::test]
async fn a_second_call_waits_for_the_first_and_gets_its_answer() {
    let bench = Bench::new();
    let first = bench.post("/v1/slow", "k", "{}");
    let second = bench.post("/v1/slow", "k", "{}");
    let others = async {
        bench.begun.acquire().await.unwrap().forget();
        // While it runs another body is refused, and other keys are not held up.
        assert_eq!(code(&bench.post("/v1/slow", "k", "[]").await), Some(Code::IdempotencyKeyReused));
        assert_eq!(text(bench.post("/v1/things", "other", "{}").await).await, "made 1");
        bench.go.add_permits(1);
    };
    let (first, second, ()) = tokio::join!(first, second, others);
    assert_eq!((text(first).await, text(second).await), ("made 2".into(), "made 2".into()));
    assert_eq!(bench.made(), 2);
}

#[tokio::test]
async fn a_caller_that_leaves_changes_nothing() {
    let bench = Bench::new();
    {
        let mut first = Box::pin(bench.post("/v1/slow", "k", "{}"));
        tokio::select! {
            _ = &mut first => panic!("it is held up"),
            permit = bench.begun.acquire() => permit.unwrap().forget(),
        }
    }
    // One leaves while it runs, another one comes back while it still does.
    let second = bench.post("/v1/slow", "k", "{}");
    let end = async {
        bench.go.add_permits(1);
        bench.tasks.finished().await;
        bench.made()
    };
    let (made, second) = tokio::join!(end, second);
    assert_eq!(made, 1);
    assert_eq!(text(second).await, "made 1");
    assert_eq!(bench.begun.available_permits(), 0, "it has begun twice");
}

#[tokio::test]
async fn a_refusal_is_not_kept() {
    let bench = Bench::new();
    for made in 1..=2 {
        assert_eq!(code(&bench.post("/v1/refused", "k", "{}").await), Some(Code::SessionBusy));
        assert_eq!(bench.made(), made);
    }
    assert!(bench.memory.entries().is_empty());
}

#[tokio::test]
async fn a_panic_is_not_kept_and_does_not_block_the_key() {
    let bench = Bench::new();
    for made in 1..=2 {
        assert_eq!(code(&bench.post("/v1/panic", "k", "{}").await), Some(Code::Internal));
        assert_eq!(bench.made(), made);
    }
    assert!(bench.memory.entries().is_empty());
}

#[tokio::test]
async fn what_a_dead_gateway_left_runs_anew() {
    let bench = Bench::new();
    bench.post("/v1/things", "k", "{}").await;
    bench.memory.unfinish();
    assert_eq!(text(bench.post("/v1/things", "k", "{}").await).await, "made 2");
    assert_eq!(text(bench.post("/v1/things", "k", "{}").await).await, "made 2");
}

#[tokio::test]
async fn a_stream_is_told_again_and_not_kept() {
    let bench = Bench::new();
    let first = bench.post("/v1/stream", "k", "{}").await;
    assert_eq!(first.headers()[header::LOCATION], "/v1/turns/1");
    // Its body is still the stream, which never ends here.
    assert!(to_bytes(first.into_body(), 4096).now_or_never().is_none());
    let again = bench.post("/v1/stream", "k", "{}").await;
    assert_eq!(text(again).await, "again /v1/turns/1 for anonymous");
    assert_eq!(bench.made(), 1);
    let entries = bench.memory.entries();
    let (_, answer) = entries.values().next().unwrap();
    assert!(answer.as_ref().unwrap().body.is_empty());
}

#[tokio::test]
async fn keys_are_short_printable_and_alone() {
    let bench = Bench::new();
    let longest = "k".repeat(MAX_KEY);
    for (key, taken) in
        [("k 1", true), (&longest, true), ("", false), (&format!("{longest}k"), false), ("é", false)]
    {
        let response = bench.post("/v1/things", key, "{}").await;
        assert_eq!(code(&response), (!taken).then_some(Code::MalformedRequest), "{key:?}");
    }
    assert_eq!(bench.made(), 2);
    let mut headers = HeaderMap::new();
    headers.append("idempotency-key", HeaderValue::from_static("a"));
    headers.append("idempotency-key", HeaderValue::from_static("a"));
    assert_eq!(key_text(&headers).unwrap_err().code(), Code::MalformedRequest);
}

#[tokio::test]
async fn other_methods_and_bodies_over_the_limit_are_not_remembered() {
    let bench = Bench::new();
    assert_eq!(text(bench.send(Method::GET, "/v1/things", "k", "").await).await, "list");
    let large = bench.post("/v1/things", "k", &"x".repeat(65)).await;
    assert_eq!(code(&large), Some(Code::BodyTooLarge));
    assert!(bench.memory.entries().is_empty());
}

#[test]
fn what_runs_at_once_is_bounded() {
    let running = Running::default();
    let key = |number: usize| {
        let mut key = AnswerKey::default();
        key[..8].copy_from_slice(&number.to_be_bytes());
        key
    };
    let mut claims: Vec<Claim> =
        (0..MAX_RUNNING).map(|number| running.claim(key(number), [0; 32]).unwrap().ok().unwrap()).collect();
    let refused = running.claim(key(MAX_RUNNING), [0; 32]).err().unwrap();
    assert_eq!(refused.code(), Code::AtCapacity);
    claims.pop();
    assert!(running.claim(key(MAX_RUNNING), [0; 32]).is_ok());
}

#[tokio::test]
async fn a_hard_shutdown_ends_what_runs() {
    let bench = Bench::new();
    let first = bench.post("/v1/slow", "k", "{}");
    let stop = async {
        bench.begun.acquire().await.unwrap().forget();
        bench.tasks.hard().cancel();
    };
    let (first, ()) = tokio::join!(first, stop);
    assert_eq!(code(&first), Some(Code::Draining));
    bench.tasks.finished().await;
}
