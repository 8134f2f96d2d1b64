//! Whether a server is one that goose 1.52 can use as it is described.
//!
//! goose drops what it does not like in silence, or starts without it: an entry that it cannot read, a variable that it
//! holds for dangerous. So nothing that it would drop gets to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use url::Url;

use super::super::catalogue;
use super::{fault, folded};
use crate::session::agent::servers::{McpServer, McpServerFault, McpServerParts, McpTransport};

/// Bytes of a server's name. Models take tool names of 64 bytes in all, server and tool.
const NAME_BYTES: usize = 48;
/// Bytes of a command, an argument or an address.
const TEXT_BYTES: usize = 4096;
/// Arguments, variables or headers of a server.
const ENTRIES: usize = 64;
/// Bytes of the name of a variable or header.
const ENTRY_NAME_BYTES: usize = 128;
/// Bytes of the value of a variable or header.
const VALUE_BYTES: usize = 16 * 1024;

/// What goose's own tools are called that are no extension's.
const RESERVED: [&str; 1] = ["platform"];

/// The variables that goose keeps from its servers whatever their `env` says (measured on 1.52, by offering them), and
/// the one that it sets itself.
const KEPT_BY_GOOSE: [&str; 32] = [
    "AGENT_SESSION_ID",
    "APPINIT_DLLS",
    "CLASSPATH",
    "COMSPEC",
    "DYLD_FRAMEWORK_PATH",
    "DYLD_INSERT_LIBRARIES",
    "DYLD_LIBRARY_PATH",
    "GEM_HOME",
    "GEM_PATH",
    "GO111MODULE",
    "GOROOT",
    "HOMEDRIVE",
    "HOMEPATH",
    "LD_ASSUME_KERNEL",
    "LD_AUDIT",
    "LD_BIND_NOW",
    "LD_DEBUG",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LOCALAPPDATA",
    "NODE_OPTIONS",
    "PATH",
    "PATHEXT",
    "PYTHONHOME",
    "PYTHONPATH",
    "RUBYOPT",
    "SESSIONNAME",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERPROFILE",
    "WINDIR",
];

/// The headers that goose, HTTP or MCP's transport set themselves.
const KEPT_HEADERS: [&str; 15] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-method",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Makes a server of its description, under its folded name.
///
/// # Errors
/// What is wrong with it, the first fault.
pub fn read(parts: McpServerParts) -> Result<McpServer, McpServerFault> {
    let name = name(&parts.name)?;
    let transport = match (parts.kind.as_deref(), parts.command, parts.url) {
        (Some("sse"), _, _) => {
            return Err(fault("/type", "SSE is unsupported, migrate to streamable_http (type http)"));
        }
        (Some(kind), _, _) if !matches!(kind, "stdio" | "http") => {
            return Err(fault("/type", "must be stdio or http"));
        }
        (None | Some("stdio"), Some(command), None) => {
            refuse_given("/headers", parts.headers.is_some(), "url")?;
            stdio(command, parts.args.unwrap_or_default(), parts.env.unwrap_or_default())?
        }
        (None | Some("http"), None, Some(url)) => {
            refuse_given("/args", parts.args.is_some(), "command")?;
            refuse_given("/env", parts.env.is_some(), "command")?;
            http(&url, parts.headers.unwrap_or_default())?
        }
        (Some("stdio"), _, _) => return Err(fault("/type", "stdio needs a command, and no url")),
        (Some(_), _, _) => return Err(fault("/type", "http needs a url, and no command")),
        (None, _, _) => return Err(fault("", "must have either a command or a url")),
    };
    Ok(McpServer { name, transport })
}

fn name(name: &str) -> Result<String, McpServerFault> {
    let sane = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b' ');
    let folded = folded(name);
    if folded.is_empty() || name.len() > NAME_BYTES || !name.bytes().all(sane) {
        let detail = format!("must be 1 to {NAME_BYTES} letters, digits, _, - and spaces");
        return Err(fault("/name", detail));
    }
    // goose parts the server's name from its tool's by two of them.
    if folded.contains("__") || folded.starts_with('_') || folded.ends_with('_') {
        return Err(fault("/name", "must have no _ at its ends, and no two in a row"));
    }
    if let Some(extension) = catalogue::find(&folded) {
        let detail = format!("is taken: the server would replace goose's extension {}", extension.name);
        return Err(fault("/name", detail));
    }
    if RESERVED.contains(&folded.as_str()) {
        return Err(fault("/name", "is taken by goose's own tools"));
    }
    Ok(folded)
}

fn refuse_given(field: &str, given: bool, belongs_to: &str) -> Result<(), McpServerFault> {
    if given { Err(fault(field, format!("belongs to a server with a {belongs_to}"))) } else { Ok(()) }
}

fn stdio(
    command: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
) -> Result<McpTransport, McpServerFault> {
    // A relative path would be another program in each session's directory, and one that the agent can write.
    if !Path::new(&command).is_absolute() || command.len() > TEXT_BYTES || command.contains('\0') {
        let detail = format!("must be an absolute path of at most {TEXT_BYTES} bytes");
        return Err(fault("/command", detail));
    }
    entries("/args", args.len())?;
    for (place, argument) in args.iter().enumerate() {
        if argument.len() > TEXT_BYTES || argument.contains('\0') {
            let detail = format!("must have at most {TEXT_BYTES} bytes, and no zero bytes");
            return Err(fault(format!("/args/{place}"), detail));
        }
    }
    entries("/env", env.len())?;
    for (name, value) in &env {
        let field = pointer("/env", name);
        let sane = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty()
            || name.len() > ENTRY_NAME_BYTES
            || name.starts_with(|first: char| first.is_ascii_digit())
            || !name.bytes().all(sane)
        {
            let detail =
                format!("must be called by 1 to {ENTRY_NAME_BYTES} letters, digits and _, no digit first");
            return Err(fault(field, detail));
        }
        if KEPT_BY_GOOSE.contains(&name.to_ascii_uppercase().as_str()) {
            return Err(fault(field, "goose does not let a server's env set this variable"));
        }
        if name.starts_with("GANDER_") {
            return Err(fault(field, "variables that start with GANDER_ are gander's own"));
        }
        if value.len() > VALUE_BYTES || value.contains('\0') {
            let detail = format!("must have at most {VALUE_BYTES} bytes, and no zero bytes");
            return Err(fault(field, detail));
        }
    }
    Ok(McpTransport::Stdio { command, args, env })
}

fn http(url: &str, headers: BTreeMap<String, String>) -> Result<McpTransport, McpServerFault> {
    let url = address(url).map_err(|detail| fault("/url", detail))?;
    entries("/headers", headers.len())?;
    let mut names = BTreeSet::new();
    for (name, value) in &headers {
        let field = pointer("/headers", name);
        if name.is_empty() || name.len() > ENTRY_NAME_BYTES || !name.bytes().all(is_token) {
            let detail = format!("must be called by a header's name of 1 to {ENTRY_NAME_BYTES} bytes");
            return Err(fault(field, detail));
        }
        let lower = name.to_ascii_lowercase();
        if KEPT_HEADERS.contains(&lower.as_str()) {
            return Err(fault(field, "is a header that goose or its connection sets itself"));
        }
        if !names.insert(lower) {
            return Err(fault(field, "is there twice: case does not tell headers apart"));
        }
        if value.len() > VALUE_BYTES || !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            let detail = format!("must have at most {VALUE_BYTES} bytes of printable ASCII");
            return Err(fault(field, detail));
        }
    }
    Ok(McpTransport::Http { url, headers })
}

/// The address as goose's own parser writes it, so that nobody reads another host out of it later.
fn address(text: &str) -> Result<String, String> {
    if text.len() > TEXT_BYTES {
        return Err(format!("must have at most {TEXT_BYTES} bytes"));
    }
    let url = Url::parse(text).map_err(|error| format!("must be a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must have no user and no password: put them into headers".to_owned());
    }
    if url.fragment().is_some() {
        return Err("must have no fragment (#)".to_owned());
    }
    Ok(url.into())
}

fn entries(field: &str, count: usize) -> Result<(), McpServerFault> {
    if count > ENTRIES {
        Err(fault(field, format!("must not have more than {ENTRIES} entries")))
    } else {
        Ok(())
    }
}

/// The pointer of a table's entry (RFC 6901).
fn pointer(table: &str, name: &str) -> String {
    format!("{table}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Whether it may be in a header's name (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
