//! `lifecycle`: sessions with the real goose, made, woken and deleted, and what they cost gander itself.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Parser;
use tokio::time::timeout;

use super::gateway::{END_OF_TURN, Setup};
use super::machine::resident_kib;
use super::report::Report;
use super::subscriber::ReadBuffer;
use super::{Outcome, PATIENCE, Programs};

/// Agents that run at a time while hibernated sessions are made.
const BATCH: usize = 100;
/// What the event that tells of a new agent contains.
const AGENT_IS_THERE: &str = "\"generation\":";

#[derive(Parser)]
pub(crate) struct Options {
    /// goose; by default what `GANDER_TEST_GOOSE` names, else what scripts/goose has installed.
    #[arg(long)]
    goose: Option<PathBuf>,
    /// Sessions with a running goose.
    #[arg(long, default_value_t = 10)]
    running: usize,
    /// Hibernated sessions; they are made with the fake agent.
    #[arg(long, default_value_t = 1000)]
    hibernated: usize,
}

pub(crate) async fn measure(options: &Options, programs: &Programs) -> Outcome<Report> {
    let mut report = Report::new("lifecycle");
    let goose = options.goose.clone().unwrap_or_else(installed_goose);
    let real = Programs { agent: goose, ..programs.clone() };
    timeout(PATIENCE, with_goose(&mut report, &real, options.running)).await??;
    timeout(PATIENCE, hibernated(&mut report, programs, options.hibernated)).await??;
    Ok(report)
}

fn installed_goose() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "the tests are told in the same way where goose is")]
    let named = std::env::var_os("GANDER_TEST_GOOSE").map(PathBuf::from);
    named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".goose/goose-1.52.0"))
}

async fn with_goose(report: &mut Report, programs: &Programs, count: usize) -> Outcome<()> {
    let gander = Setup::new(programs)?.demo().start().await?;
    let before = resident_kib(gander.pid()?)?;
    let (mut ids, mut create_ms, mut wake_ms, mut delete_ms) = (vec![], vec![], vec![], vec![]);
    for _ in 0..count {
        let begin = Instant::now();
        ids.push(gander.create().await?);
        create_ms.push(milliseconds(begin));
    }
    let running = resident_kib(gander.pid()?)?;
    let buffer = ReadBuffer::new();
    for id in &ids {
        gander.hibernate(id).await?;
        let query = "?after=latest&types=session.updated";
        let told = gander.stream(id, query, AGENT_IS_THERE, &buffer).await?;
        let begin = Instant::now();
        gander.prompt_in(id, "Say hello.").await?;
        told.count().await?;
        wake_ms.push(milliseconds(begin));
    }
    for id in ids {
        let begin = Instant::now();
        gander.delete(&id).await?;
        delete_ms.push(milliseconds(begin));
    }
    gander.stop().await?;
    report.alone("create, until goose is ready", "ms", create_ms);
    report.alone("wake, from the prompt until goose is ready", "ms", wake_ms);
    report.alone("delete", "ms", delete_ms);
    report.alone("gander's own memory, no session", "MB", vec![before / 1024.0]);
    report.alone(format!("gander's own memory, {count} running sessions"), "MB", vec![running / 1024.0]);
    Ok(())
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Each has had a turn.
async fn hibernated(report: &mut Report, programs: &Programs, count: usize) -> Outcome<()> {
    let buffer = ReadBuffer::new();
    let gander = Setup::new(programs)?.start().await?;
    let mut made = 0;
    while made < count {
        let batch = gander.create_many(BATCH.min(count - made)).await?;
        made += batch.len();
        for id in batch {
            let told = gander.stream(&id, "?after=latest", END_OF_TURN, &buffer).await?;
            gander.prompt_in(&id, "flood 100").await?;
            told.count().await?;
            gander.hibernate(&id).await?;
        }
    }
    let memory = resident_kib(gander.pid()?)?;
    let dir = gander.stop().await?;
    let gander = Setup::new(programs)?.dir(dir).start().await?;
    let after_restart = resident_kib(gander.pid()?)?;
    gander.stop().await?;
    let what = format!("gander's own memory, {count} hibernated sessions");
    report.alone(what.clone(), "MB", vec![memory / 1024.0]);
    report.alone(format!("{what}, after a restart"), "MB", vec![after_restart / 1024.0]);
    Ok(())
}
