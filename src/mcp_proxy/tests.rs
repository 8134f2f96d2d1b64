use std::sync::Mutex;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::State;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use futures_util::{Stream, StreamExt};
use hyper::Method;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

use super::*;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

type Answer = Box<dyn FnOnce(AxumBody) -> axum::response::Response + Send>;

/// A server that answers what it is told to, and remembers what it was asked.
#[derive(Clone, Default)]
struct Server(Arc<ServerState>);

#[derive(Default)]
struct ServerState {
    asked: Mutex<Vec<(Parts, Bytes)>>,
    /// For the next request alone, which is then not remembered.
    answer: Mutex<Option<Answer>>,
}

async fn answer(
    State(Server(server)): State<Server>,
    request: axum::extract::Request,
) -> axum::response::Response {
    let (parts, body) = request.into_parts();
    let answer = server.answer.lock().unwrap().take();
    if let Some(answer) = answer {
        return answer(body);
    }
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    server.asked.lock().unwrap().push((parts, body));
    "the server's answer".into_response()
}

impl Server {
    fn answers(&self, answer: impl FnOnce(AxumBody) -> axum::response::Response + Send + 'static) {
        *self.0.answer.lock().unwrap() = Some(Box::new(answer));
    }

    fn asked(&self) -> Vec<(Parts, Bytes)> {
        std::mem::take(&mut self.0.asked.lock().unwrap())
    }
}

/// A server, a proxy before it, and a client of the proxy's.
struct Scene {
    server: Server,
    /// The server's own.
    origin: String,
    proxy: McpProxy,
    client: reqwest::Client,
    tasks: Tasks,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.tasks.hard().cancel();
    }
}

impl Scene {
    async fn open() -> Self {
        let tasks = Tasks::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let server = Server::default();
        let router = Router::new().fallback(answer).with_state(server.clone());
        let hard = tasks.hard().clone();
        tasks.spawn(async move {
            tokio::select! {
                ended = axum::serve(listener, router).into_future() => ended.unwrap(),
                () = hard.cancelled() => {}
            }
        });
        let proxy = open_proxy(&format!("{origin}/mcp?key=v"), &tasks).await;
        let redirects = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().no_proxy().redirect(redirects).build().unwrap();
        Self { server, origin, proxy, client, tasks }
    }

    fn url(&self) -> &str {
        &self.proxy.urls[0]
    }

    /// What stands for the server's origin.
    fn local_origin(&self) -> &str {
        self.url().split("/mcp").next().unwrap()
    }

    /// The proxy's address, and the path to the server there.
    fn place(&self) -> (String, String) {
        let (address, path) = self.url().strip_prefix("http://").unwrap().split_once('/').unwrap();
        (address.to_owned(), path.to_owned())
    }

    fn post(&self, message: &Value) -> reqwest::RequestBuilder {
        self.client.post(self.url()).json(message)
    }
}

/// The items of a channel.
fn items_of<T: Send + 'static>(receiver: mpsc::UnboundedReceiver<T>) -> impl Stream<Item = T> + Send {
    futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|item| (item, receiver))
    })
}

async fn open_proxy(url: &str, tasks: &Tasks) -> McpProxy {
    let headers = BTreeMap::from([("Authorization".to_owned(), "Bearer own".to_owned())]);
    let servers = [ProxiedServer { url: url.to_owned(), headers }];
    McpProxy::open(&servers, &ProxyClient::new(&[]).unwrap(), tasks).await.unwrap()
}

#[tokio::test]
async fn goose_s_first_question_is_answered_here_and_nothing_else() {
    let scene = Scene::open().await;
    for (id, header) in [(json!(0), true), (json!("a"), false)] {
        let mut request = scene.post(&json!({"jsonrpc": "2.0", "id": id, "method": "server/discover"}));
        if header {
            request = request.header("mcp-method", "server/discover");
        }
        let response = request.send().await.unwrap();
        assert_eq!(
            (response.status(), &response.headers()["content-type"]),
            (StatusCode::OK, &"application/json".parse().unwrap())
        );
        let expected =
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}});
        assert_eq!(response.json::<Value>().await.unwrap(), expected);
    }
    assert!(scene.server.asked().is_empty());
    for other in [
        json!({"jsonrpc": "2.0", "method": "server/discover"}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize"}),
        json!([{"jsonrpc": "2.0", "id": 1, "method": "server/discover"}]),
    ] {
        assert_eq!(scene.post(&other).send().await.unwrap().text().await.unwrap(), "the server's answer");
        let (_, body) = scene.server.asked().pop().unwrap();
        assert_eq!(body, other.to_string());
    }
}

#[tokio::test]
async fn requests_arrive_as_they_were_sent() {
    let scene = Scene::open().await;
    let local = scene.local_origin();
    let long = "x".repeat(20_000);
    for (method, path, body) in [
        (Method::POST, "/mcp?key=v", "{}"),
        (Method::POST, "/mcp", long.as_str()),
        (Method::GET, "/mcp?key=v", ""),
        (Method::DELETE, "/mcp", ""),
        (Method::GET, "/mcp/.well-known/x?a=%20b&a=c+d", ""),
        (Method::PUT, "/", "x"),
    ] {
        let request = scene.client.request(method.clone(), format!("{local}{path}"));
        let request = request.header("mcp-session-id", "s-1").header("x-many", "a").header("x-many", "b");
        let request =
            request.header("connection", "close, x-hop").header("x-hop", "1").header("te", "trailers");
        let request = request.header("accept", "text/event-stream, application/json");
        let request = if body.is_empty() { request } else { request.body(body.to_owned()) };
        assert_eq!(request.send().await.unwrap().status(), StatusCode::OK);
        let (parts, arrived) = scene.server.asked().pop().unwrap();
        assert_eq!(
            (&parts.method, parts.uri.to_string().as_str(), &*arrived),
            (&method, path, body.as_bytes())
        );
        let mut headers: Vec<String> = parts
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        headers.sort();
        let host = format!("host: {}", scene.origin.trim_start_matches("http://"));
        let length = format!("content-length: {}", body.len());
        let mut expected = vec!["accept: text/event-stream, application/json", "authorization: Bearer own"];
        if !body.is_empty() {
            expected.push(&length);
        }
        expected.extend([host.as_str(), "mcp-session-id: s-1", "x-many: a", "x-many: b"]);
        assert_eq!(headers, expected);
    }
}

#[tokio::test]
async fn answers_come_back_as_they_were_given() {
    let scene = Scene::open().await;
    scene.server.answers(|_| {
        let headers = [
            ("www-authenticate", "Bearer realm=\"x\""),
            ("mcp-session-id", "s-1"),
            ("content-encoding", "gzip"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
        ];
        (StatusCode::UNAUTHORIZED, headers, "not really gzip").into_response()
    });
    let response = scene.client.get(scene.url()).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    for (name, value) in
        [("www-authenticate", "Bearer realm=\"x\""), ("mcp-session-id", "s-1"), ("content-encoding", "gzip")]
    {
        assert_eq!(response.headers()[name], value);
    }
    assert!(!response.headers().contains_key("x-hop"));
    assert_eq!(response.text().await.unwrap(), "not really gzip");

    let origin = &scene.origin;
    for (location, expected) in [
        (format!("{origin}/mcp/?a=b"), format!("{}/mcp/?a=b", scene.local_origin())),
        ("/mcp/".to_owned(), format!("{}/mcp/", scene.local_origin())),
        ("https://elsewhere.example/mcp".to_owned(), "https://elsewhere.example/mcp".to_owned()),
    ] {
        scene
            .server
            .answers(move |_| (StatusCode::TEMPORARY_REDIRECT, [("location", location)]).into_response());
        let response = scene.post(&json!({"id": 1, "method": "initialize"})).send().await.unwrap();
        assert_eq!(response.headers()["location"], expected);
    }
}

#[tokio::test]
async fn streams_are_not_held_back_either_way() {
    let scene = Scene::open().await;
    let (events, stream) = mpsc::unbounded_channel::<&'static str>();
    scene.server.answers(|_| {
        let stream = items_of(stream).map(Ok::<_, Infallible>);
        ([("content-type", "text/event-stream")], AxumBody::from_stream(stream)).into_response()
    });
    let mut response = scene.client.get(scene.url()).send().await.unwrap();
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        // Only when the first has come is there a second.
        events.send(event).unwrap();
        assert_eq!(response.chunk().await.unwrap().unwrap(), event);
    }
    drop(response);
    // Who listens no more is not sent for any more.
    tokio::time::timeout(PATIENCE, events.closed()).await.unwrap();

    let (arrived, first_part) = oneshot::channel();
    scene.server.answers(|body| {
        let mut body = body.into_data_stream();
        let answer = async move {
            arrived.send(body.next().await.unwrap().unwrap()).unwrap();
            body.next().await.unwrap().unwrap()
        };
        AxumBody::from_stream(futures_util::stream::once(answer).map(Ok::<_, Infallible>)).into_response()
    });
    let (parts, stream) = mpsc::unbounded_channel::<&'static str>();
    let body = reqwest::Body::wrap_stream(items_of(stream).map(Ok::<_, Infallible>));
    let asked = scene.client.post(scene.url()).header("content-type", "application/json").body(body).send();
    let asked = scene.tasks.spawn(asked);
    parts.send("first").unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, first_part).await.unwrap().unwrap(), "first");
    parts.send("second").unwrap();
    drop(parts);
    assert_eq!(asked.await.unwrap().unwrap().text().await.unwrap(), "second");
}

#[tokio::test]
async fn who_does_not_know_the_way_finds_nothing() {
    let scene = Scene::open().await;
    let address = scene.url().split('/').nth(2).unwrap().to_owned();
    let secret = scene.local_origin().rsplit('/').next().unwrap().to_owned();
    assert!(secret.len() == 32 && !format!("{:?}", scene.proxy).contains(&secret));
    let shorter = &secret[1..];
    for path in [
        "/".to_owned(),
        "/mcp".to_owned(),
        format!("/{shorter}/mcp"),
        format!("/{secret}"),
        format!("//{secret}/mcp"),
        format!("/x/{secret}/mcp"),
        // Where goose looks for a sign-in that nobody here could go through.
        "/.well-known/oauth-protected-resource".to_owned(),
        format!("/.well-known/oauth-protected-resource/{secret}/mcp"),
        "/register".to_owned(),
        // Two slashes in a row begin another host's name.
        format!("/{secret}//elsewhere.example/mcp"),
    ] {
        let response = scene.client.get(format!("http://{address}{path}")).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
    }
    assert!(scene.server.asked().is_empty());
}

#[tokio::test]
async fn each_server_has_its_own_way() {
    let tasks = Tasks::new();
    let server =
        |path: &str| ProxiedServer { url: format!("http://127.0.0.1:9{path}"), headers: BTreeMap::new() };
    let proxy =
        McpProxy::open(&[server("/a"), server("/b")], &ProxyClient::new(&[]).unwrap(), &tasks).await.unwrap();
    let way = |url: &str| url.split('/').nth(3).unwrap().to_owned();
    assert!(proxy.urls[0].ends_with("/a") && proxy.urls[1].ends_with("/b"), "{:?}", proxy.urls);
    assert_ne!(way(&proxy.urls[0]), way(&proxy.urls[1]));
    // Nobody listens on port 9, and whoever asks is not told where.
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let response = client.get(&proxy.urls[0]).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(response.text().await.unwrap(), "the server cannot be reached");
    for bad in [
        ProxiedServer { url: "no url".into(), headers: BTreeMap::new() },
        ProxiedServer { headers: BTreeMap::from([("a".into(), "\n".into())]), ..server("/") },
        ProxiedServer { headers: BTreeMap::from([("a b".into(), "c".into())]), ..server("/") },
    ] {
        let opened = McpProxy::open(&[bad], &ProxyClient::new(&[]).unwrap(), &tasks).await;
        assert!(matches!(opened, Err(ProxyError::Server(_))));
    }
    drop(proxy);
    tokio::time::timeout(PATIENCE, tasks.finished()).await.unwrap();
}

#[tokio::test]
async fn servers_are_asked_by_way_of_the_networks_proxy_as_goose_would_ask_them() {
    let scene = Scene::open().await;
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    // Capitals first, the last of a name.
    let environment = [
        variable("HTTP_PROXY", "http://127.0.0.1:9"),
        variable("HTTP_PROXY", &scene.origin),
        variable("http_proxy", "http://127.0.0.1:9"),
        variable("NO_PROXY", "127.0.0.1, near.invalid"),
    ];
    let client = ProxyClient::new(&environment).unwrap();
    for (url, arrives) in [
        ("http://far.invalid/mcp", Some("http://far.invalid/mcp".to_owned())),
        ("http://near.invalid/mcp", None),
        (&*format!("{}/direct", scene.origin), Some("/direct".to_owned())),
    ] {
        let server = ProxiedServer { url: url.to_owned(), headers: BTreeMap::new() };
        let proxy = McpProxy::open(&[server], &client, &scene.tasks).await.unwrap();
        let status = scene.client.get(&proxy.urls[0]).send().await.unwrap().status();
        let asked = scene.server.asked().pop().map(|(parts, _)| parts.uri.to_string());
        assert_eq!((asked, status.is_success()), (arrives.clone(), arrives.is_some()), "{url}");
    }
    assert!(ProxyClient::new(&[variable("HTTPS_PROXY", "no url at all")]).is_err());
}

/// goose ends its session with a server and, without waiting for an answer, itself; then the proxy goes.
#[tokio::test]
async fn what_is_said_last_arrives() {
    let mut scene = Scene::open().await;
    let (address, path) = scene.place();
    let mut connection = TcpStream::connect(&address).await.unwrap();
    connection.write_all(format!("GET /{path} HTTP/1.1\r\nhost: h\r\n\r\n").as_bytes()).await.unwrap();
    // All of the answer: closing a connection with something unread would throw away what was written to it, too.
    let mut answer = Vec::new();
    while !answer.ends_with(b"the server's answer") {
        assert_ne!(connection.read_buf(&mut answer).await.unwrap(), 0);
    }
    assert_eq!(scene.server.asked().len(), 1);
    // Nothing waits from here on, so the proxy sees all of this at once.
    let other = open_proxy(&scene.origin, &scene.tasks).await;
    let goodbye = format!("DELETE /{path} HTTP/1.1\r\nhost: h\r\n\r\n");
    assert_eq!(connection.try_write(goodbye.as_bytes()).unwrap(), goodbye.len());
    drop(connection);
    drop(std::mem::replace(&mut scene.proxy, other));
    let heard = async {
        while !scene.server.asked().iter().any(|(parts, _)| parts.method == Method::DELETE) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, heard).await.unwrap();
}

#[tokio::test]
async fn with_the_proxy_all_its_connections_end() {
    let mut scene = Scene::open().await;
    let (_events, stream) = mpsc::unbounded_channel::<&'static str>();
    scene
        .server
        .answers(|_| AxumBody::from_stream(items_of(stream).map(Ok::<_, Infallible>)).into_response());
    let mut response = scene.client.get(scene.url()).send().await.unwrap();
    let address = scene.url().split('/').nth(2).unwrap().to_owned();
    let mut idle = TcpStream::connect(&address).await.unwrap();
    let other = open_proxy(&scene.origin, &scene.tasks).await;
    drop(std::mem::replace(&mut scene.proxy, other));
    let ended = tokio::time::timeout(PATIENCE, response.chunk()).await.unwrap();
    assert!(ended.is_err(), "{ended:?}");
    // The connection that said nothing is closed, or reset when it was not accepted yet.
    let read = tokio::time::timeout(PATIENCE, idle.read(&mut [0])).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    assert!(TcpStream::connect(&address).await.is_err());
}

#[tokio::test]
async fn connections_are_bounded() {
    let scene = Scene::open().await;
    let (address, path) = scene.place();
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = TcpStream::connect(&address).await.unwrap();
        // A first request, so that it is known to be served.
        let request = format!("GET /{path} HTTP/1.1\r\nhost: h\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        connection.read_exact(&mut [0; 12]).await.unwrap();
        idle.push(connection);
    }
    let served = scene.server.asked().len();
    let mut late = TcpStream::connect(&address).await.unwrap();
    late.write_all(format!("GET /{path} HTTP/1.1\r\nhost: h\r\n\r\n").as_bytes()).await.unwrap();
    let waits = tokio::time::timeout(Duration::from_millis(100), late.read(&mut [0; 12])).await;
    assert!(waits.is_err() && scene.server.asked().is_empty(), "{served} are served already");
    drop(idle.pop());
    tokio::time::timeout(PATIENCE, late.read_exact(&mut [0; 12])).await.unwrap().unwrap();
}
