//! Patterns for texts and for paths. Both match in time linear in the text, whatever the pattern.

use std::path::{Component, Path};

/// Bytes of a text beyond which it is not searched.
pub(super) const SEARCHED_BYTES: usize = 64 * 1024;

/// A text in which `*` stands for any number of characters, and `\` takes the next character as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    /// What stands between the stars; a single piece is a text without one.
    pieces: Vec<String>,
}

impl Glob {
    pub(super) fn new(pattern: &str) -> Self {
        let mut pieces = vec![String::new()];
        let mut letters = pattern.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '*' => pieces.push(String::new()),
                other => {
                    let literal = if other == '\\' { letters.next().unwrap_or('\\') } else { other };
                    if let Some(piece) = pieces.last_mut() {
                        piece.push(literal);
                    }
                }
            }
        }
        Self { pieces }
    }

    pub(super) fn has_star(&self) -> bool {
        self.pieces.len() > 1
    }

    /// The text that it stands for, when there is but one.
    pub(super) fn literal(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let [first, middle @ .., last] = self.pieces.as_slice() else {
            return self.literal() == Some(text);
        };
        let Some(mut rest) =
            text.strip_prefix(first.as_str()).and_then(|rest| rest.strip_suffix(last.as_str()))
        else {
            return false;
        };
        for piece in middle {
            let Some(at) = rest.find(piece.as_str()) else { return false };
            rest = &rest[at + piece.len()..];
        }
        true
    }
}

/// One name of a path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    /// `**`: any number of folders, or none.
    AnyFolders,
    One(Glob),
}

/// A path in which `*` stands for characters of one name and the name `**` for any number of folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathGlob {
    absolute: bool,
    names: Vec<Name>,
}

impl PathGlob {
    pub(super) fn new(pattern: &str) -> Self {
        let names =
            pattern.split('/').filter(|name| !name.is_empty() && *name != ".").map(|name| match name {
                "**" => Name::AnyFolders,
                other => Name::One(Glob::new(other)),
            });
        Self { absolute: pattern.starts_with('/'), names: names.collect() }
    }

    /// The folder above everything that it can match: all names before the first star, below `cwd` when the pattern is
    /// relative.
    pub(super) fn literal_prefix(&self, cwd: &Path) -> std::path::PathBuf {
        let mut prefix = if self.absolute { "/".into() } else { cwd.to_owned() };
        prefix.extend(self.literal_names());
        prefix
    }

    fn literal_names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map_while(|name| match name {
            Name::AnyFolders => None,
            Name::One(glob) => glob.literal(),
        })
    }

    /// Whether it matches `path`, an absolute path without `.` and `..`, when its own literal beginning is `prefix`.
    ///
    /// With `Reach::Below` also when it matches something that `path` may hold.
    pub(super) fn matches(&self, prefix: &Path, path: &Path, reach: Reach) -> bool {
        let tail = &self.names[self.literal_names().count()..];
        let mut path = path.components().filter(|part| !matches!(part, Component::RootDir));
        for part in prefix.components().filter(|part| !matches!(part, Component::RootDir)) {
            match path.next() {
                None => return reach == Reach::Below,
                Some(other) if other == part => {}
                Some(_) => return false,
            }
        }
        // The places in the pattern that the path's names so far can lead to.
        let mut places = vec![false; tail.len() + 1];
        places[0] = true;
        pass_folders(tail, &mut places);
        for part in path {
            let mut next = vec![false; tail.len() + 1];
            for (place, name) in tail.iter().enumerate().filter(|(place, _)| places[*place]) {
                match name {
                    Name::AnyFolders => next[place] = true,
                    // A name that is not UTF-8 has no pattern but `**`, and what the agent writes is always UTF-8.
                    Name::One(glob) => {
                        next[place + 1] |= part.as_os_str().to_str().is_some_and(|part| glob.matches(part));
                    }
                }
            }
            pass_folders(tail, &mut next);
            places = next;
        }
        places[tail.len()] || (reach == Reach::Below && places.contains(&true))
    }
}

/// `**` may stand for no folder at all.
fn pass_folders(names: &[Name], places: &mut [bool]) {
    for (place, name) in names.iter().enumerate() {
        if places[place] && *name == Name::AnyFolders {
            places[place + 1] = true;
        }
    }
}

/// How far a tool reaches from a path that it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// To that file or folder.
    #[default]
    Itself,
    /// To everything below it too.
    Below,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        let matches = |pattern: &str, text: &str| Glob::new(pattern).matches(text);
        assert!(matches("shell", "shell") && !matches("shell", "shells") && !matches("shell", ""));
        assert!(matches("*", "") && matches("*", "any") && matches("files__*", "files__read"));
        assert!(matches("*_write", "todo__todo_write") && !matches("*_write", "write"));
        assert!(matches("a*b*c", "abc") && matches("a*b*c", "a-b-b-c") && !matches("a*b*c", "acb"));
        assert!(!matches("ab*ba", "aba"), "the ends may not overlap");
        assert!(matches(r"a\*", "a*") && !matches(r"a\*", "ab") && matches(r"a\\", r"a\"));
        assert!(matches("é*ü", "éxü"));
    }

    fn path_matches(pattern: &str, path: &str, reach: Reach) -> bool {
        let glob = PathGlob::new(pattern);
        glob.matches(&glob.literal_prefix(Path::new("/work")), Path::new(path), reach)
    }

    #[test]
    fn a_path_pattern_goes_name_by_name() {
        let matches = |pattern: &str, path: &str| path_matches(pattern, path, Reach::Itself);
        assert!(
            matches("/etc/**", "/etc/ssl/key.pem")
                && matches("/etc/**", "/etc")
                && !matches("/etc/**", "/etcetera/x")
        );
        assert!(matches("src/*.rs", "/work/src/lib.rs"));
        assert!(!matches("src/*.rs", "/work/src/deep/lib.rs") && !matches("src/*.rs", "/src/lib.rs"));
        assert!(
            matches("**/.env", "/work/.env")
                && matches("**/.env", "/work/a/b/.env")
                && !matches("**/.env", "/.env")
        );
        assert!(matches("/**/.env", "/.env") && matches("/**/.env", "/a/.env"));
        assert!(matches("**", "/work") && matches("**", "/work/a") && !matches("**", "/workshop"));
        assert!(matches("./a", "/work/a") && matches("a//b", "/work/a/b"));
        assert!(matches("/a/**/b/**/c", "/a/b/c") && matches("/a/**/b/**/c", "/a/x/b/y/z/c"));
        assert!(!matches("/a/**/b/**/c", "/a/x/y/c"));
    }

    #[test]
    fn what_a_folder_may_hold_can_be_asked_for() {
        let below = |pattern: &str, path: &str| path_matches(pattern, path, Reach::Below);
        assert!(
            below("/etc/ssl/**", "/") && below("/etc/ssl/**", "/etc") && below("/etc/ssl/**", "/etc/ssl/a")
        );
        assert!(!below("/etc/ssl/**", "/etc/apt") && below("**/.env", "/work/deep"));
        assert!(below("/a/*/secret", "/a/x") && !below("/a/*/secret", "/a/x/other"));
    }
}
