//! `fanout`: one session, many subscribers.

use std::time::Instant;

use clap::Parser;
use futures_util::future::try_join_all;
use tokio::time::timeout;

use super::machine::resident_kib;
use super::relay::{Relay, SIDES, Side, Sides};
use super::report::{Against, Report, percentile};
use super::subscriber::{ReadBuffer, Subscriber};
use super::{Outcome, PATIENCE, Programs};

#[derive(Parser)]
pub(crate) struct Options {
    /// How many subscribers; each number is a measurement.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 1000])]
    subscribers: Vec<usize>,
    /// Deliveries of a flood, over all subscribers.
    #[arg(long, default_value_t = 20_000_000)]
    deliveries: u64,
    /// Events of a flood at most.
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    /// Events in a second of the steady pace.
    #[arg(long, default_value_t = 300)]
    rate: u64,
    /// How long the steady pace goes on, the first second not counted.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

/// One round's figures of one side.
struct Found {
    /// Memory of the relay for each subscriber that waits, in KiB.
    memory_kib: f64,
    deliveries_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
}

pub(crate) async fn measure(options: &Options, programs: &Programs, rounds: usize) -> Outcome<Report> {
    let mut report = Report::new("fanout");
    for &subscribers in &options.subscribers {
        let [mut rate, mut p50, mut p99, mut memory] = std::array::from_fn(|_| Sides::default());
        for _ in 0..rounds {
            for side in SIDES {
                let found = timeout(PATIENCE, fan_out(side, programs, subscribers, options)).await??;
                rate.push(side, found.deliveries_per_s);
                p50.push(side, found.p50_ms);
                p99.push(side, found.p99_ms);
                memory.push(side, found.memory_kib);
            }
        }
        let pace = format!("{} events/s to {subscribers}", options.rate);
        let flood = format!("flood to {subscribers}");
        report.both(flood, "deliveries/s", rate.gander, rate.bare, Against::Ratio);
        report.both(format!("{pace}, p50"), "ms", p50.gander, p50.bare, Against::Added);
        report.both(format!("{pace}, p99"), "ms", p99.gander, p99.bare, Against::Added);
        // Of a few it says more about the allocator.
        if subscribers >= 100 {
            let what = format!("an idle subscriber of {subscribers}");
            report.both(what, "KiB", memory.gander, memory.bare, Against::Added);
        }
    }
    Ok(report)
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
async fn fan_out(side: Side, programs: &Programs, count: usize, options: &Options) -> Outcome<Found> {
    let mut relay = Relay::start(side, programs, 1).await?;
    let buffer = ReadBuffer::new();

    let before_kib = resident_kib(relay.pid()?)?;
    let subscribers = subscribe(&relay, count, &buffer).await?;
    let memory_kib = (resident_kib(relay.pid()?)? - before_kib) / count as f64;

    let Options { rate, seconds, .. } = options;
    let events = rate * (seconds + 1);
    let reading = try_join_all(subscribers.into_iter().map(async |subscriber| {
        let mut latencies = Vec::new();
        let received = subscriber
            .arrivals(|arrival| {
                if arrival.sequence >= *rate {
                    latencies.push(arrival.latency_ms());
                }
            })
            .await?;
        whole(received.events, events)?;
        Outcome::Ok(latencies)
    }));
    let prompt = format!("flood {events} rate {rate}/s");
    let (latencies, ()) = tokio::try_join!(reading, relay.prompt(0, &prompt))?;
    let mut latencies = latencies.concat();

    let subscribers = subscribe(&relay, count, &buffer).await?;
    let events = (options.deliveries / count as u64).clamp(1, options.events);
    let begin = Instant::now();
    relay.prompt(0, &format!("flood {events}")).await?;
    let received = try_join_all(subscribers.into_iter().map(Subscriber::count)).await?;
    let taken = begin.elapsed().as_secs_f64();
    for received in received {
        whole(received.events, events)?;
    }
    relay.stop().await?;
    Ok(Found {
        memory_kib,
        deliveries_per_s: (events * count as u64) as f64 / taken,
        p50_ms: percentile(&mut latencies, 50),
        p99_ms: percentile(&mut latencies, 99),
    })
}

async fn subscribe(relay: &Relay, count: usize, buffer: &ReadBuffer) -> Outcome<Vec<Subscriber>> {
    let mut subscribers = Vec::with_capacity(count);
    for _ in 0..count {
        subscribers.push(relay.subscribe(0, buffer).await?);
    }
    Ok(subscribers)
}

fn whole(received: u64, events: u64) -> Outcome<()> {
    if received == events { Ok(()) } else { Err(format!("{received} of {events} events came").into()) }
}
