//! `lifecycle`: sessions with the real goose, made and deleted, and what they cost gander itself.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Parser;
use tokio::time::timeout;

use super::gateway::{Gander, Setup};
use super::machine::resident_kib;
use super::report::Report;
use super::{Outcome, PATIENCE, Programs};

/// Agents that run at a time while idle sessions are made.
const BATCH: usize = 100;

#[derive(Parser)]
pub(crate) struct Options {
    /// goose; by default what `GANDER_TEST_GOOSE` names, else what scripts/goose has installed.
    #[arg(long)]
    goose: Option<PathBuf>,
    /// Sessions with a running goose.
    #[arg(long, default_value_t = 10)]
    running: usize,
    /// Sessions without an agent; they are made with the fake agent.
    #[arg(long, default_value_t = 1000)]
    idle: usize,
}

pub(crate) async fn measure(options: &Options, programs: &Programs) -> Outcome<Report> {
    let mut report = Report::new("lifecycle");
    let goose = options.goose.clone().unwrap_or_else(installed_goose);
    let real = Programs { agent: goose, ..programs.clone() };
    timeout(PATIENCE, with_goose(&mut report, &real, options.running)).await??;
    timeout(PATIENCE, idle(&mut report, programs, options.idle)).await??;
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
    let (mut ids, mut create_ms, mut delete_ms) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let begin = Instant::now();
        ids.push(gander.create().await?);
        create_ms.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    let after = resident_kib(gander.pid()?)?;
    for id in ids {
        let begin = Instant::now();
        gander.delete(&id).await?;
        delete_ms.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    gander.stop().await?;
    report.alone("create, until goose is ready", "ms", create_ms);
    report.alone("delete", "ms", delete_ms);
    report.alone("gander's own memory, no session", "MB", vec![before / 1024.0]);
    report.alone(format!("gander's own memory, {count} running sessions"), "MB", vec![after / 1024.0]);
    Ok(())
}

/// A restart leaves sessions without their agents.
async fn idle(report: &mut Report, programs: &Programs, count: usize) -> Outcome<()> {
    let mut gander = Setup::new(programs)?.start().await?;
    let mut made = 0;
    while made < count {
        let batch = BATCH.min(count - made);
        gander.add_sessions(batch).await?;
        made += batch;
        gander = restart(gander, programs).await?;
    }
    let memory = resident_kib(gander.pid()?)?;
    gander.stop().await?;
    report.alone(format!("gander's own memory, {count} idle sessions"), "MB", vec![memory / 1024.0]);
    Ok(())
}

async fn restart(gander: Gander, programs: &Programs) -> Outcome<Gander> {
    let dir = gander.stop().await?;
    Setup::new(programs)?.dir(dir).start().await
}
