//! A session's MCP servers: the gateway's and the caller's, with the real goose and a real server.

mod discover;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Discover, Gander, RealToolServer, Session, Setup, ToolServer, node, only, real_tool_server, refusal,
    script, text,
};

/// A turn in which the model calls one tool, then ends. Gives the finished call with what began it.
async fn call(session: &Session<'_>, tool: &str, input: &Value) -> (Value, Value) {
    let mut events = session.events_with("?after=latest").await;
    session.prompt(&script(&json!([[{"call": {"tool": tool, "input": input}}], [{"text": "Done."}]]))).await;
    let told = events.through("turn.completed").await;
    let of = |kind| only(&told, kind).data["tool_call"].clone();
    (of("tool_call.started"), of("tool_call.finished"))
}

/// What a call's result says.
fn said(call: &Value) -> String {
    text(&call["content"][0]["content"]["text"])
}

/// The entry of a server among the extensions.
fn extension<'snapshot>(snapshot: &'snapshot Value, name: &str) -> &'snapshot Value {
    let extensions = snapshot["extensions"].as_array().unwrap();
    let found = extensions.iter().find(|extension| extension["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {extensions:?}"))
}

fn creating(gander: &Gander, body: &Value) -> reqwest::RequestBuilder {
    gander.request(Method::POST, "/v1/sessions").json(body)
}

#[tokio::test]
async fn the_tools_of_real_servers_are_used_and_one_that_does_not_start_stands_in_nobodys_way() {
    let web = RealToolServer::start();
    let gander = Setup::real()
        .config(&format!(
            "[[mcp.servers]]\nname = \"broken\"\ncommand = \"/nonexistent\"\n\
             [[mcp.servers]]\nname = \"My Local\"\ncommand = {node:?}\nargs = [{program:?}, \"stdio\"]\n\
             [[mcp.servers]]\nname = \"refused\"\nurl = \"http://127.0.0.1:9/mcp\"\n\
             [[mcp.servers]]\nname = \"web-One\"\nurl = {url:?}\n",
            node = node(),
            program = real_tool_server(),
            url = web.url,
        ))
        .start()
        .await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let now = &session.snapshot;
    assert_eq!(
        now["mcp_servers"],
        json!([
            {"name": "broken", "kind": "stdio"}, {"name": "mylocal", "kind": "stdio"},
            {"name": "refused", "kind": "http"}, {"name": "web-one", "kind": "http"},
        ])
    );
    for name in ["mylocal", "web-one"] {
        assert_eq!(extension(now, name), &json!({"name": name, "loaded": true, "error": null}));
    }
    let notices = now["notices"].to_string();
    for name in ["broken", "refused"] {
        let extension = extension(now, name);
        assert_eq!(extension["loaded"], false);
        let error = text(&extension["error"]);
        assert!(!error.is_empty() && !error.contains("127.0.0.1"), "{error}");
        assert!(notices.contains(&format!("extension {name} could not be loaded")), "{notices}");
    }
    for (extension, message) in [("mylocal", "over a pipe"), ("web-one", "over the wire")] {
        let tool = format!("{extension}__echo");
        let (started, finished) = call(&session, &tool, &json!({"message": message})).await;
        assert_eq!((&started["tool"], &started["extension"]), (&json!(tool), &json!(extension)));
        assert_eq!(finished["status"], "completed", "{finished}");
        assert_eq!(said(&finished), format!("Echo: {message}"));
    }
    // A session has those that it names, whatever way it writes them.
    let session = gander.session(&json!({"mcp_servers": ["my local"]})).await;
    assert_eq!(session.snapshot["mcp_servers"], json!([{"name": "mylocal", "kind": "stdio"}]));
    let named: Vec<&str> = session.snapshot["extensions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|e| e["name"].as_str())
        .collect();
    assert!(
        named.contains(&"mylocal") && !named.contains(&"web-one") && !named.contains(&"broken"),
        "{named:?}"
    );
    gander.stop().await;
}

#[tokio::test]
async fn callers_bring_servers_only_as_far_as_they_may() {
    let gander = Setup::real().start().await;
    let url =
        json!({"name": "own", "url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer hush"}});
    let command = json!({"name": "own", "command": "/bin/sh", "env": {"KEY": "hush"}});
    for (servers, pointer, why) in [
        (json!([url]), "/mcp_servers/0/url", "mcp.allow_caller.hosts"),
        (json!([command]), "/mcp_servers/0/command", "mcp.allow_caller.stdio"),
        (json!(["nosuch"]), "/mcp_servers/0", "no server"),
    ] {
        let problem =
            refusal(creating(&gander, &json!({"mcp_servers": servers})), 422, "invalid-request").await;
        assert_eq!(problem["errors"][0]["pointer"], pointer);
        assert!(text(&problem["errors"][0]["detail"]).contains(why), "{problem}");
        assert!(!problem.to_string().contains("hush"), "{problem}");
    }
    gander.stop().await;

    let allowed = ToolServer::start("allowed", Discover::Unknown).await;
    let host = allowed.address;
    let config = format!(
        "[mcp]\nallow_caller = {{ stdio = false, hosts = [\"{host}\"] }}\n\
         [[mcp.servers]]\nname = \"Files\"\ncommand = \"/nonexistent\"\n"
    );
    let gander = Setup::real().config(&config).start().await;
    let at_host = |name: &str| json!({"name": name, "url": allowed.url()});
    for (servers, pointer, why) in [
        (json!([at_host("a"), url]), "/mcp_servers/1/url", &*host.to_string()),
        (json!([{"name": "a", "url": "http://localhost/"}]), "/mcp_servers/0/url", "hosts"),
        (json!([{"name": "a", "url": format!("http://{host}@127.0.0.1/")}]), "/mcp_servers/0/url", "user"),
        (
            json!([{"name": "a", "type": "sse", "url": allowed.url()}]),
            "/mcp_servers/0/type",
            "SSE is unsupported",
        ),
        (json!([at_host("developer")]), "/mcp_servers/0/name", "developer"),
        (json!([at_host("Extension Manager")]), "/mcp_servers/0/name", "extensionmanager"),
        (json!([at_host("fi les")]), "/mcp_servers/0/name", "gateway's servers"),
        (json!([at_host("web-One"), at_host("Web-one")]), "/mcp_servers/1/name", "web-one"),
        (json!(["files", "FILES"]), "/mcp_servers/1", "twice"),
        (json!([{"name": "a", "urll": allowed.url()}]), "/mcp_servers/0/urll", "unknown field"),
    ] {
        let problem =
            refusal(creating(&gander, &json!({"mcp_servers": servers})), 422, "invalid-request").await;
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
        assert!(text(&problem["errors"][0]["detail"]).contains(why), "{problem}");
    }
    assert_eq!(allowed.asked().len(), 0);
    let session = gander.session(&json!({"mode": "auto", "mcp_servers": [at_host("Own")]})).await;
    let (_, finished) = call(&session, "own__whoami", &json!({})).await;
    assert_eq!(said(&finished), "allowed");
    gander.stop().await;
}

#[tokio::test]
async fn what_servers_are_reached_with_is_shown_nowhere() {
    let web = ToolServer::start("web", Discover::Unknown).await;
    let config =
        "[mcp]\nallow_caller = { stdio = true, hosts = [\"127.0.0.1\"] }\n[log]\nfilter = \"debug\"\n";
    let gander = Setup::real().config(config).start().await;
    let tells = "echo \"my key is $KEY\" >&2; exit 1";
    let servers = json!([
        {"name": "web", "url": web.url(), "headers": {"Authorization": "Bearer hush-web", "X-Key": "hush-key"}},
        {"name": "tells", "command": "/bin/sh", "args": ["-c", tells], "env": {"KEY": "hush-env"}},
        {"name": "away", "url": "http://127.0.0.1:9/mcp?key=hush-query", "headers": {"X-Key": "hush-away"}},
    ]);
    let session = gander.session(&json!({"mode": "auto", "mcp_servers": servers})).await;
    let (_, finished) = call(&session, "web__whoami", &json!({})).await;
    assert_eq!(said(&finished), "web");
    let asked = web.asked();
    assert!(asked.iter().all(|asked| asked.header("authorization") == "Bearer hush-web"), "{asked:?}");
    assert!(asked.iter().all(|asked| asked.header("x-key") == "hush-key"), "{asked:?}");
    let error = text(&extension(&session.snapshot, "tells")["error"]);
    assert!(error.contains("my key is [redacted]"), "{error}");

    session.hibernate().await;
    let (_, finished) = call(&session, "web__whoami", &json!({})).await;
    assert_eq!(said(&finished), "web", "a woken session has its servers");
    assert!(web.asked().iter().all(|asked| asked.header("authorization") == "Bearer hush-web"));
    let events: Vec<String> = session.log().await.iter().map(|event| event.data.to_string()).collect();
    let listed = gander.get("/v1/sessions").await.to_string();
    for shown in
        [&session.snapshot.to_string(), &session.now().await.to_string(), &listed, &events.join("\n")]
    {
        assert!(!shown.contains("hush") && !shown.contains(&web.address.to_string()), "{shown}");
    }
    assert!(!gander.log().contains("hush"), "{}", gander.log());
    gander.stop().await;
}

#[tokio::test]
async fn a_woken_session_has_what_the_configuration_then_says() {
    let (old, new) = (
        ToolServer::start("old", Discover::Unknown).await,
        ToolServer::start("new", Discover::Unknown).await,
    );
    let (gone, own) = (
        ToolServer::start("gone", Discover::Unknown).await,
        ToolServer::start("own", Discover::Unknown).await,
    );
    let host = own.address;
    let server = |name: &str, server: &ToolServer, key: &str| {
        let url = server.url();
        format!("[[mcp.servers]]\nname = {name:?}\nurl = {url:?}\nheaders = {{ X-Key = {key:?} }}\n")
    };
    let allow = format!("[mcp]\nallow_caller = {{ stdio = false, hosts = [\"{host}\"] }}\n");
    let before = format!("{allow}{}{}", server("web", &old, "first"), server("gone", &gone, "first"));
    let gander = Setup::real().config(&before).start().await;
    let servers = json!(["web", "gone", {"name": "own", "url": own.url(), "headers": {"X-Key": "callers"}}]);
    let session = gander.session(&json!({"mode": "auto", "mcp_servers": servers})).await;
    assert!(old.asked().iter().all(|asked| asked.header("x-key") == "first"));
    let (dir, id, snapshot) = (gander.dir.clone(), session.id.clone(), session.snapshot.clone());
    gander.stop().await;
    for server in [&old, &gone, &own] {
        server.asked();
    }

    // The server has moved and has another key; one is gone, and one has come that the session never had.
    let late = ToolServer::start("late", Discover::Unknown).await;
    let after = format!("{allow}{}{}", server("Web", &new, "second"), server("late", &late, "second"));
    let gander = Setup::real().config(&after).dir(dir).start().await;
    let session = Session { gander: &gander, id, snapshot };
    for (tool, name) in [("web__whoami", "new"), ("own__whoami", "own")] {
        let (_, finished) = call(&session, tool, &json!({})).await;
        assert_eq!(said(&finished), name);
    }
    assert!(new.asked().iter().all(|asked| asked.header("x-key") == "second"));
    assert!(own.asked().iter().all(|asked| asked.header("x-key") == "callers"));
    for (server, name) in [(&old, "old"), (&gone, "gone"), (&late, "late")] {
        assert_eq!(server.asked().len(), 0, "{name} is no server of the session now");
    }
    let now = session.now().await;
    let notice =
        now["notices"].as_array().unwrap().iter().find(|notice| notice["code"] == "mcp-server-left-out");
    assert!(text(&notice.unwrap()["message"]).contains("gone"), "{now}");
    assert!(
        now["extensions"].as_array().unwrap().iter().all(|extension| extension["name"] != "gone"),
        "{now}"
    );
    gander.stop().await;
}
