//! The command line.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::signal::unix::{SignalKind, signal};

use crate::app::{self, App, Ended, Welcome};
use crate::config::{self, Config, Environment, Flag};
use crate::http::{auth, openapi};
use crate::session::agent::LaunchError;
use crate::shutdown::Tasks;
use crate::telemetry;

mod audit;

/// `gander check`: everything is right but that goose has no provider.
const NO_PROVIDER: u8 = 3;
/// How long `gander health` waits for an answer.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// An HTTP and server-sent events gateway in front of goose.
#[derive(Parser)]
#[command(name = "gander", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the HTTP API.
    Serve {
        #[command(flatten)]
        config: ConfigArguments,
        /// A built-in scripted model instead of a provider: everything real but the model, no key needed.
        #[arg(long)]
        demo: bool,
    },
    /// Find goose, start a session with it, and say what is wrong. Exit code 3: only a provider is missing.
    Check {
        #[command(flatten)]
        config: ConfigArguments,
    },
    /// Print every setting with its default, as a file to start from.
    Config,
    /// Print the token that gander made; makes it if there is none yet.
    Token {
        #[command(flatten)]
        config: ConfigArguments,
    },
    /// Print who did what, and when; also while a gander runs on the same storage.
    Audit(audit::AuditArguments),
    /// Print the OpenAPI document.
    Openapi,
    /// Ask a running gander whether it is alive: exit code 0 or 1. For container health checks.
    Health {
        #[command(flatten)]
        config: ConfigArguments,
    },
}

#[derive(Args)]
struct ConfigArguments {
    /// The configuration file (TOML); the variables GANDER_<SECTION>__<KEY> come after it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The address to listen on, e.g. 127.0.0.1:4665.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
}

impl ConfigArguments {
    fn load(self) -> Result<Config, Failure> {
        let listen = self.listen.map(|value| Flag { name: "--listen", key: "server.listen", value });
        let flags: Vec<Flag> = listen.into_iter().collect();
        Config::load(self.config.as_deref(), Environment::of_process(), &flags)
            .map_err(|error| Failure { code: config::EXIT_CODE, message: error.to_string() })
    }
}

/// Why a command did not do its work: one line, and the process's exit code.
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn new(error: impl std::fmt::Display) -> Self {
        Self { code: 1, message: error.to_string() }
    }
}

/// Runs the command that the arguments name.
#[must_use]
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(message) => {
            let help = !message.use_stderr();
            // Nothing can be done about a closed terminal.
            let _ = message.print();
            return if help { ExitCode::SUCCESS } else { ExitCode::from(config::EXIT_CODE) };
        }
    };
    let result = match cli.command {
        Command::Serve { config, demo } => config.load().and_then(|config| serve(&config, demo)),
        Command::Check { config } => config.load().and_then(|config| check(&config)),
        Command::Config => print(config::DEFAULTS),
        Command::Token { config } => config.load().and_then(|config| token(&config)),
        Command::Audit(arguments) => audit::audit(arguments),
        Command::Openapi => openapi::document_json().map_err(Failure::new).and_then(|text| print(&text)),
        Command::Health { config } => config.load().and_then(|config| health(&config)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, message }) => {
            if !message.is_empty() {
                let _ = writeln!(std::io::stderr(), "gander: {message}");
            }
            ExitCode::from(code)
        }
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::new)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::new)
}

fn serve(config: &Config, demo: bool) -> Result<(), Failure> {
    telemetry::start(&config.log);
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let tasks = Tasks::new();
        let (mut terminate, mut interrupt) = signals().map_err(Failure::new)?;
        let run = async {
            let app = App::start(config, demo, &tasks).await.map_err(Failure::new)?;
            print(&welcome(&app.welcome))?;
            Ok(app.run().await)
        };
        tokio::pin!(run);
        let mut signals = 0;
        loop {
            tokio::select! {
                ended = &mut run => return ended,
                Some(()) = terminate.recv() => signals += 1,
                Some(()) = interrupt.recv() => signals += 1,
            }
            match signals {
                1 => tasks.soft().cancel(),
                // Somebody is in a hurry: the shims end everything when this process is gone.
                _ => return Ok(Ended::Forced),
            }
        }
    })?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    match ended {
        Ended::Clean => Ok(()),
        Ended::Forced => Err(Failure { code: 1, message: "not everything ended by itself".into() }),
    }
}

fn signals() -> std::io::Result<(tokio::signal::unix::Signal, tokio::signal::unix::Signal)> {
    Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
}

/// What is said at the start: where, with what, and a first call to paste.
fn welcome(welcome: &Welcome) -> String {
    let Welcome { address, public_url, token_file, auth_required, goose, provider, demo } = welcome;
    let mut text = format!("gander {} listens on http://{address}\n", env!("CARGO_PKG_VERSION"));
    // Writing to a string does not fail.
    if let Some(url) = public_url {
        let _ = writeln!(text, "from outside it is {url}");
    }
    let _ = match goose {
        Ok(version) => write!(text, "goose {version}, "),
        Err(error) => write!(text, "goose cannot be used: {error}; "),
    };
    let _ = match (demo, provider) {
        (true, _) => writeln!(text, "demo: a built-in scripted model answers, no provider is asked"),
        (false, Some(provider)) => writeln!(text, "provider {provider}"),
        (false, None) => writeln!(text, "no provider is set up: set goose.provider, or try --demo"),
    };
    let (token, authorization) = match token_file {
        Some(file) => {
            let _ = writeln!(text, "token in {}", file.display());
            (format!(" TOKEN=$(cat {})", shell_quoted(file)), " -H \"Authorization: Bearer $TOKEN\"")
        }
        None if *auth_required => {
            let _ = writeln!(text, "tokens from the tokens file");
            (" TOKEN='one of the tokens'".into(), " -H \"Authorization: Bearer $TOKEN\"")
        }
        None => {
            let _ = writeln!(text, "no token is needed (auth.required = false)");
            (String::new(), "")
        }
    };
    // The id comes first in a session's JSON; `tee` shows the rest of it too.
    let _ = writeln!(
        text,
        r#"
Try, in another terminal:
  GANDER=http://{address}{token}
  ID=$(curl -s -X POST{authorization} $GANDER/v1/sessions | tee /dev/stderr | cut -d'"' -f4)
  curl -sN{authorization} -H 'Accept: text/event-stream' \
    -H 'Content-Type: application/json' -d '{{"prompt":"Have a look around."}}' $GANDER/v1/sessions/$ID/turns
When the agent asks before it uses a tool, in a third one: the same GANDER and TOKEN, then
  curl -s{authorization} "$GANDER/v1/permissions?state=pending"
README.md goes on from there; the whole interface is in $GANDER/openapi.json
"#
    );
    text
}

/// A path as one word of a shell's command line.
fn shell_quoted(path: &std::path::Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

fn check(config: &Config) -> Result<(), Failure> {
    let runtime = runtime()?;
    let tasks = Tasks::new();
    let trial = runtime.block_on(async {
        let trial = app::try_goose(config, &tasks).await;
        tasks.soft().cancel();
        tasks.hard().cancel();
        tasks.finished().await;
        trial
    });
    let trial = trial.map_err(Failure::new)?;
    let (program, version) = trial.program.map_err(Failure::new)?;
    let mut text = format!("goose      {version} at {}\n", program.display());
    let _ = writeln!(text, "storage    {}", config.storage.dir.display());
    let _ = match config.shared_home_in_use() {
        Some(home) => writeln!(
            text,
            "home       shared by all sessions, configured in {}",
            home.configuration.display()
        ),
        None => writeln!(text, "home       each session has its own"),
    };
    let code = match trial.session {
        Some(Ok(facts)) => {
            let current = |id: &str| {
                let option = facts.config_options.iter().find(|option| option.id == id);
                option.and_then(|option| option.current_value.clone()).unwrap_or_else(|| "-".into())
            };
            let loaded = |loaded: bool| {
                let extensions = facts.extensions.iter().filter(|extension| extension.loaded == loaded);
                extensions.map(|extension| extension.name.as_str()).collect::<Vec<_>>().join(", ")
            };
            let _ = writeln!(text, "provider   {}, model {}", current("provider"), current("model"));
            let _ = writeln!(text, "mode       {}", facts.mode.as_str());
            let _ = writeln!(text, "extensions {}", loaded(true));
            if facts.extensions.iter().any(|extension| !extension.loaded) {
                let _ = writeln!(text, "failed     {}", loaded(false));
            }
            0
        }
        Some(Err(LaunchError::ProviderNotConfigured { detail })) => {
            let _ = writeln!(text, "provider   none is set up: {detail}");
            let _ = writeln!(
                text,
                "           set goose.provider, goose.model and the provider's key, or try `gander serve --demo`"
            );
            NO_PROVIDER
        }
        Some(Err(error)) => {
            let _ = writeln!(text, "session    {error}");
            1
        }
        None => 1,
    };
    print(&text)?;
    if code == 0 { Ok(()) } else { Err(Failure { code, message: String::new() }) }
}

fn token(config: &Config) -> Result<(), Failure> {
    if !config.auth.required {
        return Err(Failure::new("auth.required = false: no token is needed"));
    }
    if config.auth.tokens_file.is_some() {
        return Err(Failure::new("auth.tokens_file names the tokens; gander keeps only their hashes"));
    }
    let token = auth::ensure_token(&config.storage.dir).map_err(Failure::new)?;
    // A terminal wants its prompt on a line of its own; `$(gander token)` drops the line end.
    let end = if std::io::stdout().is_terminal() { "\n" } else { "" };
    print(&format!("{}{end}", token.secret()))
}

fn health(config: &Config) -> Result<(), Failure> {
    let address = reachable(config.server.listen);
    runtime()?.block_on(async {
        let answer = tokio::time::timeout(HEALTH_TIMEOUT, ask_health(address)).await;
        match answer {
            Ok(Ok(answer)) if answer.starts_with("HTTP/1.1 200") => Ok(()),
            Ok(Ok(answer)) => Err(Failure::new(format!("{address} answers {:?}", answer.lines().next()))),
            Ok(Err(error)) => Err(Failure::new(format!("{address}: {error}"))),
            Err(_) => Err(Failure::new(format!("{address} does not answer"))),
        }
    })
}

/// Where a listener on "any address" is reached from the same host.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

async fn ask_health(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_first_calls_can_be_pasted_and_show_how_to_go_on() {
        let mut said = Welcome {
            address: "127.0.0.1:4665".parse().unwrap(),
            public_url: None,
            token_file: Some(PathBuf::from("/a b/it's/token")),
            auth_required: true,
            goose: Err(LaunchError::Cancelled),
            provider: None,
            demo: true,
        };
        let text = welcome(&said);
        assert!(text.contains(r"  GANDER=http://127.0.0.1:4665 TOKEN=$(cat '/a b/it'\''s/token')"), "{text}");
        assert_eq!(text.matches(r#" -H "Authorization: Bearer $TOKEN""#).count(), 3, "{text}");
        assert!(
            text.contains(r#"-d '{"prompt":"Have a look around."}' $GANDER/v1/sessions/$ID/turns"#),
            "{text}"
        );
        said.token_file = None;
        assert!(welcome(&said).contains("  GANDER=http://127.0.0.1:4665 TOKEN='one of the tokens'\n"));
        said.auth_required = false;
        assert!(!welcome(&said).contains("TOKEN="));
    }

    #[test]
    fn a_quoted_path_is_one_word() {
        assert_eq!(shell_quoted(Path::new("/a b/$c")), "'/a b/$c'");
        assert_eq!(shell_quoted(Path::new("it's")), r"'it'\''s'");
    }
}
