//! Measures gander beside a *bare relay*: the smallest program that runs the same agent, reads its lines and writes
//! each as a server-sent event to the same subscribers, without parsing and without a log. What gander adds is the
//! difference; both are measured in the same run, in turns, since machines have busy days.
//!
//! ```text
//! cargo bench --bench relay -- throughput|latency|fanout|replay|lifecycle|all [--help]
//! ```
//!
//! Prints a table and writes `target/bench/<bench>.json`. Everything is on loopback, in temporary folders, and bounded
//! in number and time. The agent is `examples/fake_agent`; only `lifecycle` runs the real goose.

mod bare;
mod fanout;
mod gateway;
mod latency;
mod lifecycle;
mod machine;
mod relay;
mod replay;
mod report;
mod subscriber;
mod throughput;

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Parser, Subcommand};

use report::Report;

/// Whatever goes wrong ends the bench, with its words.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// No single measurement takes longer; one that does has hung.
const PATIENCE: Duration = Duration::from_mins(5);

/// Measures gander beside a bare relay.
#[derive(Parser)]
#[command(name = "relay")]
struct Options {
    #[command(subcommand)]
    bench: Bench,
    /// Where the JSON goes [default: target/bench/<bench>.json].
    #[arg(long, global = true)]
    json: Option<PathBuf>,
    /// How often each measurement is made; the table shows medians.
    #[arg(long, global = true, default_value_t = 3)]
    rounds: usize,
    /// Another build of gander, to compare with [default: the one that was built with this].
    #[arg(long, global = true)]
    gander: Option<PathBuf>,
    /// A variable for gander, to try a setting: `GANDER_STORAGE__TAIL_BYTES=4194304`. May repeat.
    #[arg(long, global = true, value_name = "NAME=VALUE")]
    set: Vec<String>,
}

/// What is run.
#[derive(Clone)]
struct Programs {
    gander: PathBuf,
    /// `NAME=VALUE`, of gander's environment.
    variables: Vec<String>,
    agent: PathBuf,
}

#[derive(Subcommand)]
enum Bench {
    /// One session that floods, one subscriber.
    Throughput(throughput::Options),
    /// Many sessions at a steady pace, one subscriber each.
    Latency(latency::Options),
    /// One session, many subscribers.
    Fanout(fanout::Options),
    /// A stored log, read from its beginning by a gander that has just started.
    Replay(replay::Options),
    /// Sessions with the real goose: made, woken and deleted; gander's own memory.
    Lifecycle(lifecycle::Options),
    /// All of them, with their defaults.
    All,
    /// The bare relay itself; started by the benches.
    #[command(hide = true)]
    BareRelay(bare::Options),
}

fn main() -> ExitCode {
    // cargo's own `--bench` would be read as an option.
    let arguments: Vec<OsString> = std::env::args_os().filter(|argument| argument != "--bench").collect();
    match run(Options::parse_from(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // There is nowhere else to say it.
            let _ = writeln!(io::stderr(), "relay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Outcome<()> {
    if let Bench::BareRelay(relay) = &options.bench {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        return runtime.block_on(bare::run(relay));
    }
    // One thread: a subscriber is to cost as little as possible, since it shares the machine with what is measured.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Options { bench, json, rounds, gander, set } = options;
    let rounds = rounds.max(1);
    let programs = Programs {
        gander: gander.unwrap_or_else(|| env!("CARGO_BIN_EXE_gander").into()),
        variables: set,
        agent: fake_agent()?,
    };
    let benches = match bench {
        Bench::All => vec![
            Bench::Throughput(throughput::Options::parse_from([""])),
            Bench::Latency(latency::Options::parse_from([""])),
            Bench::Fanout(fanout::Options::parse_from([""])),
            Bench::Replay(replay::Options::parse_from([""])),
            Bench::Lifecycle(lifecycle::Options::parse_from([""])),
        ],
        bench => vec![bench],
    };
    for bench in benches {
        let report = runtime.block_on(measure(&bench, &programs, rounds))?;
        report.print()?;
        let path = json.clone().unwrap_or_else(|| {
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("target/bench/{}.json", report.bench()))
        });
        report.write(&path)?;
    }
    Ok(())
}

async fn measure(bench: &Bench, programs: &Programs, rounds: usize) -> Outcome<Report> {
    match bench {
        Bench::Throughput(options) => throughput::measure(options, programs, rounds).await,
        Bench::Latency(options) => latency::measure(options, programs, rounds).await,
        Bench::Fanout(options) => fanout::measure(options, programs, rounds).await,
        Bench::Replay(options) => replay::measure(options, programs, rounds).await,
        Bench::Lifecycle(options) => lifecycle::measure(options, programs).await,
        Bench::All | Bench::BareRelay(_) => Err("not a measurement".into()),
    }
}

/// The agent, built like gander. Cargo builds examples with tests, but not with benches.
fn fake_agent() -> Outcome<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "cargo tells programs that it runs where it is")]
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--example", "fake_agent", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .status()?;
    let agent = Path::new(env!("CARGO_BIN_EXE_gander")).with_file_name("examples").join("fake_agent");
    if !built.success() || !agent.is_file() {
        return Err(format!("there is no fake agent at {}", agent.display()).into());
    }
    Ok(agent)
}
