//! `command` patterns: words, each of which may have stars, and a last `*` for any further words.

use super::super::glob::Glob;

/// What a pattern's words may not have, since the shell would not pass it on to a command as it stands.
const SPECIAL: [char; 16] = ['|', '&', ';', '<', '>', '(', ')', '$', '`', '"', '\'', '{', '}', '#', '!', '~'];

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
        let more = words.len() > 1 && words.last() == Some(&"*");
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
        let special = pattern.chars().find(|letter| {
            SPECIAL.contains(letter) || letter.is_control() || (letter.is_whitespace() && *letter != ' ')
        });
        special.map(|letter| {
            format!("is one simple command, its words parted by spaces, and may not have {letter:?} in it")
        })
    }

    /// Whether it allows this command: word for word, the command's name as it is typed.
    pub(in crate::session::policy) fn allows(&self, command: &[String]) -> bool {
        let enough =
            if self.more { command.len() >= self.words.len() } else { command.len() == self.words.len() };
        enough && self.words.iter().zip(command).all(|(pattern, word)| pattern.matches(word))
    }

    /// Whether a command that begins with the first of these words could be meant: the name without its folder, and the
    /// pattern's further words somewhere behind it, in their order.
    pub(super) fn is_meant_by<'words>(&self, mut words: impl Iterator<Item = &'words str>) -> bool {
        let Some((name, rest)) = self.words.split_first() else { return true };
        let is_name =
            |word: &str| name.matches(word) || name.matches(word.rsplit('/').next().unwrap_or(word));
        words.next().is_some_and(is_name)
            && rest.iter().all(|pattern| words.any(|word| pattern.matches(word)))
    }
}
