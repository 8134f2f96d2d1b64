//! `replay`: a stored log, read from its beginning by a gander that has just started.

use std::time::Instant;

use clap::Parser;
use tokio::time::timeout;

use super::gateway::{END_OF_TURN, Setup};
use super::report::Report;
use super::subscriber::ReadBuffer;
use super::{Outcome, PATIENCE, Programs};

#[derive(Parser)]
pub(crate) struct Options {
    /// How many events; each number is a measurement.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 1_000_000])]
    events: Vec<u64>,
}

pub(crate) async fn measure(options: &Options, programs: &Programs, rounds: usize) -> Outcome<Report> {
    let mut report = Report::new("replay");
    for &events in &options.events {
        let (mut times_ms, mut rates) = (Vec::new(), Vec::new());
        timeout(PATIENCE, replay(programs, events, rounds, &mut times_ms, &mut rates)).await??;
        report.alone(format!("{events} events over HTTP"), "ms", times_ms);
        report.alone("their bytes", "MB/s", rates);
    }
    Ok(report)
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
async fn replay(
    programs: &Programs,
    events: u64,
    rounds: usize,
    times_ms: &mut Vec<f64>,
    rates: &mut Vec<f64>,
) -> Outcome<()> {
    let buffer = ReadBuffer::new();
    let mut gander = Setup::new(programs)?.start().await?;
    gander.add_sessions(1).await?;
    let session = gander.sessions()[0].clone();
    let written = gander.subscribe(0, &buffer).await?;
    gander.prompt(0, &format!("flood {events}")).await?;
    written.count().await?;
    let mut dir = gander.stop().await?;
    for _ in 0..rounds {
        let gander = Setup::new(programs)?.dir(dir).start().await?;
        let begin = Instant::now();
        let received = gander.stream(&session, "?follow=false", END_OF_TURN, &buffer).await?.count().await?;
        let taken = begin.elapsed().as_secs_f64();
        if received.events != events {
            return Err(format!("{} of {events} events came", received.events).into());
        }
        times_ms.push(taken * 1e3);
        rates.push(received.bytes as f64 / taken / 1e6);
        dir = gander.stop().await?;
    }
    Ok(())
}
