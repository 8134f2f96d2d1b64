//! Provider, model, thinking effort and mode: at creation, by PATCH and after waking, on the real goose.
//!
//! Measured on goose 1.52: the model `claude-sonnet-4-5` has efforts and is asked as the scripted model is, also with the
//! provider `openai`; `gpt-4o` has none.

use std::path::Path;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::{EventStream, Gander, Session, Setup, refusal, script, text, until};

const THINKS: &str = "claude-sonnet-4-5";

fn create(gander: &Gander, body: &Value) -> RequestBuilder {
    gander.request(Method::POST, "/v1/sessions").json(body)
}

fn patching(session: &Session<'_>, body: &Value) -> RequestBuilder {
    session.gander.request(Method::PATCH, &session.path("")).json(body)
}

/// A request must be refused as unacceptable at this place, for this reason.
async fn refused_at(request: RequestBuilder, pointer: &str, says: &str) {
    let problem = refusal(request, 422, "invalid-request").await;
    assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    assert!(text(&problem["errors"][0]["detail"]).contains(says), "{problem}");
}

fn option<'a>(snapshot: &'a Value, id: &str) -> &'a Value {
    snapshot["config_options"].as_array().unwrap().iter().find(|option| option["id"] == id).unwrap()
}

fn effort_of(snapshot: &Value) -> (&Value, &Value) {
    (&snapshot["thinking_effort"], &option(snapshot, "thinking_effort")["current_value"])
}

fn both(effort: &Value) -> (&Value, &Value) {
    (effort, effort)
}

/// A prompt whose model calls the shell once for each command.
fn runs(commands: &[&str]) -> String {
    let mut replies: Vec<Value> = commands
        .iter()
        .map(|command| json!([{"call": {"tool": "shell", "input": {"command": command}}}]))
        .collect();
    replies.push(json!([{"text": "done"}]));
    script(&json!(replies))
}

#[tokio::test]
async fn an_effort_is_set_at_creation_and_by_patch_and_again_after_waking() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"model": THINKS, "thinking_effort": "high"})).await;
    assert_eq!(effort_of(&session.snapshot), both(&json!("high")));
    let told = &session.log().await[0].data["session"];
    assert_eq!(told["thinking_effort"], "high");

    let mut events = session.events_with("?after=latest").await;
    let patched = session.patch(&json!({"thinking_effort": "low"})).await;
    assert_eq!(effort_of(&patched), both(&json!("low")));
    assert_eq!(events.until("session.updated").await.data["session"]["thinking_effort"], "low");

    session.hibernate().await;
    assert_eq!(session.turn(&script(&json!([[{"text": "Awake."}]]))).await["text"], "Awake.");
    let woken = session.now().await;
    assert_eq!(effort_of(&woken), both(&json!("low")));
    assert_eq!(woken["config_options"], patched["config_options"]);
    assert_eq!(woken["agent"]["generation"], 2);

    // Back to what goose does by itself.
    let patched = session.patch(&json!({"thinking_effort": null})).await;
    assert_eq!(effort_of(&patched), both(&json!("off")));
    // A model that offers no choice has no effort, and one that is asked for all the same is not remembered.
    let patched = session.patch(&json!({"model": "gpt-4o"})).await;
    assert_eq!(effort_of(&patched), (&Value::Null, &json!("off")));
    refused_at(
        patching(&session, &json!({"thinking_effort": "high"})),
        "/thinking_effort",
        "gpt-4o offers off only",
    )
    .await;
    let patched = session.patch(&json!({"model": THINKS})).await;
    assert_eq!(effort_of(&patched), both(&json!("off")));
    refused_at(
        patching(&session, &json!({"title": "T", "thinking_effort": "hihg"})),
        "/thinking_effort",
        "offers off, low, medium, high, max only",
    )
    .await;
    assert_eq!(session.now().await["title"], Value::Null, "all or nothing");
    gander.stop().await;
}

#[tokio::test]
async fn an_effort_that_cannot_be_had_makes_no_session() {
    let gander = Setup::real().start().await;
    refused_at(
        create(&gander, &json!({"model": "gpt-4o", "thinking_effort": "high"})),
        "/thinking_effort",
        "gpt-4o offers off only",
    )
    .await;
    refused_at(
        create(&gander, &json!({"model": THINKS, "thinking_effort": "highest"})),
        "/thinking_effort",
        "offers off, low, medium, high, max only",
    )
    .await;
    refused_at(create(&gander, &json!({"thinking_effort": ""})), "/thinking_effort", "must be a name").await;
    assert_eq!(gander.get("/v1/sessions").await["sessions"], json!([]));
    until("no goose is left", || gander.descendants().is_empty()).await;

    // Who did not wait for it sees it in the session.
    let request = create(&gander, &json!({"model": "gpt-4o", "thinking_effort": "high"}));
    let response = request.header("prefer", "respond-async").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    let path = response.headers()["location"].to_str().unwrap().to_owned();
    let mut events = EventStream::open(gander.request(Method::GET, &format!("{path}/events"))).await;
    let failed = loop {
        let state = events.until("session.state").await.data;
        if state["state"] == "failed" {
            break state;
        }
    };
    assert!(text(&failed["reason"]).contains("gpt-4o offers off only"), "{failed}");
    drop(events);
    gander.stop().await;
}

#[tokio::test]
async fn the_gateways_effort_is_had_where_the_model_has_it() {
    let gander = Setup::real().config("[goose]\nthinking_effort = \"high\"").start().await;
    let session = gander.session(&json!({"model": THINKS})).await;
    assert_eq!(effort_of(&session.snapshot), both(&json!("high")));
    session.patch(&json!({"thinking_effort": "low"})).await;
    let patched = session.patch(&json!({"thinking_effort": null})).await;
    assert_eq!(effort_of(&patched), both(&json!("high")), "null is the default, not goose's own");
    // It is nothing that a caller asked for, so a model without it is no error.
    let session = gander.session(&json!({"model": "gpt-4o"})).await;
    assert_eq!(effort_of(&session.snapshot), (&Value::Null, &json!("off")));
    assert_eq!(session.snapshot["notices"], json!([]));
    let env = json!({"model": THINKS, "env": {"GOOSE_THINKING_EFFORT": "medium"}});
    assert_eq!(effort_of(&gander.session(&env).await.snapshot), both(&json!("medium")));
    // goose would take a mistake for "off" without a word.
    let env = json!({"model": THINKS, "env": {"GOOSE_THINKING_EFFORT": "medum"}});
    let session = gander.session(&env).await;
    assert_eq!(effort_of(&session.snapshot), both(&json!("off")));
    let notice = &session.snapshot["notices"][0];
    assert_eq!(notice["code"], "setting-ignored");
    assert!(text(&notice["message"]).contains("\"medum\""), "{notice}");
    gander.stop().await;
}

#[tokio::test]
async fn another_provider_comes_with_its_own_model() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"provider": "ollama"})).await;
    assert_eq!(
        (&session.snapshot["provider"], &session.snapshot["model"]),
        (&json!("ollama"), &json!("qwen3"))
    );
    session.delete().await;

    // The one that goose is set up for keeps the model that it is set up for.
    let session = gander.session(&json!({"provider": "openai"})).await;
    assert_eq!(session.snapshot["model"], "demo");
    let patched = session.patch(&json!({"provider": "ollama"})).await;
    assert_eq!((&patched["provider"], &patched["model"]), (&json!("ollama"), &json!("qwen3")));
    let patched = session.patch(&json!({"provider": "openai", "model": "demo"})).await;
    assert_eq!((&patched["provider"], &patched["model"]), (&json!("openai"), &json!("demo")));
    session.hibernate().await;
    assert_eq!(session.turn(&script(&json!([[{"text": "Yes."}]]))).await["text"], "Yes.");

    for body in
        [json!({"provider": "anthropic"}), json!({"provider": "anthropic", "model": "x", "mode": "chat"})]
    {
        let problem = refusal(create(&gander, &body), 502, "provider-not-configured").await;
        assert!(text(&problem["detail"]).contains("ANTHROPIC_API_KEY"), "{problem}");
        let problem = refusal(patching(&session, &body), 502, "provider-not-configured").await;
        assert!(text(&problem["detail"]).contains("ANTHROPIC_API_KEY"), "{problem}");
    }
    for body in [json!({"provider": "nosuch"}), json!({"provider": "nosuch", "model": "x"})] {
        refused_at(create(&gander, &body), "/provider", "no provider \"nosuch\"").await;
        refused_at(patching(&session, &body), "/provider", "no provider of this name").await;
    }
    // goose reads such a name as another model with an effort.
    refused_at(create(&gander, &json!({"model": "gpt-5-high"})), "/model", "made gpt-5 of it").await;
    let now = session.now().await;
    assert_eq!(
        (&now["provider"], &now["model"], &now["mode"]),
        (&json!("openai"), &json!("demo"), &json!("smart_approve"))
    );
    assert_eq!(session.turn(&script(&json!([[{"text": "Still."}]]))).await["text"], "Still.");
    assert_eq!(gander.get("/v1/sessions").await["sessions"].as_array().unwrap().len(), 1);
    gander.stop().await;
}

#[tokio::test]
async fn in_a_turn_nothing_is_changed_that_takes_the_agent() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    let mut events = session.events_with("?after=latest").await;
    let turn =
        session.prompt(&runs(&["echo runs; while [ ! -e go ]; do sleep 0.02; done", "echo two"])).await;
    events.until("tool_call.output").await;
    for body in [
        // goose would say yes, and not ask before the turn's end.
        json!({"mode": "approve"}),
        json!({"model": "gpt-4o"}),
        json!({"provider": "ollama"}),
        json!({"thinking_effort": null}),
    ] {
        let problem = refusal(patching(&session, &body), 409, "turn-in-progress").await;
        assert_eq!(problem["turn_id"], turn["id"]);
    }
    let patched = session.patch(&json!({"title": "Mine"})).await;
    assert_eq!((&patched["title"], &patched["agent"]["mode"]), (&json!("Mine"), &json!("auto")));
    std::fs::write(Path::new(&text(&patched["cwd"])).join("go"), "").unwrap();
    events.until("turn.completed").await;

    session.patch(&json!({"mode": "approve"})).await;
    session.prompt(&runs(&["echo three"])).await;
    let permission = events.until("permission.requested").await.data["permission"].clone();
    session.answer(&permission, "allow").await;
    events.until("turn.completed").await;
    gander.stop().await;
}

#[tokio::test]
async fn a_long_list_of_choices_is_told_to_who_asks_for_it() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({})).await;
    let provider = option(&session.snapshot, "provider");
    assert_eq!(provider["choices"], json!([{"value": "openai", "name": "OpenAI"}]));
    let omitted = usize::try_from(provider["omitted_choices"].as_u64().unwrap()).unwrap();
    assert!(omitted > 50, "{provider}");
    let modes = option(&session.snapshot, "mode");
    assert_eq!((modes["choices"].as_array().unwrap().len(), &modes["omitted_choices"]), (4, &json!(0)));

    let all = gander.get(&session.path("?config_options=all")).await;
    let provider = option(&all, "provider");
    assert_eq!(
        (provider["choices"].as_array().unwrap().len(), &provider["omitted_choices"]),
        (omitted + 1, &json!(0))
    );
    assert_eq!(gander.get(&session.path("?config_options=short")).await, session.now().await);
    let most = gander.request(Method::GET, &session.path("?config_options=most"));
    refusal(most, 400, "malformed-request").await;

    session.hibernate().await;
    let asleep = gander.get(&session.path("?config_options=all")).await;
    assert_eq!(asleep["config_options"], session.snapshot["config_options"], "nobody there to ask");
    gander.stop().await;
}
