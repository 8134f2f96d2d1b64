//! What "always" remembers of one answer, for the rest of the session.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::request::{Seen, ToolRequest};
use super::shell::{ShellLine, SimpleCommand, quoted};
use crate::session::permission::Decision;

/// Characters of what a grant says to people. What is longer nobody reads, so it is not offered.
const WORDS_CHARS: usize = 1_000;

/// A remembered answer: which calls it is for. It never beats a reject or an ask rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    /// What was decided.
    #[schema(inline)]
    pub decision: Decision,
    /// The tool.
    pub tool: String,
    /// The extension that provides it.
    pub extension: Option<String>,
    /// Which of the tool's calls.
    #[serde(flatten)]
    pub calls: GrantedCalls,
}

/// Which calls of a tool a grant is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "calls", rename_all = "snake_case")]
pub enum GrantedCalls {
    /// All of them.
    Tool,
    /// Shell lines of these simple commands, each exactly with these words.
    Commands {
        /// The commands, as words.
        commands: Vec<Vec<String>>,
    },
    /// Those that name these files and no others.
    Files {
        /// Where the files really are.
        #[schema(value_type = Vec<String>)]
        files: Vec<PathBuf>,
    },
}

impl Grant {
    /// What "always" would remember of this call; `None` when that cannot be said: a shell line that cannot be decided,
    /// a path that cannot be resolved, an unknown tool, or more than anybody would read.
    #[must_use]
    pub fn of(request: &ToolRequest<'_>, decision: Decision) -> Option<Self> {
        let grant = Self {
            decision,
            tool: request.tool?.to_owned(),
            extension: request.extension().map(str::to_owned),
            calls: calls(&Seen::of(request))?,
        };
        (grant.words().chars().count() <= WORDS_CHARS).then_some(grant)
    }

    /// Whether this call is among those that were decided.
    #[must_use]
    pub fn covers(&self, request: &ToolRequest<'_>) -> bool {
        self.covers_seen(&Seen::of(request))
    }

    pub(super) fn covers_seen(&self, seen: &Seen<'_>) -> bool {
        if !self.is_for_tool_of(seen) {
            return false;
        }
        match (&self.calls, calls(seen)) {
            (GrantedCalls::Tool, Some(GrantedCalls::Tool)) => true,
            (GrantedCalls::Files { files: granted }, Some(GrantedCalls::Files { files })) => {
                *granted == files
            }
            (GrantedCalls::Commands { commands: granted }, Some(GrantedCalls::Commands { commands })) => {
                match self.decision {
                    Decision::Allow => commands.iter().all(|command| granted.contains(command)),
                    Decision::Reject => granted.iter().all(|command| commands.contains(command)),
                }
            }
            _ => false,
        }
    }

    /// The commands that it allows in a line of this call, beside others.
    pub(super) fn allowed_commands(&self, seen: &Seen<'_>) -> &[SimpleCommand] {
        match &self.calls {
            GrantedCalls::Commands { commands }
                if self.decision == Decision::Allow && self.is_for_tool_of(seen) =>
            {
                commands
            }
            _ => &[],
        }
    }

    fn is_for_tool_of(&self, seen: &Seen<'_>) -> bool {
        seen.request.tool == Some(self.tool.as_str()) && seen.request.extension() == self.extension.as_deref()
    }

    /// What is remembered, for the name of the option that offers it and for the list of grants.
    #[must_use]
    pub fn words(&self) -> String {
        let verb = match self.decision {
            Decision::Allow => "allow",
            Decision::Reject => "reject",
        };
        let tool = quoted(&self.tool);
        let calls = match &self.calls {
            GrantedCalls::Tool => format!("every call of `{tool}`"),
            GrantedCalls::Commands { commands } => {
                let commands: Vec<String> =
                    commands.iter().map(|command| format!("`{}`", shown(command))).collect();
                commands.join(", ")
            }
            GrantedCalls::Files { files } => {
                let files: Vec<String> = files.iter().map(|file| quoted(&file.to_string_lossy())).collect();
                format!("`{tool}` of {}", files.join(", "))
            }
        };
        format!("Always {verb} {calls} in this session")
    }
}

fn shown(command: &[String]) -> String {
    command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// What a call is remembered by.
fn calls(seen: &Seen<'_>) -> Option<GrantedCalls> {
    if let Some(line) = &seen.line {
        let ShellLine { commands: Ok(commands), .. } = line else { return None };
        let commands = commands.iter().map(|command| command.words.clone()).collect();
        return Some(GrantedCalls::Commands { commands });
    }
    if seen.files.is_empty() {
        return Some(GrantedCalls::Tool);
    }
    let files: Option<Vec<PathBuf>> =
        seen.files.iter().map(|file| file.places.as_ref().map(|places| places.really.clone())).collect();
    files.map(|files| GrantedCalls::Files { files })
}
