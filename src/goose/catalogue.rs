//! The extensions of goose 1.52, and how their names are read.
//!
//! Source: `goose info -v` and the session replies of goose 1.52.0. Later versions may know more; those
//! still load, since the catalogue is only asked about names that people type.

/// An extension that comes with goose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Its key in goose's `config.yaml`, which `--with-builtin` takes too.
    pub name: &'static str,
    /// Whether goose 1.52 switches it on by itself.
    pub on_by_default: bool,
    /// What it gives the agent.
    pub provides: &'static str,
    /// Where it runs.
    pub runs: Runs,
    /// Whether it means little in a home of the session's own: it is about what other sessions have left, or about
    /// what is to happen after this one.
    pub needs_shared_home: bool,
}

/// Where an extension runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Inside goose's process; `goose info -v` lists these.
    Platform,
    /// As an MCP server that goose starts from its own binary.
    Bundled,
}

const fn platform(name: &'static str, on_by_default: bool, provides: &'static str) -> Extension {
    Extension { name, on_by_default, provides, runs: Runs::Platform, needs_shared_home: false }
}

const fn bundled(name: &'static str, provides: &'static str) -> Extension {
    Extension { name, on_by_default: false, provides, runs: Runs::Bundled, needs_shared_home: false }
}

const fn across_sessions(extension: Extension) -> Extension {
    Extension { needs_shared_home: true, ..extension }
}

/// All of them, those that are on by default first.
pub const EXTENSIONS: [Extension; 17] = [
    platform("developer", true, "Shell commands and file changes: shell, write, edit, tree, read_image"),
    platform("analyze", true, "Code structure: directory overviews, file details, call graphs"),
    platform("apps", true, "Small HTML apps that run in a sandboxed window"),
    platform("extensionmanager", true, "Searching for, enabling and disabling extensions during a session"),
    platform("summon", true, "Loading knowledge, and handing tasks to subagents"),
    platform("skills", true, "Skills found in the workspace's .agents/skills"),
    platform("tom", true, "Text of GOOSE_MOIM_MESSAGE_TEXT or _FILE added to every turn; no tools"),
    across_sessions(platform("scheduler", true, "Scheduled recipe runs; only with goose.scheduler = true")),
    platform("todo", false, "A task list for work in several steps, shown as the plan"),
    across_sessions(platform(
        "chatrecall",
        false,
        "Searching earlier conversations and loading their summaries",
    )),
    platform("summarize", false, "Loading files or folders and returning a model's summary in one call"),
    platform("code_execution", false, "Calling other extensions by writing code"),
    across_sessions(platform("orchestrator", false, "Managing other goose sessions")),
    bundled("computercontroller", "Web scraping, file caching and automation"),
    across_sessions(bundled("memory", "Saving and finding durable memories")),
    bundled("autovisualiser", "Charts and diagrams from data"),
    bundled("tutorial", "Interactive goose tutorials"),
];

/// The extension that a typed name means. Case, spaces and underscores do not matter, as for goose.
#[must_use]
pub fn find(name: &str) -> Option<&'static Extension> {
    EXTENSIONS.iter().find(|extension| same(extension.name, name))
}

/// Whether two names mean the same extension. Case, spaces and underscores do not matter, as for goose.
#[must_use]
pub fn same(one: &str, other: &str) -> bool {
    fold(one) == fold(other)
}

/// The catalogue's key for a name as goose reports it: its display name ("Extension Manager") or the raw
/// text it was given (" TODO"). A name that is not in the catalogue (an MCP server, a newer extension) is
/// only trimmed.
#[must_use]
pub fn key_of(reported: &str) -> String {
    find(reported).map_or_else(|| reported.trim().to_owned(), |extension| extension.name.to_owned())
}

/// Up to three names that a mistyped one may have meant, the nearest first.
#[must_use]
pub fn nearest(name: &str) -> Vec<&'static str> {
    let folded: Vec<char> = fold(name).chars().collect();
    // Longer than twice the longest name can be no typing mistake, and comparing would take its square.
    if folded.is_empty() || folded.len() > 40 {
        return Vec::new();
    }
    let mut near: Vec<(usize, &'static str)> = EXTENSIONS
        .iter()
        .map(|extension| (distance(&folded, &fold(extension.name)), extension.name))
        .filter(|(distance, name)| *distance <= name.len().max(3) / 3)
        .collect();
    near.sort_unstable();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

fn fold(name: &str) -> String {
    let letters = name.chars().filter(|letter| !letter.is_whitespace() && *letter != '_');
    letters.flat_map(char::to_lowercase).collect()
}

/// The number of letters to insert, delete or replace to get from one to the other (Levenshtein).
fn distance(from: &[char], to: &str) -> usize {
    let mut row: Vec<usize> = (0..=from.len()).collect();
    for (line, letter) in to.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in from.iter().enumerate() {
            let replaced = diagonal + usize::from(*other != letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[from.len()]
}

#[cfg(test)]
mod tests {
    use super::{EXTENSIONS, Runs, find, key_of, nearest};

    #[test]
    fn the_catalogue_is_that_of_goose_1_52() {
        let on: Vec<&str> = EXTENSIONS
            .iter()
            .filter(|extension| extension.on_by_default)
            .map(|extension| extension.name)
            .collect();
        assert_eq!(
            on,
            ["developer", "analyze", "apps", "extensionmanager", "summon", "skills", "tom", "scheduler"]
        );
        assert_eq!(EXTENSIONS.iter().filter(|extension| extension.runs == Runs::Bundled).count(), 4);
        for extension in EXTENSIONS {
            assert_eq!(find(extension.name), Some(&extension), "no two names may fold to the same");
        }
    }

    #[test]
    fn names_are_folded_to_keys() {
        for (reported, key) in [
            ("Extension Manager", "extensionmanager"),
            ("extension_manager", "extensionmanager"),
            (" TODO ", "todo"),
            ("Code Execution", "code_execution"),
            ("codeexecution", "code_execution"),
            (" My Server", "My Server"),
            ("", ""),
        ] {
            assert_eq!(key_of(reported), key, "{reported:?}");
        }
    }

    #[test]
    fn mistyped_names_have_neighbours() {
        assert_eq!(nearest("develper"), ["developer"]);
        assert_eq!(nearest("tod"), ["todo", "tom"]);
        assert_eq!(nearest("autovisualizer"), ["autovisualiser"]);
        assert_eq!(nearest("summarise"), ["summarize"]);
        for far in ["", "kubernetes", "  ", &"x".repeat(100_000)] {
            assert_eq!(nearest(far), Vec::<&str>::new());
        }
    }
}
