mod errors;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Config, DEFAULTS, Environment, Flag, GooseTransport, LogFormat, StorageSync};
use crate::session::agent::Mode;
use crate::session::policy::{Action, OnTimeout};

/// An environment in which every default folder can be told and no goose configuration exists.
fn environment(variables: &[(&str, &str)]) -> Environment {
    [("HOME", "/nowhere/home"), ("PATH", "/nowhere/bin")]
        .into_iter()
        .chain(variables.iter().copied())
        .collect()
}

fn with_variables(variables: &[(&str, &str)]) -> Result<Config, String> {
    Config::load(None, environment(variables), &[]).map_err(|error| error.to_string())
}

fn variable_error(name: &str, value: &str) -> String {
    with_variables(&[(name, value)]).expect_err("this value must be refused")
}

/// Loads a file of this text; in the error the file's path is FILE.
fn with_file(text: &str) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gander.toml");
    std::fs::write(&path, text).unwrap();
    Config::load(Some(&path), environment(&[]), &[])
        .map_err(|error| error.to_string().replace(path.to_str().unwrap(), "FILE"))
}

fn file_error(text: &str) -> String {
    with_file(text).expect_err("this file must be refused")
}

#[test]
fn the_defaults_are_whole_and_what_the_contract_says() {
    // A key without a default in the file would be missing here, and one that is no key would be unknown.
    let config = with_variables(&[]).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:4665");
    assert_eq!(config.server.heartbeat, Duration::from_secs(15));
    assert_eq!(config.storage.dir, Path::new("/nowhere/home/.local/state/gander"));
    assert_eq!(config.storage.sync, StorageSync::Normal);
    assert_eq!(config.storage.idempotency_keep, Duration::from_hours(24));
    assert!(config.auth.required);
    assert_eq!(config.auth.tokens_file, None);
    assert_eq!(config.goose.builtins, ["todo"]);
    assert_eq!(config.goose.transport, GooseTransport::Stdio);
    assert!(config.goose.serve.host.is_loopback() && !config.goose.serve.allow_remote_host);
    assert_eq!(config.goose.mode, Mode::SmartApprove);
    assert_eq!(config.goose.allow_modes.len(), 4);
    assert_eq!((config.goose.provider.as_deref(), config.goose.model.as_deref()), (None, None));
    assert_eq!(config.goose.config_dir, None);
    assert!(config.goose.caller_env.contains(&"GOOSE_MAX_TURNS".to_owned()));
    assert_eq!((config.permissions.default, config.permissions.rules.len()), (Action::Ask, 0));
    assert_eq!(config.permissions.on_timeout, OnTimeout::Reject);
    assert!(config.permissions.allow_plan_write);
    assert_eq!(config.limits.line_bytes, 16 << 20);
    assert_eq!(config.log.format, LogFormat::Text);
}

#[test]
fn no_pattern_gives_commands_a_secret() {
    let config = with_variables(&[
        ("GANDER_GOOSE__TERMINAL_ENV", "OPENAI_*, MY_*"),
        ("GANDER_GOOSE__ENV__OPENAI_API_KEY", "sk-set"),
        ("GANDER_GOOSE__ENV__OPENAI_HOST", "http://m"),
        ("OPENAI_CUSTOM_HEADERS", "Authorization=x"),
        ("MY_TOKEN", "secret"),
        ("MY_NAME", "m"),
    ]);
    let environment = config.unwrap().terminal_environment();
    let names: Vec<_> = environment.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["MY_NAME", "OPENAI_HOST"]);
}

#[test]
fn the_shared_home_is_found_as_goose_finds_it() {
    let shared = |variables: &[(&str, &str)]| {
        let variables: Vec<_> = [("GANDER_GOOSE__HOME", "shared")].iter().chain(variables).copied().collect();
        with_variables(&variables).map(|config| {
            assert_eq!(config.goose.config_dir, Some(config.shared_home_in_use().unwrap().configuration));
            config.goose.config_dir.unwrap()
        })
    };
    for (variables, folder) in [
        (&[][..], "/nowhere/home/.config/goose"),
        (&[("GOOSE_PATH_ROOT", "/nowhere/root")], "/nowhere/root/config"),
        (&[("XDG_CONFIG_HOME", "/nowhere/c")], "/nowhere/c/goose"),
        (
            &[("XDG_CONFIG_HOME", "/nowhere/c"), ("GANDER_GOOSE__ENV__XDG_CONFIG_HOME", "/nowhere/e")],
            "/nowhere/e/goose",
        ),
    ] {
        assert_eq!(shared(variables).unwrap(), Path::new(folder), "{variables:?}");
    }
    let error = shared(&[("HOME", "relative"), ("GANDER_STORAGE__DIR", "/nowhere/s")]).unwrap_err();
    assert!(error.starts_with("goose.home: has no default here"), "{error}");
    assert_eq!(with_variables(&[]).unwrap().shared_home_in_use(), None);
}

#[test]
fn tool_servers_are_read_from_tables_and_from_a_variable_and_not_shown() {
    let text = "[mcp]\nallow_caller = { hosts = \"a.example, 127.0.0.1:9000\" }\n\
        [[mcp.servers]]\nname = \"My Files\"\ncommand = \"/bin/files\"\nargs = [\"-v\"]\nenv = { TOKEN = \"hush\", N = 1 }\n\
        [[mcp.servers]]\nname = \"web\"\nurl = \"http://web/mcp\"\nheaders = { Authorization = \"Bearer hush\" }\n\
        answer_discover = true";
    let config = with_file(text).unwrap();
    let servers = config.mcp.servers();
    let names: Vec<&str> =
        servers.configured.iter().map(|configured| configured.server.name.as_str()).collect();
    assert_eq!(names, ["myfiles", "web"]);
    assert!(servers.configured[1].answer_discover && !servers.answer_discover);
    assert_eq!((servers.allowance.stdio, servers.allowance.hosts.len()), (false, 2));
    assert!(!format!("{config:?}").contains("hush"));

    let list = "[{ name = \"web\", url = \"http://web/mcp\" }]";
    let variables = [("GANDER_MCP__SERVERS", list), ("GANDER_MCP__ALLOW_CALLER__STDIO", "true")];
    let servers = with_variables(&variables).unwrap().mcp.servers();
    assert_eq!((servers.configured.len(), servers.allowance.stdio), (1, true));
}

#[test]
fn the_rules_that_people_are_shown_can_be_used() {
    let page = include_str!("../../docs/permission-rules.md");
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(examples.len(), 3);
    for example in examples {
        assert!(!with_file(example).unwrap().permissions.rules.is_empty(), "{example}");
    }
    let (start, end) =
        (DEFAULTS.find("# [[permissions.rules]]").unwrap(), DEFAULTS.find("\n[sessions]").unwrap());
    let commented = DEFAULTS[start..end].lines().map(|line| line.trim_start_matches("# "));
    let rules = with_file(&commented.collect::<Vec<_>>().join("\n")).unwrap().permissions.rules;
    assert_eq!(rules.len(), 3);
}

#[test]
fn permission_rules_are_read() {
    let config = with_file(
        "[permissions]\ndefault = \"reject\"\n[[permissions.rules]]\naction = \"allow\"\ntool = \"tree\"\n\
         [[permissions.rules]]\naction = \"ask\"\nmode = \"auto\"\ninput = { \"/depth\" = 3 }\n",
    )
    .unwrap();
    let [first, second] = config.permissions.rules.as_slice() else { panic!("two rules") };
    assert_eq!((first.action, first.tool.as_deref()), (Action::Allow, Some("tree")));
    assert_eq!((second.mode, &second.input["/depth"]), (Some(Mode::Auto), &serde_json::json!(3)));
    let by_variable = with_variables(&[("GANDER_PERMISSIONS__DEFAULT", "allow")]).unwrap();
    assert_eq!(by_variable.permissions.default, Action::Allow);
}

#[test]
fn every_key_of_the_defaults_has_a_comment_above_it() {
    let lines: Vec<&str> = DEFAULTS.lines().collect();
    let is_key = |line: &str| {
        line.split_once(" = ")
            .is_some_and(|(key, _)| key.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()))
    };
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| is_key(line)) {
        let above = lines[number - 1];
        // provider and model share a comment.
        assert!(above.starts_with("# ") || is_key(above), "{line} has no comment");
    }
}

#[test]
fn later_layers_win_key_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gander.toml");
    std::fs::write(&path, "[server]\nlisten = '127.0.0.1:1'\nheartbeat = '1s'\n[log]\nformat = 'json'\n")
        .unwrap();
    let variables =
        environment(&[("GANDER_SERVER__LISTEN", "127.0.0.1:2"), ("GANDER_SERVER__HEARTBEAT", "2s")]);
    let flags = [Flag { name: "--listen", key: "server.listen", value: "127.0.0.1:3".to_owned() }];
    let config = Config::load(Some(&path), variables, &flags).unwrap();
    assert_eq!(config.server.listen.port(), 3);
    assert_eq!(config.server.heartbeat, Duration::from_secs(2));
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.server.shutdown_grace, Duration::from_secs(20));
}

#[test]
fn variables_are_read_as_what_the_key_takes() {
    let config = with_variables(&[
        ("GANDER_GOOSE__BUILTINS", " todo, memory ,,todo"),
        ("GANDER_GOOSE__DISABLED_EXTENSIONS", r#"["apps", "Extension Manager"]"#),
        ("GANDER_GOOSE__ALLOW_MODES", "approve,smart_approve"),
        ("GANDER_GOOSE__MODEL", "4"),
        ("GANDER_GOOSE__PROVIDER", ""),
        ("GANDER_SESSIONS__CWD_ROOTS", "/srv,/home"),
        ("GANDER_SESSIONS__MAX", "7"),
        ("GANDER_AUTH__REQUIRED", "false"),
        ("GANDER_GOOSE__ENV__OPENAI_HOST", "http://a"),
        ("GANDER_GOOSE__ENV__lower__CASE", "[1]"),
        ("GANDER_INSTANCE", "the marker of a gander outside"),
        ("UNRELATED", "x"),
    ])
    .unwrap();
    assert_eq!(config.goose.builtins, ["todo", "memory"]);
    assert_eq!(config.goose.disabled_extensions, ["apps", "extensionmanager"]);
    assert_eq!(config.goose.allow_modes, [Mode::Approve, Mode::SmartApprove]);
    assert_eq!(config.goose.model.as_deref(), Some("4"));
    assert_eq!(config.goose.provider, None);
    assert_eq!(config.sessions.cwd_roots, [PathBuf::from("/srv"), PathBuf::from("/home")]);
    assert_eq!(config.sessions.max, 7);
    assert!(!config.auth.required);
    assert_eq!(config.goose.env["OPENAI_HOST"].expose(), "http://a");
    assert_eq!(config.goose.env["lower__CASE"].expose(), "[1]");
    let config = with_variables(&[("GANDER_GOOSE__BUILTINS", "")]).unwrap();
    assert!(config.goose.builtins.is_empty());
    let config = with_variables(&[("GANDER_GOOSE__ENV", "{ A = 1, B = true, C = 'x' }")]).unwrap();
    let values: Vec<&str> = config.goose.env.values().map(super::Secret::expose).collect();
    assert_eq!(values, ["1", "true", "x"]);
}

#[test]
fn a_file_takes_lists_as_text_too() {
    let config =
        with_file("[goose]\nbuiltins = 'todo, memory'\n[goose.env]\nGOOSE_MAX_TURNS = 40\n").unwrap();
    assert_eq!(config.goose.builtins, ["todo", "memory"]);
    assert_eq!(config.goose.env["GOOSE_MAX_TURNS"].expose(), "40");
}

#[test]
fn without_authentication_only_loopback_may_listen() {
    for listen in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        with_variables(&[("GANDER_SERVER__LISTEN", listen), ("GANDER_AUTH__REQUIRED", "false")]).unwrap();
    }
    for listen in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
        with_variables(&[("GANDER_SERVER__LISTEN", listen)]).unwrap();
        with_variables(&[("GANDER_SERVER__LISTEN", listen), ("GANDER_AUTH__REQUIRED", "false")]).unwrap_err();
    }
}

#[test]
fn mode_provider_and_model_in_the_env_table_become_the_defaults() {
    let config = with_file(
        "[goose]\nmode = 'chat'\nmodel = 'a'\n[goose.env]\nGOOSE_MODE = 'approve'\nGOOSE_MODEL = 'b'\n\
         GOOSE_PROVIDER = 'openai'\nOPENAI_HOST = 'x'\n",
    )
    .unwrap();
    assert_eq!(config.goose.mode, Mode::Approve);
    assert_eq!(config.goose.model.as_deref(), Some("b"));
    assert_eq!(config.goose.provider.as_deref(), Some("openai"));
    assert_eq!(config.goose.env.keys().collect::<Vec<_>>(), ["OPENAI_HOST"]);
    assert_eq!(
        file_error("[goose]\nallow_modes = 'approve'\n[goose.env]\nGOOSE_MODE = 'auto'\n"),
        "goose.env.GOOSE_MODE: auto is not in goose.allow_modes (in FILE)"
    );
}

#[test]
fn folders_have_defaults_and_become_absolute() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let variables =
        |extra: &[(&str, &str)]| environment(&[&[("HOME", home.to_str().unwrap())], extra].concat());
    let load = |extra: &[(&str, &str)]| Config::load(None, variables(extra), &[]).unwrap();
    assert_eq!(load(&[]).goose.config_dir, None, "a folder that does not exist is no default");
    std::fs::create_dir_all(home.join(".config/goose")).unwrap();
    assert_eq!(load(&[]).goose.config_dir, Some(home.join(".config/goose")));
    assert_eq!(load(&[("XDG_CONFIG_HOME", "/nowhere")]).goose.config_dir, None);
    assert_eq!(load(&[("XDG_CONFIG_HOME", "")]).goose.config_dir, Some(home.join(".config/goose")));
    assert_eq!(load(&[("XDG_STATE_HOME", "/state")]).storage.dir, Path::new("/state/gander"));
    assert_eq!(load(&[("XDG_STATE_HOME", "relative")]).storage.dir, home.join(".local/state/gander"));
    let no_text = std::ffi::OsString::from_vec(b"/st\xff".to_vec());
    let environment: Environment = [(OsString::from("XDG_STATE_HOME"), no_text)].into_iter().collect();
    let error = Config::load(None, environment, &[]).unwrap_err().to_string();
    assert!(error.starts_with("storage.dir: not valid UTF-8"), "{error}");
    let here = std::env::current_dir().unwrap();
    let config = load(&[
        ("GANDER_STORAGE__DIR", "data"),
        ("GANDER_AUTH__TOKENS_FILE", "tokens.toml"),
        ("GANDER_GOOSE__CONFIG_DIR", "/etc/goose"),
    ]);
    assert_eq!(config.storage.dir, here.join("data"));
    assert_eq!(config.auth.tokens_file, Some(here.join("tokens.toml")));
    assert_eq!(config.goose.config_dir, Some(PathBuf::from("/etc/goose")));
}

#[test]
fn goose_inherits_only_what_is_listed_and_never_ours() {
    let broken = (OsString::from("OPENAI_BROKEN"), OsString::from_vec(vec![b'a', 0xff]));
    let text = [
        ("HOME", "/nowhere/home"),
        ("OPENAI_API_KEY", "k"),
        ("OPENAI", "no prefix"),
        ("GOOSE_PROVIDER", "openai"),
        ("GOOSE_PATH_ROOT", "/root"),
        ("GOOSE_ADDITIONAL_CONFIG_FILES", "/x.yaml"),
        ("EXTENSIONS", "{}"),
        ("GOOSE_SERVER__SECRET_KEY", "s"),
        ("GANDER_LOG__FILTER", "info"),
        ("LC_ALL", "C"),
        ("DATABASE_URL", "postgres://secret"),
        ("GANDER_GOOSE__PASS_ENV", "HOME,OPENAI_*,GOOSE_*,GOOSE_PATH_ROOT,GANDER_*,G*,LC_*,EXTENSIONS"),
    ];
    let variables: Environment = text
        .map(|(name, value)| (OsString::from(name), OsString::from(value)))
        .into_iter()
        .chain([broken])
        .collect();
    let config = Config::load(None, variables, &[]).unwrap();
    let names: Vec<String> = config.agent_environment().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["GOOSE_PROVIDER", "HOME", "LC_ALL", "OPENAI_API_KEY"]);
}

#[test]
fn goose_is_found_on_the_path_or_where_the_path_says() {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    let other = folder.path().join("other");
    for (path, mode) in [(bin.join("goose"), 0o644), (other.join("goose"), 0o755)] {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::create_dir(bin.join("folder")).unwrap();
    let path = format!("relative:{}:{}", bin.display(), other.display());
    let find = |command: &str| {
        let variables = environment(&[("PATH", &path), ("GANDER_GOOSE__COMMAND", command)]);
        Config::load(None, variables, &[]).unwrap().goose_command()
    };
    assert_eq!(find("goose"), Some(other.join("goose")), "the first one is not executable");
    assert_eq!(find("folder"), None);
    assert_eq!(find("absent"), None);
    assert_eq!(find(other.join("goose").to_str().unwrap()), Some(other.join("goose")));
    assert_eq!(find(bin.join("goose").to_str().unwrap()), None);
    assert_eq!(find(bin.to_str().unwrap()), None);
}

#[test]
fn a_provider_is_found_wherever_goose_would_find_it() {
    let folder = tempfile::tempdir().unwrap();
    let config_dir = folder.path().to_str().unwrap();
    assert!(!with_variables(&[]).unwrap().provider_configured());
    let from_file = |yaml: &str| {
        std::fs::write(folder.path().join("config.yaml"), yaml).unwrap();
        with_variables(&[("GANDER_GOOSE__CONFIG_DIR", config_dir)]).unwrap().provider()
    };
    assert_eq!(from_file("GOOSE_PROVIDER: anthropic\nextensions: {}\n").as_deref(), Some("anthropic"));
    assert_eq!(from_file("GOOSE_MODEL: x\n"), None);
    assert_eq!(from_file("GOOSE_PROVIDER: [\n"), None);
    assert_eq!(from_file("GOOSE_PROVIDER: ''\n"), None);
    let with = |variables: &[(&str, &str)]| with_variables(variables).unwrap().provider();
    assert_eq!(with(&[("GOOSE_PROVIDER", "openai")]).as_deref(), Some("openai"));
    assert_eq!(with(&[("GOOSE_PROVIDER", "openai"), ("GANDER_GOOSE__PASS_ENV", "HOME")]), None);
    assert_eq!(
        with(&[("GOOSE_PROVIDER", "openai"), ("GANDER_GOOSE__PROVIDER", "groq")]).as_deref(),
        Some("groq")
    );
    assert_eq!(with(&[("GANDER_GOOSE__ENV__GOOSE_PROVIDER", "groq")]).as_deref(), Some("groq"));
}

#[test]
fn debug_shows_no_secret() {
    let config = with_variables(&[
        ("GANDER_GOOSE__ENV__OPENAI_API_KEY", "sk-one"),
        ("OPENAI_API_KEY", "sk-two"),
        ("GANDER_GOOSE__MODEL", "gpt-4o"),
    ])
    .unwrap();
    let text = format!("{config:?}");
    assert!(text.contains("gpt-4o") && text.contains("OPENAI_API_KEY"));
    assert!(!text.contains("sk-"), "{text}");
}

#[test]
fn goose_listens_for_other_machines_only_when_told_so_twice() {
    let file = "[goose]\ntransport = \"websocket\"\n[goose.serve]\nhost = \"0.0.0.0\"\n";
    assert!(with_file(file).is_err());
    let config = with_file(&format!("{file}allow_remote_host = true\nport = 9000")).unwrap();
    assert_eq!((config.goose.serve.host.to_string().as_str(), config.goose.serve.port), ("0.0.0.0", 9000));
    assert_eq!(config.goose.transport, GooseTransport::Websocket);
}
