//! The port to what an agent asks of the machine that it works on: files and commands, if it is offered them (ACP: the
//! client's file system and terminals).

use std::path::PathBuf;

use serde_json::Value;

use super::BoxFuture;

/// What the agent is offered. Its tools do by themselves what it is not offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfferedTools {
    /// Reading and writing text files.
    pub filesystem: bool,
    /// Running commands.
    pub terminal: bool,
}

/// What the agent asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientToolRequest {
    /// A text file's content.
    ReadTextFile {
        /// Absolute.
        path: PathBuf,
        /// The first line wanted, from 1 on; `None`: the first.
        line: Option<u32>,
        /// How many lines; `None`: all.
        limit: Option<u32>,
    },
    /// A text file is to have this content; it is made where it is missing.
    WriteTextFile {
        /// Absolute.
        path: PathBuf,
        /// All of it.
        content: String,
    },
    /// A command is to be run.
    CreateTerminal(TerminalSpec),
    /// What a command has written so far.
    TerminalOutput(TerminalId),
    /// A command's end; answered when it has ended.
    WaitForExit(TerminalId),
    /// A command is to be killed. Its output can still be asked for.
    Kill(TerminalId),
    /// A command is no longer asked about; one that still runs is killed.
    Release(TerminalId),
}

/// Names a command that runs. Made by gander.
pub type TerminalId = String;

/// A command that is to be run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalSpec {
    /// A program, or, without arguments, a whole line for a shell.
    pub command: String,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// Variables besides those that every command has.
    pub environment: Vec<(String, String)>,
    /// Where; `None`: in the session's folder.
    pub cwd: Option<PathBuf>,
    /// How many bytes of output are to be kept, the last ones.
    pub output_byte_limit: Option<u64>,
}

/// How a command has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalExit {
    /// Its exit code, unless a signal has ended it.
    pub exit_code: Option<u32>,
    /// The signal's name, e.g. `SIGKILL`.
    pub signal: Option<String>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientToolReply {
    /// A file's content.
    Content(String),
    /// It is done.
    Done,
    /// The command runs, under this name.
    Created(TerminalId),
    /// What it has written.
    Output {
        /// The last of it.
        output: String,
        /// Whether its beginning is missing.
        truncated: bool,
        /// How it has ended; `None` while it runs.
        exit: Option<TerminalExit>,
    },
    /// It has ended.
    Exited(TerminalExit),
}

/// Why a request is not done. For the agent, and so for its model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ClientToolRefusal(pub String);

/// What happens while requests are done, to be told of the tool calls that they belong to.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientToolEvent {
    /// A command writes.
    Output {
        /// Which.
        terminal: TerminalId,
        /// `stdout` or `stderr`.
        stream: &'static str,
        /// What.
        text: String,
        /// Whether nothing more of its output is told while it runs.
        truncated: bool,
    },
    /// A command has ended; told before anybody is answered so.
    Ended {
        /// Which.
        terminal: TerminalId,
        /// The tool call's content for it.
        content: Value,
    },
    /// A file was written; told before the agent is answered so.
    Written {
        /// As the agent named it.
        path: PathBuf,
        /// The tool call's content for it: a diff.
        content: Value,
    },
}

/// Does what one session's agent asks for.
pub trait ClientTools: Send + Sync + 'static {
    /// What the agent is to be told that it can ask for.
    fn offered(&self) -> OfferedTools;

    /// A turn begins: from now on requests are done.
    fn turn_begun(&self);

    /// The turn is over or is being cancelled: from now on requests that would do anything are refused.
    fn turn_over(&self);

    /// Does a request. Dropping the future gives up the wait for it, not what it does.
    fn call(&self, request: ClientToolRequest) -> BoxFuture<Result<ClientToolReply, ClientToolRefusal>>;
}
