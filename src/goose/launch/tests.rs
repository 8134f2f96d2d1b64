use std::path::Path;

use super::*;
use crate::goose::places::SharedHome;

fn settings() -> LaunchSettings {
    let pairs = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    LaunchSettings {
        extensions: ExtensionLevel {
            builtins: Some(vec!["todo".into(), "memory".into()]),
            disabled: Vec::new(),
        },
        scheduler: true,
        inherited: pairs(&[
            ("PATH", "/bin"),
            ("GOOSE_MODE", "auto"),
            ("GOOSE_SHELL", "zsh"),
            ("OPENAI_API_KEY", "k"),
            ("TMPDIR", "/tmp"),
        ]),
        last: pairs(&[("GOOSE_DISABLE_KEYRING", "0"), ("GOOSE_MAX_TURNS", "5")]),
        own: OwnSettings {
            provider: Some("openai".into()),
            model: Some("gpt-4o".into()),
            thinking_effort: None,
        },
    }
}

fn spec() -> LaunchSpec {
    LaunchSpec {
        provider: Some("openai".into()),
        disabled_extensions: vec!["memory".into()],
        env: BTreeMap::from([
            ("GOOSE_MAX_TURNS".into(), "9".into()),
            ("GOOSE_TEMPERATURE".into(), "0".into()),
        ]),
        ..LaunchSpec::new(Mode::Approve)
    }
}

fn own(root: &str) -> Places {
    Places::own(Path::new(root))
}

#[test]
fn in_the_shared_home_goose_is_as_it_is_for_its_user() {
    let variables = [("HOME", "/h"), ("XDG_STATE_HOME", "/s"), ("GOOSE_DISABLE_KEYRING", "")];
    let variable =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let shared = Places::shared(Path::new("/homes/one"), SharedHome::find(variable).unwrap());
    let settings = LaunchSettings { last: Vec::new(), ..settings() };
    let environment = settings.launch(&spec(), &shared).unwrap().environment;
    for (name, value) in [
        ("HOME", Some("/h")),
        ("XDG_STATE_HOME", Some("/s")),
        ("TMPDIR", Some("/homes/one/tmp")),
        ("GOOSE_PATH_ROOT", None),
        ("GOOSE_DISABLE_KEYRING", None),
    ] {
        assert_eq!(environment.get(name).map(String::as_str), value, "{name}");
    }
}

#[test]
fn the_environment_is_layered_and_the_servers_table_is_last() {
    let launch = settings().launch(&spec(), &own("/home/of/session")).unwrap();
    assert_eq!(launch.arguments, ["acp", "--with-builtin", "todo", "--enable-scheduler"]);
    let environment: Vec<String> =
        launch.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(
        environment,
        [
            "GOOSE_DISABLE_KEYRING=0",
            "GOOSE_MAX_TURNS=5",
            "GOOSE_MODE=approve",
            "GOOSE_PATH_ROOT=/home/of/session",
            "GOOSE_PROVIDER=openai",
            "GOOSE_SHELL=bash",
            "GOOSE_TELEMETRY_ENABLED=false",
            "GOOSE_TEMPERATURE=0",
            "OPENAI_API_KEY=k",
            "PATH=/bin",
            "TMPDIR=/home/of/session/tmp",
        ]
    );
    let required = ["todo", "Memory", "web"].map(str::to_owned);
    assert_eq!(launch.ruled_out(&required), [absent("memory", "it is switched off")]);
    let off = ["code_execution", "extensionmanager", "memory", "orchestrator", "summon"];
    assert_eq!(launch.switched_off, off.map(str::to_owned).into());
}

#[test]
fn loopback_is_reached_without_a_detour() {
    for (variables, hosts) in [
        (&[][..], "127.0.0.1"),
        (&[("NO_PROXY", "a.example"), ("no_proxy", "b.example")], "a.example,127.0.0.1"),
        (&[("NO_PROXY", " "), ("no_proxy", "b.example")], "b.example,127.0.0.1"),
    ] {
        let set = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut launch = settings().launch(&spec(), &own("/h")).unwrap();
        launch.environment.extend(set);
        launch.reach_loopback_directly();
        assert_eq!((&*launch.environment["NO_PROXY"], &*launch.environment["no_proxy"]), (hosts, hosts));
    }
}

fn options() -> Vec<ConfigOption> {
    vec![ConfigOption {
        id: "provider".into(),
        name: "Provider".into(),
        category: None,
        current_value: Some("openai".into()),
        choices: Vec::new(),
        omitted_choices: 0,
    }]
}

#[test]
fn another_mode_or_no_settings_fail_the_start() {
    let fails = |mode: Option<&str>, options| {
        check(Mode::Approve, mode.map(str::to_owned), options, None).unwrap_err()
    };
    assert_eq!(
        fails(Some("auto"), Some(options())),
        Mismatch::Mode { asked: "approve", found: "auto".into() }
    );
    assert_eq!(fails(None, Some(options())), Mismatch::Mode { asked: "approve", found: String::new() });
    assert_eq!(fails(Some("approve"), None), Mismatch::ProviderNotConfigured);
    assert_eq!(fails(Some("approve"), Some(Vec::new())), Mismatch::ProviderNotConfigured);
}

#[test]
fn extensions_have_their_keys_and_what_is_wrong_is_told() {
    let extension = |name: &str, error: Option<&str>| ExtensionStatus {
        name: name.into(),
        loaded: error.is_none(),
        error: error.map(str::to_owned),
    };
    let said = vec![
        extension("todo", None),
        extension("Extension Manager", None),
        extension("nosuch", Some("Unknown extension: nosuch")),
    ];
    let checked = check(Mode::Approve, Some("approve".into()), Some(options()), Some(said)).unwrap();
    let names: Vec<&str> = checked.extensions.iter().map(|extension| extension.name.as_str()).collect();
    assert_eq!(names, ["todo", "extensionmanager", "nosuch"]);
    let codes: Vec<&str> = checked.notices.iter().map(|notice| notice.code.as_str()).collect();
    assert_eq!(codes, ["extension-failed"]);
}

#[test]
fn required_extensions_are_looked_for_by_any_of_their_names() {
    let extension = |name: &str, error: Option<&str>| ExtensionStatus {
        name: name.into(),
        loaded: error.is_none(),
        error: error.map(str::to_owned),
    };
    let there = [
        extension("extensionmanager", None),
        extension("My Server", None),
        extension("web", Some("refused")),
    ];
    let missing =
        |names: &[&str]| missing(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), &there);
    assert_eq!(missing(&["Extension Manager", "extension_manager", "myserver"]), []);
    let absent = extension("developer", Some("the agent has not loaded it"));
    assert_eq!(missing(&["web", " Developer "]), [there[2].clone(), absent]);
}
