//! Everything that a line may run, for reject and ask rules.

use super::pattern::CommandPattern;
use super::raw::RawWords;

/// Whether something fits, when not everything about it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::session::policy) enum Fit {
    No,
    /// It cannot be told.
    Perhaps,
    Yes,
}

/// What was found anywhere in a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Commands that are known as such.
    pub(super) commands: Vec<FoundCommand>,
    /// Texts that may be commands in part.
    pub(super) texts: Vec<RawWords>,
    /// Whether it may run something that is not among these.
    pub(super) more: bool,
}

/// A command as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundCommand {
    /// Its words; `None` is one that is only known when it is run.
    pub(super) words: Vec<Option<String>>,
    /// Whether what it runs may begin at any of its words.
    pub(super) runs_others: bool,
}

impl Found {
    pub(super) fn holds(&self, pattern: &CommandPattern) -> Fit {
        if self.texts.iter().any(|text| text.hold(pattern)) {
            return Fit::Yes;
        }
        let commands =
            self.commands.iter().map(|command| pattern.is_meant_by(command)).max().unwrap_or(Fit::No);
        if self.more { commands.max(Fit::Perhaps) } else { commands }
    }
}
