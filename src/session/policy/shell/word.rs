//! The words of a line: what they say after quotes and backslashes, if that is certain.

use super::filter::is_deceptive;

/// Why a word is not known before it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    Expansion,
    Glob,
    Braces,
    Tilde,
    Quotes,
}

impl Unknown {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Expansion => "has a $ or a backquote in it, which stand for something else",
            Self::Glob => "stands for the files that it matches",
            Self::Braces => "stands for several words",
            Self::Tilde => "begins with a home folder",
            Self::Quotes => "has a quote that is not closed",
        }
    }
}

/// The word that the text of a token stands for, when it stands for exactly one and for the same wherever it is run.
pub(super) fn literal(text: &str) -> Result<String, Unknown> {
    let mut word = String::with_capacity(text.len());
    let mut letters = text.chars();
    let mut before = None;
    let has_braces = |text: &str| text.contains(',') || text.contains("..");
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => loop {
                match letters.next() {
                    None => return Err(Unknown::Quotes),
                    Some('\'') => break,
                    Some(other) => word.push(other),
                }
            },
            '"' => double_quoted(&mut letters, &mut word)?,
            '\\' => word.push(letters.next().ok_or(Unknown::Quotes)?),
            '$' | '`' => return Err(Unknown::Expansion),
            '*' | '?' => return Err(Unknown::Glob),
            '[' if text != "[" => return Err(Unknown::Glob),
            '{' | '}' if has_braces(text) => return Err(Unknown::Braces),
            // Inside a word, as in `HEAD~1`, it is nothing special.
            '~' if !before
                .is_some_and(|before: char| before.is_ascii_alphanumeric() || "~^@".contains(before)) =>
            {
                return Err(Unknown::Tilde);
            }
            plain => word.push(plain),
        }
        before = Some(letter);
    }
    Ok(word)
}

fn double_quoted(letters: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), Unknown> {
    loop {
        match letters.next().ok_or(Unknown::Quotes)? {
            '"' => return Ok(()),
            '$' | '`' => return Err(Unknown::Expansion),
            '\\' => match letters.next().ok_or(Unknown::Quotes)? {
                escaped @ ('$' | '`' | '"' | '\\') => word.push(escaped),
                other => word.extend(['\\', other]),
            },
            plain => word.push(plain),
        }
    }
}

/// A word as one would type it, with everything made visible that would not be seen or would look like something else.
pub(in crate::session::policy) fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:=@%+,^".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let mut shown = String::from("'");
    for letter in word.chars() {
        match letter {
            '\'' => shown.push_str("'\\''"),
            '\t' | '\n' => shown.extend(letter.escape_default()),
            letter if is_deceptive(letter) => shown.extend(letter.escape_default()),
            letter => shown.push(letter),
        }
    }
    shown.push('\'');
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_are_resolved() {
        for (text, word) in [
            ("ls", "ls"),
            (r"\ls", "ls"),
            ("r''m", "rm"),
            (r#""a b"'c d'e"#, "a bc de"),
            (r#""\$x \" \\ \n""#, r#"$x " \ \n"#),
            ("'$x `y` \\'", "$x `y` \\"),
            ("HEAD~1", "HEAD~1"),
            ("stash@{0}", "stash@{0}"),
            ("{}", "{}"),
            ("[", "["),
            ("''", ""),
            ("a=b", "a=b"),
        ] {
            assert_eq!(literal(text).as_deref(), Ok(word), "{text}");
        }
        for (text, why) in [
            ("$x", Unknown::Expansion),
            ("$'x'", Unknown::Expansion),
            (r#""`x`""#, Unknown::Expansion),
            ("*.rs", Unknown::Glob),
            ("a[bc]", Unknown::Glob),
            ("{a,b}", Unknown::Braces),
            ("{1..9}", Unknown::Braces),
            ("~/x", Unknown::Tilde),
            ("a=~/x", Unknown::Tilde),
            ("'x", Unknown::Quotes),
            ("x\\", Unknown::Quotes),
        ] {
            assert_eq!(literal(text), Err(why), "{text}");
        }
    }

    #[test]
    fn words_are_shown_as_they_would_be_typed() {
        assert_eq!(quoted("git"), "git");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a\u{202e}b\nc"), r"'a\u{202e}b\nc'");
        assert_eq!(quoted("é"), "'é'");
    }
}
