//! MCP servers for tests: the real one, and one that says what it was asked and does what no real one does on demand.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use axum::{Json, Router};
use gander::shutdown::Tasks;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The real server: a program for [`node`]. scripts/mcp-server installs it.
pub(crate) fn real_tool_server() -> String {
    #[expect(clippy::disallowed_methods, reason = "scripts/test tells the tests where it has put the server")]
    let named = std::env::var_os("GANDER_TEST_MCP_SERVER").map(PathBuf::from);
    let program = named.unwrap_or_else(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/mcp-server");
        let printed = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
        assert!(printed.status.success(), "the tests' MCP server cannot be installed");
        PathBuf::from(String::from_utf8(printed.stdout).unwrap().trim())
    });
    program.to_str().unwrap().to_owned()
}

/// Where node is.
pub(crate) fn node() -> String {
    #[expect(clippy::disallowed_methods, reason = "the test's own search for a program")]
    let path = std::env::var_os("PATH").unwrap();
    let node = std::env::split_paths(&path).map(|folder| folder.join("node")).find(|node| node.is_file());
    node.expect("node is on PATH").to_str().unwrap().to_owned()
}

/// The real server, serving HTTP until it is dropped.
pub(crate) struct RealToolServer {
    process: Child,
    pub(crate) url: String,
}

impl RealToolServer {
    /// Starts it and waits until it listens.
    pub(crate) fn start() -> Self {
        // It tells no port that it takes by itself.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut process = Command::new(node())
            .args([real_tool_server().as_str(), "streamableHttp"])
            .env("PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let listens = lines.any(|line| line.unwrap().contains("listening on port"));
        assert!(listens, "the tests' MCP server does not listen: {:?}", process.wait());
        std::thread::spawn(move || lines.count());
        Self { process, url: format!("http://127.0.0.1:{port}/mcp") }
    }
}

impl Drop for RealToolServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How a [`ToolServer`] answers goose's first question, `server/discover`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discover {
    /// That it knows no such method.
    Unknown,
    /// As servers made with the Python SDK 1.x: an error under an id of its own, which goose cannot match.
    Uncorrelated,
    /// Not at all.
    Silence,
}

/// A request that a [`ToolServer`] was sent.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    /// Its JSON-RPC method, if it has one.
    pub(crate) call: Option<String>,
}

impl Asked {
    /// A header's text; empty without it.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// An MCP server with one tool, `whoami`, which answers its name.
pub(crate) struct ToolServer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    tasks: Tasks,
}

struct Shared {
    name: &'static str,
    discover: Discover,
    asked: Mutex<Vec<Asked>>,
}

impl ToolServer {
    pub(crate) async fn start(name: &'static str, discover: Discover) -> Self {
        Self::serve(name, discover, tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// One behind TLS, as `localhost`; who asks it has to trust [`authority`].
    pub(crate) async fn start_with_tls(name: &'static str, discover: Discover) -> Self {
        let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/tls").join(name);
        let certificate = CertificateDer::from_pem_file(file("localhost.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(file("localhost.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::serve(name, discover, TlsListener { tcp, tls: TlsAcceptor::from(Arc::new(config)) })
    }

    fn serve<L: Listener<Addr = SocketAddr>>(name: &'static str, discover: Discover, listener: L) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { name, discover, asked: Mutex::default() });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let tasks = Tasks::new();
        let hard = tasks.hard().clone();
        tasks.spawn(async move {
            tokio::select! {
                served = axum::serve(listener, router).into_future() => served.unwrap(),
                () = hard.cancelled() => {}
            }
        });
        Self { address, shared, tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp?key=in-the-query", self.address)
    }

    /// What it was asked since it was last looked at.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.shared.asked.lock().unwrap())
    }
}

impl Drop for ToolServer {
    fn drop(&mut self) {
        self.tasks.hard().cancel();
    }
}

/// The authority behind the certificate of [`ToolServer::start_with_tls`].
pub(crate) fn authority() -> String {
    format!("{}/tests/mcp/tls/authority.pem", env!("CARGO_MANIFEST_DIR"))
}

struct TlsListener {
    tcp: tokio::net::TcpListener,
    tls: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.tcp.accept().await.unwrap();
            // One that does not trust the certificate breaks off.
            if let Ok(stream) = self.tls.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

async fn answer(
    State(server): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let call = message["method"].as_str().map(str::to_owned);
    let target = format!("{method} {uri}");
    let asked = Asked { target, headers, call: call.clone() };
    server.asked.lock().unwrap().push(asked);
    if server.discover == Discover::Silence {
        return std::future::pending().await;
    }
    if method == Method::DELETE {
        return StatusCode::OK.into_response();
    }
    if method != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let id = message["id"].clone();
    if id.is_null() {
        return StatusCode::ACCEPTED.into_response();
    }
    let result = |result: Value| Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response();
    let error =
        |id: &Value, code: i64| json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}});
    match call.as_deref() {
        Some("server/discover") if server.discover == Discover::Uncorrelated => {
            (StatusCode::BAD_REQUEST, Json(error(&json!("server-error"), -32600))).into_response()
        }
        Some("initialize") => {
            let about = json!({"name": server.name, "version": "1"});
            let answer = json!({
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about,
            });
            ([("mcp-session-id", "session-of-the-server")], result(answer)).into_response()
        }
        Some("tools/list") => {
            let schema = json!({"type": "object", "properties": {}});
            result(json!({"tools": [{"name": "whoami", "description": "Who", "inputSchema": schema}]}))
        }
        Some("tools/call") => result(json!({"content": [{"type": "text", "text": server.name}]})),
        _ => Json(error(&id, -32601)).into_response(),
    }
}
