//! Starts that hang: they fail in time, say on what they hang, and leave nothing.

use std::net::TcpListener;

use reqwest::Method;
use serde_json::{Value, json};

use crate::extensions::wrapped;
use crate::process::machine::{Tag, eventually};
use crate::support::{Gander, Setup, fake_agent, refusal, text};

async fn refused_creation(gander: &Gander, body: &Value) -> Value {
    let problem =
        refusal(gander.request(Method::POST, "/v1/sessions").json(body), 504, "agent-start-timeout").await;
    assert_eq!(gander.descendants(), Vec::<u32>::new(), "a start that failed leaves no process");
    assert_eq!(gander.get("/v1/sessions").await["sessions"], json!([]));
    let homes = std::fs::read_dir(gander.storage().join("homes")).unwrap();
    assert_eq!(homes.count(), 0, "nor a home");
    problem
}

#[tokio::test]
async fn a_tool_server_that_never_answers_is_named_and_nothing_is_left() {
    // Whoever connects is accepted by the system, and never served.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (local, fine) = (Tag::new(), Tag::new());
    let gander = Setup::real()
        .config(&format!(
            "[goose]\nstart_timeout = \"3s\"\n\
             [[mcp.servers]]\nname = \"web\"\nurl = \"http://{}/mcp\"\n\
             [[mcp.servers]]\nname = \"local\"\ncommand = \"/usr/bin/sleep\"\nargs = [\"{local}\"]\n\
             [[mcp.servers]]\nname = \"gone\"\ncommand = \"/bin/false\"\nargs = [\"{fine}\"]\n",
            silent.local_addr().unwrap()
        ))
        .start()
        .await;
    for name in ["web", "local"] {
        // With one that fails beside it, which is not named.
        let problem = refused_creation(&gander, &json!({"mcp_servers": ["gone", name]})).await;
        assert_eq!(
            problem["extensions"],
            json!([{"name": name, "loaded": false, "error": null}]),
            "{problem}"
        );
        let detail = text(&problem["detail"]);
        assert!(detail.contains("3s") && detail.contains(name), "{detail}");
        assert!(text(&problem["waiting_for"]).contains("session/new"), "{problem}");
        eventually("its process is gone", || local.running().is_empty()).await;
    }
    // Without them the session starts.
    gander.session(&json!({"mcp_servers": []})).await;
    gander.stop().await;
}

#[tokio::test]
async fn a_server_of_gooses_own_configuration_is_named_too() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let uri = format!("http://{}/mcp", silent.local_addr().unwrap());
    let extension = json!({"enabled": true, "type": "streamable_http", "name": "Inner Web", "description": "",
        "uri": uri, "headers": {}, "envs": {}, "timeout": 300});
    std::fs::write(
        dir.path().join("config.yaml"),
        json!({"extensions": {"innerweb": extension}}).to_string(),
    )
    .unwrap();
    let config_dir = dir.path().display().to_string();
    let config = format!("[goose]\nstart_timeout = \"3s\"\nconfig_dir = {config_dir:?}");
    let gander = Setup::real().config(&config).start().await;
    let problem = refused_creation(&gander, &json!({})).await;
    assert_eq!(problem["extensions"], json!([{"name": "innerweb", "loaded": false, "error": null}]));
    gander.stop().await;
}

#[tokio::test]
async fn a_server_that_failed_by_a_log_elsewhere_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    // As goose 1.55 writes it, and an earlier goose that started no server of this session.
    let lines = r#"if [ "$1" != acp ]; then exec "$GOOSE" "$@"; fi
mkdir -p "$0.logs/cli"
printf '{"timestamp":"2020-01-01T00:00:00Z","fields":{"message":"Failed to start extension","extension":"web","error":"no"}}\n{"timestamp":"%s","fields":{"message":"Failed to start extension","extension":"gone","error":"no"}}\n' \
"$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)" >> "$0.logs/cli/goose.log"
exec "$GOOSE" "$@""#;
    let gander = Setup::with_agent(wrapped(&fake_agent(), dir.path(), lines))
        .config(&format!(
            "[goose]\nstart_timeout = \"2s\"\nlog_dir = {:?}\n[goose.env]\nFAKE_AGENT_NEW = \"hang\"\n\
             [[mcp.servers]]\nname = \"web\"\nurl = \"http://127.0.0.1:9/mcp\"\n\
             [[mcp.servers]]\nname = \"gone\"\nurl = \"http://127.0.0.1:9/mcp\"\n",
            dir.path().join("goose.logs")
        ))
        .start()
        .await;
    let problem = refused_creation(&gander, &json!({})).await;
    assert_eq!(problem["extensions"], json!([{"name": "web", "loaded": false, "error": null}]), "{problem}");
    gander.stop().await;
}
