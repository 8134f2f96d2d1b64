//! A gander behind a proxy: whom it believes, and what it is called from outside.

use std::net::IpAddr;

use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::Value;

use crate::support::{Gander, Setup, answer, refusal, until};

const BEHIND_A_PROXY: &str = "[log]\nformat = \"json\"\n[server]\npublic_url = \"https://gander.example.org/\"\n\
    trusted_proxies = \"127.0.0.1\"\nproxy_headers = \"x-forwarded\"";

/// A request without a token from one of this machine's addresses.
fn from(gander: &Gander, address: &str, path: &str) -> RequestBuilder {
    let client = Client::builder().no_proxy().local_address(address.parse::<IpAddr>().unwrap());
    client.build().unwrap().get(format!("http://{}{path}", gander.address))
}

/// The caller's address in the log's line about a request.
async fn logged_client(gander: &Gander, request: &str) -> Value {
    let line = || gander.log_lines("answered").into_iter().find(|line| line["span"]["request_id"] == request);
    until("the request's line", || line().is_some()).await;
    line().unwrap()["client"].clone()
}

#[tokio::test]
async fn what_a_trusted_proxy_says_is_believed_and_nobody_else() {
    let gander = Setup::fake().config(BEHIND_A_PROXY).start().await;
    for (id, address, forwarded, expected) in [
        ("trusted", "127.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("forged-before", "127.0.0.1", "192.0.2.66, 203.0.113.7", "203.0.113.7"),
        ("stranger", "127.0.0.2", "203.0.113.7", "127.0.0.2"),
    ] {
        let request = from(&gander, address, "/healthz").header("x-request-id", id);
        answer(request.header("x-forwarded-for", forwarded), StatusCode::OK).await;
        assert_eq!(logged_client(&gander, id).await, expected, "{id}");
    }

    let host = |address: &str, host: &str, forwarded: &str| {
        from(&gander, address, "/readyz").header("host", host).header("x-forwarded-host", forwarded)
    };
    answer(host("127.0.0.1", "internal:80", "gander.example.org"), StatusCode::OK).await;
    refusal(host("127.0.0.1", "localhost", "evil.example"), 421, "host-not-allowed").await;
    refusal(host("127.0.0.2", "internal:80", "gander.example.org"), 421, "host-not-allowed").await;
    answer(host("127.0.0.2", "localhost", "evil.example"), StatusCode::OK).await;
    gander.stop().await;

    // Host and scheme only of proxies that are said to write them.
    let config = BEHIND_A_PROXY.replace("\nproxy_headers = \"x-forwarded\"", "");
    let gander = Setup::fake().config(&config).start().await;
    let request = from(&gander, "127.0.0.1", "/readyz").header("host", "evil.example");
    let request = request.header("x-forwarded-for", "203.0.113.7").header("x-forwarded-host", "localhost");
    refusal(request, 421, "host-not-allowed").await;
    gander.stop().await;

    let gander = Setup::fake().config("[log]\nformat = \"json\"").start().await;
    let request = from(&gander, "127.0.0.1", "/healthz").header("x-request-id", "nobody");
    answer(request.header("x-forwarded-for", "203.0.113.7"), StatusCode::OK).await;
    assert_eq!(logged_client(&gander, "nobody").await, "127.0.0.1", "nobody is trusted by default");
    gander.stop().await;
}

#[tokio::test]
async fn a_page_is_of_gander_s_own_origin_only_by_the_scheme_that_the_proxy_was_asked_by() {
    let config = "[server]\nallowed_hosts = \"a.example\"\ntrusted_proxies = \"127.0.0.0/8\"\n\
        proxy_headers = \"forwarded\"";
    let gander = Setup::fake().config(config).start().await;
    let page = |origin: &str| {
        let request = from(&gander, "127.0.0.1", "/healthz").header("host", "inner");
        request.header("forwarded", "for=203.0.113.7;proto=https;host=a.example").header("origin", origin)
    };
    answer(page("https://a.example"), StatusCode::OK).await;
    refusal(page("http://a.example"), 403, "origin-not-allowed").await;
    refusal(page("https://inner"), 403, "origin-not-allowed").await;
    gander.stop().await;
}

#[tokio::test]
async fn the_public_address_is_shown_and_may_call() {
    let gander = Setup::fake().config(BEHIND_A_PROXY).start().await;
    until("the address is shown", || gander.welcome().contains("https://gander.example.org\n")).await;
    let document = gander.get("/openapi.json").await;
    assert_eq!(document["servers"][0]["url"], "https://gander.example.org");
    assert_eq!(document["servers"][1]["url"], "/");
    let named = from(&gander, "127.0.0.2", "/healthz").header("host", "gander.example.org");
    answer(named, StatusCode::OK).await;
    // A proxy that hands on another host: the browser's origin is gander's all the same.
    let page = gander.request(Method::GET, "/v1/info").header("host", "internal:4665");
    let page = page.header("origin", "https://gander.example.org").send().await.unwrap();
    assert_eq!(page.status(), StatusCode::OK);
    assert_eq!(page.headers()["access-control-allow-origin"], "https://gander.example.org");
    gander.stop().await;
}
