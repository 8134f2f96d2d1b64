//! The exact line of every error.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use super::super::{Config, Environment, Flag};
use super::{environment, file_error, variable_error};

/// Texts of a file and the one line that each is answered with.
const IN_FILES: &[(&str, &str)] = &[
    (
        "[sever]\n",
        "sever: no such key; there are server, storage, auth, goose, mcp, permissions, sessions, turns, cancel, crash, limits, log, traces (in FILE)",
    ),
    ("[auth]\nrequierd = true", "auth.requierd: no such key; there are required, tokens_file (in FILE)"),
    (
        "listen = 1",
        "listen: no such key; there are server, storage, auth, goose, mcp, permissions, sessions, turns, cancel, crash, limits, log, traces (in FILE)",
    ),
    ("goose = 1", "goose: expected a section, found 1 (in FILE)"),
    (
        "[server]\nlisten = 4665",
        "server.listen: expected an IP address and a port, such as \"127.0.0.1:4665\", found 4665 (in FILE)",
    ),
    (
        "[server]\nheartbeat = \"soon\"",
        "server.heartbeat: expected a duration of at most 365 days, such as \"15s\", found \"soon\" (in FILE)",
    ),
    (
        "[server]\nheartbeat = \"1000years\"",
        "server.heartbeat: expected a duration of at most 365 days, such as \"15s\", found \"1000years\" (in FILE)",
    ),
    (
        "[server]\npublic_url = \"gander.example.org\"",
        "server.public_url: \"gander.example.org\" is not the address of a gateway, such as https://gander.example.org (no user, query or fragment) (in FILE)",
    ),
    (
        "[server]\ntrusted_proxies = [\"10.0.0.0/8\", \"proxy.example\"]",
        "server.trusted_proxies: \"proxy.example\" is not an IP address or a range of them, such as 10.0.0.0/8 (in FILE)",
    ),
    (
        "[server]\nproxy_headers = \"via\"",
        "server.proxy_headers: expected x-forwarded-for or x-forwarded or forwarded, found \"via\" (in FILE)",
    ),
    (
        "[traces]\nendpoint = \"collector:4318\"",
        "traces.endpoint: \"collector:4318\" is not an address for traces, such as http://127.0.0.1:4318/v1/traces (in FILE)",
    ),
    (
        "[traces]\nsample_ratio = 1.5",
        "traces.sample_ratio: expected a number from 0 to 1, found 1.5 (in FILE)",
    ),
    (
        "[traces.headers]\nauthorization = \"a\\nhush\"",
        "traces.headers.authorization: not a header that can be sent: a name, and a value of one line (in FILE)",
    ),
    (
        "[traces]\nheaders_file = \"/nowhere/headers\"",
        "traces.headers_file: \"/nowhere/headers\" cannot be read: No such file or directory (os error 2) (in FILE)",
    ),
    ("[server]\nheartbeat = \"0s\"", "server.heartbeat: must be longer than zero (in FILE)"),
    (
        "[goose]\nmode = \"bogus\"",
        "goose.mode: expected auto or approve or smart_approve or chat, found \"bogus\" (in FILE)",
    ),
    ("[goose]\nmode = 0", "goose.mode: expected a word, found 0 (in FILE)"),
    (
        "[goose]\nallow_modes = [\"approve\", \"yolo\"]",
        "goose.allow_modes: expected auto or approve or smart_approve or chat, found \"yolo\" (in FILE)",
    ),
    ("[goose]\nallow_modes = []", "goose.allow_modes: must not be empty (in FILE)"),
    (
        "[goose]\nallow_modes = [\"approve\"]",
        "goose.mode: smart_approve is not in goose.allow_modes (the default)",
    ),
    ("[goose]\nbuiltins = [1]", "goose.builtins: expected a string, found 1 (in FILE)"),
    ("[goose]\nbuiltins = 1", "goose.builtins: expected a list or comma-separated text, found 1 (in FILE)"),
    (
        "[goose]\ndisabled_extensions = \"develper\"",
        "goose.disabled_extensions: goose has no extension \"develper\"; did you mean developer? (in FILE)",
    ),
    (
        "[goose]\nbuiltins = [\"nothing like it\"]",
        "goose.builtins: goose has no extension \"nothing like it\" (in FILE)",
    ),
    ("[goose]\ncommand = \" \"", "goose.command: must not be empty (in FILE)"),
    (
        "[[mcp.servers]]\nname = \"Developer\"\ncommand = \"/bin/x\"",
        "mcp.servers: server \"Developer\": name is taken: the server would replace goose's extension developer (in FILE)",
    ),
    (
        "[[mcp.servers]]\nname = \"a\"\nurl = \"http://h/\"\n[[mcp.servers]]\nname = \"A\"\nurl = \"http://i/\"",
        "mcp.servers: server \"A\": name is taken by another server: both are a to goose (in FILE)",
    ),
    (
        "[[mcp.servers]]\nname = \"a\"\ncommand = \"npx\"",
        "mcp.servers: server \"a\": command must be an absolute path of at most 4096 bytes (in FILE)",
    ),
    (
        "[[mcp.servers]]\nname = \"a\"",
        "mcp.servers: server \"a\": must have either a command or a url (in FILE)",
    ),
    (
        "[[mcp.servers]]\nname = \"a\"\ncommand = \"/x\"\nenv = { PATH = \"/evil\" }",
        "mcp.servers: server \"a\": env.PATH goose does not let a server's env set this variable (in FILE)",
    ),
    (
        "[[mcp.servers]]\nname = \"a\"\nurl = \"http://h/\"\nheaders = \"Bearer hush\"",
        "mcp.servers.headers: expected a table of variables, found text (in FILE)",
    ),
    (
        "[[mcp.servers]]\nname = \"a\"\nuri = \"http://h/\"",
        "mcp.servers.uri: no such key; there are name, type, command, args, env, url, headers, answer_discover (in FILE)",
    ),
    (
        "[[mcp.servers]]\nname = \"a\"\ncommand = \"/x\"\nanswer_discover = true",
        "mcp.servers: server \"a\": answer_discover belongs to a server with a url (in FILE)",
    ),
    (
        "[mcp]\nallow_caller = { hosts = [\"*\"], stdio = false }",
        "mcp.allow_caller.hosts: \"*\" is not a host, such as tools.example.org, 127.0.0.1:9000 or *.example.org (in FILE)",
    ),
    (
        "[mcp]\nallow_caller = { stdio = 1 }",
        "mcp.allow_caller.stdio: expected true or false, found 1 (in FILE)",
    ),
    (
        "[goose]\nhome = \"shared\"\nconfig_dir = \"/x\"",
        "goose.config_dir: may not be set with goose.home = \"shared\": goose's own configuration counts there (in FILE)",
    ),
    ("[goose]\nhome = \"mine\"", "goose.home: expected session or shared, found \"mine\" (in FILE)"),
    (
        "[goose.env]\nGOOSE_PATH_ROOT = \"/x\"",
        "goose.env.GOOSE_PATH_ROOT: may not be set: goose.home says where goose keeps what is its own, below storage.dir (\"session\") or where its user has it (\"shared\") (in FILE)",
    ),
    (
        "[goose.env]\nEXTENSIONS = \"{}\"",
        "goose.env.EXTENSIONS: may not be set, since goose would then switch extensions on past goose.disabled_extensions; use goose.builtins and goose.config_dir (in FILE)",
    ),
    (
        "[goose.env]\nGOOSE_SHELL = \"/usr/bin/fish\"",
        "goose.env.GOOSE_SHELL: may only be bash: the permission rules read shell lines as bash does (in FILE)",
    ),
    (
        "[goose.env]\nGANDER_INSTANCE = \"/x\"",
        "goose.env.GANDER_INSTANCE: may not be set: variables that start with GANDER_ are gander's own (in FILE)",
    ),
    (
        "[goose.env]\n\"A=B\" = \"/x\"",
        "goose.env.A=B: \"A=B\" is not the name of an environment variable (in FILE)",
    ),
    ("[goose.env]\nA = \"secret\\u0000\"", "goose.env.A: the value holds a NUL character (in FILE)"),
    (
        "[goose.env]\nA = [\"secret\"]",
        "goose.env.A: expected text, a number or a boolean, found a list (in FILE)",
    ),
    ("[goose]\nenv = \"secret\"", "goose.env: expected a table of variables, found text (in FILE)"),
    (
        "[goose.env]\nGOOSE_MODE = \"atuo\"",
        "goose.env.GOOSE_MODE: expected auto or approve or smart_approve or chat, found \"atuo\" (in FILE)",
    ),
    (
        "[goose]\npass_env = \"*\"",
        "goose.pass_env: \"*\" is not the name of an environment variable, or a prefix such as OPENAI_* (in FILE)",
    ),
    (
        "[goose]\nterminal_env = [\"PATH\", \"OPENAI_API_KEY\"]",
        "goose.terminal_env: OPENAI_API_KEY may not be left to commands: by its name it is a secret (in FILE)",
    ),
    (
        "[limits]\nline_bytes = 1_000_000\nfile_bytes = 500_000",
        "limits.file_bytes: 500000 bytes, escaped, may not fit into a message of limits.line_bytes: expected 467232 at most (in FILE)",
    ),
    (
        "[goose]\nterminal_env = \"A B\"",
        "goose.terminal_env: \"A B\" is not the name of an environment variable, or a prefix such as OPENAI_* (in FILE)",
    ),
    (
        "[goose]\ncaller_env = \"GOOSE_*\"",
        "goose.caller_env: \"GOOSE_*\" is not the name of an environment variable (in FILE)",
    ),
    (
        "[server]\ncors_origins = [\"https://a/\"]",
        "server.cors_origins: \"https://a/\" is not an origin, such as https://app.example.org (no path, no slash at the end) (in FILE)",
    ),
    (
        "[server]\nallowed_hosts = [\"http://a\"]",
        "server.allowed_hosts: \"http://a\" is not a host name, such as gander.example.org or gander.example.org:4665 (in FILE)",
    ),
    (
        "[server]\nmax_connections = 0",
        "server.max_connections: expected a number from 1 to 1000000, found 0 (in FILE)",
    ),
    ("[sessions]\nmax = -1", "sessions.max: expected a whole number, found -1 (in FILE)"),
    ("[sessions]\nmax = 1.5", "sessions.max: expected a whole number, found 1.5 (in FILE)"),
    ("[sessions]\ncwd_roots = \"srv\"", "sessions.cwd_roots: \"srv\" is not an absolute path (in FILE)"),
    ("[sessions]\nextra_roots = \"srv\"", "sessions.extra_roots: \"srv\" is not an absolute path (in FILE)"),
    ("[limits]\nterminals = 0", "limits.terminals: expected a number from 1 to 1000000, found 0 (in FILE)"),
    ("[crash]\ndeaths = 0", "crash.deaths: expected a number from 1 to 1000000, found 0 (in FILE)"),
    ("[crash]\nwithin = \"0s\"", "crash.within: must be longer than zero (in FILE)"),
    (
        "[limits]\nbody_bytes = 99999999999",
        "limits.body_bytes: expected a number from 1 to 4294967295, found 99999999999 (in FILE)",
    ),
    (
        "[permissions]\non_timeout = \"allow\"",
        "permissions.on_timeout: expected reject, found \"allow\" (in FILE)",
    ),
    (
        "[permissions]\ndefault = \"deny\"",
        "permissions.default: expected allow or ask or reject, found \"deny\" (in FILE)",
    ),
    ("[[permissions.rules]]\ntool = \"shell\"", "permissions.rules.action: missing (in FILE)"),
    (
        "[[permissions.rules]]\naction = \"allow\"\ntols = \"shell\"",
        "permissions.rules.tols: no such key; there are action, tool, extension, kind, mode, path, command, input (in FILE)",
    ),
    (
        "[[permissions.rules]]\naction = \"ask\"\n[[permissions.rules]]\naction = \"reject\"\npath = \"~/.ssh/**\"",
        "permissions.rules: rule 2: path may not begin with ~, which stands for nobody's home here; write the absolute path (in FILE)",
    ),
    ("[permissions]\ntimeout = \"0s\"", "permissions.timeout: must be longer than zero (in FILE)"),
    ("[storage]\nsync = true", "storage.sync: expected a word, found true (in FILE)"),
    (
        "[log]\nfilter = \"a=b=c\"",
        "log.filter: \"a=b=c\" is not a log filter, such as info or gander=debug,warn (in FILE)",
    ),
    ("[log]\nfilter = \"\"", "log.filter: must not be empty (in FILE)"),
    (
        "[server]\nlisten = \"0.0.0.0:1\"\n[auth]\nrequired = false",
        "auth.required: may be false only while server.listen is a loopback address, not 0.0.0.0:1 (in FILE)",
    ),
    (
        "[goose.serve]\nhost = \"10.0.0.7\"",
        "goose.serve.host: 10.0.0.7 is no loopback address: set goose.serve.allow_remote_host = true if goose is to \
         listen there (in FILE)",
    ),
    (
        "[goose.serve]\nping_interval = \"1m\"",
        "goose.serve.ping_timeout: must not be shorter than goose.serve.ping_interval (the default)",
    ),
    ("[server]\n\nlisten = = 1", "FILE, line 3: invalid string, expected `\"`, `'`"),
    (
        "\"a\\nb\" = 1",
        "a, b: no such key; there are server, storage, auth, goose, mcp, permissions, sessions, turns, cancel, crash, limits, log, traces (in FILE)",
    ),
];

#[test]
fn errors_name_the_key_and_the_file() {
    for (text, line) in IN_FILES {
        assert_eq!(file_error(text), *line, "{text}");
        assert_eq!(line.lines().count(), 1);
    }
}

#[test]
fn errors_name_the_variable_or_flag() {
    for (name, value, line) in [
        (
            "GANDER_SERVER__LISTEN",
            "localhost",
            "server.listen: expected an IP address and a port, such as \"127.0.0.1:4665\", found \"localhost\" (set by GANDER_SERVER__LISTEN)",
        ),
        (
            "GANDER_AUTH__REQUIRED",
            "yes",
            "auth.required: expected true or false, found \"yes\" (set by GANDER_AUTH__REQUIRED)",
        ),
        (
            "GANDER_SESSIONS__MAX",
            "many",
            "sessions.max: expected a whole number, found \"many\" (set by GANDER_SESSIONS__MAX)",
        ),
        (
            "GANDER_SESSIONS__MAX",
            "1\nmax = 2",
            "sessions.max: expected a whole number, found \"1\\nmax = 2\" (set by GANDER_SESSIONS__MAX)",
        ),
        (
            "GANDER_GOOSE__BUILTINS",
            "todo,mem ory,memroy",
            "goose.builtins: goose has no extension \"memroy\"; did you mean memory? (set by GANDER_GOOSE__BUILTINS)",
        ),
        (
            "GANDER_LOG__COLOUR",
            "x",
            "log.colour: no such key; there are filter, format, content (set by GANDER_LOG__COLOUR)",
        ),
        (
            "GANDER_GOOSE__ENV__GOOSE_PATH_ROOT",
            "x",
            "goose.env.GOOSE_PATH_ROOT: may not be set: goose.home says where goose keeps what is its own, below storage.dir (\"session\") or where its user has it (\"shared\") (set by GANDER_GOOSE__ENV__GOOSE_PATH_ROOT)",
        ),
        (
            "GANDER_SERVER_LISTEN",
            "x",
            "GANDER_SERVER_LISTEN: not a setting; a setting's variable is GANDER_<SECTION>__<KEY>",
        ),
        (
            "GANDER_SERVER__",
            "x",
            "GANDER_SERVER__: not a setting; a setting's variable is GANDER_<SECTION>__<KEY>",
        ),
        (
            "GANDER_SERVER",
            "x",
            "GANDER_SERVER: not a setting; a setting's variable is GANDER_<SECTION>__<KEY>",
        ),
    ] {
        assert_eq!(variable_error(name, value), line, "{name}={value}");
    }
    let flags = [Flag { name: "--listen", key: "server.listen", value: "80".to_owned() }];
    assert_eq!(
        Config::load(None, environment(&[]), &flags).unwrap_err().to_string(),
        "server.listen: expected an IP address and a port, such as \"127.0.0.1:4665\", found \"80\" (set by --listen)"
    );
    let broken = OsString::from_vec(vec![0xff]);
    let variables = Environment::from_iter([(OsString::from("GANDER_GOOSE__MODEL"), broken)]);
    assert_eq!(
        Config::load(None, variables, &[]).unwrap_err().to_string(),
        "goose.model: not valid UTF-8 (set by GANDER_GOOSE__MODEL)"
    );
}

#[test]
fn a_missing_file_and_a_missing_home_are_errors() {
    let error = Config::load(Some(Path::new("/nowhere/gander.toml")), environment(&[]), &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read the configuration file /nowhere/gander.toml: No such file or directory (os error 2)"
    );
    let error = Config::load(None, Environment::default(), &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "storage.dir: has no default here, since neither XDG_STATE_HOME nor HOME is an absolute path; name a folder (the default)"
    );
}

#[test]
fn nothing_that_leaks_or_opens_can_be_left_to_callers() {
    for name in [
        "PATH",
        "LD_PRELOAD",
        "ld_preload",
        "OPENAI_API_KEY",
        "OPENAI_HOST",
        "OPENAI_BASE_URL",
        "GOOSE_PATH_ROOT",
        "GOOSE_MODE",
        "GOOSE_PROVIDER",
        "GOOSE_MODEL",
        "GANDER_X",
        "EXTENSIONS",
        "GOOSE_ADDITIONAL_CONFIG_FILES",
        "HTTPS_PROXY",
        "https_proxy",
        "GITHUB_TOKEN",
        "GOOSE_DISABLE_KEYRING",
        "OPENAI_BASE_PATH",
        "GOOSE_MOIM_MESSAGE_FILE",
        "GOOSE_CA_CERT_PATHS",
        "CODEX_COMMAND",
        "XDG_CONFIG_HOME",
        "GIT_SSH_COMMAND",
    ] {
        assert_eq!(
            variable_error("GANDER_GOOSE__CALLER_ENV", &format!("GOOSE_MAX_TURNS,{name}")),
            format!(
                "goose.caller_env: {name} may not be left to callers: it could leak a key, run another program \
                 or change the mode (set by GANDER_GOOSE__CALLER_ENV)"
            )
        );
    }
}
