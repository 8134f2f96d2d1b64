//! Rules as people write them: in `[permissions]` of the configuration and as a session's `permission_policy`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::session::agent::Mode;

/// What a rule, or a policy's default, says of a tool call. Ordered from the loosest to the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It runs without a question.
    Allow,
    /// Somebody is asked. As a default: whatever the session's mode does by itself.
    Ask,
    /// It does not run.
    Reject,
}

impl Action {
    /// As in the configuration and in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Reject => "reject",
        }
    }
}

/// One rule: it holds for a tool call that fits all its parts; without any part, for every call.
///
/// In `tool`, `extension`, `kind` and the texts of `input`, `*` stands for any number of characters. `docs/permission-rules.md`
/// has the whole syntax.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What happens to such a call.
    #[schema(inline)]
    pub action: Action,
    /// The tool's name as in `tool_call.tool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("shell", "files__*"), max_length = 1024)]
    pub tool: Option<String>,
    /// The extension that provides the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("developer"), max_length = 1024)]
    pub extension: Option<String>,
    /// ACP's kind of tool: `read`, `edit`, `execute`, …; a tool that has none is `other`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("edit"), max_length = 1024)]
    pub kind: Option<String>,
    /// The session's mode in which the rule holds; left out: in every mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub mode: Option<Mode>,
    /// The files that the tool is told to touch: `*` within a name, `**` any folders. A relative pattern is below the
    /// session's `cwd`. It says nothing of what a shell line does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("src/**", "/etc/**"), max_length = 1024)]
    pub path: Option<String>,
    /// A simple command of a shell line, word by word: `git status` is that alone, `git log *` takes further words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("git status", "git log *"), max_length = 1024)]
    pub command: Option<String>,
    /// JSON pointers into the tool's arguments, and the values that have to be there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(example = json!({"/recursive": true, "/url": "https://example.org/*"}))]
    pub input: BTreeMap<String, Value>,
}

impl Rule {
    /// A rule for every tool call, to be narrowed down.
    #[must_use]
    pub fn new(action: Action) -> Self {
        Self {
            action,
            tool: None,
            extension: None,
            kind: None,
            mode: None,
            path: None,
            command: None,
            input: BTreeMap::new(),
        }
    }
}

/// What becomes of a request that nobody answered in time. There is no `allow`: silence is not consent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// Rejected; the turn goes on.
    Reject,
}

/// What becomes of a request while nobody reads the session's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnNoSubscriber {
    /// It waits for its time to run out like any other.
    Wait,
    /// It is rejected at once.
    Reject,
}

/// A session's `permission_policy`. What is left out is as the gateway has it.
///
/// It can only tighten what the gateway's own rules say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PermissionPolicy {
    /// The rules; their order means nothing: reject goes before ask, ask before allow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 200)]
    pub rules: Vec<Rule>,
    /// For calls that no rule fits. The stricter of this and the gateway's default counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub default: Option<Action>,
    /// Seconds that a request waits for an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub timeout_s: Option<u64>,
    /// What becomes of it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub on_timeout: Option<OnTimeout>,
    /// What becomes of a request while nobody reads the session's events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub on_no_subscriber: Option<OnNoSubscriber>,
}
