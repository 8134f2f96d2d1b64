//! What each operation answers.

use serde_json::{Value, json};

pub(super) const PROMPT: &str = "What is new since v1.4? Write it into notes.md.";
pub(super) const REQUEST: &str = "01a22e95-2714-7a31-9c55-0d7c2b6a9b1e";
const SESSION: &str = "01a22e95-2599-75e6-bb50-4a4302505ae1";
pub(super) const TURN: &str = "01a22e95-2714-715d-8246-bd880d39c3b1";
pub(super) const PERMISSION: &str = "01a22e95-29bc-7761-aad6-50ee4374ecfd";
const GRANT: &str = "01a22e95-2a42-767b-9934-38b3b502bc60";
const MESSAGE: &str = "01a22e95-2ad3-7338-bfe6-eb474692f89d";
const CWD: &str = "/home/me/project";
const COMMAND: &str = "git log --oneline v1.4..";
const ANSWER: &str = "Twelve commits since v1.4; the notes are in notes.md.";

/// The example of an answer; `None` where there is none.
pub(super) fn of(operation: &str, status: &str, media_type: &str) -> Option<Value> {
    let answer = match (operation, status, media_type) {
        (_, _, "text/event-stream") => server_sent_event(),
        (_, _, "application/x-ndjson") => json!(format!("{}\n", asked_event())),
        (_, _, "application/openmetrics-text") => json!(METRICS),
        ("getHealth", ..) => json!({"status": "ok"}),
        ("getReadiness", ..) => {
            json!({"ready": true, "checks": {"agent": {"ok": true}, "draining": {"ok": true}, "storage": {"ok": true}}})
        }
        ("getOpenApi", ..) => json!({"openapi": "3.1.0", "info": {"title": "gander"}, "paths": {}}),
        ("getInfo", ..) => info(),
        ("listExtensions", ..) => extensions(),
        ("createSession", "202", _) => session("starting"),
        ("hibernateSession", ..) => session("hibernated"),
        ("createSession" | "getSession" | "updateSession", ..) => session("idle"),
        ("listSessions", ..) => list("sessions", &session("idle")),
        ("createTurn", "202", _) | ("steerTurn" | "cancelTurn", ..) => turn("running"),
        ("createTurn" | "getTurn", ..) => turn("completed"),
        ("listTurns", ..) => list("turns", &turn("completed")),
        ("listMessages", ..) => messages(),
        ("streamEvents", ..) => json!({"events": [asked_event()], "next_after": 25, "last_event_id": 26}),
        ("streamAllEvents", ..) => {
            json!({"events": [asked_event()], "next_after": "1d7.6b2f41", "last_event_id": "1d8.6b2f41"})
        }
        ("listPermissions" | "listSessionPermissions", ..) => list("permissions", &pending_permission()),
        ("getPermission", ..) => pending_permission(),
        ("answerPermission", ..) => answered_permission(),
        ("explainPermission", ..) => {
            json!({"decision": "reject", "rule": "session.rules[0]", "reason": "A rule rejects the command `git push`."})
        }
        ("listPermissionGrants", ..) => list("permission_grants", &grant()),
        ("getPlan", ..) => plan(),
        ("createStreamTicket", ..) => {
            json!({"ticket": format!("gander_ticket_{}", "d9ceefb5f2ecf77f".repeat(4)), "valid_unused_s": 600})
        }
        _ => return None,
    };
    Some(answer)
}

/// A list with one item, which is its last page.
fn list(name: &str, item: &Value) -> Value {
    json!({name: [item], "next_cursor": null})
}

fn session(state: &str) -> Value {
    let runs = state == "idle";
    json!({
        "id": SESSION,
        "owner": "web",
        "state": state,
        "state_reason": null,
        "cwd": CWD,
        "title": "Release notes",
        "metadata": {"ticket": "DOC-7"},
        "mode": "smart_approve",
        "provider": "openai",
        "model": "gpt-4o",
        "thinking_effort": null,
        "created_at": "2026-11-30T22:30:56.153Z",
        "updated_at": "2026-11-30T22:30:56.507Z",
        "last_event_id": 6,
        "current_turn": null,
        "queued_turns": [],
        "plan": plan(),
        "pending_permissions": [],
        "permission_policy": {"rules": [{"action": "reject", "tool": "shell", "command": "git push *"}]},
        "open_tool_calls": [],
        "usage": {
            "context_used": 16, "context_size": 128_000,
            "input_tokens": 10, "output_tokens": 6, "total_tokens": 16,
            "cost": {"amount": 0.000_085, "currency": "USD"},
        },
        "extensions": [{"name": "developer", "loaded": true, "error": null}],
        "mcp_servers": [],
        "notices": [],
        "commands": [{"name": "compact", "description": "Compact the conversation history"}],
        "config_options": [],
        "agent": {
            "name": "goose", "version": "1.52.0", "transport": "stdio", "mode": "approve",
            "pid": runs.then_some(4711), "generation": 1,
        },
    })
}

fn plan() -> Value {
    let entry =
        |content, status| json!({"content": content, "status": status, "priority": "medium", "depth": 0});
    json!({"version": 3, "entries": [entry("Read the history", "completed"), entry("Write notes.md", "in_progress")]})
}

fn turn(state: &str) -> Value {
    let is_over = state == "completed";
    json!({
        "id": TURN,
        "session_id": SESSION,
        "state": state,
        "prompt": PROMPT,
        "text": is_over.then_some(ANSWER),
        "stop_reason": is_over.then_some("end_turn"),
        "error": null,
        "usage": is_over.then(|| json!({"input_tokens": 12_988, "output_tokens": 102, "total_tokens": 13_090, "cost": null})),
        "created_at": "2026-11-30T22:30:56.532Z",
        "started_at": "2026-11-30T22:30:56.532Z",
        "ended_at": is_over.then_some("2026-11-30T22:31:08.876Z"),
        "first_event_id": 7,
        "last_event_id": is_over.then_some(52),
    })
}

fn permission(state: &str, outcome: &Value) -> Value {
    let option = |id: &str, name: &str| json!({"id": id, "name": name, "kind": id});
    json!({
        "id": PERMISSION,
        "session_id": SESSION,
        "turn_id": TURN,
        "kind": "tool",
        "state": state,
        "tool_call": {
            "id": "call_0", "tool": "shell", "extension": "developer", "title": format!("shell · {COMMAND}"),
            "kind": "execute", "input": {"command": COMMAND}, "cwd": CWD,
        },
        "options": [
            option("allow_always", &format!("Always allow `{COMMAND}` in this session")),
            option("allow_once", "Allow once"),
            option("reject_once", "Reject once"),
            option("reject_always", &format!("Always reject `{COMMAND}` in this session")),
        ],
        "requested_at": "2026-11-30T22:30:57.210Z",
        "expires_at": "2026-11-30T22:40:57.210Z",
        "outcome": outcome,
    })
}

fn pending_permission() -> Value {
    permission("pending", &Value::Null)
}

pub(super) fn answered_permission() -> Value {
    let outcome = json!({
        "decision": "allow", "scope": "session", "by": "caller:web", "rule": null, "reason": null,
        "at": "2026-11-30T22:31:02.345Z",
    });
    permission("resolved", &outcome)
}

fn grant() -> Value {
    json!({
        "id": GRANT,
        "name": format!("Always allow `{COMMAND}` in this session"),
        "decision": "allow",
        "tool": "shell",
        "extension": "developer",
        "calls": "commands",
        "commands": [COMMAND.split(' ').collect::<Vec<_>>()],
        "permission_id": PERMISSION,
        "by": "web",
        "granted_at": "2026-11-30T22:31:02.345Z",
    })
}

fn asked_event() -> Value {
    json!({
        "id": 25, "type": "permission.requested", "session_id": SESSION, "turn_id": TURN,
        "time": "2026-11-30T22:30:57.210Z", "permission": pending_permission(),
    })
}

/// A frame, as its fields.
fn server_sent_event() -> Value {
    let data = json!({
        "id": 48, "type": "message.delta", "session_id": SESSION, "turn_id": TURN, "time": "2026-11-30T22:31:08.491Z",
        "message_id": MESSAGE, "text": "Twelve commits ",
    });
    json!({"id": "48", "event": "message.delta", "data": data.to_string()})
}

fn messages() -> Value {
    let message =
        |id, role, text, at| json!({"id": id, "role": role, "turn_id": TURN, "text": text, "created_at": at});
    json!({
        "messages": [
            message(TURN, "user", PROMPT, "2026-11-30T22:30:56.532Z"),
            message(MESSAGE, "assistant", ANSWER, "2026-11-30T22:31:08.491Z"),
        ],
        "next_cursor": null,
        "last_event_id": 53,
    })
}

fn info() -> Value {
    json!({
        "name": "gander",
        "version": env!("CARGO_PKG_VERSION"),
        "agent": {"name": "goose", "version": "1.52.0", "transport": "stdio"},
        "modes": ["auto", "approve", "smart_approve", "chat"],
        "default_mode": "smart_approve",
        "demo": false,
        "caller": {"name": "web", "roles": ["read", "prompt", "approve"]},
        "limits": {"body_bytes": 8_388_608, "wait_s": 300, "streams_per_caller": 256, "page": 200},
    })
}

fn extensions() -> Value {
    json!({
        "extensions": [{
            "name": "developer",
            "default": true,
            "provides": "Shell commands and file changes: shell, write, edit, tree, read_image",
            "needs_shared_home": false,
            "effective": true,
        }],
        "effective_error": null,
        "next_cursor": null,
    })
}

const METRICS: &str = "# HELP gander_build Always 1; the version is a label.
# TYPE gander_build gauge
gander_build{version=\"0.1.0\"} 1
# EOF
";
