//! The words of a text that is not understood: cut out by their looks, rather too many than too few.

use super::pattern::CommandPattern;

/// The words of a text, in two readings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawWords([Vec<String>; 2]);

impl RawWords {
    pub(super) fn of(text: &str) -> Self {
        // `r''m`, `r\m` and an `rm` with a line break after a backslash in it are one word; `sh -c 'rm x'` has two in its last
        // one. Both are looked at.
        let joined: String = text.replace("\\\n", "").chars().filter(|letter| !is_quoting(*letter)).collect();
        Self([words(&joined), words(text)])
    }

    /// Whether the pattern's command is at any of the words.
    pub(super) fn hold(&self, pattern: &CommandPattern) -> bool {
        self.0.iter().any(|words| pattern.is_among(words))
    }
}

fn is_quoting(letter: char) -> bool {
    matches!(letter, '\'' | '"' | '\\')
}

fn words(text: &str) -> Vec<String> {
    let parts = text.split(|letter: char| {
        letter.is_whitespace()
            || letter.is_control()
            || is_quoting(letter)
            || "|&;<>(){}[]$`=,!".contains(letter)
    });
    parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
