//! The words of a line that is not understood: cut out by their looks, rather too many than too few.

use super::pattern::CommandPattern;

/// The words of a text, in two readings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawWords([Vec<String>; 2]);

impl RawWords {
    pub(super) fn of(line: &str) -> Self {
        // `r''m` and `r\m` are one word, `sh -c 'rm x'` has two in its last one: both are looked at.
        let joined: String = line.chars().filter(|letter| !is_quoting(*letter)).collect();
        Self([words(&joined), words(line)])
    }

    /// Whether the pattern's command is at any of the words.
    pub(super) fn hold(&self, pattern: &CommandPattern) -> bool {
        self.0.iter().any(|words| {
            (0..words.len()).any(|at| pattern.is_meant_by(words[at..].iter().map(String::as_str)))
        })
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
            || matches!(
                letter,
                '|' | '&' | ';' | '<' | '>' | '(' | ')' | '{' | '}' | '$' | '`' | '=' | ',' | '!'
            )
    });
    parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
