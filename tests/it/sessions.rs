//! Making, reading and changing sessions on the real goose.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    EventStream, Gander, Session, Setup, carried, descendants, kinds, offered_tools, only, refusal, script,
    shares_goose, text, until_async,
};

async fn start() -> Gander {
    Setup::real().start().await
}

fn create(gander: &Gander, body: &Value) -> RequestBuilder {
    gander.request(Method::POST, "/v1/sessions").json(body)
}

fn patching(session: &Session<'_>, body: &Value) -> RequestBuilder {
    session.gander.request(Method::PATCH, &session.path("")).json(body)
}

/// The tools that goose offers the model in one turn.
async fn tools_of(session: &Session<'_>) -> Vec<String> {
    session.turn(&script(&json!([[{"text": "Hi."}]]))).await;
    offered_tools(session.gander.model.requests().last().unwrap())
}

/// Whether a tool starts an agent that asks nobody, or switches on an extension that does.
fn starts_subagents(tool: &str) -> bool {
    ["delegate", "subagent", "manage_extensions"].iter().any(|name| tool.contains(name))
}

/// The extensions by their keys.
fn extensions(snapshot: &Value) -> Vec<String> {
    let extensions = snapshot["extensions"].as_array().unwrap();
    assert!(extensions.iter().all(|extension| extension["error"].is_null() && extension["loaded"] == true));
    extensions.iter().map(|extension| text(&extension["name"])).collect()
}

#[tokio::test]
async fn a_new_session_is_ready_and_has_what_a_page_needs() {
    let gander = start().await;
    let response = create(&gander, &json!({})).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let session: Value = response.json().await.unwrap();
    assert_eq!(location, format!("/v1/sessions/{}", text(&session["id"])));
    let again = gander.get(&location).await;
    for (field, expected) in [
        ("owner", json!("default")),
        ("state", json!("idle")),
        ("state_reason", Value::Null),
        ("title", Value::Null),
        ("metadata", json!({})),
        ("mode", json!("smart_approve")),
        ("provider", json!("openai")),
        ("model", json!("demo")),
        ("current_turn", Value::Null),
        ("plan", json!({"version": 0, "entries": []})),
        ("pending_permissions", json!([])),
        ("open_tool_calls", json!([])),
        ("notices", json!([])),
    ] {
        assert_eq!(session.get(field), Some(&expected), "{field}");
        assert_eq!(again.get(field), Some(&expected), "{field}");
    }
    for field in ["context_used", "context_size", "input_tokens", "output_tokens", "total_tokens", "cost"] {
        assert!(session["usage"].get(field).is_some(), "{field}");
    }
    assert!(session["created_at"].is_string() && session["updated_at"].is_string());
    assert!(session["commands"].is_array());
    let options: Vec<&Value> =
        session["config_options"].as_array().unwrap().iter().map(|option| &option["id"]).collect();
    assert!(options.contains(&&json!("provider")) && options.contains(&&json!("mode")), "{options:?}");
    let agent = &session["agent"];
    let pid = agent["pid"].as_u64().unwrap();
    let (transport, command) = if shares_goose() { ("websocket", "serve") } else { ("stdio", "acp") };
    let expected = json!({"name": "goose", "version": "1.52.0", "transport": transport, "mode": "smart_approve", "pid": pid, "generation": 1});
    assert_eq!(*agent, expected);
    assert!(descendants(gander.pid()).contains(&u32::try_from(pid).unwrap()), "goose's own process");
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(line.contains("goose") && line.contains(command), "{line}");
    gander.stop().await;
}

#[tokio::test]
async fn a_caller_need_not_wait_for_the_agent() {
    let gander = start().await;
    let request = create(&gander, &json!({"title": "Later"})).header("prefer", "respond-async");
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    assert_eq!(response.headers()["preference-applied"], "respond-async");
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let session: Value = response.json().await.unwrap();
    assert_eq!((&session["state"], &session["agent"]), (&json!("starting"), &Value::Null));
    let after = format!("{location}/events?after={}", session["last_event_id"]);
    let mut events = EventStream::open(gander.request(Method::GET, &after)).await;
    let told = events.through("session.state").await;
    assert_eq!(told.last().unwrap().data["state"], "idle");
    assert_eq!(only(&told, "session.updated").data["session"]["agent"]["name"], "goose");
    assert_eq!(gander.get(&location).await["state"], "idle");
}

#[tokio::test]
async fn a_session_works_in_its_own_directory_or_in_the_one_given() {
    let gander = start().await;
    let first = gander.session(&json!({})).await;
    let second = gander.session(&json!({})).await;
    let own = text(&first.snapshot["cwd"]);
    assert_ne!(own, text(&second.snapshot["cwd"]));
    assert!(Path::new(&own).starts_with(gander.storage()), "{own}");
    assert!(std::fs::read_dir(&own).unwrap().next().is_none(), "empty");
    assert_eq!(std::fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700, "private");

    let given = tempfile::tempdir().unwrap();
    let path = given.path().to_str().unwrap();
    let session = gander.session(&json!({"cwd": path, "mode": "auto"})).await;
    assert_eq!(session.snapshot["cwd"], path);
    let replies =
        json!([[{"call": {"tool": "shell", "input": {"command": "touch made"}}}], [{"text": "Made."}]]);
    assert_eq!(session.turn(&script(&replies)).await["text"], "Made.");
    assert!(given.path().join("made").exists());
    session.delete().await;
    assert!(given.path().join("made").exists(), "what is the caller's stays");

    std::fs::write(given.path().join("file"), "").unwrap();
    for bad in ["relative", "", &format!("{path}/missing"), &format!("{path}/file")] {
        let problem = refusal(create(&gander, &json!({"cwd": bad})), 422, "invalid-request").await;
        assert_eq!(problem["errors"][0]["pointer"], "/cwd", "{bad:?}");
    }
}

#[tokio::test]
async fn a_patch_changes_what_it_names() {
    let gander = Setup::real()
        .config("[goose]\nallow_modes = [\"approve\", \"smart_approve\", \"chat\"]")
        .start()
        .await;
    refusal(create(&gander, &json!({"mode": "auto"})), 422, "invalid-request").await;
    let body =
        json!({"title": "Mine", "metadata": {"a": "1", "b": "2"}, "mode": "approve", "model": "gpt-4o"});
    let session = gander.session(&body).await;
    let made = &session.snapshot;
    for field in ["title", "metadata", "mode", "model"] {
        assert_eq!(made[field], body[field], "{field}");
    }
    let pid = &made["agent"]["pid"];
    let mut events = session.events_with("?after=latest").await;

    let patched = session.patch(&json!({"title": "Ours", "metadata": {"b": null, "c": "3"}})).await;
    assert_eq!((&patched["title"], &patched["metadata"]), (&json!("Ours"), &json!({"a": "1", "c": "3"})));
    let told = events.until("session.updated").await;
    assert_eq!(
        told.data["session"],
        json!({"title": "Ours", "metadata": {"a": "1", "c": "3"}, "by": "default"})
    );
    let patched = session.patch(&json!({"title": null, "metadata": null})).await;
    assert_eq!((&patched["title"], &patched["metadata"]), (&Value::Null, &json!({})));

    let patched = session.patch(&json!({"mode": "chat", "model": "other"})).await;
    assert_eq!(
        (&patched["mode"], &patched["agent"]["mode"], &patched["model"]),
        (&json!("chat"), &json!("chat"), &json!("other"))
    );
    let replies =
        json!([[{"call": {"tool": "shell", "input": {"command": "touch made"}}}], [{"text": "No."}]]);
    let turn = session.turn(&script(&replies)).await;
    assert_eq!(turn["text"], "No.");
    assert_eq!(gander.model.requests().last().unwrap()["model"], "other", "goose asks the new model");
    let log = session.log().await;
    assert_eq!(only(&log, "tool_call.finished").data["tool_call"]["status"], "skipped", "in the new mode");

    let patched = session.patch(&json!({"provider": "ollama", "model": "qwen3"})).await;
    assert_eq!((&patched["provider"], &patched["model"]), (&json!("ollama"), &json!("qwen3")));
    assert_eq!(patched["agent"]["pid"], *pid, "the same goose");
    assert_eq!(session.now().await, patched);

    for (bad, pointer) in [
        (json!({"mode": "auto"}), "/mode"),
        (json!({"mode": null}), "/mode"),
        (json!({"provider": "nosuch"}), "/provider"),
        (json!({"model": ""}), "/model"),
        (json!({"title": ""}), "/title"),
        (json!({"titel": "x"}), "/titel"),
    ] {
        let problem = refusal(patching(&session, &bad), 422, "invalid-request").await;
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{bad}");
    }
    let after = session.now().await;
    for field in ["title", "metadata", "mode", "provider", "model", "agent", "state"] {
        assert_eq!(after[field], patched[field], "{field}");
    }
    gander.stop().await;
}

#[tokio::test]
async fn a_patch_is_taken_whole_or_not_at_all() {
    let gander = start().await;
    let session = gander.session(&json!({"title": "Mine"})).await;
    // goose reads such a name as another model with an effort.
    for bad in [
        json!({"title": "Ours", "provider": "ollama", "model": "gpt-5-high", "mode": "chat"}),
        json!({"model": "gpt-5-high"}),
        json!({"provider": "nosuch", "model": "gpt-4o", "mode": "chat"}),
    ] {
        let problem = refusal(patching(&session, &bad), 422, "invalid-request").await;
        let refused = if bad["provider"] == "nosuch" { "/provider" } else { "/model" };
        assert_eq!(problem["errors"][0]["pointer"], refused);
        // goose's own word about what was set back may come a moment after its answer.
        let fields = ["title", "provider", "model", "mode", "agent"];
        until_async("all is as it was", || async {
            let now = session.now().await;
            fields.iter().all(|field| now[field] == session.snapshot[field])
        })
        .await;
        session.turn(&script(&json!([[{"text": "Hi."}]]))).await;
        assert_eq!(gander.model.requests().last().unwrap()["model"], "demo", "after {bad}");
    }
    gander.stop().await;
}

#[tokio::test]
async fn a_callers_title_is_not_overwritten_by_the_agents() {
    let gander = Setup::real().env("GOOSE_DISABLE_SESSION_NAMING", "false").start().await;
    let session = gander.session(&json!({})).await;
    session.turn(&script(&json!([[{"text": "Hi."}]]))).await;
    let mut events = session.events().await;
    loop {
        let event = events.until("session.updated").await;
        if event.data["session"]["title"].is_string() {
            assert_eq!(session.now().await["title"], event.data["session"]["title"]);
            break;
        }
    }
    drop(events);
    gander.stop().await;

    // When goose comes with a title is goose's affair, so here an agent that does it on demand.
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({"title": "Mine"})).await;
    let update =
        |title: &str| format!("update {}", json!({"sessionUpdate": "session_info_update", "title": title}));
    session.turn(&update("Its own")).await;
    assert_eq!(session.now().await["title"], "Mine");
    session.patch(&json!({"title": null})).await;
    session.turn(&update("Another")).await;
    assert_eq!(session.now().await["title"], "Another");
}

#[tokio::test]
async fn the_model_is_offered_no_subagents_and_no_extension_manager() {
    let gander = start().await;
    for mode in ["auto", "approve", "smart_approve", "chat"] {
        let session = gander.session(&json!({"mode": mode})).await;
        let loaded = extensions(&session.snapshot);
        assert!(loaded.contains(&"developer".into()) && loaded.contains(&"todo".into()), "{loaded:?}");
        assert!(!loaded.iter().any(|name| name == "summon" || name == "extensionmanager"), "{loaded:?}");
        let tools = tools_of(&session).await;
        assert!(tools.contains(&"shell".into()), "{tools:?}");
        assert!(!tools.iter().any(|tool| starts_subagents(tool)), "{mode}: {tools:?}");
        session.delete().await;
    }
    let named = json!({"builtins": ["summon", "extensionmanager"]});
    if shares_goose() {
        let problem = refusal(create(&gander, &named), 422, "not-in-this-transport").await;
        assert_eq!(problem["errors"][1]["pointer"], "/builtins/1");
        gander.stop().await;
        return;
    }
    // Who names them gets them.
    let session = gander.session(&named).await;
    let loaded = extensions(&session.snapshot);
    assert!(loaded.contains(&"summon".into()) && loaded.contains(&"extensionmanager".into()), "{loaded:?}");
    let tools = tools_of(&session).await;
    assert!(tools.iter().any(|tool| tool.contains("delegate")), "{tools:?}");
    assert!(tools.iter().any(|tool| tool.contains("manage_extensions")), "{tools:?}");
    gander.stop().await;
}

#[tokio::test]
async fn a_session_chooses_its_extensions() {
    let gander = start().await;
    let session = gander.session(&json!({"disabled_extensions": ["developer"]})).await;
    assert!(!extensions(&session.snapshot).contains(&"developer".into()));
    let tools = tools_of(&session).await;
    assert!(tools.contains(&"todo__todo_write".into()) && !tools.contains(&"shell".into()), "{tools:?}");
    session.delete().await;

    if shares_goose() {
        // Only from what goose was started with.
        let session = gander.session(&json!({"builtins": [], "disabled_extensions": "apps"})).await;
        let loaded = extensions(&session.snapshot);
        assert!(!loaded.iter().any(|name| name == "todo" || name == "apps"), "{loaded:?}");
        assert_eq!(session.snapshot["notices"], json!([]), "it was asked for");
        let named = create(&gander, &json!({"builtins": "todo, memory"}));
        let problem = refusal(named, 422, "not-in-this-transport").await;
        assert_eq!(problem["errors"][0]["pointer"], "/builtins/1");
        assert_eq!(problem["errors"].as_array().unwrap().len(), 1);
        gander.stop().await;
        return;
    }
    for builtins in [json!(["memory", "tutorial"]), json!("memory, tutorial")] {
        let session = gander.session(&json!({"builtins": builtins, "disabled_extensions": "apps"})).await;
        let loaded = extensions(&session.snapshot);
        assert!(loaded.contains(&"memory".into()) && loaded.contains(&"tutorial".into()), "{loaded:?}");
        assert!(!loaded.contains(&"todo".into()), "the server's list is replaced: {loaded:?}");
        assert!(!loaded.contains(&"apps".into()), "{loaded:?}");
        session.delete().await;
    }
}

#[tokio::test]
async fn an_extension_that_did_not_load_is_told() {
    let gander = Setup::fake().env("GANDER_GOOSE__ENV__FAKE_AGENT_NEW", "failed-extension").start().await;
    let session = gander.session(&json!({})).await;
    let extensions = session.snapshot["extensions"].as_array().unwrap();
    let failed = extensions.iter().find(|extension| extension["loaded"] == false).unwrap();
    assert!(failed["error"].is_string());
    let notice = &session.snapshot["notices"][0];
    assert_eq!(notice["code"], "extension-failed");
    assert!(text(&notice["message"]).contains(&text(&failed["name"])), "{notice}");
}

#[tokio::test]
async fn a_callers_variables_reach_goose_if_they_are_allowed() {
    let gander = start().await;
    let with_variable = json!({"mode": "auto", "env": {"GOOSE_MAX_TURNS": "1"}});
    if shares_goose() {
        let problem = refusal(create(&gander, &with_variable), 422, "not-in-this-transport").await;
        assert_eq!(problem["errors"][0]["pointer"], "/env/GOOSE_MAX_TURNS");
        gander.stop().await;
        return;
    }
    let session = gander.session(&with_variable).await;
    let replies = json!([[{"call": {"tool": "tree", "input": {"path": "."}}}], [{"text": "Done."}]]);
    let turn = session.turn(&script(&replies)).await;
    assert_eq!(turn["stop_reason"], "max_turn_requests", "{turn}");
    for name in ["OPENAI_HOST", "OPENAI_API_KEY", "GOOSE_MODE", "PATH", "LD_PRELOAD", "GOOSE_PATH_ROOT"] {
        let problem = refusal(create(&gander, &json!({"env": {name: "x"}})), 422, "invalid-request").await;
        assert_eq!(problem["errors"][0]["pointer"], format!("/env/{name}"));
        assert!(text(&problem["errors"][0]["detail"]).starts_with(name), "{problem}");
    }
    assert_eq!(gander.get("/v1/sessions").await["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_snapshot_and_the_events_behind_it_have_no_gap() {
    let gander = start().await;
    let session = gander.session(&json!({})).await;
    let chunks: Vec<Value> = (0..200).map(|number| json!({"text": format!("{number} ")})).collect();
    let mut steps = chunks.clone();
    for place in (0..200).step_by(10) {
        steps.insert(place, json!({"wait_ms": 5}));
    }
    let turn = session.prompt(&script(&json!([steps]))).await;
    let mut snapshots = Vec::new();
    loop {
        let now = session.now().await;
        let ended = now["state"] == "idle";
        // What is told so far is all there is up to the snapshot: it is never ahead of the log.
        let told = session.log().await;
        assert!(told.len() as u64 >= now["last_event_id"].as_u64().unwrap());
        snapshots.push(now);
        if ended {
            break;
        }
    }
    let log = session.log().await;
    let ids: Vec<u64> = log.iter().map(|event| event.data["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=log.len() as u64).collect::<Vec<u64>>());
    assert_eq!(carried(&log, "message.delta", "text").len(), 200);
    assert_eq!(only(&log, "turn.completed").data["turn"]["id"], turn["id"]);
    for snapshot in snapshots {
        let last = snapshot["last_event_id"].as_u64().unwrap();
        let (before, after) = log.split_at(usize::try_from(last).unwrap());
        assert_eq!(session.events_with(&format!("?after={last}&follow=false")).await.rest().await, after);
        // The snapshot's state is what the events up to it say.
        let state = carried(before, "session.state", "state").last().copied().unwrap();
        assert_eq!(snapshot["state"], *state);
        let runs = kinds(before).contains(&"turn.started") && !kinds(before).contains(&"turn.completed");
        assert_eq!(snapshot["current_turn"].is_object(), runs);
    }
}

#[tokio::test]
async fn sessions_are_listed_newest_first_by_page_and_state() {
    let gander = start().await;
    let mut sessions = Vec::new();
    for title in ["one", "two", "three"] {
        sessions.push(gander.session(&json!({"title": title})).await);
    }
    let titles = |page: &Value| -> Vec<String> {
        page["sessions"].as_array().unwrap().iter().map(|session| text(&session["title"])).collect()
    };
    let page = gander.get("/v1/sessions?limit=2").await;
    assert_eq!(titles(&page), ["three", "two"]);
    let cursor = text(&page["next_cursor"]);
    let rest = gander.get(&format!("/v1/sessions?limit=2&cursor={cursor}")).await;
    assert_eq!((titles(&rest), &rest["next_cursor"]), (vec!["one".to_owned()], &Value::Null));

    let mut events = sessions[1].events_with("?after=latest").await;
    let turn = sessions[1].prompt(&script(&json!([[{"text": "Well"}, "hang"]]))).await;
    events.until("message.delta").await;
    assert_eq!(titles(&gander.get("/v1/sessions?state=running").await), ["two"]);
    assert_eq!(titles(&gander.get("/v1/sessions?state=idle").await), ["three", "one"]);
    sessions[1].cancel(&turn).await;
    events.until("turn.cancelled").await;
    sessions[2].delete().await;
    assert_eq!(titles(&gander.get("/v1/sessions").await), ["two", "one"]);
    refusal(gander.request(Method::GET, "/v1/sessions?state=sleepy"), 400, "malformed-request").await;
}
