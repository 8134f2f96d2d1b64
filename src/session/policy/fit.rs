//! Whether a rule fits a tool call.

use serde_json::Value;

use super::glob::{Glob, PathGlob, Reach, SEARCHED_BYTES};
use super::request::{Seen, SeenFile, ShellUse, ToolRequest};
use super::rule::{Action, Rule};
use super::shell::{CommandPattern, Fit, LineCommand, ShellLine};
use crate::session::agent::Mode;

/// A rule, ready to be held against many calls.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub(super) action: Action,
    /// Its name for people and programs, such as `server.rules[2]`.
    pub(super) name: String,
    /// Its parts, for people.
    pub(super) words: String,
    tool: Option<Glob>,
    extension: Option<Glob>,
    kind: Option<Glob>,
    mode: Option<Mode>,
    path: Option<PathGlob>,
    command: Option<CommandPattern>,
    input: Vec<(String, Expected)>,
}

#[derive(Clone, Debug)]
enum Expected {
    Text(Glob),
    Exactly(Value),
}

/// How an allow rule fits.
pub(super) enum Allowed<'rule> {
    /// The whole call is allowed.
    Call,
    /// The commands of this pattern are allowed, the others of the same line have to be by other rules.
    Commands(&'rule CommandPattern),
    /// The rule is about something else.
    Nothing,
}

impl Compiled {
    pub(super) fn new(rule: &Rule, name: String) -> Self {
        let glob = |pattern: &Option<String>| pattern.as_deref().map(Glob::new);
        let input = rule.input.iter().map(|(pointer, expected)| {
            let expected = match expected {
                Value::String(pattern) => Expected::Text(Glob::new(pattern)),
                other => Expected::Exactly(other.clone()),
            };
            (pointer.clone(), expected)
        });
        Self {
            action: rule.action,
            name,
            words: words(rule),
            tool: glob(&rule.tool),
            extension: glob(&rule.extension),
            kind: glob(&rule.kind),
            mode: rule.mode,
            path: rule.path.as_deref().map(PathGlob::new),
            command: rule.command.as_deref().map(CommandPattern::new),
            input: input.collect(),
        }
    }

    /// Whether it can ever hold in this mode.
    pub(super) fn is_in_force(&self, mode: Mode) -> bool {
        self.mode.is_none_or(|own| own == mode)
    }

    pub(super) fn path(&self) -> Option<&PathGlob> {
        self.path.as_ref()
    }

    /// How an allow rule fits: only by what is known.
    pub(super) fn allows(&self, seen: &Seen<'_>) -> Allowed<'_> {
        let request = seen.request;
        let fits = self.is_in_force(request.mode)
            && known(self.tool.as_ref(), request.tool, false)
            && known(self.extension.as_ref(), request.extension(), false)
            && known(self.kind.as_ref(), Some(request.kind()), false)
            && self.path.as_ref().is_none_or(|glob| allows_files(glob, seen))
            && self.input.iter().all(|(pointer, expected)| allows_input(pointer, expected, request));
        match &self.command {
            _ if !fits => Allowed::Nothing,
            None => Allowed::Call,
            Some(pattern) if seen.line.is_some() => Allowed::Commands(pattern),
            Some(_) => Allowed::Nothing,
        }
    }

    /// Whether a reject or ask rule fits: what is not known counts as if it did.
    pub(super) fn restricts(&self, seen: &Seen<'_>) -> Fit {
        let request = seen.request;
        let fits = self.is_in_force(request.mode)
            && known(self.tool.as_ref(), request.tool, true)
            && known(self.extension.as_ref(), request.extension(), true)
            && known(self.kind.as_ref(), Some(request.kind()), true)
            && self
                .path
                .as_ref()
                .is_none_or(|glob| seen.files.iter().any(|file| may_touch(glob, file, request)))
            && self.input.iter().all(|(pointer, expected)| may_have(pointer, expected, request));
        match &self.command {
            _ if !fits => Fit::No,
            None => Fit::Yes,
            Some(pattern) => {
                let lines = seen.line.iter().chain(&seen.perhaps_lines);
                lines.map(|line| line.holds(pattern)).max().unwrap_or(Fit::No)
            }
        }
    }
}

/// Whether a text fits, when there may be no pattern, and when the text may be unknown.
fn known(pattern: Option<&Glob>, text: Option<&str>, when_unknown: bool) -> bool {
    match (pattern, text) {
        (None, _) => true,
        (Some(_), None) => when_unknown,
        (Some(pattern), Some(text)) => pattern.matches(text),
    }
}

/// Every file lies where the pattern says, by its text and in truth; the pattern is taken as it is written.
fn allows_files(glob: &PathGlob, seen: &Seen<'_>) -> bool {
    let prefix = glob.literal_prefix(seen.request.cwd);
    !seen.files.is_empty()
        && seen.files.iter().all(|file| {
            file.places.as_ref().is_some_and(|places| glob.matches(&prefix, &places.really, Reach::Itself))
        })
}

/// The file may lie where the pattern says: by its text or in truth, with the pattern's folder by its text or in truth.
fn may_touch(glob: &PathGlob, file: &SeenFile, request: &ToolRequest<'_>) -> bool {
    let Some(places) = &file.places else { return true };
    let prefix = glob.literal_prefix(request.cwd);
    let really = request.resolved.get(&prefix);
    std::iter::once(prefix.as_path()).chain(really).any(|prefix| {
        [&places.by_text, &places.really]
            .into_iter()
            .any(|path| glob.matches(prefix, path, request.facts.reach))
    })
}

fn allows_input(pointer: &str, expected: &Expected, request: &ToolRequest<'_>) -> bool {
    let Some(found) = request.input.pointer(pointer) else { return false };
    match (expected, found) {
        // `git *` on the shell's own line would also take in `git status; rm x`: that is what `command` is for.
        (Expected::Text(glob), _) if glob.has_star() && is_shell_line(pointer, request) => false,
        (Expected::Text(glob), Value::String(text)) => text.len() <= SEARCHED_BYTES && glob.matches(text),
        (Expected::Text(_), _) => false,
        (Expected::Exactly(value), found) => is_same(value, found),
    }
}

fn is_shell_line(pointer: &str, request: &ToolRequest<'_>) -> bool {
    matches!(&request.facts.shell, ShellUse::Line { pointer: own, .. } if *own == pointer)
}

fn may_have(pointer: &str, expected: &Expected, request: &ToolRequest<'_>) -> bool {
    let Some(found) = request.input.pointer(pointer) else { return false };
    match (expected, found) {
        (Expected::Text(glob), Value::String(text)) => text.len() > SEARCHED_BYTES || glob.matches(text),
        (Expected::Text(_), _) => false,
        (Expected::Exactly(value), found) => is_same(value, found),
    }
}

/// Whether two values are the same JSON; `1` and `1.0` are.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) if one.is_f64() || other.is_f64() => {
            one.as_f64() == other.as_f64()
        }
        _ => one == other,
    }
}

/// A rule's parts as one would say them.
fn words(rule: &Rule) -> String {
    let mut words: Vec<String> = Vec::new();
    let texts = [("tool", &rule.tool), ("extension", &rule.extension), ("kind", &rule.kind)];
    let more = [("path", &rule.path), ("command", &rule.command)];
    for (part, pattern) in texts.into_iter().chain(more) {
        words.extend(pattern.as_ref().map(|pattern| format!("{part} `{pattern}`")));
    }
    words.extend(rule.mode.map(|mode| format!("mode `{}`", mode.as_str())));
    words.extend(rule.input.iter().map(|(pointer, expected)| format!("input `{pointer}` = {expected}")));
    if words.is_empty() { "every call".to_owned() } else { words.join(", ") }
}

/// What keeps a line from being allowed, if anything does.
pub(super) fn missing(line: &ShellLine, allowed: impl Fn(&LineCommand) -> bool) -> Option<Missing<'_>> {
    match &line.commands {
        Err(why) => Some(Missing::Undecided(why)),
        Ok(commands) => commands.iter().find(|command| !allowed(command)).map(Missing::Command),
    }
}

/// What keeps a line from being allowed.
pub(super) enum Missing<'line> {
    /// It cannot be told what the line runs.
    Undecided(&'line str),
    /// Nothing allows this command.
    Command(&'line LineCommand),
}
