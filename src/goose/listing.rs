//! What a goose says it has: the output of `goose info -v`.
//!
//! Measured on goose 1.50 and 1.52: text for people, then a line `goose Configuration:`, then YAML in random order.
//! Its `extensions` are those of the configuration and goose's own platform extensions, each with whether a new
//! session would get it; the bundled MCP servers are not in it, unless the configuration has them. Entries and keys
//! that gander does not know are as good as others.

use serde_yaml_ng::Value;
use thiserror::Error;

/// The line behind which the output is YAML.
const MARKER: &str = "goose Configuration:";

/// One extension as goose lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key in goose's configuration.
    pub key: String,
    /// Whether a new session gets it.
    pub enabled: bool,
    /// Whether it comes with goose, so that `--with-builtin` can start it; else it is a server of the configuration.
    pub comes_with_goose: bool,
    /// What goose says of it, for people; may be empty.
    pub description: String,
}

/// Why an output tells nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ListingError {
    /// It is not the output of `goose info -v` as gander knows it.
    #[error("goose info tells no configuration")]
    NoConfiguration,
    /// What follows the marker is no YAML.
    #[error("goose info tells a configuration that cannot be read")]
    Malformed,
    /// There is no list of extensions in it.
    #[error("goose info tells no extensions")]
    NoExtensions,
}

/// Reads the output of `goose info -v`; sorted by key.
pub fn parse(output: &str) -> Result<Vec<Listed>, ListingError> {
    let mut lines = output.lines();
    if !lines.any(|line| line.trim_end() == MARKER) {
        return Err(ListingError::NoConfiguration);
    }
    let yaml: String = lines.flat_map(|line| [line, "\n"]).collect();
    let configuration: Value = serde_yaml_ng::from_str(&yaml).map_err(|_| ListingError::Malformed)?;
    let extensions = configuration.get("extensions").and_then(Value::as_mapping);
    let extensions = extensions.ok_or(ListingError::NoExtensions)?;
    let mut listed: Vec<Listed> = extensions.iter().filter_map(|(key, entry)| one(key, entry)).collect();
    listed.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    Ok(listed)
}

fn one(key: &Value, entry: &Value) -> Option<Listed> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    Some(Listed {
        key: key.as_str()?.to_owned(),
        enabled: entry.get("enabled").and_then(Value::as_bool)?,
        comes_with_goose: matches!(text("type"), "platform" | "builtin"),
        description: text("description").to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goose::catalogue::{EXTENSIONS, Runs};

    fn enabled(listed: &[Listed]) -> Vec<&str> {
        listed.iter().filter(|extension| extension.enabled).map(|extension| extension.key.as_str()).collect()
    }

    #[test]
    fn what_goose_1_52_says_is_the_catalogue() {
        let listed = parse(include_str!("../../tests/goose/info-1.52.0.txt")).unwrap();
        let mut platform: Vec<_> =
            EXTENSIONS.iter().filter(|extension| extension.runs == Runs::Platform).collect();
        platform.sort_unstable_by_key(|extension| extension.name);
        assert_eq!(listed.len(), platform.len());
        for (listed, known) in listed.iter().zip(platform) {
            assert_eq!((listed.key.as_str(), listed.enabled), (known.name, known.on_by_default));
            assert!(listed.comes_with_goose && !listed.description.is_empty(), "{listed:?}");
        }
    }

    #[test]
    fn another_version_has_other_defaults() {
        let listed = parse(include_str!("../../tests/goose/info-1.50.0.txt")).unwrap();
        assert_eq!(
            enabled(&listed),
            [
                "analyze",
                "apps",
                "developer",
                "extensionmanager",
                "scheduler",
                "skills",
                "summon",
                "todo",
                "tom"
            ]
        );
    }

    #[test]
    fn what_is_new_is_listed_and_what_cannot_be_read_is_left_out() {
        let output = "anything\n\ngoose Configuration:  \n  NEW_KEY: [1]\n  extensions:\n    future:\n      \
                      enabled: true\n      type: platform\n      novelty: {a: b}\n    mine:\n      enabled: false\n      \
                      type: stdio\n      cmd: /bin/x\n      description: Mine\n    odd: 7\n    7: {enabled: true}\n    \
                      unsaid: {type: stdio}\n";
        let extension = |key: &str, enabled, comes_with_goose, description: &str| Listed {
            key: key.into(),
            enabled,
            comes_with_goose,
            description: description.into(),
        };
        assert_eq!(
            parse(output),
            Ok(vec![extension("future", true, true, ""), extension("mine", false, false, "Mine")])
        );
    }

    #[test]
    fn an_output_without_them_is_an_error() {
        for (output, error) in [
            ("", ListingError::NoConfiguration),
            ("goose Version: 1.60.0", ListingError::NoConfiguration),
            ("goose Configuration:", ListingError::NoExtensions),
            ("goose Configuration:\n  GOOSE_PROVIDER: x", ListingError::NoExtensions),
            ("goose Configuration:\n  extensions: [a]", ListingError::NoExtensions),
            ("goose Configuration:\n  a: [", ListingError::Malformed),
        ] {
            assert_eq!(parse(output), Err(error), "{output:?}");
        }
    }
}
