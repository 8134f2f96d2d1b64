//! `command` patterns: words, each of which may have stars, and a last `*` for any further words.

use super::super::glob::Glob;
use super::LineCommand;
use super::found::{Fit, FoundCommand};

/// What has a meaning to the shell; a pattern's words are those that the command gets.
const SPECIAL: &str = "|&;<>()$`\"'{}[]?#!~";

/// The `command` of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session::policy) struct CommandPattern {
    words: Vec<Glob>,
    /// Whether further words may follow.
    more: bool,
}

impl CommandPattern {
    pub(in crate::session::policy) fn new(pattern: &str) -> Self {
        let mut words: Vec<&str> = pattern.split(' ').filter(|word| !word.is_empty()).collect();
        let more = words.last() == Some(&"*");
        if more {
            words.pop();
        }
        Self { words: words.into_iter().map(Glob::new).collect(), more }
    }

    /// Why a text is no pattern.
    pub(in crate::session::policy) fn fault(pattern: &str) -> Option<String> {
        if pattern.trim_matches(' ').is_empty() {
            return Some("must name a command, such as `git status` or `git log *`".to_owned());
        }
        let mut letters = pattern.chars();
        while let Some(letter) = letters.next() {
            if letter == '\\' {
                letters.next();
            } else if SPECIAL.contains(letter) {
                return Some(format!(
                    "is one simple command as it gets its words, without quotes, and {letter:?} would not be one \
                     (\\{letter} for itself)"
                ));
            }
        }
        let blank =
            pattern.chars().find(|letter| letter.is_control() || (letter.is_whitespace() && *letter != ' '));
        blank.map(|letter| format!("may not have {letter:?} in it; words are parted by spaces"))
    }

    /// Whether it allows this command: word for word, the command's name as it is typed.
    pub(in crate::session::policy) fn allows(&self, command: &LineCommand) -> bool {
        let words = &command.words;
        let has_star = self.more || self.words.iter().any(Glob::has_star);
        let enough =
            if self.more { words.len() >= self.words.len() } else { words.len() == self.words.len() };
        enough
            && !(has_star && command.runs_others)
            && self.words.iter().zip(words).all(|(pattern, word)| pattern.matches(word))
    }

    /// Whether a command may be meant: the name without its folder, and the pattern's further words somewhere behind it,
    /// in their order.
    pub(super) fn is_meant_by(&self, command: &FoundCommand) -> Fit {
        let Some((name, further)) = self.words.split_first() else { return Fit::Yes };
        let possible = if command.runs_others { command.words.len() } else { 1 };
        // The further words have to come after the first name that fits, so a later one fits no better.
        let named = |word: &Option<String>| word.as_deref().is_some_and(|word| is_named(name, word));
        let Some(at) = command.words[..possible].iter().position(named) else {
            return if command.words[..possible].contains(&None) { Fit::Perhaps } else { Fit::No };
        };
        let rest = &command.words[at + 1..];
        let mut known = rest.iter().flatten();
        if further.iter().all(|pattern| known.any(|word| pattern.matches(word))) {
            Fit::Yes
        } else if rest.contains(&None) {
            Fit::Perhaps
        } else {
            Fit::No
        }
    }

    /// Whether the command is at any of these words.
    pub(super) fn is_among(&self, words: &[String]) -> bool {
        let Some((name, further)) = self.words.split_first() else { return !words.is_empty() };
        let Some(at) = words.iter().position(|word| is_named(name, word)) else { return false };
        let mut rest = words[at + 1..].iter();
        further.iter().all(|pattern| rest.any(|word| pattern.matches(word)))
    }
}

fn is_named(name: &Glob, word: &str) -> bool {
    name.matches(word) || name.matches(word.rsplit('/').next().unwrap_or(word))
}
