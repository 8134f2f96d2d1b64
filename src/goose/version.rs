//! Which versions of goose gander works with.

use std::fmt;

/// The oldest goose that gander works with.
pub const OLDEST: Version = Version::new(1, 45, 0);

/// A goose version, as `goose --version` and `initialize` tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// Of its three numbers.
    #[must_use]
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// The first version number in a text, e.g. in ` 1.52.0⏎` or `goose 1.52.0-beta`. `None` when there is none.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(|word| {
            let number = word.strip_prefix('v').unwrap_or(word).split(['-', '+']).next()?;
            let mut parts = number.split('.').map(|part| part.parse::<u32>().ok());
            let version = Self { major: parts.next()??, minor: parts.next()??, patch: parts.next()?? };
            parts.next().is_none().then_some(version)
        })
    }

    /// Whether gander works with it.
    #[must_use]
    pub fn is_supported(self) -> bool {
        self >= OLDEST
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_and_compared() {
        for (text, found, supported) in [
            (" 1.52.0\n", "1.52.0", true),
            ("goose 1.45.0", "1.45.0", true),
            ("goose v2.0.1-beta.3+5", "2.0.1", true),
            ("1.44.9", "1.44.9", false),
            ("0.99.0", "0.99.0", false),
        ] {
            let version = Version::find(text).unwrap();
            assert_eq!(
                (version.to_string().as_str(), version.is_supported()),
                (found, supported),
                "{text:?}"
            );
        }
        for text in ["", "goose", "1.52", "1.52.0.1", "a.b.c", "99999999999.0.0"] {
            assert_eq!(Version::find(text), None, "{text:?}");
        }
    }
}
