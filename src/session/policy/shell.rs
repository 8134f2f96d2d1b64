//! Shell lines, and the patterns that rules have for their commands.
//!
//! A line is looked at from two sides. What it runs for certain is [`ShellLine::commands`], or nothing at all: that is
//! what allow rules are held against. What it may run is everything that was found anywhere in it, in groups and
//! substitutions, behind `env` and in the text that `sh -c` is given: that is what reject and ask rules are held
//! against. Source of what bash does: its manual, and bash itself, which `tests/oracle.rs` asks.

mod filter;
mod found;
mod pattern;
mod programs;
mod raw;
mod walk;
mod word;

pub(super) use self::found::Fit;
pub(super) use self::pattern::CommandPattern;
pub(super) use self::word::quoted;

use self::found::Found;

/// A simple command: its words, with quotes and backslashes resolved.
pub(super) type SimpleCommand = Vec<String>;

/// A command that a line runs for certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineCommand {
    pub(super) words: SimpleCommand,
    /// It can run other commands than its name says: only a pattern without stars allows it.
    pub(super) runs_others: bool,
}

/// A shell line, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShellLine {
    /// Every command that the line runs, or why that cannot be told.
    pub(super) commands: Result<Vec<LineCommand>, String>,
    found: Found,
}

impl ShellLine {
    pub(super) fn read(line: &str) -> Self {
        walk::read(line)
    }

    /// Whether the command of a reject or ask rule is anywhere in the line.
    pub(super) fn holds(&self, pattern: &CommandPattern) -> Fit {
        self.found.holds(pattern)
    }
}
