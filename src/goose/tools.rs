//! What is known of the tools of goose 1.52, and what is guessed of all others.
//!
//! Source: the tools' schemas as goose 1.52.0 gives them to the model, and which of them it runs unasked in
//! `smart_approve` (measured).

use serde_json::{Map, Value};

use super::plan::{self, ParsedPlan};
use crate::session::policy::{FileArgument, Reach, ShellUse, ToolCatalogue, ToolFacts};

/// Files and command texts that are looked for in one call's arguments; with more of either nothing is clear.
const ARGUMENTS: usize = 100;
/// Bytes of a text that may be a path by its looks alone.
const PATH_BYTES: usize = 4_096;

/// Arguments with a path in them, whatever the tool: the name without `_` and `-` is one of these, or ends in one.
const FILE_NAMES: [&str; 12] = [
    "path",
    "paths",
    "file",
    "files",
    "filename",
    "filenames",
    "dir",
    "directory",
    "directories",
    "folder",
    "folders",
    "cwd",
];
/// Arguments that often have a path in them, but only under exactly this name.
const FILE_NAMES_ALONE: [&str; 9] =
    ["source", "sources", "src", "destination", "dest", "dst", "target", "saveas", "root"];
/// Arguments that may be run by a shell.
const COMMAND_NAMES: [&str; 9] =
    ["command", "commands", "cmd", "commandline", "shellcommand", "script", "shell", "bash", "code"];

/// goose's own tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct GooseTools;

/// What one of goose's own tools takes.
struct OwnTool {
    extension: &'static str,
    name: &'static str,
    kind: &'static str,
    read_only: bool,
    argument: Argument,
}

enum Argument {
    ShellLine(&'static str),
    File(&'static str),
    /// A file, or a web address.
    FileOrAddress(&'static str),
    Folder(&'static str),
    /// A list that is the plan.
    Plan(&'static str),
    /// Neither files nor commands.
    Other,
}

const fn own(extension: &'static str, name: &'static str, kind: &'static str, argument: Argument) -> OwnTool {
    OwnTool { extension, name, kind, read_only: false, argument }
}

const fn read_only(extension: &'static str, name: &'static str, argument: Argument) -> OwnTool {
    OwnTool { extension, name, kind: "read", read_only: true, argument }
}

const OWN: [OwnTool; 15] = [
    own("developer", "shell", "execute", Argument::ShellLine("/command")),
    own("developer", "write", "edit", Argument::File("/path")),
    own("developer", "edit", "edit", Argument::File("/path")),
    own("developer", "read", "read", Argument::File("/path")),
    own("developer", "read_image", "read", Argument::FileOrAddress("/source")),
    read_only("developer", "tree", Argument::Folder("/path")),
    read_only("analyze", "analyze", Argument::Folder("/path")),
    read_only("apps", "apps__list_apps", Argument::Other),
    own("apps", "apps__create_app", "other", Argument::Other),
    own("apps", "apps__iterate_app", "other", Argument::Other),
    own("apps", "apps__delete_app", "other", Argument::Other),
    read_only("extensionmanager", "extensionmanager__search_available_extensions", Argument::Other),
    own("extensionmanager", "extensionmanager__manage_extensions", "other", Argument::Other),
    own("skills", "load_skill", "read", Argument::Other),
    own("todo", "todo__todo_write", "other", Argument::Plan("/content")),
];

impl ToolCatalogue for GooseTools {
    fn facts(&self, tool: Option<&str>, extension: Option<&str>, input: &Value) -> ToolFacts {
        let own = OWN.iter().find(|own| {
            tool == Some(own.name) && extension.is_none_or(|extension| extension == own.extension)
        });
        let Some(own) = own else {
            // A server's tools have its name before theirs.
            let extension = tool.and_then(|tool| Some(tool.split_once("__")?.0.to_owned()));
            return ToolFacts { extension, ..guessed(input) };
        };
        let mut facts = ToolFacts {
            extension: Some(own.extension.to_owned()),
            kind: Some(own.kind),
            read_only: own.read_only,
            ..ToolFacts::default()
        };
        let text = |pointer: &str| input.pointer(pointer).and_then(Value::as_str);
        match own.argument {
            Argument::ShellLine(pointer) => {
                facts.shell = match text(pointer) {
                    Some(line) => ShellUse::Line { line: line.to_owned(), pointer },
                    None => guessed(input).shell,
                };
            }
            Argument::File(pointer) => facts.files = text(pointer).map(as_it_stands).into_iter().collect(),
            Argument::FileOrAddress(pointer) => {
                facts.files = text(pointer).and_then(file_unless_address).into_iter().collect();
            }
            Argument::Folder(pointer) => {
                facts.files = text(pointer).map(as_it_stands).into_iter().collect();
                facts.reach = Reach::Below;
            }
            Argument::Plan(pointer) => {
                facts.writes_plan =
                    text(pointer).is_some_and(|text| plan::parse(text) != ParsedPlan::NoItems);
            }
            Argument::Other => {}
        }
        facts
    }
}

/// What the arguments of an unknown tool look like.
fn guessed(input: &Value) -> ToolFacts {
    let mut guess = Guess::default();
    guess.look_at("", input);
    if guess.files.len() > ARGUMENTS {
        guess.files.truncate(ARGUMENTS);
        guess.files.push(FileArgument::Unclear("…".to_owned()));
    }
    ToolFacts {
        files: guess.files,
        shell: if guess.commands.is_empty() { ShellUse::Nothing } else { ShellUse::Perhaps(guess.commands) },
        ..ToolFacts::default()
    }
}

#[derive(Default)]
struct Guess {
    files: Vec<FileArgument>,
    commands: Vec<String>,
}

impl Guess {
    /// Looks at a value and everything in it; `name` is that of the argument that it is or belongs to.
    fn look_at(&mut self, name: &str, value: &Value) {
        match value {
            Value::String(text) => self.look_at_text(name, text),
            Value::Array(values) => {
                // A command as a list of its words.
                if COMMAND_NAMES.contains(&name) {
                    let words: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
                    self.commands.push(words.join(" "));
                }
                for value in values {
                    self.look_at(name, value);
                }
            }
            Value::Object(fields) => self.look_at_fields(fields),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn look_at_fields(&mut self, fields: &Map<String, Value>) {
        for (name, value) in fields {
            let plain: String = name.chars().filter(|letter| !matches!(letter, '_' | '-')).collect();
            self.look_at(&plain.to_lowercase(), value);
        }
    }

    fn look_at_text(&mut self, name: &str, text: &str) {
        let is_named =
            FILE_NAMES.iter().any(|known| name.ends_with(known)) || FILE_NAMES_ALONE.contains(&name);
        if (is_named || looks_like_a_path(text)) && self.files.len() <= ARGUMENTS {
            self.files.push(file(text));
        }
        if COMMAND_NAMES.contains(&name) && self.commands.len() < ARGUMENTS {
            self.commands.push(text.to_owned());
        }
    }
}

fn looks_like_a_path(text: &str) -> bool {
    let begins = ["/", "./", "../", "~", "file:"].iter().any(|start| text.starts_with(start));
    (begins || text == "..") && text.len() < PATH_BYTES && !text.contains('\n')
}

/// goose's own file tools take `~`, `$HOME` and `file:` for names like any other (measured).
fn as_it_stands(text: &str) -> FileArgument {
    FileArgument::Path(text.to_owned())
}

/// The file that `read_image` reads: it fetches what begins with `http://` in any case, and knows `file:` (measured).
fn file_unless_address(text: &str) -> Option<FileArgument> {
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("http://") || lower.starts_with("https://") {
        None
    } else if lower.starts_with("file:") {
        Some(FileArgument::Unclear(text.to_owned()))
    } else {
        Some(as_it_stands(text))
    }
}

/// Whether `~` and `file:` mean a home and an address depends on the tool.
fn file(text: &str) -> FileArgument {
    if text.starts_with('~') || text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("file:")) {
        FileArgument::Unclear(text.to_owned())
    } else {
        FileArgument::Path(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn files(tool: &str, input: &Value) -> Vec<String> {
        let facts = GooseTools.facts(Some(tool), None, input);
        let texts = facts.files.into_iter().map(|file| match file {
            FileArgument::Path(text) => text,
            FileArgument::Unclear(text) => format!("unclear {text}"),
        });
        texts.collect()
    }

    #[test]
    fn goose_s_own_tools_are_known() {
        let facts = GooseTools.facts(Some("shell"), Some("developer"), &json!({"command": "ls"}));
        assert_eq!(facts.shell, ShellUse::Line { line: "ls".to_owned(), pointer: "/command" });
        assert_eq!((facts.kind, facts.read_only, facts.files.len()), (Some("execute"), false, 0));
        assert_eq!(files("write", &json!({"path": "a", "content": "/etc/passwd"})), ["a"]);
        assert_eq!(files("read_image", &json!({"source": "a.png"})), ["a.png"]);
        assert!(files("read_image", &json!({"source": "HTTPS://example.org/a.png"})).is_empty());
        assert_eq!(
            files("read_image", &json!({"source": "File:///etc/a.png"})),
            ["unclear File:///etc/a.png"]
        );
        assert_eq!(files("write", &json!({"path": "~/a"})), ["~/a"], "a folder of that name");
        let plan = |content: &str| {
            GooseTools.facts(Some("todo__todo_write"), None, &json!({"content": content})).writes_plan
        };
        assert!(plan("- [ ] one") && plan("") && !plan("no list"));
        let tree = GooseTools.facts(Some("tree"), Some("developer"), &json!({"path": "."}));
        assert!(tree.read_only && tree.reach == Reach::Below);
        let other = GooseTools.facts(Some("tree"), Some("forest"), &json!({"path": "."}));
        assert!(!other.read_only, "a tool of the same name elsewhere is another tool");
    }

    #[test]
    fn arguments_of_other_tools_are_read_by_their_names_and_looks() {
        let input = json!({
            "file_path": "a", "Paths": ["b", "c"], "options": {"target-dir": "d"}, "note": "/e", "text": "f",
            "home": "~/g", "source": "h", "amount": 3, "long": "/i\nj"
        });
        let mut found = files("files__copy", &input);
        found.sort();
        assert_eq!(found, ["/e", "a", "b", "c", "d", "h", "unclear ~/g"]);
        let facts = GooseTools.facts(Some("term__run"), None, &json!({"cmd": ["rm", "-rf"], "script": "x"}));
        assert_eq!(facts.extension.as_deref(), Some("term"));
        let ShellUse::Perhaps(commands) = facts.shell else { panic!("not seen as commands") };
        assert!(commands.contains(&"rm -rf".to_owned()) && commands.contains(&"x".to_owned()));
        let many: Vec<String> = (0..300).map(|number| format!("/f{number}")).collect();
        assert!(files("files__copy", &json!({"paths": many})).contains(&"unclear …".to_owned()));
    }
}
