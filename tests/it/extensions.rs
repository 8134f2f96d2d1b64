//! Which extensions there are, which a session gets, and what is told of those that it does not get.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    Gander, Session, Setup, answer, offered_tools, only, real_goose, refusal, script, text, until_async,
};

/// goose 1.52's extensions: name, on by default, needs a shared home.
const TABLE: [(&str, bool, bool); 17] = [
    ("developer", true, false),
    ("analyze", true, false),
    ("apps", true, false),
    ("extensionmanager", true, false),
    ("summon", true, false),
    ("skills", true, false),
    ("tom", true, false),
    ("scheduler", true, true),
    ("todo", false, false),
    ("chatrecall", false, true),
    ("summarize", false, false),
    ("code_execution", false, false),
    ("orchestrator", false, true),
    ("computercontroller", false, false),
    ("memory", false, true),
    ("autovisualiser", false, false),
    ("tutorial", false, false),
];

/// A program in goose's place: the real goose behind a few lines of shell, which know its path as `$GOOSE`.
fn wrapped_goose(dir: &Path, lines: &str) -> PathBuf {
    wrapped(&real_goose(), dir, lines)
}

/// The same around any program, `$GOOSE`.
pub(crate) fn wrapped(program: &Path, dir: &Path, lines: &str) -> PathBuf {
    let path = dir.join("goose");
    let script = format!("#!/bin/sh\nGOOSE='{}'\n{lines}\n", program.display());
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The rows of `GET /v1/extensions`.
async fn listed(gander: &Gander) -> Vec<Value> {
    let list = gander.get("/v1/extensions").await;
    assert_eq!(list["effective_error"], Value::Null, "{list}");
    list["extensions"].as_array().unwrap().clone()
}

/// The names of those that a session gets.
fn effective(rows: &[Value]) -> Vec<String> {
    rows.iter().filter(|row| row["effective"] == true).map(|row| text(&row["name"])).collect()
}

/// The names of those that a session has loaded.
pub(crate) fn loaded(snapshot: &Value) -> Vec<String> {
    let extensions = snapshot["extensions"].as_array().unwrap();
    let loaded = extensions.iter().filter(|extension| extension["loaded"] == true);
    let mut names: Vec<String> = loaded.map(|extension| text(&extension["name"])).collect();
    names.sort_unstable();
    names
}

/// The tools that the model was offered in a turn.
async fn tools_of(session: &Session<'_>) -> Vec<String> {
    session.turn(&script(&json!([[{"text": "hello"}]]))).await;
    offered_tools(&session.gander.model.requests().pop().unwrap())
}

/// Whose home sessions work in.
const HOMES: [&str; 2] = ["session", "shared"];

#[tokio::test]
async fn the_list_is_goose_1_52s_and_tells_what_a_session_gets() {
    for home in HOMES {
        the_list_is_goose_1_52s(Setup::real().env("GANDER_GOOSE__HOME", home).start().await).await;
    }
}

async fn the_list_is_goose_1_52s(gander: Gander) {
    let rows = listed(&gander).await;
    let shown: Vec<_> = rows
        .iter()
        .map(|row| (row["name"].as_str().unwrap(), row["default"] == true, row["needs_shared_home"] == true))
        .collect();
    assert_eq!(shown, TABLE);
    assert!(rows.iter().all(|row| !text(&row["provides"]).is_empty()));
    // goose's defaults, without those that gander leaves off, and with those that it starts.
    let mut got = effective(&rows);
    assert_eq!(got, ["developer", "analyze", "apps", "skills", "tom", "todo"]);
    got.sort_unstable();
    assert_eq!(loaded(&gander.session(&json!({})).await.snapshot), got);
    gander.stop().await;
}

#[tokio::test]
async fn with_everything_named_a_session_gets_gooses_own_defaults() {
    let config = "[goose]\nbuiltins = [\"summon\", \"extensionmanager\"]\nscheduler = true";
    let gander = Setup::real().config(config).start().await;
    let defaults: Vec<&str> = TABLE.iter().filter(|row| row.1).map(|row| row.0).collect();
    assert_eq!(effective(&listed(&gander).await), defaults);
    let session = gander.session(&json!({})).await;
    let notices = session.snapshot["notices"].as_array().unwrap();
    let told = notices.iter().find(|notice| notice["code"] == "extension-needs-shared-home").unwrap();
    assert!(text(&told["message"]).starts_with("scheduler"), "{told}");
    let mut sorted = defaults;
    sorted.sort_unstable();
    assert_eq!(loaded(&session.snapshot), sorted);
    let tools = tools_of(&session).await;
    assert!(tools.iter().any(|tool| tool.contains("schedule")), "{tools:?}");
    gander.stop().await;
}

#[tokio::test]
async fn what_only_this_goose_has_is_listed_and_can_be_named() {
    let dir = tempfile::tempdir().unwrap();
    // A later version: another platform extension, and another key in its configuration.
    let goose = wrapped_goose(
        dir.path(),
        "if [ \"$1\" = info ]; then\n\
         \"$GOOSE\" \"$@\"\n\
         printf '    future:\\n      enabled: true\\n      type: platform\\n      description: From tomorrow\\n'\n\
         printf '  A_NEW_KEY: [1, 2]\\n'\nelse exec \"$GOOSE\" \"$@\"; fi",
    );
    let config_dir = dir.path().join("configuration");
    std::fs::create_dir(&config_dir).unwrap();
    let servers = "extensions:\n  mine: {enabled: true, type: stdio, cmd: /nonexistent, args: [], name: mine, \
                   description: A server of ours, timeout: 5}\n";
    std::fs::write(config_dir.join("config.yaml"), servers).unwrap();
    let gander = Setup::with_agent(goose)
        .config(&format!("[goose]\nconfig_dir = {config_dir:?}\nextra_extensions = [\"bundled_tomorrow\"]"))
        .start()
        .await;
    // Nobody has asked for the list yet: a name that the catalogue does not have makes gander ask goose.
    let session = gander.session(&json!({"disabled_extensions": ["mine"]})).await;
    assert!(session.snapshot["extensions"].as_array().unwrap().iter().all(|one| one["name"] != "mine"));
    let rows = listed(&gander).await;
    let new: Vec<_> = rows[TABLE.len()..]
        .iter()
        .map(|row| {
            (text(&row["name"]), row["default"].clone(), text(&row["provides"]), row["effective"] == true)
        })
        .collect();
    let new_row = |name: &str, provides: &str, effective| {
        (name.to_owned(), Value::Null, provides.to_owned(), effective)
    };
    assert_eq!(
        new,
        [
            new_row("future", "From tomorrow", true),
            new_row("mine", "A server of ours", true),
            new_row("bundled_tomorrow", "", false),
        ]
    );
    gander.session(&json!({"builtins": ["Future", "bundled_tomorrow"]})).await;
    // A server of the configuration is none that `--with-builtin` could start.
    for body in [json!({"builtins": ["mine"]}), json!({"disabled_extensions": ["mime"]})] {
        refusal(gander.request(Method::POST, "/v1/sessions").json(&body), 422, "invalid-request").await;
    }
    gander.stop().await;
}

#[tokio::test]
async fn a_goose_that_does_not_list_its_extensions_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let goose = wrapped_goose(
        dir.path(),
        "if [ \"$1\" = info ]; then echo $$ >> \"$0.asked\"; sleep 600; else exec \"$GOOSE\" \"$@\"; fi",
    );
    let gander = Setup::with_agent(goose).config("[goose]\nstart_timeout = \"5s\"").start().await;
    let asks = || gander.get("/v1/extensions");
    let (list, again) = tokio::join!(asks(), asks());
    assert_eq!(list, again);
    assert!(text(&list["effective_error"]).contains("did not list"), "{list}");
    let rows = list["extensions"].as_array().unwrap();
    assert_eq!(rows.len(), TABLE.len());
    assert!(rows.iter().all(|row| row["effective"].is_null() && row["default"].is_boolean()));
    asks().await;
    let asked = std::fs::read_to_string(dir.path().join("goose.asked")).unwrap();
    assert_eq!(asked.lines().count(), 1, "a failure is remembered for a while");
    assert_eq!(gander.descendants(), Vec::<u32>::new());
    assert_eq!(std::fs::read_dir(gander.storage().join("homes")).unwrap().count(), 0);
    gander.session(&json!({})).await;
    gander.stop().await;
}

#[tokio::test]
async fn without_the_shell_a_session_has_none_and_cannot_get_one() {
    // The gateway's own list has what could bring it back.
    let config = "[goose]\nbuiltins = [\"todo\", \"extensionmanager\"]";
    for home in HOMES {
        let gander = Setup::real().config(config).env("GANDER_GOOSE__HOME", home).start().await;
        without_the_shell_there_is_none(gander).await;
    }
}

async fn without_the_shell_there_is_none(gander: Gander) {
    let without = gander.session(&json!({"mode": "auto", "disabled_extensions": ["developer"]})).await;
    let beside = gander.session(&json!({"mode": "auto"})).await;
    let attempt = script(&json!([
        [{"call": {"tool": "extensionmanager__manage_extensions",
            "input": {"action": "enable", "extension_name": "developer"}}}],
        [{"call": {"tool": "shell", "input": {"command": "touch got-in"}}}],
        [{"text": "done"}],
    ]));
    let got_in = |session: &Session<'_>| Path::new(&text(&session.snapshot["cwd"])).join("got-in").exists();

    without.turn(&attempt).await;
    gander.post(&without.path("/hibernate"), &json!({}), StatusCode::OK).await;
    without.turn(&attempt).await;
    assert!(!got_in(&without));
    for call in gander.model.requests() {
        let tools = offered_tools(&call);
        assert!(!tools.iter().any(|tool| tool == "shell" || tool.contains("manage_extensions")), "{tools:?}");
    }
    let log = without.log().await;
    let ends = log.iter().filter(|event| event.kind() == "tool_call.finished");
    let ends: Vec<&Value> = ends.map(|event| &event.data["tool_call"]["status"]).collect();
    assert_eq!(ends, ["failed"; 4]);
    assert_eq!(without.snapshot["notices"], json!([]), "what was asked for is no news");
    assert!(!loaded(&without.now().await).contains(&"developer".into()));

    beside.turn(&attempt).await;
    assert!(got_in(&beside));
    gander.stop().await;
}

#[tokio::test]
async fn what_goose_does_not_know_is_told_and_can_be_required() {
    let gander = Setup::real().config("[goose]\nextra_extensions = [\"tomorrow\"]").start().await;
    let session = gander.session(&json!({"builtins": "todo, tomorrow"})).await;
    let extensions = session.snapshot["extensions"].as_array().unwrap();
    let entry = extensions.iter().find(|one| one["name"] == "tomorrow").unwrap();
    assert_eq!(entry["loaded"], false);
    assert!(text(&entry["error"]).contains("Unknown extension: tomorrow"), "{entry}");
    let log = session.log().await;
    let told = &only(&log, "notice").data;
    assert_eq!(told["code"], "extension-failed");
    assert!(text(&told["message"]).contains("tomorrow"));
    assert_eq!(session.turn(&script(&json!([[{"text": "it runs"}]]))).await["text"], "it runs");
    let warned =
        |line: &str| line.contains("WARN") && line.contains("tomorrow") && line.contains(&session.id);
    assert!(gander.log().lines().any(warned), "{}", gander.log());

    // Required, its being missing fails the create, and nothing is left.
    let body = json!({"builtins": ["todo", "tomorrow"], "require_extensions": ["TODO", "tomorrow", "skills", "web"]});
    let create = || gander.request(Method::POST, "/v1/sessions");
    let problem = refusal(create().json(&body), 424, "extension-required").await;
    let missing = problem["extensions"].as_array().unwrap();
    let names: Vec<&str> = missing.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["tomorrow", "web"], "{problem}");
    assert!(text(&missing[0]["error"]).contains("Unknown extension"), "{problem}");
    assert_eq!(gander.get("/v1/sessions").await["sessions"].as_array().unwrap().len(), 1);
    // What is switched off cannot be there; goose is not even started.
    let body = json!({"disabled_extensions": ["developer"], "require_extensions": ["developer"]});
    let problem = refusal(create().json(&body), 424, "extension-required").await;
    assert_eq!(problem["extensions"][0]["error"], "it is switched off");
    // Who does not wait is told by the session's state.
    let body = json!({"require_extensions": ["web"]});
    let started = answer(create().header("prefer", "respond-async").json(&body), StatusCode::ACCEPTED).await;
    let failed = Session { gander: &gander, id: text(&started["id"]), snapshot: started };
    until_async("it has failed", || async { failed.now().await["state"] == "failed" }).await;
    assert!(text(&failed.now().await["state_reason"]).contains("web"), "{}", failed.now().await);
    let body = json!({"builtins": "extensionmanager", "require_extensions": "developer, Extension_Manager"});
    assert_eq!(gander.session(&body).await.snapshot["state"], "idle");
    gander.stop().await;
}

#[tokio::test]
async fn a_required_extension_is_required_on_waking_too() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({"builtins": ["todo"], "require_extensions": ["todo"]})).await;
    let (id, dir) = (session.id.clone(), Arc::clone(&gander.dir));
    gander.stop().await;
    let again = || Setup::fake().dir(Arc::clone(&dir));
    let gander = again()
        .env("GANDER_GOOSE__ENV__FAKE_AGENT_LOAD", "no-extension-results")
        .env("GANDER_GOOSE__ENV__FAKE_AGENT_LIST", "unknown")
        .start()
        .await;
    let session = Session { gander: &gander, id: id.clone(), snapshot: Value::Null };
    let turn = session.turn("echo anybody there?").await;
    assert_eq!((&turn["state"], &turn["error"]["class"]), (&json!("failed"), &json!("start_failed")));
    assert!(text(&turn["error"]["message"]).contains("todo"), "{turn}");
    assert_eq!(session.now().await["state"], "failed");
    gander.stop().await;
    let gander = again().start().await;
    let session = Session { gander: &gander, id, snapshot: Value::Null };
    assert_eq!(session.turn("echo again").await["text"], "again");
    gander.stop().await;
}

#[tokio::test]
async fn what_the_configuration_sets_no_caller_changes() {
    let gander = Setup::real().config("[goose.env]\nGOOSE_MAX_TURNS = 1").start().await;
    let session = gander.session(&json!({"mode": "auto", "env": {"GOOSE_MAX_TURNS": "40"}})).await;
    let replies = json!([[{"call": {"tool": "tree", "input": {"path": "."}}}], [{"text": "Done."}]]);
    assert_eq!(session.turn(&script(&replies)).await["stop_reason"], "max_turn_requests");
    gander.stop().await;
}

/// A goose that says nothing of its extensions in its answers, and one second after its start writes a line into its log.
const SILENT: &str = r#"if [ "$1" != acp ]; then exec "$GOOSE" "$@"; fi
( sleep 1; mkdir -p "$GOOSE_PATH_ROOT/state/logs/cli"
printf '{"timestamp":"%s","level":"WARN","fields":{"message":"failed to start extension","name":"late","error":"too late"}}\n' \
"$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)" >> "$GOOSE_PATH_ROOT/state/logs/cli/late.log" ) > /dev/null &
"$GOOSE" "$@" | sed -u 's/"extensionResults"/"somethingElse"/'"#;

#[tokio::test]
async fn what_goose_says_in_its_log_alone_is_told_too() {
    let dir = tempfile::tempdir().unwrap();
    let gander = Setup::with_agent(wrapped_goose(dir.path(), SILENT))
        .config("[goose]\nextra_extensions = [\"tomorrow\"]")
        .start()
        .await;
    let session = gander.session(&json!({"builtins": ["todo", "tomorrow"]})).await;
    let loads = loaded(&session.snapshot);
    assert!(loads.contains(&"todo".into()) && loads.contains(&"developer".into()), "{loads:?}");
    let failed = |snapshot: &Value| -> Vec<(String, String)> {
        let extensions = snapshot["extensions"].as_array().unwrap();
        let failed = extensions.iter().filter(|extension| extension["loaded"] == false);
        failed.map(|extension| (text(&extension["name"]), text(&extension["error"]))).collect()
    };
    let tomorrow = ("tomorrow".to_owned(), "invalid config: Unknown extension: tomorrow".to_owned());
    assert_eq!(failed(&session.snapshot), std::slice::from_ref(&tomorrow));
    assert_eq!(session.snapshot["notices"][0]["code"], "extension-failed");
    // What fails later is told later.
    let mut events = session.events_with("?types=notice").await;
    let codes =
        [events.until("notice").await, events.until("notice").await].map(|told| text(&told.data["message"]));
    assert!(codes[0].contains("tomorrow") && codes[1].contains("late"), "{codes:?}");
    assert_eq!(failed(&session.now().await), [tomorrow, ("late".into(), "too late".into())]);
    assert_eq!(session.turn(&script(&json!([[{"text": "it runs"}]]))).await["text"], "it runs");

    let create = gander.request(Method::POST, "/v1/sessions");
    let body = json!({"builtins": ["todo", "tomorrow"], "require_extensions": ["todo", "tomorrow"]});
    let problem = refusal(create.json(&body), 424, "extension-required").await;
    assert_eq!(problem["extensions"].as_array().unwrap().len(), 1, "{problem}");
    gander.stop().await;
}

#[tokio::test]
async fn gooses_log_is_read_where_the_configuration_says() {
    let dir = tempfile::tempdir().unwrap();
    let lines = r#"if [ "$1" != acp ]; then exec "$GOOSE" "$@"; fi
mkdir -p "$0.logs/cli"
printf '{"timestamp":"%s","fields":{"message":"Failed to load extension moved: told elsewhere"}}\n' \
"$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)" >> "$0.logs/cli/goose.log"
"$GOOSE" "$@" | sed -u 's/"extensionResults"/"somethingElse"/'"#;
    let gander = Setup::with_agent(wrapped_goose(dir.path(), lines))
        .config(&format!("[goose]\nlog_dir = {:?}", dir.path().join("goose.logs")))
        .start()
        .await;
    let session = gander.session(&json!({})).await;
    let extensions = session.snapshot["extensions"].as_array().unwrap();
    let moved = extensions.iter().find(|extension| extension["name"] == "moved").unwrap();
    assert_eq!(moved["error"], "told elsewhere");
    gander.stop().await;
}

#[tokio::test]
async fn what_one_session_remembers_no_other_one_learns() {
    // The shell shows what goose's own programs find.
    let gander = Setup::real().config("[goose]\nterminal = false").start().await;
    let users = gander.dir.path().join("home/.config");
    std::fs::create_dir_all(users.join("git")).unwrap();
    std::fs::write(users.join("git/config"), "[user]\nname = Ada\n").unwrap();
    let body = json!({"mode": "auto", "builtins": ["memory"]});
    let (one, other) = (gander.session(&body).await, gander.session(&body).await);
    let notices = one.snapshot["notices"].as_array().unwrap();
    assert!(notices.iter().any(|notice| notice["code"] == "extension-needs-shared-home"), "{notices:?}");
    let remember = json!({"category": "words", "data": "heliotrope", "is_global": true});
    let retrieve = json!({"category": "*", "is_global": true});
    let calls = |tool: &str, input: &Value| {
        script(&json!([[{"call": {"tool": tool, "input": input}}], [{"text": "done"}]]))
    };
    one.turn(&calls("memory__remember_memory", &remember)).await;
    let found = async |session: &Session<'_>| {
        session.turn(&calls("memory__retrieve_memories", &retrieve)).await;
        let finished = session.log().await.into_iter().rfind(|event| event.kind() == "tool_call.finished");
        let call = finished.unwrap().data["tool_call"].clone();
        assert_eq!(call["status"], "completed", "{call}");
        call["content"].to_string().contains("heliotrope")
    };
    assert!(found(&one).await);
    assert!(!found(&other).await);
    // Nor does one that is made later, which would be told of it before its first word; the session itself still knows
    // after it was woken.
    let later = gander.session(&body).await;
    tools_of(&later).await;
    assert!(!gander.model.requests().pop().unwrap().to_string().contains("heliotrope"));
    gander.post(&one.path("/hibernate"), &json!({}), StatusCode::OK).await;
    assert!(found(&one).await);
    assert!(!users.join("goose").exists());
    // What other programs look for there is there.
    one.turn(&calls("shell", &json!({"command": "cat \"$XDG_CONFIG_HOME/git/config\" > name"}))).await;
    let name = std::fs::read_to_string(Path::new(&text(&one.snapshot["cwd"])).join("name"));
    assert!(name.unwrap().contains("Ada"));
    gander.stop().await;
}
