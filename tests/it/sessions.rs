//! Sessions on the real goose.
use reqwest::Method;
use serde_json::json;

use crate::support::{Setup, script};

#[tokio::test]
async fn probe() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    println!("{:#}", { let mut s = session.snapshot.clone(); s["config_options"] = serde_json::Value::Null; s });
    println!("{:#}", session.snapshot["config_options"].to_string().chars().take(1500).collect::<String>());
    for patch in [json!({"model":"gpt-4o "}),json!({"model":" x"}),json!({"model":"o3-mini-high"}),json!({"model":"gpt-5-high"}),json!({"model":"default"}),json!({"model":"current"}),json!({"model":"gpt 5"}),json!({"provider":"ollama","model":"gpt-5.5-low"}),json!({"provider":"OpenAI"}),json!({"provider":"lead-worker"}), json!({"provider":"mock"})] {
        let r = gander.request(Method::PATCH, &session.path("")).json(&patch).send().await.unwrap();
        let status = r.status();
        let mut v: serde_json::Value = r.json().await.unwrap();
        if status == 200 { v = json!([v["provider"], v["model"], v["mode"], v["agent"]]); }
        println!("{patch} -> {status} {v}");
    }
    let turn = session.turn(&script(&json!([[{"text":"hi"}]]))).await;
    println!("{turn}");
    let requests = gander.model.requests();
    println!("{}", requests.len());
    println!("{:?}", crate::support::offered_tools(requests.last().unwrap()));
}
