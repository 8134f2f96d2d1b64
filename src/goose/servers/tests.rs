use std::collections::BTreeMap;

use super::*;
use crate::session::agent::servers::{McpServerKind, McpServerParts};

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn web(name: &str, url: &str) -> McpServerParts {
    McpServerParts { name: name.into(), url: Some(url.into()), ..McpServerParts::default() }
}

fn program(name: &str, command: &str) -> McpServerParts {
    McpServerParts { name: name.into(), command: Some(command.into()), ..McpServerParts::default() }
}

fn servers() -> Servers {
    let hosts = ["tools.example.org", "127.0.0.1:9000"];
    let configured = |parts, answer_discover| ToolServer { server: read(parts).unwrap(), answer_discover };
    Servers {
        configured: vec![
            configured(program("Files", "/bin/files"), false),
            configured(web("web", "http://web/"), true),
        ],
        answer_discover: false,
        allowance: Allowance {
            stdio: false,
            hosts: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
        },
    }
}

fn names(choices: &[McpServerChoice]) -> Vec<String> {
    choices.iter().map(|choice| choice.summary().name).collect()
}

#[test]
fn names_fold_as_goose_folds_them() {
    // Each was given to goose 1.52; the right side is what its tools were called by.
    for (name, key) in [
        ("My Srv", "mysrv"),
        ("web-One", "web-one"),
        ("A_B", "a_b"),
        ("a.b", "a_b"),
        ("x@y", "x_y"),
        ("9nine", "9nine"),
        ("nb\u{a0}sp", "nbsp"),
        ("tab\tx", "tabx"),
        ("日本", "__"),
        ("İx", "_x"),
    ] {
        assert_eq!(folded(name), key, "{name:?}");
    }
}

#[test]
fn a_name_is_one_that_goose_keeps_and_that_replaces_nothing() {
    for (name, key) in [("My Srv", "mysrv"), ("web-One", "web-one"), ("a_b", "a_b"), ("7", "7")] {
        assert_eq!(read(web(name, "http://h/")).unwrap().name, key);
    }
    let long = "a".repeat(49);
    for bad in [
        "",
        " ",
        &long,
        "a.b",
        "ä",
        "a\tb",
        "_a",
        "a_",
        "a__b",
        "a_ _b",
        "developer",
        "Developer",
        "dev eloper",
        "todo",
        "Extension Manager",
        "extension_manager",
        "code execution",
        "codeexecution",
        "memory",
        "platform",
        "Plat Form",
    ] {
        assert_eq!(read(web(bad, "http://h/")).unwrap_err().field, "/name", "{bad:?}");
    }
}

#[test]
fn a_server_is_a_command_or_a_url() {
    let of_kind = |kind: &str, parts: McpServerParts| McpServerParts { kind: Some(kind.into()), ..parts };
    for parts in [web("a", "https://h/mcp?k=v"), of_kind("http", web("a", "http://h"))] {
        assert_eq!(read(parts).unwrap().kind(), McpServerKind::Http);
    }
    for parts in [program("a", "/bin/a"), of_kind("stdio", program("a", "/bin/a"))] {
        assert_eq!(read(parts).unwrap().kind(), McpServerKind::Stdio);
    }
    let sse = read(of_kind("sse", web("a", "http://h/"))).unwrap_err();
    assert_eq!(sse.field, "/type");
    assert!(sse.detail.contains("SSE is unsupported, migrate to streamable_http"), "{sse}");
    for (parts, field) in [
        (McpServerParts { name: "a".into(), ..McpServerParts::default() }, ""),
        (McpServerParts { command: Some("/bin/a".into()), ..web("a", "http://h/") }, ""),
        (of_kind("stdio", web("a", "http://h/")), "/type"),
        (of_kind("http", program("a", "/bin/a")), "/type"),
        (of_kind("websocket", web("a", "http://h/")), "/type"),
        (McpServerParts { headers: Some(map(&[])), ..program("a", "/bin/a") }, "/headers"),
        (McpServerParts { env: Some(map(&[])), ..web("a", "http://h/") }, "/env"),
        (McpServerParts { args: Some(Vec::new()), ..web("a", "http://h/") }, "/args"),
    ] {
        assert_eq!(read(parts.clone()).unwrap_err().field, field, "{parts:?}");
    }
}

#[test]
fn what_goose_would_drop_or_misread_is_refused() {
    for url in [
        "",
        "mcp",
        "/mcp",
        "ftp://h/",
        "file:///etc/passwd",
        "http://",
        "http://user@h/",
        "http://u:p@h/",
        "http://h/#f",
        &format!("http://h/{}", "a".repeat(4096)),
    ] {
        let fault = read(web("a", url)).unwrap_err();
        assert_eq!(fault.field, "/url", "{url:?}");
        assert!(!fault.detail.contains("passwd"), "{fault}");
    }
    let McpTransport::Http { url, .. } = read(web("a", "HTTP://127.1:80\\mcp")).unwrap().transport else {
        panic!()
    };
    assert_eq!(url, "http://127.0.0.1/mcp");

    for name in ["", "a b", "a:b", "Ä", "Host", "content-length", "Mcp-Session-Id", "TE"] {
        let headers = Some(map(&[(name, "v")]));
        let fault = read(McpServerParts { headers, ..web("a", "http://h/") }).unwrap_err();
        assert!(fault.field.starts_with("/headers/"), "{name:?} {fault}");
    }
    for value in ["a\nb", "a\0b", "ä", &"a".repeat(16 * 1024 + 1)] {
        let headers = Some(map(&[("X-A", value)]));
        let fault = read(McpServerParts { headers, ..web("a", "http://h/") }).unwrap_err();
        assert_eq!(fault.field, "/headers/X-A", "{value:?}");
        assert!(!fault.detail.contains(value), "{fault}");
    }
    let twice = Some(map(&[("X-A", "1"), ("x-a", "2")]));
    assert_eq!(
        read(McpServerParts { headers: twice, ..web("a", "http://h/") }).unwrap_err().field,
        "/headers/x-a"
    );

    for command in ["", "files", "./files", "bin/files", "/bin/a\0", &format!("/{}", "a".repeat(4096))] {
        assert_eq!(read(program("a", command)).unwrap_err().field, "/command", "{command:?}");
    }
    for args in [vec![String::new(); 65], vec!["a\0".to_owned()], vec!["a".repeat(4097)]] {
        let fault = read(McpServerParts { args: Some(args), ..program("a", "/bin/a") }).unwrap_err();
        assert!(fault.field.starts_with("/args"), "{fault}");
    }
    for name in ["", "1A", "A-B", "A=B", "PATH", "path", "Ld_Preload", "AGENT_SESSION_ID", "GANDER_INSTANCE"]
    {
        let env = Some(map(&[(name, "v")]));
        let fault = read(McpServerParts { env, ..program("a", "/bin/a") }).unwrap_err();
        assert_eq!(fault.field, format!("/env/{name}"));
    }
    let env = Some(map(&[("A", "v\0")]));
    assert_eq!(read(McpServerParts { env, ..program("a", "/bin/a") }).unwrap_err().field, "/env/A");
}

#[test]
fn a_session_has_all_of_the_gateways_servers_or_those_it_names() {
    let servers = servers();
    assert_eq!(names(&servers.choose(None).unwrap()), ["files", "web"]);
    assert_eq!(servers.choose(Some(Vec::new())).unwrap(), []);
    let by_name = |names: &[&str]| {
        servers.choose(Some(names.iter().map(|name| McpServerWish::Gateway((*name).to_owned())).collect()))
    };
    assert_eq!(names(&by_name(&["WEB", "files"]).unwrap()), ["web", "files"]);
    let faults = by_name(&["web", "nosuch", "Web", "files"]).unwrap_err();
    assert_eq!(faults.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [1, 2]);
    assert!(faults[0].1.detail.contains("files, web"), "{}", faults[0].1);
}

#[test]
fn callers_bring_only_what_is_allowed() {
    let choose = |servers: &Servers, parts: &[McpServerParts]| {
        servers.choose(Some(parts.iter().cloned().map(McpServerWish::Caller).collect()))
    };
    let (nothing, some) = (Servers::default(), servers());
    let own = web("own", "http://tools.example.org/mcp");
    assert_eq!(choose(&nothing, std::slice::from_ref(&own)).unwrap_err()[0].1.field, "/url");
    assert_eq!(choose(&nothing, &[program("own", "/bin/sh")]).unwrap_err()[0].1.field, "/command");
    assert_eq!(
        names(&choose(&some, &[own.clone(), web("b", "http://127.0.0.1:9000/")]).unwrap()),
        ["own", "b"]
    );
    for (parts, field) in [
        (web("own", "http://127.0.0.1/"), "/url"),
        (web("own", "http://localhost:9000/"), "/url"),
        (program("own", "/bin/sh"), "/command"),
        // The gateway's servers keep their names, asked for or not.
        (web("Files", "http://tools.example.org/"), "/name"),
    ] {
        assert_eq!(choose(&some, std::slice::from_ref(&parts)).unwrap_err()[0].1.field, field, "{parts:?}");
    }
    let faults = choose(&some, &[own, web("O wn", "http://tools.example.org/")]).unwrap_err();
    assert_eq!((faults[0].0, faults[0].1.field.as_str()), (1, "/name"));
    let open = Servers { allowance: Allowance { stdio: true, hosts: Vec::new() }, ..some };
    assert_eq!(names(&choose(&open, &[program("own", "/bin/sh")]).unwrap()), ["own"]);
}

#[test]
fn what_the_configuration_says_now_counts() {
    let before = servers();
    let own = McpServerWish::Caller(web("own", "http://127.0.0.1:9000/"));
    let wishes = vec![McpServerWish::Gateway("web".into()), McpServerWish::Gateway("files".into()), own];
    let choices = before.choose(Some(wishes)).unwrap();
    assert_eq!(before.resolve(&choices).servers.len(), 3);

    let web = read(McpServerParts { headers: Some(map(&[("X-Key", "new")])), ..web("web", "http://other/") });
    let now = Servers {
        configured: vec![ToolServer { server: web.unwrap(), answer_discover: true }],
        ..Servers::default()
    };
    let resolved = now.resolve(&choices);
    assert_eq!(resolved.servers, now.configured);
    let left_out: Vec<&str> = resolved.left_out.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(left_out, ["files", "own"]);
}
