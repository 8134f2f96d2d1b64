//! Who gets in without a token of their own: web pages, host names, loopback; and what of gander's own gets out to goose.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Setup, answer, refusal};

#[tokio::test]
async fn web_pages_and_foreign_host_names_stay_out() {
    let gander = Setup::fake()
        .config("[server]\nallowed_hosts = [\"gander.example\"]\ncors_origins = [\"https://app.example\"]")
        .start()
        .await;
    let port = gander.address.port();
    let open =
        |host: &str| gander.client.get(format!("http://{}/healthz", gander.address)).header("host", host);
    for host in ["evil.example", "gander.example.evil.example", "localhost.evil.example", "", "a b"] {
        refusal(open(host), 421, "host-not-allowed").await;
        let with_wrong_token = gander.request_as("wrong", Method::GET, "/v1/info").header("host", host);
        refusal(with_wrong_token, 421, "host-not-allowed").await;
        // Who shows a token is no rebound web page, whatever name the proxy before it has.
        answer(gander.request(Method::GET, "/v1/info").header("host", host), StatusCode::OK).await;
    }
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), "GANDER.example".into()] {
        answer(open(&host), StatusCode::OK).await;
    }
    let info = || gander.request(Method::GET, "/v1/info");
    for origin in [
        "https://evil.example",
        "http://localhost:1",
        "null",
        "http://app.example",
        "https://app.example:444",
    ] {
        refusal(info().header("origin", origin), 403, "origin-not-allowed").await;
        refusal(open("localhost").header("origin", origin), 403, "origin-not-allowed").await;
    }
    let own = format!("http://127.0.0.1:{port}");
    answer(info().header("origin", own), StatusCode::OK).await;
    let listed = info().header("origin", "https://app.example").send().await.unwrap();
    assert_eq!(listed.status(), StatusCode::OK);
    assert_eq!(listed.headers()["access-control-allow-origin"], "https://app.example");
    // Only a listed page is told that it may ask.
    let preflight = |origin: &str| {
        let request =
            gander.client.request(Method::OPTIONS, format!("http://{}/v1/sessions", gander.address));
        request.header("origin", origin).header("access-control-request-method", "POST")
    };
    let asked = preflight("https://app.example").send().await.unwrap();
    assert_eq!(asked.status(), StatusCode::NO_CONTENT);
    assert!(asked.headers()["access-control-allow-methods"].to_str().unwrap().contains("POST"));
    refusal(preflight("https://evil.example"), 403, "origin-not-allowed").await;
    gander.stop().await;

    // By default it is the listen address and this machine's own names.
    let gander = Setup::fake().start().await;
    let open =
        |host: &str| gander.client.get(format!("http://{}/healthz", gander.address)).header("host", host);
    let port = gander.address.port();
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")] {
        answer(open(&host), StatusCode::OK).await;
    }
    refusal(open("gander.example"), 421, "host-not-allowed").await;
    gander.stop().await;
}

#[tokio::test]
async fn on_loopback_tokens_can_be_left_out_but_not_the_other_checks() {
    let gander = Setup::fake().config("[auth]\nrequired = false").start().await;
    assert!(gander.token.is_empty(), "no token is made that nobody needs");
    assert!(gander.log().contains("auth.required = false"), "{}", gander.log());
    let url = |path: &str| format!("http://{}{path}", gander.address);
    let session = answer(gander.client.post(url("/v1/sessions")), StatusCode::CREATED).await;
    assert_eq!(session["owner"], "anonymous");
    let info = || gander.client.get(url("/v1/info"));
    assert_eq!(answer(info(), StatusCode::OK).await["caller"]["name"], "anonymous");
    refusal(info().header("origin", "https://evil.example"), 403, "origin-not-allowed").await;
    // A token that nobody checks does not lift the check of the host.
    refusal(info().header("host", "evil.example").bearer_auth("x"), 421, "host-not-allowed").await;
    gander.stop().await;
}

#[tokio::test]
async fn the_generated_token_is_private_stays_and_is_in_no_log() {
    let dir: Arc<TempDir> = Arc::new(tempfile::tempdir().unwrap());
    let setup = || Setup::fake().dir(Arc::clone(&dir)).config("[log]\nfilter = \"trace\"");
    let gander = setup().start().await;
    let token = gander.token.clone();
    assert!(token.len() > 40, "{token}");
    let mode = |path: &str| fs::metadata(gander.storage().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("token"), mode("")), (0o600, 0o700));
    let session = gander.session(&json!({})).await;
    session.turn("env GOOSE_MODE").await;
    answer(gander.request(Method::GET, &format!("/v1/sessions?token={token}")), StatusCode::BAD_REQUEST)
        .await;
    refusal(gander.client.get(format!("http://{}/v1/{token}", gander.address)), 401, "unauthenticated").await;
    refusal(gander.request(Method::GET, &format!("/v1/{token}")), 404, "not-found").await;
    session.delete().await;
    let (log, welcome) = (gander.log(), gander.welcome());
    assert!(log.contains("request_id"), "nothing is logged:\n{log}");
    assert!(!log.contains(&token) && !welcome.contains(&token), "the token is told:\n{welcome}{log}");
    gander.stop().await;
    let again = setup().start().await;
    assert_eq!(again.token, token);
    answer(again.request_as(&token, Method::GET, "/v1/info"), StatusCode::OK).await;
    again.stop().await;
}

#[tokio::test]
async fn goose_gets_only_what_the_configuration_passes_on() {
    let gander = Setup::fake()
        .env("GANDER_GOOSE__MODE", "approve")
        .env("DATABASE_PASSWORD", "hunter2")
        .env("OPENAI_API_KEY", "sk-passed")
        .env("LC_TIME", "C")
        .env("GOOSE_PATH_ROOT", "/elsewhere")
        .env("EXTENSIONS", "all")
        .env("GOOSE_TELEMETRY_ENABLED", "true")
        .env("GOOSE_DISABLE_KEYRING", "0")
        .env("GOOSE_MODE", "auto")
        .config("[goose.env]\nOWN_VARIABLE = \"own\"")
        .start()
        .await;
    let session = gander.session(&json!({"env": {"GOOSE_MAX_TURNS": "7"}})).await;
    let environment = |pid: u64| -> Vec<(String, String)> {
        let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap();
        let pairs = bytes.split(|byte| *byte == 0).filter(|pair| !pair.is_empty());
        pairs
            .map(|pair| {
                let (name, value) = std::str::from_utf8(pair).unwrap().split_once('=').unwrap();
                (name.to_owned(), value.to_owned())
            })
            .collect()
    };
    let goose = environment(session.snapshot["agent"]["pid"].as_u64().unwrap());
    let value = |name: &str| goose.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
    let home = gander.storage().join("homes").join(&session.id);
    for (name, expected) in [
        ("GOOSE_DISABLE_KEYRING", Some("1")),
        ("GOOSE_TELEMETRY_ENABLED", Some("false")),
        ("GOOSE_MODE", Some("approve")),
        ("GOOSE_MAX_TURNS", Some("7")),
        ("GOOSE_PATH_ROOT", home.to_str()),
        ("OPENAI_API_KEY", Some("sk-passed")),
        ("OWN_VARIABLE", Some("own")),
        ("LC_TIME", Some("C")),
        ("PATH", Some("/usr/local/bin:/usr/bin:/bin")),
        ("DATABASE_PASSWORD", None),
        ("EXTENSIONS", None),
        ("GANDER_GOOSE__MODE", None),
        ("GANDER_STORAGE__DIR", None),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    // Nor has any process on the way to it what goose may not see.
    for pid in gander.descendants() {
        for (name, value) in environment(pid.into()) {
            assert!(!value.contains(&gander.token) && !value.contains("hunter2"), "{name} in {pid}");
            // The one that gander sets itself: by it a later run finds what an earlier one left.
            assert!(!name.starts_with("GANDER_") || name == "GANDER_INSTANCE", "{name} in {pid}");
        }
    }
    gander.stop().await;
}
