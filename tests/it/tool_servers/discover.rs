//! goose's first question to a server, answered by gander (`mcp.answer_discover`).

use std::path::Path;

use reqwest::Method;
use serde_json::json;
use tokio::net::TcpStream;

use super::{call, extension, said};
use crate::support::{
    Discover, Gander, RealToolServer, Session, Setup, ToolServer, authority, refusal, text, until_async,
};

/// Everything in a folder, as one text.
fn contents(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text.push_str(&contents(&path));
        } else if path.is_file() {
            text.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap()));
        }
    }
    text
}

/// What goose has saved of the session's servers: the address and the path of the proxy.
fn proxy_of(gander: &Gander, session: &Session<'_>) -> (String, String) {
    let saved = contents(&gander.storage().join("homes").join(&session.id).join("data"));
    // The newest is what counts; the database keeps older ones about.
    let newest = saved.match_indices("http://127.0.0.1:").filter_map(|(at, _)| {
        let mut parts = saved[at + "http://".len()..].splitn(3, '/');
        let (address, secret) = (parts.next()?, parts.next()?);
        let is_secret = secret.len() == 32 && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_secret.then(|| (address.to_owned(), secret.to_owned()))
    });
    newest.last().unwrap()
}

async fn until_closed(address: &str) {
    until_async("the proxy is closed", || async { TcpStream::connect(address).await.is_err() }).await;
}

#[tokio::test]
async fn a_server_that_goose_gives_up_works_when_gander_answers_for_it() {
    let web = ToolServer::start("web", Discover::Uncorrelated).await;
    let entry = |name: &str, more: &str| {
        let url = web.url();
        format!(
            "[[mcp.servers]]\nname = {name:?}\nurl = {url:?}\nheaders = {{ X-Key = \"hush-key\" }}\n{more}\n"
        )
    };
    let config = format!("{}{}", entry("plain", ""), entry("helped", "answer_discover = true"));
    let gander = Setup::real().config(&config).start().await;
    let session = gander.session(&json!({"mode": "auto", "mcp_servers": ["plain"]})).await;
    let plain = extension(&session.snapshot, "plain");
    assert_eq!(plain["loaded"], false);
    assert!(text(&plain["error"]).contains("uncorrelated error response"), "{plain}");
    session.delete().await;
    web.asked();

    let session = gander.session(&json!({"mode": "auto", "mcp_servers": ["helped"]})).await;
    assert_eq!(extension(&session.snapshot, "helped")["loaded"], true, "{}", session.snapshot);
    let (_, finished) = call(&session, "helped__whoami", &json!({})).await;
    assert_eq!(said(&finished), "web");
    let asked = web.asked();
    let calls: Vec<&str> = asked.iter().filter_map(|asked| asked.call.as_deref()).collect();
    assert_eq!(calls[0], "initialize", "the first question never gets here: {calls:?}");
    assert_eq!(calls.last(), Some(&"tools/call"));
    for asked in &asked {
        assert!(asked.target.ends_with(" /mcp?key=in-the-query"), "{}", asked.target);
        assert_eq!((asked.header("x-key"), asked.header("host")), ("hush-key", &*web.address.to_string()));
        assert!(asked.header("user-agent").starts_with("goose/"));
        let is_first = asked.call.as_deref() == Some("initialize");
        assert_eq!(asked.header("mcp-session-id"), if is_first { "" } else { "session-of-the-server" });
    }
    // goose has neither the server's headers nor its address, and callers do not see the proxy's.
    let (address, secret) = proxy_of(&gander, &session);
    let home = contents(&gander.storage().join("homes").join(&session.id));
    assert!(!home.contains("hush-key") && !home.contains(&web.address.to_string()));
    let events: Vec<String> = session.log().await.iter().map(|event| event.data.to_string()).collect();
    for shown in [session.now().await.to_string(), events.join("\n"), gander.log()] {
        assert!(!shown.contains(&secret) && !shown.contains("hush-key"), "{shown}");
    }
    // Who does not know the path gets nothing by the port.
    let stranger = gander.client.get(format!("http://{address}/mcp")).send().await.unwrap();
    assert_eq!(stranger.status(), 404);

    // The proxy goes with its goose; the next has another.
    session.hibernate().await;
    until_closed(&address).await;
    let (_, finished) = call(&session, "helped__whoami", &json!({})).await;
    assert_eq!(said(&finished), "web");
    let (next_address, next_secret) = proxy_of(&gander, &session);
    assert_ne!((&next_address, &next_secret), (&address, &secret));

    let (dir, id, snapshot) = (gander.dir.clone(), session.id.clone(), session.snapshot.clone());
    gander.stop().await;
    assert!(TcpStream::connect(&next_address).await.is_err());
    let gander = Setup::real().config(&config).dir(dir).start().await;
    let session = Session { gander: &gander, id, snapshot };
    let (_, finished) = call(&session, "helped__whoami", &json!({})).await;
    assert_eq!(said(&finished), "web");
    assert!(web.asked().iter().all(|asked| asked.call.as_deref() != Some("server/discover")));
    gander.stop().await;
}

#[tokio::test]
async fn real_servers_and_callers_servers_are_reached_through_the_proxy_too() {
    let web = RealToolServer::start();
    let own = ToolServer::start("own", Discover::Uncorrelated).await;
    let config = format!(
        "[mcp]\nanswer_discover = true\nallow_caller = {{ stdio = false, hosts = [\"localhost\"] }}\n\
         [[mcp.servers]]\nname = \"web\"\nurl = {:?}\n",
        web.url.replace("127.0.0.1", "localhost")
    );
    // The network's proxy is not there: goose must not ask it for 127.0.0.1, nor gander for the servers.
    let gander = Setup::real()
        .config(&config)
        .env("GANDER_GOOSE__ENV__HTTP_PROXY", "http://127.0.0.1:9")
        .env("GANDER_GOOSE__ENV__NO_PROXY", "localhost")
        .start()
        .await;
    let servers = json!(["web", {"name": "own", "url": own.url().replace("127.0.0.1", "localhost"), "headers": {"X-Key": "callers"}}]);
    let session = gander.session(&json!({"mode": "auto", "mcp_servers": servers})).await;
    let (_, finished) = call(&session, "web__echo", &json!({"message": "through"})).await;
    assert_eq!(said(&finished), "Echo: through");
    let input = json!({"duration": 1, "steps": 2});
    let (_, finished) = call(&session, "web__trigger-long-running-operation", &input).await;
    assert!(said(&finished).contains("Long running operation completed"), "{finished}");
    let (_, finished) = call(&session, "own__whoami", &json!({})).await;
    assert_eq!(said(&finished), "own");
    assert!(own.asked().iter().all(|asked| asked.header("x-key") == "callers"));
    gander.stop().await;
}

#[tokio::test]
async fn a_server_behind_tls_is_reached_and_its_certificate_is_looked_at() {
    let web = ToolServer::start_with_tls("web", Discover::Uncorrelated).await;
    let url = format!("https://localhost:{}/mcp", web.address.port());
    let config = format!("[mcp]\nanswer_discover = true\n[[mcp.servers]]\nname = \"web\"\nurl = {url:?}\n");
    let trusting = Setup::real().config(&config).env("SSL_CERT_FILE", &authority()).start().await;
    let session = trusting.session(&json!({"mode": "auto"})).await;
    let (_, finished) = call(&session, "web__whoami", &json!({})).await;
    assert_eq!(said(&finished), "web");
    trusting.stop().await;
    web.asked();

    let doubting = Setup::real().config(&config).start().await;
    let session = doubting.session(&json!({})).await;
    assert_eq!(extension(&session.snapshot, "web")["loaded"], false);
    assert_eq!(web.asked().len(), 0);
    doubting.stop().await;
}

#[tokio::test]
async fn a_server_that_never_answers_is_named_behind_the_proxy_too() {
    let silent = ToolServer::start("silent", Discover::Silence).await;
    let config = format!(
        "[goose]\nstart_timeout = \"3s\"\n[mcp]\nanswer_discover = true\n\
         [[mcp.servers]]\nname = \"silent\"\nurl = {:?}\n",
        silent.url()
    );
    let gander = Setup::real().config(&config).start().await;
    let creating = gander.request(Method::POST, "/v1/sessions").json(&json!({}));
    let problem = refusal(creating, 504, "agent-start-timeout").await;
    assert_eq!(problem["extensions"][0]["name"], "silent", "{problem}");
    let calls: Vec<Option<String>> = silent.asked().into_iter().map(|asked| asked.call).collect();
    assert_eq!(calls, [Some("initialize".to_owned())]);
    assert_eq!(gander.descendants(), Vec::<u32>::new(), "a failed start leaves nothing");
    gander.stop().await;
}
