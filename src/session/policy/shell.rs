//! Shell lines, and the patterns that rules have for their commands.

mod pattern;
mod raw;

pub(super) use self::pattern::CommandPattern;

/// A simple command: its words, with quotes and backslashes resolved.
pub(super) type SimpleCommand = Vec<String>;

/// Whether something fits, when not everything about it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Yes,
    /// It cannot be told.
    Perhaps,
    No,
}

/// A shell line, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShellLine {
    /// Every command that the line runs, or why that cannot be told.
    pub(super) commands: Result<Vec<SimpleCommand>, String>,
    /// The words of the text, whatever they are to the shell.
    raw: raw::RawWords,
}

impl ShellLine {
    pub(super) fn read(line: &str) -> Self {
        Self { commands: Err("shell lines are not taken apart".to_owned()), raw: raw::RawWords::of(line) }
    }

    /// Whether the command of a reject or ask rule is anywhere in the line.
    pub(super) fn holds(&self, pattern: &CommandPattern) -> Fit {
        if self.raw.hold(pattern) { Fit::Yes } else { Fit::Perhaps }
    }
}

/// A word as one would type it, with everything made visible that would not be seen or would look like something else.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:=@%+,^".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let shown: String = word
        .chars()
        .map(|letter| match letter {
            '\'' => "'\\''".to_owned(),
            ' '..='~' => letter.to_string(),
            letter if letter.is_alphanumeric() => letter.to_string(),
            letter => letter.escape_default().to_string(),
        })
        .collect();
    format!("'{shown}'")
}
