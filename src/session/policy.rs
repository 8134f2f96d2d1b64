//! The permission policy: which tool calls run, which are asked about, which are rejected.
//!
//! Reading order: [`rule`] (what people write), `check` (what is wrong with it), [`request`] (a tool call as the rules see it),
//! [`paths`], `fit` (does a rule fit), `shell` (what a shell line runs), [`grant`] (what "always" remembers), [`decide`].
//!
//! Architecture invariant: the engine is pure. It has no clock, no lock, and no disk: where paths lead comes in as
//! [`ResolvedPaths`], what is known of the agent's tools as [`ToolFacts`].

mod check;
pub mod decide;
mod fit;
mod glob;
pub mod grant;
pub mod paths;
pub mod request;
pub mod rule;
mod shell;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;

pub use self::check::RuleFault;
pub use self::decide::Verdict;
pub use self::glob::Reach;
pub use self::grant::{Grant, GrantedCalls};
pub use self::paths::{ResolvedPaths, real_path};
pub use self::request::{FileArgument, ShellUse, ToolCatalogue, ToolFacts, ToolRequest};
pub use self::rule::{Action, OnNoSubscriber, OnTimeout, PermissionPolicy, Rule};

use self::decide::Level;
use self::fit::Compiled;
use super::agent::Mode;

/// The gateway's rules and one session's, together.
///
/// Each level is the strictest of what it says; of two levels the stricter one counts. So a session can tighten what the
/// gateway says, and never loosen it. See `docs/permissions.md`.
#[derive(Clone, Debug)]
pub struct Policy {
    server: Level,
    session: Level,
}

impl Policy {
    /// Of policies that were checked ([`PermissionPolicy::faults`]).
    #[must_use]
    pub fn new(server: &PermissionPolicy, session: &PermissionPolicy) -> Self {
        let level = |name: &'static str, policy: &PermissionPolicy| Level {
            name,
            rules: policy
                .rules
                .iter()
                .enumerate()
                .map(|(number, rule)| Compiled::new(rule, format!("{name}.rules[{number}]")))
                .collect(),
            default: policy.default,
        };
        Self { server: level("server", server), session: level("session", session) }
    }

    /// What happens to a call that no rule fits: the stricter of both defaults.
    #[must_use]
    pub fn default(&self) -> Action {
        let server = self.server.default.unwrap_or(Action::Ask);
        self.session.default.map_or(server, |session| session.max(server))
    }

    /// Whether anything is asked about or rejected in this mode that the agent by itself might run unasked. Then the
    /// agent has to ask for every call.
    #[must_use]
    pub fn restricts(&self, mode: Mode) -> bool {
        self.default() == Action::Reject
            || self.rules().any(|rule| rule.action != Action::Allow && rule.is_in_force(mode))
    }

    /// The paths that a decision about this call needs to know: to be looked up with [`ResolvedPaths::look_up`] and
    /// given back with the request.
    #[must_use]
    pub fn paths(&self, request: &ToolRequest<'_>) -> BTreeSet<PathBuf> {
        let mut paths: BTreeSet<PathBuf> = request.named_paths().collect();
        if !paths.is_empty() {
            let rules = self.rules().filter(|rule| rule.action != Action::Allow);
            paths.extend(rules.filter_map(|rule| Some(rule.path()?.literal_prefix(request.cwd))));
        }
        paths
    }

    /// Decides a tool call: by the rules of both levels, then by what was remembered (`grants`), then by the default
    /// and the mode.
    ///
    /// In this order: reject rules; a default of `reject`, unless an allow or ask rule of the same level fits; answers
    /// remembered as reject; ask rules; allow rules; answers remembered as allow; the default.
    #[must_use]
    pub fn decide(&self, request: &ToolRequest<'_>, grants: &[Grant]) -> Verdict {
        decide::decide(self, request, grants)
    }

    fn rules(&self) -> impl Iterator<Item = &Compiled> {
        self.server.rules.iter().chain(&self.session.rules)
    }
}
