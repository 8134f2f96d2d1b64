//! The extensions that a session has, told and changed as goose does.

use std::env;

use serde_json::{Value, json};

use super::shapes::DEFAULT_EXTENSIONS;
use super::{Agent, setting};

impl Agent {
    /// What a session begins with: `--with-builtin`, goose's defaults as far as the home leaves them on, and
    /// `FAKE_AGENT_EXTRA`.
    pub(super) fn first_extensions(&self) -> Vec<String> {
        let disabled = disabled_extensions();
        let defaults = DEFAULT_EXTENSIONS.iter().filter(|name| !disabled.iter().any(|off| off == *name));
        let extra = env::var("FAKE_AGENT_EXTRA").unwrap_or_default();
        let extra = extra.split(',').filter(|name| !name.is_empty()).map(str::to_owned);
        self.builtins.iter().cloned().chain(defaults.map(|name| (*name).to_owned())).chain(extra).collect()
    }

    /// As the answers to `session/new` and `session/load` tell them.
    pub(super) fn extension_results(loaded: &[String], failed: bool) -> Value {
        let mut results: Vec<Value> = loaded
            .iter()
            .map(|name| if name == "extensionmanager" { "Extension Manager" } else { name })
            .map(|name| json!({ "name": name, "success": true }))
            .collect();
        if let Some(first) = results.first_mut().filter(|_| failed) {
            let name = first["name"].clone();
            *first =
                json!({ "name": name, "success": false, "error": "invalid config: as FAKE_AGENT_NEW says" });
        }
        json!(results)
    }

    pub(super) fn list_extensions(&self, id: &Value, session_id: &str) {
        match setting("FAKE_AGENT_LIST").as_str() {
            "hang" => return,
            "unknown" => return self.fail(id, -32601, "Method not found", &Value::Null),
            "garbage" => return self.succeed(id, &json!({ "extensions": [{ "key": "todo" }] })),
            _ => {}
        }
        let loaded = self.with_session(session_id, |session| session.extensions.clone()).unwrap_or_default();
        let entries: Vec<Value> = loaded
            .iter()
            .map(|name| json!({ "extension": { "type": "platform", "name": name }, "extensionKey": name }))
            .collect();
        self.succeed(id, &json!({ "extensions": entries }));
    }

    pub(super) fn remove_extension(&self, id: &Value, session_id: &str, params: &Value) {
        let name = params["extensionKey"].as_str().unwrap_or_default();
        if setting("FAKE_AGENT_REMOVE") == "error" {
            return self.fail(id, -32603, "Internal error", &json!("as FAKE_AGENT_REMOVE says"));
        }
        let keeps = setting("FAKE_AGENT_REMOVE") == "ignore";
        self.with_session(session_id, |session| session.extensions.retain(|loaded| keeps || loaded != name));
        self.succeed(id, &json!({}));
    }
}

/// The extensions that the home's `config.yaml` switches off.
fn disabled_extensions() -> Vec<String> {
    let path = format!("{}/config/config.yaml", setting("GOOSE_PATH_ROOT"));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let config: Value = serde_yaml_ng::from_str(&text).unwrap_or_default();
    let extensions = config["extensions"].as_object().cloned().unwrap_or_default();
    extensions.into_iter().filter(|(_, value)| value["enabled"] == false).map(|(name, _)| name).collect()
}
