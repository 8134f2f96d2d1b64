use serde_json::{Value, json};

use super::extensions::NAMES;
use super::*;
use crate::http::fake_settings;
use crate::http::host::{AgentProgram, AgentUnusable, ExtensionRefusal, Extensions};
use crate::session::agent::BoxFuture;
use crate::session::agent::servers::McpServerKind;
use crate::session::agent::servers::{McpServerChoice, McpServerFault, McpServerSummary, McpServerWish};

/// A host whose agent has a few extensions, one of them switched off.
struct FakeHost;

impl HostFacts for FakeHost {
    fn moment(&self) -> BoxFuture<crate::metrics::Moment> {
        unreachable!()
    }

    fn version(&self) -> &'static str {
        "0"
    }

    fn transport(&self) -> &'static str {
        "stdio"
    }

    fn sessions_have_environments(&self) -> bool {
        true
    }

    fn demo(&self) -> bool {
        false
    }

    fn agent(&self) -> BoxFuture<Result<AgentProgram, AgentUnusable>> {
        Box::pin(std::future::ready(Err(AgentUnusable("none".into()))))
    }

    fn storage_writable(&self) -> BoxFuture<bool> {
        Box::pin(std::future::ready(true))
    }

    fn extensions(&self) -> BoxFuture<Extensions> {
        Box::pin(std::future::ready(Extensions { extensions: Vec::new(), effective_error: None }))
    }

    fn choose_servers(
        &self,
        wishes: Option<Vec<McpServerWish>>,
    ) -> Result<Vec<McpServerChoice>, Vec<(usize, McpServerFault)>> {
        let gateways = |name: &str| {
            McpServerChoice::Gateway(McpServerSummary { name: name.to_owned(), kind: McpServerKind::Http })
        };
        let Some(wishes) = wishes else { return Ok(vec![gateways("web"), gateways("files")]) };
        let fault = |field: &str| McpServerFault { field: field.to_owned(), detail: "no".into() };
        let mut faults = Vec::new();
        let mut choices = Vec::new();
        for (place, wish) in wishes.into_iter().enumerate() {
            match wish {
                McpServerWish::Gateway(name) if name == "web" => choices.push(gateways(&name)),
                McpServerWish::Gateway(_) => faults.push((place, fault(""))),
                McpServerWish::Caller(_) => faults.push((place, fault("/url"))),
            }
        }
        if faults.is_empty() { Ok(choices) } else { Err(faults) }
    }

    fn check_extension(&self, name: &str, wish: ExtensionWish) -> Result<(), ExtensionRefusal> {
        match (name, wish) {
            ("memory", ExtensionWish::Have) => Err(ExtensionRefusal::SwitchedOff),
            ("todo" | "developer" | "apps" | "memory", _) => Ok(()),
            _ => Err(ExtensionRefusal::Unknown { nearest: vec!["todo", "tom"] }),
        }
    }
}

fn settings() -> HttpSettings {
    HttpSettings {
        allow_modes: vec![Mode::SmartApprove, Mode::Approve],
        default_provider: Some("openai".into()),
        default_model: Some("gpt-4o".into()),
        caller_env: vec!["GOOSE_MAX_TURNS".into(), "MY_FLAG".into()],
        ..fake_settings::settings()
    }
}

fn create(body: Value) -> Result<NewSession, Vec<String>> {
    let body: CreateSession = serde_json::from_value(body).unwrap();
    body.check("alice".into(), &settings(), &FakeHost).map_err(pointers)
}

fn patch(body: Value, metadata: Value) -> Result<SessionPatch, Vec<String>> {
    let body: PatchSession = serde_json::from_value(body).unwrap();
    body.check(&serde_json::from_value(metadata).unwrap(), &settings()).map_err(pointers)
}

fn pointers(faults: Faults) -> Vec<String> {
    faults.into_iter().map(|fault| fault.pointer).collect()
}

/// So many metadata entries.
fn entries(count: usize) -> Value {
    (0..count)
        .map(|number| (format!("key {number}"), json!("value")))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[test]
fn a_session_of_nothing_has_the_gateways_defaults() {
    for body in [json!({}), json!({"title": null, "metadata": null, "builtins": null, "env": null})] {
        let new = create(body).unwrap();
        assert_eq!((new.by.name(), new.title, new.metadata.len()), ("alice", None, 0));
        let expected = LaunchSpec {
            provider: Some("openai".into()),
            model: Some("gpt-4o".into()),
            mcp_servers: FakeHost.choose_servers(None).unwrap(),
            ..LaunchSpec::new(Mode::SmartApprove)
        };
        assert_eq!(new.launch, expected);
    }
}

#[test]
fn every_field_is_taken_over() {
    let new = create(json!({
        "title": "Tidy up", "metadata": {"ticket": "7"}, "mode": "approve", "provider": "anthropic", "model": "m",
        "builtins": "todo, developer", "disabled_extensions": [" apps "],
        "env": {"GOOSE_MAX_TURNS": "40", "MY_FLAG": ""}, "require_extensions": "developer, my server",
    }))
    .unwrap();
    assert_eq!(new.title.as_deref(), Some("Tidy up"));
    assert_eq!(new.launch.require_extensions, ["developer", "my server"]);
    assert_eq!(new.metadata["ticket"], "7");
    assert_eq!(new.launch.mode, Mode::Approve);
    assert_eq!((new.launch.provider.as_deref(), new.launch.model.as_deref()), (Some("anthropic"), Some("m")));
    assert_eq!(new.launch.builtins, Some(vec!["todo".into(), "developer".into()]));
    assert_eq!(new.launch.disabled_extensions, ["apps"]);
    assert_eq!(new.launch.env["GOOSE_MAX_TURNS"], "40");
    assert_eq!(new.launch.env["MY_FLAG"], "");
}

#[test]
fn the_gateways_model_goes_with_the_gateways_provider_only() {
    let model = |body| create(body).unwrap().launch.model;
    assert_eq!(model(json!({"provider": "openai"})).as_deref(), Some("gpt-4o"));
    assert_eq!(model(json!({"provider": "anthropic"})), None);
    assert_eq!(model(json!({"model": "m"})).as_deref(), Some("m"));
}

#[test]
fn extensions_that_a_session_cannot_have_are_refused_each_at_its_place() {
    let body = json!({"builtins": ["todo", "tod", "memory"], "disabled_extensions": ["memory", "x"]});
    let body: CreateSession = serde_json::from_value(body).unwrap();
    let faults = body.check("alice".into(), &settings(), &FakeHost).unwrap_err();
    let faults: Vec<(&str, &str)> =
        faults.iter().map(|fault| (fault.pointer.as_str(), fault.detail.as_str())).collect();
    assert_eq!(
        faults,
        [
            ("/builtins/1", "tod: the agent has no extension of this name; did you mean todo or tom?"),
            ("/builtins/2", "memory: the gateway's owner has switched this extension off"),
            (
                "/disabled_extensions/1",
                "x: the agent has no extension of this name; did you mean todo or tom?"
            ),
        ]
    );
}

#[test]
fn no_builtins_is_not_the_same_as_the_gateways_builtins() {
    for none in [json!(""), json!(" "), json!([])] {
        assert_eq!(create(json!({"builtins": none})).unwrap().launch.builtins, Some(Vec::new()));
    }
}

#[test]
fn what_a_new_session_must_not_have_is_refused_at_its_place() {
    let long = "x".repeat(5_000);
    let cases = [
        (json!({"title": ""}), vec!["/title"]),
        (json!({"title": " "}), vec!["/title"]),
        (json!({"title": "a\nb"}), vec!["/title"]),
        (json!({"title": "é".repeat(TITLE_CHARS + 1)}), vec!["/title"]),
        (json!({"metadata": {"": "a"}}), vec!["/metadata/"]),
        (json!({"metadata": {"a/b~c": long}}), vec!["/metadata/a~1b~0c"]),
        (json!({"metadata": {"k".repeat(METADATA_KEY_BYTES + 1): "a"}}), {
            vec![concat!(
                "/metadata/kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
                "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
            )]
        }),
        (json!({"metadata": entries(METADATA_ENTRIES + 1)}), vec!["/metadata"]),
        (json!({"mode": "auto"}), vec!["/mode"]),
        (json!({"provider": ""}), vec!["/provider"]),
        (json!({"model": "a\u{0}b"}), vec!["/model"]),
        (json!({"model": long}), vec!["/model"]),
        (json!({"builtins": "todo,,apps"}), vec!["/builtins/1"]),
        (json!({"builtins": ["todo", "-c", "a b", "a,b", ""]}), {
            vec!["/builtins/1", "/builtins/2", "/builtins/3", "/builtins/4"]
        }),
        (json!({"disabled_extensions": vec!["a"; NAMES + 1]}), vec!["/disabled_extensions"]),
        (
            json!({"require_extensions": ["", "a\u{0}b", "x".repeat(257)]}),
            vec!["/require_extensions/0", "/require_extensions/1", "/require_extensions/2"],
        ),
        (json!({"env": {"PATH": "/tmp"}}), vec!["/env/PATH"]),
        (json!({"env": {"goose_max_turns": "1"}}), vec!["/env/goose_max_turns"]),
        (json!({"env": {"GOOSE_MAX_TURNS2": "1"}}), vec!["/env/GOOSE_MAX_TURNS2"]),
        (json!({"env": {"MY_A=B": "1"}}), vec!["/env/MY_A=B"]),
        (json!({"env": {"MY_FLAG": "a\u{0}b"}}), vec!["/env/MY_FLAG"]),
        (json!({"env": {"": "a"}}), vec!["/env/"]),
        (json!({"title": "", "mode": "chat", "env": {"A": ""}}), vec!["/title", "/mode", "/env/A"]),
    ];
    for (body, expected) in cases {
        assert_eq!(create(body.clone()).unwrap_err(), expected, "{body}");
    }
    assert!(create(json!({"title": "é".repeat(TITLE_CHARS), "metadata": entries(METADATA_ENTRIES)})).is_ok());
}

#[test]
fn unknown_fields_and_wrong_types_are_no_bodies() {
    for body in [
        json!({"permision_policy": {}}),
        json!({"builtins": 7}),
        json!({"builtins": [7]}),
        json!({"mode": "yolo"}),
        json!({"metadata": {"a": 1}}),
        json!({"env": []}),
    ] {
        assert!(serde_json::from_value::<CreateSession>(body.clone()).is_err(), "{body}");
    }
    for body in [json!({"cwd": "/tmp"}), json!({"metadata": {"a": 1}}), json!({"title": 1})] {
        assert!(serde_json::from_value::<PatchSession>(body.clone()).is_err(), "{body}");
    }
}

#[test]
fn a_patch_tells_absent_from_null() {
    assert_eq!(patch(json!({}), json!({})).unwrap(), SessionPatch::default());
    assert_eq!(patch(json!({"title": null}), json!({})).unwrap().title, Some(None));
    assert_eq!(patch(json!({"title": "New"}), json!({})).unwrap().title, Some(Some("New".into())));
    for field in ["mode", "provider", "model"] {
        assert_eq!(patch(json!({field: null}), json!({})).unwrap_err(), [format!("/{field}")]);
    }
    let all = patch(json!({"mode": "approve", "provider": "p", "model": "m"}), json!({})).unwrap();
    assert_eq!(all.mode, Some(Mode::Approve));
    assert_eq!((all.provider.as_deref(), all.model.as_deref()), (Some("p"), Some("m")));
}

#[test]
fn metadata_is_merged_and_null_removes() {
    let now = json!({"a": "1", "b": "2"});
    let changed = patch(json!({"metadata": {"a": null, "c": "3"}}), now.clone()).unwrap().metadata;
    assert_eq!(changed, [("a".to_owned(), None), ("c".to_owned(), Some("3".to_owned()))].into());
    let cleared = patch(json!({"metadata": null}), now).unwrap().metadata;
    assert_eq!(cleared, [("a".to_owned(), None), ("b".to_owned(), None)].into());
}

#[test]
fn metadata_stays_bounded_over_many_patches() {
    let full = entries(METADATA_ENTRIES);
    assert_eq!(patch(json!({"metadata": {"new": "1"}}), full.clone()).unwrap_err(), ["/metadata"]);
    assert!(patch(json!({"metadata": {"key 0": "other"}}), full.clone()).is_ok());
    assert!(patch(json!({"metadata": {"new": "1", "key 0": null}}), full).is_ok());
}

#[test]
fn a_patch_is_checked_like_a_new_session() {
    let cases = [
        (json!({"title": ""}), "/title"),
        (json!({"mode": "auto"}), "/mode"),
        (json!({"model": ""}), "/model"),
        (json!({"metadata": {"": "a"}}), "/metadata/"),
    ];
    for (body, expected) in cases {
        assert_eq!(patch(body.clone(), json!({})).unwrap_err(), [expected], "{body}");
    }
}

#[tokio::test]
async fn a_directory_has_to_exist_and_to_be_absolute() {
    let folder = tempfile::tempdir().unwrap();
    let real = std::fs::canonicalize(folder.path()).unwrap();
    let file = real.join("file");
    std::fs::write(&file, "").unwrap();
    let path = real.to_str().unwrap();
    assert_eq!(usable_cwd(path, &settings()).await.unwrap(), real);
    assert_eq!(usable_cwd(&format!("{path}/./"), &settings()).await.unwrap(), real);
    for bad in ["", ".", "tmp", &format!("{path}/none"), file.to_str().unwrap(), &format!("{path}\0")] {
        assert_eq!(usable_cwd(bad, &settings()).await.unwrap_err().pointer, "/cwd", "{bad:?}");
    }
}

#[tokio::test]
async fn a_directory_has_to_lie_in_a_root_whatever_leads_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let real = std::fs::canonicalize(folder.path()).unwrap();
    for name in ["root/inner", "root2", "outside"] {
        std::fs::create_dir_all(real.join(name)).unwrap();
    }
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(real.join(to), real.join(name)).unwrap();
    link("outside", "root/leak");
    link("root/inner", "back");
    link("root", "linked-root");
    let settings = HttpSettings {
        cwd_roots: vec![real.join("missing"), real.join("linked-root")],
        loopback_only: false,
        ..settings()
    };
    let check = async |name: &str| usable_cwd(real.join(name).to_str().unwrap(), &settings).await;
    for (name, expected) in [("root", "root"), ("root/inner", "root/inner"), ("back", "root/inner")] {
        assert_eq!(check(name).await.unwrap(), real.join(expected));
    }
    let mut details = Vec::new();
    for name in ["outside", "root2", "root/leak", "root/../outside", "nowhere"] {
        details.push(check(name).await.unwrap_err().detail);
    }
    details.dedup();
    assert_eq!(details.len(), 1, "the answer does not tell what exists outside");
}

#[tokio::test]
async fn the_gateways_own_folder_is_no_place_for_a_session() {
    let folder = tempfile::tempdir().unwrap();
    let real = std::fs::canonicalize(folder.path()).unwrap();
    std::fs::create_dir_all(real.join("storage/workspaces/another")).unwrap();
    std::os::unix::fs::symlink(real.join("storage"), real.join("link")).unwrap();
    for (roots, storage) in [(vec![], "storage"), (vec![], "link"), (vec![real.clone()], "storage")] {
        let settings = HttpSettings { storage_dir: real.join(storage), cwd_roots: roots, ..settings() };
        let check = async |name: &str| usable_cwd(real.join(name).to_str().unwrap(), &settings).await;
        for own in ["storage", "storage/workspaces/another", "link/workspaces/another"] {
            let fault = check(own).await.unwrap_err();
            assert_eq!(fault.pointer, "/cwd");
            assert!(fault.detail.contains("storage.dir"), "{own}: {}", fault.detail);
        }
        assert!(check(".").await.is_ok(), "what it is in is another matter");
    }
}

#[tokio::test]
async fn without_roots_a_directory_may_be_named_on_loopback_only() {
    let folder = tempfile::tempdir().unwrap();
    let settings = HttpSettings { loopback_only: false, ..settings() };
    let fault = usable_cwd(folder.path().to_str().unwrap(), &settings).await.unwrap_err();
    assert_eq!(fault.pointer, "/cwd");
}

#[test]
fn tool_servers_are_names_or_descriptions() {
    let names = |new: &NewSession| -> Vec<String> {
        new.launch.mcp_servers.iter().map(|choice| choice.summary().name).collect()
    };
    for body in [json!({}), json!({"mcp_servers": null})] {
        assert_eq!(names(&create(body).unwrap()), ["web", "files"], "all of the gateway's");
    }
    assert_eq!(names(&create(json!({"mcp_servers": []})).unwrap()), [""; 0]);
    assert_eq!(names(&create(json!({"mcp_servers": ["web"]})).unwrap()), ["web"]);
    let asked = json!(["web", "nosuch", {"name": "own", "url": "http://h/", "headers": {"A": "b"}}]);
    let faults = create(json!({"mcp_servers": asked, "title": ""})).unwrap_err();
    assert_eq!(faults, ["/title", "/mcp_servers/1", "/mcp_servers/2/url"]);
    assert_eq!(create(json!({"mcp_servers": vec!["web"; 33]})).unwrap_err(), ["/mcp_servers"]);

    for (server, path) in [
        (json!({"name": "own", "uri": "x"}), "mcp_servers[0].uri"),
        (json!({"name": "own", "headers": {"A": 1}}), "mcp_servers[0].headers.A"),
        (json!(7), "mcp_servers[0]"),
    ] {
        let body = json!({"mcp_servers": [server]}).to_string();
        let read = serde_path_to_error::deserialize::<_, CreateSession>(
            &mut serde_json::Deserializer::from_str(&body),
        );
        assert_eq!(read.unwrap_err().path().to_string(), path);
    }
}
