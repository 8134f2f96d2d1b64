//! `latency`: many sessions at a steady pace, one subscriber each.

use clap::Parser;
use futures_util::future::try_join_all;
use tokio::time::timeout;

use super::relay::{Relay, SIDES, Side, Sides};
use super::report::{Against, Report, percentile};
use super::subscriber::ReadBuffer;
use super::{Outcome, PATIENCE, Programs};

#[derive(Parser)]
pub(crate) struct Options {
    /// How many sessions; each number is a measurement.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 50, 200])]
    sessions: Vec<usize>,
    /// Events of each session in a second.
    #[arg(long, default_value_t = 20)]
    rate: u64,
    /// How long, the first second not counted.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

pub(crate) async fn measure(options: &Options, programs: &Programs, rounds: usize) -> Outcome<Report> {
    let mut report = Report::new("latency");
    for &sessions in &options.sessions {
        let (mut p50, mut p99) = (Sides::default(), Sides::default());
        for _ in 0..rounds {
            for side in SIDES {
                let mut latencies = timeout(PATIENCE, paced(side, programs, sessions, options)).await??;
                p50.push(side, percentile(&mut latencies, 50));
                p99.push(side, percentile(&mut latencies, 99));
            }
        }
        let what = format!("{sessions} sessions × {} events/s", options.rate);
        report.both(format!("{what}, p50"), "ms", p50.gander, p50.bare, Against::Added);
        report.both(format!("{what}, p99"), "ms", p99.gander, p99.bare, Against::Added);
    }
    Ok(report)
}

/// From the agent's write to the subscriber's read, in ms.
async fn paced(side: Side, programs: &Programs, sessions: usize, options: &Options) -> Outcome<Vec<f64>> {
    let Options { rate, seconds, .. } = options;
    let mut relay = Relay::start(side, programs, sessions).await?;
    let buffer = ReadBuffer::new();
    let events = rate * (seconds + 1);
    let mut subscribers = Vec::with_capacity(sessions);
    for session in 0..sessions {
        subscribers.push(relay.subscribe(session, &buffer).await?);
    }
    let begin = async {
        for session in 0..sessions {
            relay.prompt(session, &format!("flood {events} rate {rate}/s")).await?;
        }
        Outcome::Ok(relay)
    };
    let reading = try_join_all(subscribers.into_iter().map(async |subscriber| {
        let mut latencies = Vec::new();
        let received = subscriber
            .arrivals(|arrival| {
                if arrival.sequence >= *rate {
                    latencies.push(arrival.latency_ms());
                }
            })
            .await?;
        if received.events != events {
            return Err(format!("{} of {events} events came", received.events).into());
        }
        Outcome::Ok(latencies)
    }));
    let (relay, latencies) = tokio::try_join!(begin, reading)?;
    relay.stop().await?;
    Ok(latencies.concat())
}
