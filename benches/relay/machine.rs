//! What the machine and its processes say of themselves.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::Outcome;

/// Linux tells processor time in hundredths of a second (`USER_HZ`), on every architecture.
const TICK: Duration = Duration::from_millis(10);

/// The monotonic clock in nanoseconds: the same one for every process.
pub(crate) fn monotonic_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Processor time that a process has used, its children not counted.
pub(crate) fn cpu_time(pid: u32) -> Outcome<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the program's name and may hold blanks.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
    let ticks: Vec<u32> =
        fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(TICK * ticks.iter().sum())
}

/// Memory that a process has in use (`VmRSS`), in KiB.
pub(crate) fn resident_kib(pid: u32) -> Outcome<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    number_after(&status, "VmRSS:").ok_or_else(|| "a process without VmRSS".into())
}

fn number_after(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Where and when something was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    memory_gib: f64,
    kernel: String,
    load_before: String,
    load_after: String,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu_info = read("/proc/cpuinfo");
        let cpu = cpu_info
            .lines()
            .find(|line| line.starts_with("model name"))
            .and_then(|line| line.split_once(": "))
            .map_or("unknown", |(_, name)| name);
        let memory_kib = number_after(&read("/proc/meminfo"), "MemTotal:").unwrap_or_default();
        Self {
            cpu: cpu.to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: (memory_kib / 1024.0 / 1024.0).round(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_before: load(),
            load_after: String::new(),
        }
    }

    pub(crate) fn look_again(&mut self) {
        self.load_after = load();
    }

    pub(crate) fn line(&self) -> String {
        let Self { cpu, cores, memory_gib, kernel, load_before, load_after } = self;
        format!(
            "{cores} × {cpu}, {memory_gib} GiB, Linux {kernel}; load {load_before} before, {load_after} after"
        )
    }
}

/// The average number of runnable processes in the last minute.
fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}
