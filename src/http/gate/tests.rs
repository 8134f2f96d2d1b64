use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn_with_state;
use axum::routing::any;
use tempfile::TempDir;
use tower::ServiceExt;

use super::*;
use crate::http::auth::{GeneratedToken, ensure_token};
use crate::http::fake_settings::settings;

struct Door {
    app: Router,
    token: GeneratedToken,
    _dir: TempDir,
}

impl Door {
    fn new(callers: impl FnOnce(&GeneratedToken) -> Callers) -> Self {
        let dir = TempDir::new().unwrap();
        let token = ensure_token(dir.path()).unwrap();
        let gate = Gate { settings: Arc::new(settings()), callers: callers(&token) };
        let app = Router::new()
            .route("/v1/who", any(async |caller: Caller| caller.name().to_owned()))
            .route("/open", any(async || "open"))
            .layer(from_fn_with_state(gate, admit));
        Self { app, token, _dir: dir }
    }

    fn with_token() -> Self {
        Self::new(Callers::of_generated)
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.token.secret())
    }

    async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        self.send(Method::GET, path, headers).await
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }
}

fn code(response: &Response) -> Option<Code> {
    response.extensions().get::<Problem>().map(Problem::code)
}

#[tokio::test]
async fn a_request_without_a_token_has_to_name_this_host() {
    let door = Door::with_token();
    for (host, comes_in) in [
        ("localhost", true),
        ("localhost:4665", true),
        ("LOCALHOST:1", true),
        ("localhost.", true),
        ("127.0.0.1:4665", true),
        ("evil.example", false),
        ("localhost.evil.example", false),
        ("evil.example:4665", false),
        ("localhost@evil.example", false),
        ("evil@localhost", false),
        ("127.0.0.1.nip.example", false),
        ("", false),
        ("a b", false),
    ] {
        let expected = (!comes_in).then_some(Code::HostNotAllowed);
        assert_eq!(code(&door.ask("/open", &[("host", host)]).await), expected, "{host:?}");
    }
    assert_eq!(code(&door.ask("/open", &[]).await), Some(Code::HostNotAllowed));
    let twice = [("host", "localhost"), ("host", "evil.example")];
    assert_eq!(code(&door.ask("/open", &twice).await), Some(Code::HostNotAllowed));
    // As HTTP/2 and proxies' requests say it: the URI counts, not the header.
    let elsewhere = door.ask("http://evil.example/open", &[("host", "localhost")]).await;
    assert_eq!(code(&elsewhere), Some(Code::HostNotAllowed));
    assert_eq!(code(&door.ask("http://localhost/open", &[]).await), None);
}

#[tokio::test]
async fn a_valid_token_makes_the_host_name_not_matter() {
    let door = Door::with_token();
    let bearer = door.bearer();
    let response = door.ask("/v1/who", &[("host", "proxy.example"), ("authorization", &bearer)]).await;
    assert_eq!(response.status(), 200);
    let wrong = door.ask("/v1/who", &[("host", "proxy.example"), ("authorization", "Bearer gander_x")]).await;
    assert_eq!(code(&wrong), Some(Code::HostNotAllowed));
    // Where everybody may call, the name is all that keeps a rebound page out.
    let open = Door::new(|_| Callers::anyone());
    assert_eq!(code(&open.ask("/v1/who", &[("host", "evil.example")]).await), Some(Code::HostNotAllowed));
    let response = open.ask("/v1/who", &[("host", "evil.example"), ("authorization", &bearer)]).await;
    assert_eq!(code(&response), Some(Code::HostNotAllowed));
    assert_eq!(open.ask("/v1/who", &[("host", "localhost")]).await.status(), 200);
}

#[tokio::test]
async fn an_allowed_host_with_a_port_means_that_port() {
    let mut settings = settings();
    settings.allowed_hosts = vec!["gander.example:8443".into(), "[::1]".into()];
    for (host, allowed) in [
        ("gander.example:8443", true),
        ("gander.example", false),
        ("gander.example:1", false),
        ("[::1]:4665", true),
        ("[::2]", false),
    ] {
        let own = parse_authority(host).unwrap();
        assert_eq!(is_allowed(&own, &settings.allowed_hosts), allowed, "{host}");
    }
}

#[test]
fn who_listens_on_every_address_is_asked_by_any_address_but_by_no_foreign_name() {
    for listen in ["0.0.0.0:4665", "[::]:4665"] {
        let hosts = allowed_hosts(&[], listen.parse().unwrap());
        for (host, allowed) in [
            ("10.1.2.3:4665", true),
            ("192.0.2.1", true),
            ("[2001:db8::1]:4665", true),
            ("localhost:4665", true),
            ("evil.example", false),
            ("10.1.2.3.evil.example", false),
            ("10.1.2.3.", false),
            ("0x7f.1", false),
        ] {
            assert_eq!(is_allowed(&parse_authority(host).unwrap(), &hosts), allowed, "{host} at {listen}");
        }
    }
    let one = allowed_hosts(&[], "192.0.2.1:80".parse().unwrap());
    assert!(!is_allowed(&parse_authority("192.0.2.2").unwrap(), &one));
    let named = allowed_hosts(&["gander.example".into()], "0.0.0.0:80".parse().unwrap());
    assert!(!is_allowed(&parse_authority("192.0.2.2").unwrap(), &named));
}

#[test]
fn this_machine_is_always_allowed_and_the_listen_address_unless_hosts_are_configured() {
    let hosts = allowed_hosts(&[], "192.0.2.1:80".parse().unwrap());
    assert_eq!(hosts, ["192.0.2.1", "localhost", "127.0.0.1", "[::1]"]);
    assert_eq!(allowed_hosts(&[], "[2001:db8::1]:80".parse().unwrap())[0], "[2001:db8::1]");
    let configured = allowed_hosts(&["gander.example".into()], "192.0.2.1:80".parse().unwrap());
    assert_eq!(configured, ["gander.example", "localhost", "127.0.0.1", "[::1]"]);
}

#[tokio::test]
async fn pages_of_other_origins_are_refused_with_and_without_a_token() {
    let door = Door::with_token();
    let bearer = door.bearer();
    for (origin, host, comes_in) in [
        ("http://localhost:4665", "localhost:4665", true),
        ("https://localhost:4665", "localhost:4665", true),
        ("https://app.example", "localhost:4665", true),
        ("https://evil.example", "localhost:4665", false),
        ("http://app.example", "localhost:4665", false),
        ("https://app.example.evil.example", "localhost:4665", false),
        // Another server on this machine is another origin.
        ("http://localhost:3000", "localhost:4665", false),
        ("http://127.0.0.1:4665", "localhost:4665", false),
        ("null", "localhost:4665", false),
        ("", "localhost:4665", false),
        ("localhost:4665", "localhost:4665", false),
        // Rebound: of the same origin, but not of an allowed host.
        ("http://evil.example", "evil.example", false),
    ] {
        let headers = [("origin", origin), ("host", host), ("authorization", &bearer)];
        let expected = (!comes_in).then_some(Code::OriginNotAllowed);
        assert_eq!(code(&door.ask("/v1/who", &headers).await), expected, "{origin} at {host}");
        if host.starts_with("localhost") {
            assert_eq!(code(&door.ask("/open", &headers[..2]).await), expected, "{origin} without a token");
        }
    }
    let twice =
        [("origin", "https://app.example"), ("origin", "https://evil.example"), ("host", "localhost")];
    assert_eq!(code(&door.ask("/open", &twice).await), Some(Code::OriginNotAllowed));
}

#[tokio::test]
async fn only_pages_of_listed_origins_see_answers() {
    let door = Door::with_token();
    let listed = [("origin", "https://app.example"), ("host", "localhost")];
    for path in ["/open", "/v1/who", "/nothing"] {
        let response = door.ask(path, &listed).await;
        assert_eq!(response.headers()[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://app.example", "{path}");
        assert_eq!(response.headers()[header::VARY], "origin");
    }
    let same = door.ask("/open", &[("origin", "http://localhost"), ("host", "localhost")]).await;
    assert!(!same.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));

    let method = ("access-control-request-method", "POST");
    let asked = door.send(Method::OPTIONS, "/v1/who", &[listed[0], listed[1], method]).await;
    assert_eq!(asked.status(), 204);
    assert!(
        asked.headers()[header::ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap().contains("authorization")
    );
    let evil = [("origin", "https://evil.example"), ("host", "localhost"), method];
    let refused = door.send(Method::OPTIONS, "/v1/who", &evil).await;
    assert_eq!(code(&refused), Some(Code::OriginNotAllowed));
}

#[tokio::test]
async fn everything_under_v1_takes_a_token_also_what_does_not_exist() {
    let door = Door::with_token();
    let host = ("host", "localhost");
    for path in ["/v1/who", "/v1/nothing", "/v1", "/v1/"] {
        let response = door.ask(path, &[host]).await;
        assert_eq!(code(&response), Some(Code::Unauthenticated), "{path}");
        let wrong = door.ask(path, &[host, ("authorization", "Bearer gander_wrong")]).await;
        assert_eq!(code(&wrong), Some(Code::Unauthenticated), "{path}");
    }
    for path in ["/open", "/nothing", "/v10"] {
        assert_eq!(code(&door.ask(path, &[host]).await), None, "{path}");
    }
}
