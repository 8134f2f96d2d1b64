//! A tool call as the rules see it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::glob::Reach;
use super::paths::{self, ResolvedPaths};
use super::shell::ShellLine;
use crate::session::agent::Mode;

/// A tool call that is to be decided.
#[derive(Clone, Copy, Debug)]
pub struct ToolRequest<'a> {
    /// The tool's name; unknown names fit no allow rule's `tool`, and every other rule's.
    pub tool: Option<&'a str>,
    /// The extension that provides it; when `None`, what [`ToolFacts::extension`] says.
    pub extension: Option<&'a str>,
    /// ACP's kind as the agent tells it; when `None` or `other`, what [`ToolFacts::kind`] says.
    pub kind: Option<&'a str>,
    /// The mode that the session's caller chose, not the one that the agent runs in.
    pub mode: Mode,
    /// The tool's arguments.
    pub input: &'a Value,
    /// The session's folder: absolute, without symbolic links when the session was made.
    pub cwd: &'a Path,
    /// What the agent's adapter knows of the tool.
    pub facts: &'a ToolFacts,
    /// Where the paths of [`Policy::paths`](super::Policy::paths) lead.
    pub resolved: &'a ResolvedPaths,
}

/// What is known of a tool call beyond what the agent says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFacts {
    /// The extension that a tool of that name comes from.
    pub extension: Option<String>,
    /// ACP's kind of tool.
    pub kind: Option<&'static str>,
    /// Whether it is one of the agent's own tools that change nothing.
    pub read_only: bool,
    /// Whether it only writes the agent's plan.
    pub writes_plan: bool,
    /// Whether it runs a shell.
    pub shell: ShellUse,
    /// The files it is told to touch.
    pub files: Vec<FileArgument>,
    /// Whether it also touches what lies below them.
    pub reach: Reach,
}

/// What a tool call gives to a shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ShellUse {
    /// Nothing, as far as is known.
    #[default]
    Nothing,
    /// The tool runs exactly this line in bash.
    Line {
        /// The line.
        line: String,
        /// The JSON pointer of the argument that has it.
        pointer: &'static str,
    },
    /// Perhaps these texts: the tool is not known, but its arguments are named like commands. Only ask and reject rules
    /// look at them.
    Perhaps(Vec<String>),
}

/// A file that a tool is told to touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileArgument {
    /// A path, absolute or below the session's folder.
    Path(String),
    /// Something that may mean a file, nobody knows which: `~/notes` for a tool that may or may not know what `~` is.
    Unclear(String),
}

/// The port to what the agent's tools are.
pub trait ToolCatalogue: std::fmt::Debug + Send + Sync {
    /// What is known of this call. Pure.
    fn facts(&self, tool: Option<&str>, extension: Option<&str>, input: &Value) -> ToolFacts;
}

impl<'a> ToolRequest<'a> {
    /// The extension, as far as anybody knows.
    #[must_use]
    pub fn extension(&self) -> Option<&'a str> {
        self.extension.or(self.facts.extension.as_deref())
    }

    /// ACP's kind; `other` for want of a better one.
    #[must_use]
    pub fn kind(&self) -> &'a str {
        self.kind.filter(|kind| *kind != "other").or(self.facts.kind).unwrap_or("other")
    }

    /// The paths that the call itself names, absolute, as they have to be looked up.
    pub(super) fn named_paths(&self) -> impl Iterator<Item = PathBuf> {
        self.facts.files.iter().filter_map(|file| match file {
            FileArgument::Path(written) => paths::absolute(self.cwd, written),
            FileArgument::Unclear(_) => None,
        })
    }
}

/// One file argument, looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenFile {
    /// As the agent wrote it.
    pub(super) written: String,
    /// Where it leads by its text alone, and where it really leads; `None` when that cannot be told.
    pub(super) places: Option<Places>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) by_text: PathBuf,
    pub(super) really: PathBuf,
}

/// The request with what takes work read once for all rules.
pub(super) struct Seen<'a> {
    pub(super) request: &'a ToolRequest<'a>,
    pub(super) files: Vec<SeenFile>,
    /// The line that the tool runs, if it is the shell.
    pub(super) line: Option<ShellLine>,
    /// Texts that may be lines.
    pub(super) perhaps_lines: Vec<ShellLine>,
}

impl<'a> Seen<'a> {
    pub(super) fn of(request: &'a ToolRequest<'a>) -> Self {
        let files = request.facts.files.iter().map(|file| match file {
            FileArgument::Path(written) => {
                SeenFile { written: written.clone(), places: places(request, written) }
            }
            FileArgument::Unclear(written) => SeenFile { written: written.clone(), places: None },
        });
        let (line, perhaps_lines) = match &request.facts.shell {
            ShellUse::Nothing => (None, Vec::new()),
            ShellUse::Line { line, .. } => (Some(ShellLine::read(line)), Vec::new()),
            ShellUse::Perhaps(texts) => (None, texts.iter().map(|text| ShellLine::read(text)).collect()),
        };
        Self { request, files: files.collect(), line, perhaps_lines }
    }
}

fn places(request: &ToolRequest<'_>, written: &str) -> Option<Places> {
    let path = paths::absolute(request.cwd, written)?;
    let really = request.resolved.get(&path)?.to_owned();
    Some(Places { by_text: paths::without_dots(&path), really })
}
