//! What a bench found: a table for people, JSON for programs.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;

use super::Outcome;
use super::machine::Machine;

/// How gander's figure is set against the bare relay's.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Against {
    /// gander's part of the relay's.
    Ratio,
    /// What gander adds.
    Added,
}

#[derive(Debug, Serialize)]
struct Comparison {
    against: Against,
    value: f64,
}

/// One figure, once per round.
#[derive(Debug, Serialize)]
struct Figure {
    median: f64,
    rounds: Vec<f64>,
}

impl Figure {
    fn new(rounds: Vec<f64>) -> Self {
        Self { median: median(&rounds), rounds }
    }
}

#[derive(Debug, Serialize)]
struct Row {
    what: String,
    unit: &'static str,
    gander: Figure,
    #[serde(skip_serializing_if = "Option::is_none")]
    bare: Option<Figure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compared: Option<Comparison>,
}

/// The figures of one bench.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    bench: &'static str,
    date: String,
    machine: Machine,
    rows: Vec<Row>,
}

impl Report {
    /// To be made before the first measurement.
    pub(crate) fn new(bench: &'static str) -> Self {
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Self { bench, date, machine: Machine::look(), rows: Vec::new() }
    }

    pub(crate) fn bench(&self) -> &'static str {
        self.bench
    }

    /// A figure of gander alone.
    pub(crate) fn alone(&mut self, what: impl Into<String>, unit: &'static str, gander: Vec<f64>) {
        let gander = Figure::new(gander);
        self.rows.push(Row { what: what.into(), unit, gander, bare: None, compared: None });
        self.machine.look_again();
    }

    /// A figure of both.
    pub(crate) fn both(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        gander: Vec<f64>,
        bare: Vec<f64>,
        against: Against,
    ) {
        let (gander, bare) = (Figure::new(gander), Figure::new(bare));
        let value = match against {
            Against::Ratio => gander.median / bare.median,
            Against::Added => gander.median - bare.median,
        };
        let compared = Some(Comparison { against, value });
        self.rows.push(Row { what: what.into(), unit, gander, bare: Some(bare), compared });
        self.machine.look_again();
    }

    /// Prints it as a table in markdown.
    pub(crate) fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "\n{}, {}\n{}\n", self.bench, self.date, self.machine.line())?;
        writeln!(out, "| | unit | gander | lowest – highest | bare relay | |")?;
        writeln!(out, "|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let (lowest, highest) = extremes(&row.gander.rounds);
            let bare = row.bare.as_ref().map(|bare| shown(bare.median)).unwrap_or_default();
            let compared = match &row.compared {
                Some(Comparison { against: Against::Ratio, value }) => format!("1/{:.1}", 1.0 / value),
                Some(Comparison { against: Against::Added, value }) => format!("adds {}", shown(*value)),
                None => String::new(),
            };
            writeln!(
                out,
                "| {} | {} | {} | {} – {} | {bare} | {compared} |",
                row.what,
                row.unit,
                shown(row.gander.median),
                shown(lowest),
                shown(highest),
            )?;
        }
        writeln!(out)
    }

    /// Writes it as JSON; makes the folder.
    pub(crate) fn write(&self, path: &Path) -> Outcome<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        Ok(fs::write(path, serde_json::to_vec_pretty(self)?)?)
    }
}

/// As many digits as mean something.
fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => thousands(value),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        let left = digits.len() - index;
        if index > 0 && left % 3 == 0 && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn extremes(values: &[f64]) -> (f64, f64) {
    values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
}

/// The middle one; not a number when there is none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    percentile(&mut sorted, 50)
}

/// The value that so many percent do not exceed; not a number when there is none. Sorts.
pub(crate) fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}
