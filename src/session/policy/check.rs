//! What is wrong with rules, each fault with its place.

use serde_json::Value;

use super::rule::{PermissionPolicy, Rule};
use super::shell::CommandPattern;

/// Rules of one policy.
pub(super) const RULES: usize = 200;
/// Bytes of a pattern, of an expected value, and of a JSON pointer.
pub(super) const PATTERN_BYTES: usize = 1_024;
/// Parts of one rule's `input`.
pub(super) const INPUT_PARTS: usize = 16;
/// Seconds that a request may wait: a year, as for every duration.
pub(super) const LONGEST_TIMEOUT_S: u64 = 365 * 24 * 60 * 60;

/// Something wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFault {
    /// Where, as an RFC 6901 JSON pointer into the policy: `/rules/0/path`.
    pub pointer: String,
    /// What, for people.
    pub detail: String,
}

impl PermissionPolicy {
    /// Everything that is wrong with it.
    #[must_use]
    pub fn faults(&self) -> Vec<RuleFault> {
        let mut faults = Vec::new();
        let mut add = |pointer: String, detail: String| faults.push(RuleFault { pointer, detail });
        if self.rules.len() > RULES {
            add("/rules".to_owned(), format!("has {} rules; the most are {RULES}", self.rules.len()));
        }
        for (number, rule) in self.rules.iter().enumerate().take(RULES) {
            for (part, detail) in rule.faults() {
                add(format!("/rules/{number}{part}"), detail);
            }
        }
        if self.timeout_s.is_some_and(|timeout| timeout == 0 || timeout > LONGEST_TIMEOUT_S) {
            add("/timeout_s".to_owned(), format!("must be from 1 to {LONGEST_TIMEOUT_S} seconds"));
        }
        faults
    }
}

impl Rule {
    /// Everything that is wrong with it: the part's pointer, and what.
    fn faults(&self) -> Vec<(String, String)> {
        let names = [("/tool", &self.tool), ("/extension", &self.extension), ("/kind", &self.kind)];
        let mut faults: Vec<(String, String)> = names
            .into_iter()
            .filter_map(|(part, pattern)| Some((part.to_owned(), name_fault(pattern.as_deref()?)?)))
            .collect();
        let mut add =
            |part: &str, fault: Option<String>| faults.extend(fault.map(|fault| (part.to_owned(), fault)));
        add("/path", self.path.as_deref().and_then(path_fault));
        add(
            "/command",
            self.command
                .as_deref()
                .and_then(|pattern| length_fault(pattern).or_else(|| CommandPattern::fault(pattern))),
        );
        if self.path.is_some() && self.command.is_some() {
            let detail = "cannot stand beside `command`: the files of a shell line are not known";
            add("/path", Some(detail.to_owned()));
        }
        if self.input.len() > INPUT_PARTS {
            add("/input", Some(format!("has {} parts; the most are {INPUT_PARTS}", self.input.len())));
        }
        for (pointer, expected) in self.input.iter().take(INPUT_PARTS) {
            let token = pointer.replace('~', "~0").replace('/', "~1");
            add(&format!("/input/{token}"), input_fault(pointer, expected));
        }
        faults
    }
}

fn length_fault(text: &str) -> Option<String> {
    if text.is_empty() {
        Some("must not be empty; leave the part out to take any".to_owned())
    } else if text.len() > PATTERN_BYTES {
        Some(format!("is longer than {PATTERN_BYTES} bytes"))
    } else {
        None
    }
}

/// `*` is the only wildcard. Who writes another one expects it to work, so it is refused rather than taken as it stands.
fn wildcard_fault(text: &str) -> Option<String> {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '?' | '[' | ']' | '{' | '}' => {
                return Some(format!(
                    "has {letter:?} in it, which is no wildcard here; only * is (\\{letter} for itself)"
                ));
            }
            other if other.is_control() => return Some("has a control character in it".to_owned()),
            _ => {}
        }
    }
    None
}

fn name_fault(pattern: &str) -> Option<String> {
    length_fault(pattern).or_else(|| wildcard_fault(pattern))
}

fn path_fault(pattern: &str) -> Option<String> {
    let words = || {
        if pattern.starts_with('~') {
            return Some(
                "may not begin with ~, which stands for nobody's home here; write the absolute path",
            );
        }
        if pattern.split('/').any(|name| name == "..") {
            return Some("may not have .. in it: paths are compared without");
        }
        let half = pattern.split('/').any(|name| name != "**" && name.contains("**"));
        half.then_some("may have ** only as a whole name, as in src/**/test")
    };
    length_fault(pattern).or_else(|| wildcard_fault(pattern)).or_else(|| words().map(str::to_owned))
}

fn input_fault(pointer: &str, expected: &Value) -> Option<String> {
    if pointer.len() > PATTERN_BYTES || expected.to_string().len() > PATTERN_BYTES {
        Some(format!("is longer than {PATTERN_BYTES} bytes"))
    } else if !pointer.is_empty() && !pointer.starts_with('/') {
        Some("is no JSON pointer; one begins with /, such as /url".to_owned())
    } else {
        None
    }
}
