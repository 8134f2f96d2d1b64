//! `throughput`: one session that floods, one subscriber.

use std::time::Instant;

use clap::Parser;
use tokio::time::timeout;

use super::machine::cpu_time;
use super::relay::{Relay, SIDES, Side, Sides};
use super::report::{Against, Report};
use super::subscriber::ReadBuffer;
use super::{Outcome, PATIENCE, Programs};

#[derive(Parser)]
pub(crate) struct Options {
    /// Events of a flood.
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
}

pub(crate) async fn measure(options: &Options, programs: &Programs, rounds: usize) -> Outcome<Report> {
    let mut report = Report::new("throughput");
    let (mut rate, mut cpu) = (Sides::default(), Sides::default());
    for _ in 0..rounds {
        for side in SIDES {
            let (events_per_s, cpu_us) = timeout(PATIENCE, flood(side, programs, options.events)).await??;
            rate.push(side, events_per_s);
            cpu.push(side, cpu_us);
        }
    }
    report.both("flood, one subscriber", "events/s", rate.gander, rate.bare, Against::Ratio);
    report.both("its processor time", "µs/event", cpu.gander, cpu.bare, Against::Added);
    Ok(report)
}

/// Events in a second, and the relay's processor time for one in µs.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
async fn flood(side: Side, programs: &Programs, events: u64) -> Outcome<(f64, f64)> {
    let mut relay = Relay::start(side, programs, 1).await?;
    let subscriber = relay.subscribe(0, &ReadBuffer::new()).await?;
    let cpu_before = cpu_time(relay.pid()?)?;
    let begin = Instant::now();
    relay.prompt(0, &format!("flood {events}")).await?;
    let received = subscriber.count().await?;
    let taken = begin.elapsed();
    let cpu = cpu_time(relay.pid()?)?.saturating_sub(cpu_before);
    relay.stop().await?;
    if received.events != events {
        return Err(format!("{} of {events} events came", received.events).into());
    }
    let events = events as f64;
    Ok((events / taken.as_secs_f64(), cpu.as_secs_f64() * 1e6 / events))
}
