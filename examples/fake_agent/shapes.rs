//! What goose 1.52's messages look like.

use serde_json::{Value, json};

pub(super) const MODES: [(&str, &str); 4] = [
    ("auto", "Automatically approve tool calls"),
    ("approve", "Ask before every tool call"),
    ("smart_approve", "Ask only for sensitive tool calls"),
    ("chat", "Chat only, no tool calls"),
];
pub(super) const DEFAULT_EXTENSIONS: [&str; 7] =
    ["analyze", "apps", "developer", "extensionmanager", "skills", "summon", "tom"];

/// The answer to `initialize`.
pub(super) fn initialize_result(version: &str) -> Value {
    json!({
        "protocolVersion": 1,
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": { "image": true, "audio": false, "embeddedContext": true },
            "mcpCapabilities": { "http": true, "sse": false },
            "sessionCapabilities": { "list": {}, "delete": {}, "close": {} },
            "auth": {},
            "_meta": { "goose": { "recipeParameterScopes": {}, "localInference": {} } },
        },
        "authMethods": [{ "id": "goose-provider", "name": "Configure Provider",
            "description": "Run `goose configure` to set up your AI provider and API key" }],
        "agentInfo": { "name": "goose", "version": version },
    })
}

/// The modes part of the answer to `session/new` and `session/load`.
pub(super) fn modes(current: &str) -> Value {
    let modes: Vec<Value> =
        MODES.iter().map(|(id, text)| json!({ "id": id, "name": id, "description": text })).collect();
    json!({ "currentModeId": current, "availableModes": modes })
}

/// One line with a chunk of text; the kind is `agent_message_chunk` or the like.
pub(super) fn chunk(session_id: &str, kind: &str, text: &str) -> String {
    let text = json!(text);
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"{session_id}\",\"update\":{{\"sessionUpdate\":\"{kind}\",\"content\":{{\"type\":\"text\",\"text\":{text}}},\"messageId\":\"chatcmpl-1\",\"_meta\":{{\"goose\":{{\"created\":1796045937,\"messageId\":\"chatcmpl-1\"}}}}}}}}}}\n"
    )
}

/// The options of a session; of providers and models only the current one is on offer.
pub(super) fn config_options(mode: &str, provider: &str, model: &str) -> Value {
    let only = |current: &str| json!([{ "value": current, "name": current }]);
    let all_modes: Vec<Value> =
        MODES.iter().map(|(id, text)| json!({ "value": id, "name": id, "description": text })).collect();
    json!([
        { "id": "provider", "name": "Provider", "type": "select", "currentValue": provider, "options": only(provider) },
        { "id": "mode", "name": "Mode", "category": "mode", "type": "select", "currentValue": mode, "options": all_modes },
        { "id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": model, "options": only(model) },
        { "id": "thinking_effort", "name": "Thinking effort", "category": "thought_level", "type": "select",
          "currentValue": "off", "options": only("off") },
    ])
}
