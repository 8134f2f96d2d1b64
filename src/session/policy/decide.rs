//! The decision: reject before ask before allow, whatever the order of the rules.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Policy;
use super::fit::{Allowed, Compiled, Missing, missing};
use super::grant::Grant;
use super::request::{Seen, ToolRequest};
use super::rule::Action;
use super::shell::{CommandPattern, Fit, LineCommand, quoted};
use crate::session::agent::Mode;
use crate::session::permission::Decision;

/// What is to happen to a tool call, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Verdict {
    /// What is to happen.
    #[schema(inline)]
    pub action: Action,
    /// What decided, by its name: `server.rules[2]`, `session.rules[0]`, `server.default`; `None` when no rule and no
    /// default did, but the mode, or a remembered answer.
    #[schema(examples("server.rules[2]"))]
    pub rule: Option<String>,
    /// The place of the remembered answer that decided in the list that was given.
    #[serde(skip)]
    pub grant: Option<usize>,
    /// Why, for people.
    pub reason: String,
}

impl Verdict {
    fn new(action: Action, reason: impl Into<String>) -> Self {
        Self { action, rule: None, grant: None, reason: reason.into() }
    }

    fn by(mut self, rule: impl Into<String>) -> Self {
        self.rule = Some(rule.into());
        self
    }

    /// Whether a rule decided, and not a default, a remembered answer or the mode.
    #[must_use]
    pub fn is_by_rule(&self) -> bool {
        self.rule.as_deref().is_some_and(|rule| !rule.ends_with(".default"))
    }
}

/// One level's rules.
#[derive(Clone, Debug)]
pub(super) struct Level {
    /// Its name for people and programs: `server`, `session`.
    pub(super) name: &'static str,
    pub(super) rules: Vec<Compiled>,
    pub(super) default: Option<Action>,
}

impl Level {
    fn rules_that(&self, action: Action) -> impl Iterator<Item = &Compiled> {
        self.rules.iter().filter(move |rule| rule.action == action)
    }
}

/// What the allow rules of some levels come to.
enum Consent<'rule> {
    Call(&'rule Compiled),
    Line(&'rule Compiled),
    Missing,
}

/// Decides; see [`Policy::decide`].
pub(super) fn decide(policy: &Policy, request: &ToolRequest<'_>, grants: &[Grant]) -> Verdict {
    let seen = Seen::of(request);
    let both = [&policy.server, &policy.session];

    let mut perhaps = None;
    for rule in both.iter().flat_map(|level| level.rules_that(Action::Reject)) {
        match rule.restricts(&seen) {
            Fit::Yes => return rejected_by(rule, &seen),
            Fit::Perhaps => perhaps = perhaps.or(Some(rule)),
            Fit::No => {}
        }
    }
    if request.mode == Mode::Chat {
        return Verdict::new(Action::Reject, "In mode chat the agent only talks: no tool runs.");
    }
    for level in both.into_iter().filter(|level| level.default == Some(Action::Reject)) {
        let asks = || level.rules_that(Action::Ask).any(|rule| rule.restricts(&seen) != Fit::No);
        if !asks() && matches!(consent(&[level], &seen, &[]), Consent::Missing) {
            let reason = format!(
                "Rejected by default: no allow or ask rule of the {} covers {}.",
                level.name,
                uncovered(&[level], &seen)
            );
            return Verdict::new(Action::Reject, reason).by(format!("{}.default", level.name));
        }
    }
    let remembered =
        |decision| grants.iter().position(|grant| grant.decision == decision && grant.covers_seen(&seen));
    if let Some(place) = remembered(Decision::Reject) {
        let reason = "Rejected for the whole session by an earlier answer; it can be taken back.";
        return Verdict { grant: Some(place), ..Verdict::new(Action::Reject, reason) };
    }
    for rule in both.iter().flat_map(|level| level.rules_that(Action::Ask)) {
        match rule.restricts(&seen) {
            Fit::Yes => {
                let reason = format!("{} asks about every call with {}.", rule.name, rule.words);
                return Verdict::new(Action::Ask, reason).by(&rule.name);
            }
            Fit::Perhaps => perhaps = perhaps.or(Some(rule)),
            Fit::No => {}
        }
    }
    if let Some(rule) = perhaps {
        let reason = format!(
            "{} may fit ({}): {}.",
            rule.name,
            rule.words,
            undecided(&seen).unwrap_or("it cannot be told what runs")
        );
        return Verdict::new(Action::Ask, reason).by(&rule.name);
    }
    match consent(&both, &seen, &[]) {
        Consent::Call(rule) => {
            let reason = format!("{} allows every call with {}.", rule.name, rule.words);
            return Verdict::new(Action::Allow, reason).by(&rule.name);
        }
        Consent::Line(rule) => {
            return Verdict::new(Action::Allow, "Rules allow every command of the line.").by(&rule.name);
        }
        Consent::Missing => {}
    }
    let granted = remembered(Decision::Allow).or_else(|| {
        // Rules allow some commands of the line, and earlier answers the others.
        let helps = grants.iter().position(|grant| !grant.allowed_commands(&seen).is_empty())?;
        (!matches!(consent(&both, &seen, grants), Consent::Missing)).then_some(helps)
    });
    if let Some(place) = granted {
        let reason = "Allowed for the whole session by an earlier answer; it can be taken back.";
        return Verdict { grant: Some(place), ..Verdict::new(Action::Allow, reason) };
    }
    by_default(policy, &seen)
}

fn rejected_by(rule: &Compiled, seen: &Seen<'_>) -> Verdict {
    let unclear = seen.files.iter().find(|file| rule.path().is_some() && file.places.is_none());
    let reason = match unclear {
        Some(file) => format!(
            "{} rejects calls with {}, and where {} leads cannot be told; name the file by its plain absolute path.",
            rule.name,
            rule.words,
            quoted(&file.written)
        ),
        None => format!("{} rejects calls with {}.", rule.name, rule.words),
    };
    Verdict::new(Action::Reject, reason).by(&rule.name)
}

/// No rule fits and nothing is remembered.
fn by_default(policy: &Policy, seen: &Seen<'_>) -> Verdict {
    let mode = seen.request.mode;
    if policy.default() == Action::Allow {
        return Verdict::new(Action::Allow, "No rule fits, and the default is to allow.")
            .by("server.default");
    }
    let both = [&policy.server, &policy.session];
    match mode {
        Mode::Auto => Verdict::new(Action::Allow, "No rule fits, and in mode auto tools run unasked."),
        Mode::SmartApprove if seen.request.facts.read_only => Verdict::new(
            Action::Allow,
            "No rule fits, and in mode smart_approve the agent's own read-only tools run unasked.",
        ),
        Mode::SmartApprove | Mode::Approve | Mode::Chat => {
            let reason =
                format!("No rule allows {}, and mode {} asks.", uncovered(&both, seen), mode.as_str());
            Verdict::new(Action::Ask, reason)
        }
    }
}

/// What the allow rules of these levels, and the remembered commands, come to together.
fn consent<'rule>(levels: &[&'rule Level], seen: &Seen<'_>, grants: &[Grant]) -> Consent<'rule> {
    let mut patterns: Vec<(&Compiled, &CommandPattern)> = Vec::new();
    for rule in levels.iter().flat_map(|level| level.rules_that(Action::Allow)) {
        match rule.allows(seen) {
            Allowed::Call => return Consent::Call(rule),
            Allowed::Commands(pattern) => patterns.push((rule, pattern)),
            Allowed::Nothing => {}
        }
    }
    let (Some(line), Some((first, _))) = (&seen.line, patterns.first()) else { return Consent::Missing };
    let allowed = |command: &LineCommand| {
        patterns.iter().any(|(_, pattern)| pattern.allows(command))
            || grants.iter().any(|grant| grant.allowed_commands(seen).contains(&command.words))
    };
    if missing(line, allowed).is_some() { Consent::Missing } else { Consent::Line(first) }
}

/// What it is that these levels do not allow, for people.
fn uncovered(levels: &[&Level], seen: &Seen<'_>) -> String {
    let patterns: Vec<&CommandPattern> = levels
        .iter()
        .flat_map(|level| level.rules_that(Action::Allow))
        .filter_map(|rule| match rule.allows(seen) {
            Allowed::Commands(pattern) => Some(pattern),
            Allowed::Call | Allowed::Nothing => None,
        })
        .collect();
    let missing = seen
        .line
        .as_ref()
        .and_then(|line| missing(line, |command| patterns.iter().any(|pattern| pattern.allows(command))));
    match missing {
        Some(Missing::Command(command)) => {
            let words: Vec<String> = command.words.iter().map(|word| quoted(word)).collect();
            let others = if command.runs_others {
                ", which can run others and needs a rule without stars"
            } else {
                ""
            };
            format!("the command `{}`{others}", words.join(" "))
        }
        Some(Missing::Undecided(why)) => format!("this line, since {why}"),
        None => "this call".to_owned(),
    }
}

fn undecided<'line>(seen: &'line Seen<'_>) -> Option<&'line str> {
    let mut lines = seen.line.iter().chain(&seen.perhaps_lines);
    lines.find_map(|line| line.commands.as_ref().err().map(String::as_str))
}
