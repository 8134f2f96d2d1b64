//! What can be wrong with a configuration. Every message is one line.

use std::fmt;
use std::io;
use std::path::PathBuf;

use figment::error::{Actual, Kind};
use thiserror::Error;

/// Why the configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file of `--config` cannot be read.
    #[error("cannot read the configuration file {}: {source}", one_line(&path.to_string_lossy()))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no TOML.
    #[error("{}, line {line}: {}", one_line(&path.to_string_lossy()), one_line(detail))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line where reading stopped, from 1.
        line: usize,
        /// The TOML parser's words.
        detail: String,
    },
    /// A variable starts with `GANDER_` but names no key.
    #[error("{}: not a setting; a setting's variable is GANDER_<SECTION>__<KEY>", one_line(name))]
    Variable {
        /// The variable.
        name: String,
    },
    /// One key has a value that cannot be used.
    #[error("{}: {problem} ({origin})", one_line(key))]
    Key {
        /// The key with its section, such as `server.listen`.
        key: String,
        /// What is wrong with it.
        problem: Problem,
        /// Where the value came from.
        origin: Origin,
    },
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The embedded defaults.
    Defaults,
    /// The configuration file.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// A flag of the command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Defaults => formatter.write_str("the default"),
            Self::File(path) => write!(formatter, "in {}", one_line(&path.to_string_lossy())),
            Self::Variable(name) => write!(formatter, "set by {}", one_line(name)),
            Self::Flag(name) => write!(formatter, "set by {name}"),
        }
    }
}

/// A rule that a key breaks; the layer it came from is added later.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    /// The key with its section.
    pub key: String,
    /// What is wrong with it.
    pub problem: Problem,
}

impl Violation {
    pub(super) fn new(key: impl Into<String>, problem: Problem) -> Self {
        Self { key: key.into(), problem }
    }
}

/// What is wrong with the value of a key.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Problem {
    /// No such key.
    #[error("no such key; there {} {}", if known.len() == 1 { "is" } else { "are" }, known.join(", "))]
    UnknownKey {
        /// The keys beside which it stands.
        known: &'static [&'static str],
    },
    /// The value is not what the key takes.
    #[error("expected {}, found {}", one_line(expected), one_line(found))]
    Unexpected {
        /// What the key takes.
        expected: String,
        /// What was there.
        found: String,
    },
    /// The key must be there.
    #[error("missing")]
    Missing,
    /// The value is not UTF-8.
    #[error("not valid UTF-8")]
    NotUtf8,
    /// The number is too small or too large.
    #[error("expected a number from {min} to {max}, found {found}")]
    OutOfRange {
        /// The value.
        found: usize,
        /// The smallest allowed.
        min: usize,
        /// The largest allowed.
        max: usize,
    },
    /// The duration must be longer than nothing.
    #[error("must be longer than zero")]
    ZeroDuration,
    /// The text must not be empty.
    #[error("must not be empty")]
    Empty,
    /// Without authentication only this machine may reach gander.
    #[error("may be false only while server.listen is a loopback address, not {listen}")]
    OpenToTheNetwork {
        /// The listen address.
        listen: std::net::SocketAddr,
    },
    /// Whoever reaches goose and has its secret can do all that goose can.
    #[error(
        "{host} is no loopback address: set goose.serve.allow_remote_host = true if goose is to listen there"
    )]
    GooseOpenToTheNetwork {
        /// The address.
        host: std::net::IpAddr,
    },
    /// The longer of two durations is the shorter.
    #[error("must not be shorter than {other}")]
    ShorterThan {
        /// The other duration's key.
        other: &'static str,
    },
    /// Not an origin as browsers send it.
    #[error("{found:?} is not an origin, such as https://app.example.org (no path, no slash at the end)")]
    NotAnOrigin {
        /// The list's entry.
        found: String,
    },
    /// Not a host as the Host header has it.
    #[error("{found:?} is not a host name, such as gander.example.org or gander.example.org:4665")]
    NotAHost {
        /// The list's entry.
        found: String,
    },
    /// Not an address of gander.
    #[error(
        "{found:?} is not the address of a gateway, such as https://gander.example.org (no user, query or fragment)"
    )]
    NotAPublicUrl {
        /// The address.
        found: String,
    },
    /// Not an address of a collector.
    #[error("{found:?} is not an address for traces, such as http://127.0.0.1:4318/v1/traces")]
    NotAnEndpoint {
        /// The address.
        found: String,
    },
    /// Not a header. Its value is a secret.
    #[error("not a header that can be sent: a name, and a value of one line")]
    NotAHeader,
    /// A file that the key names.
    #[error("{found:?} cannot be read: {}", one_line(detail))]
    UnreadableFile {
        /// The file.
        found: String,
        /// What the system said.
        detail: String,
    },
    /// Not a share.
    #[error("expected a number from 0 to 1, found {found}")]
    NotARatio {
        /// The number.
        found: String,
    },
    /// Neither an address nor a range.
    #[error("{found:?} is not an IP address or a range of them, such as 10.0.0.0/8")]
    NotAnIpRange {
        /// The list's entry.
        found: String,
    },
    /// The path must start at the root.
    #[error("{found:?} is not an absolute path")]
    NotAbsolute {
        /// The path.
        found: String,
    },
    /// A path cannot be made absolute.
    #[error("{found:?} cannot be used as a path")]
    UnusablePath {
        /// The path.
        found: String,
    },
    /// Neither the XDG variable nor HOME tells where a default folder is.
    #[error("has no default here, since neither {variable} nor HOME is an absolute path; name a folder")]
    NoDefaultFolder {
        /// The XDG variable.
        variable: &'static str,
    },
    /// The default mode is one that callers may not have.
    #[error("{mode} is not in goose.allow_modes")]
    ModeNotAllowed {
        /// The mode.
        mode: &'static str,
    },
    /// goose has no extension of that name.
    #[error("goose has no extension {name:?}{}", nearest_text(nearest))]
    UnknownExtension {
        /// The list's entry.
        name: String,
        /// Names that look like it.
        nearest: Vec<&'static str>,
    },
    /// goose would say that it has loaded the extension, and have none of its tools.
    #[error("scheduler needs goose.scheduler = true")]
    SchedulerIsOff,
    /// gander decides where a session's goose keeps its files.
    #[error(
        "may not be set: goose.home says where goose keeps what is its own, below storage.dir (\"session\") or where \
         its user has it (\"shared\")"
    )]
    PathRoot,
    /// The shared home has a configuration already.
    #[error("may not be set with goose.home = \"shared\": goose's own configuration counts there")]
    SharedHomeHasItsOwn,
    /// Shell lines would mean something else than the permission rules read in them.
    #[error("may only be bash: the permission rules read shell lines as bash does")]
    OtherShell,
    /// goose would take its extensions from elsewhere.
    #[error(
        "may not be set, since goose would then switch extensions on past goose.disabled_extensions; \
         use goose.builtins and goose.config_dir"
    )]
    ExtensionsFromElsewhere,
    /// gander's own variables are not goose's.
    #[error("may not be set: variables that start with GANDER_ are gander's own")]
    OwnVariable,
    /// Not a name that an environment variable can have.
    #[error("{found:?} is not the name of an environment variable{}", if *prefixes { ", or a prefix such as OPENAI_*" } else { "" })]
    NotAVariable {
        /// The name.
        found: String,
        /// Whether prefixes are allowed here too.
        prefixes: bool,
    },
    /// A value with a NUL byte cannot be handed to a process.
    #[error("the value holds a NUL character")]
    NulInValue,
    /// A caller who could set this would get secrets or other programs.
    #[error("{name} may not be left to callers: it could leak a key, run another program or change the mode")]
    NotForCallers {
        /// The variable.
        name: String,
    },
    /// The agent's commands would have a key.
    #[error("{name} may not be left to commands: by its name it is a secret")]
    NotForCommands {
        /// The variable.
        name: String,
    },
    /// A file may be larger than what is said of it.
    #[error(
        "{found} bytes, escaped, may not fit into a message of limits.line_bytes: expected {most} at most"
    )]
    MoreThanALineHolds {
        /// The value.
        found: usize,
        /// The largest that fits.
        most: usize,
    },
    /// A tool server cannot be used as it is described.
    #[error("server {name:?}: {detail}")]
    McpServer {
        /// The server's name.
        name: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Neither a host nor all hosts below a domain.
    #[error("{found:?} is not a host, such as tools.example.org, 127.0.0.1:9000 or *.example.org")]
    NotAServersHost {
        /// The list's entry.
        found: String,
    },
    /// A permission rule that cannot be used.
    #[error("{}", one_line(_0))]
    Rule(String),
    /// The log filter cannot be read.
    #[error("{found:?} is not a log filter, such as info or gander=debug,warn")]
    LogFilter {
        /// The filter.
        found: String,
    },
}

impl Problem {
    /// Turns figment's complaint into one of ours.
    pub(super) fn from_kind(kind: Kind) -> Self {
        match kind {
            Kind::UnknownField(_, known) => Self::UnknownKey { known },
            Kind::MissingField(_) => Self::Missing,
            Kind::UnknownVariant(found, expected) => {
                Self::Unexpected { expected: expected.join(" or "), found: format!("{found:?}") }
            }
            Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
                let expected = match expected.as_str() {
                    "usize" => "a whole number".to_owned(),
                    "a boolean" => "true or false".to_owned(),
                    other if other.starts_with("struct ") => "a section".to_owned(),
                    _ => expected,
                };
                Self::Unexpected { expected, found: describe(&found) }
            }
            other => Self::Unexpected { expected: "a usable value".to_owned(), found: other.to_string() },
        }
    }
}

/// What was found, as it would stand in a file.
fn describe(found: &Actual) -> String {
    match found {
        Actual::Bool(value) => value.to_string(),
        Actual::Unsigned(value) => value.to_string(),
        Actual::Signed(value) => value.to_string(),
        Actual::Float(value) => value.to_string(),
        Actual::Str(value) => format!("{value:?}"),
        Actual::Seq => "a list".to_owned(),
        Actual::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

fn nearest_text(nearest: &[&'static str]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", nearest.join(" or ")) }
}

/// The text with everything that would start a new line made visible, or a comma.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.join(", ").chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}
