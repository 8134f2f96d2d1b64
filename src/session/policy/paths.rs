//! The files that a tool call names: free of `..` and of symbolic links, or not decidable.
//!
//! The engine itself never touches the disk. [`Policy::paths`](super::Policy::paths) says which paths it needs to know,
//! [`ResolvedPaths::look_up`] asks the disk about them, and the decision is made from what came back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// Bytes of a path that Linux takes (`PATH_MAX`).
const PATH_BYTES: usize = 4_096;
/// Symbolic links on the way to one file; Linux follows no more (`MAXSYMLINKS`).
const LINKS: usize = 40;

/// The absolute path that `written` means under `cwd`; `..` is still in it. `None`: no file can have it.
pub(super) fn absolute(cwd: &Path, written: &str) -> Option<PathBuf> {
    let path = cwd.join(written);
    let usable = path.is_absolute() && path.as_os_str().len() < PATH_BYTES && !written.contains('\0');
    usable.then_some(path)
}

/// The path with every `..` taken back by its text alone, as programs do that never look at the disk.
pub(super) fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::Normal(name) => plain.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

/// What the disk said of some paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedPaths(BTreeMap<PathBuf, Option<PathBuf>>);

impl ResolvedPaths {
    /// Asks the disk where the paths really lead. Blocks for a few system calls for each of them.
    ///
    /// What exists is followed through its symbolic links, also a last link whose target does not exist yet; what does
    /// not exist is appended as it is written. A path is not resolved when the disk does not say (no permission, a
    /// circle of links), and when it would mean another file to a program that takes `..` back by text than to the
    /// system, which goes back from a link's target.
    #[must_use]
    pub fn look_up(paths: BTreeSet<PathBuf>) -> Self {
        Self(
            paths
                .into_iter()
                .map(|path| {
                    let resolved = real_path(&path);
                    (path, resolved)
                })
                .collect(),
        )
    }

    /// What is known without a disk.
    #[must_use]
    pub fn known(paths: impl IntoIterator<Item = (PathBuf, Option<PathBuf>)>) -> Self {
        Self(paths.into_iter().collect())
    }

    /// Where a path really leads; `None` when that is not known.
    pub(super) fn get(&self, path: &Path) -> Option<&Path> {
        self.0.get(path)?.as_deref()
    }
}

/// Where an absolute path really leads, as in [`ResolvedPaths::look_up`]. Blocks for a few system calls.
#[must_use]
pub fn real_path(path: &Path) -> Option<PathBuf> {
    let by_system = follow(path)?;
    if path.components().any(|part| part == Component::ParentDir) && follow(&without_dots(path))? != by_system
    {
        return None;
    }
    Some(by_system)
}

/// Walks the path as the system does, one name after the other.
fn follow(path: &Path) -> Option<PathBuf> {
    let mut reached = PathBuf::from("/");
    let mut to_come: VecDeque<OsString> = names(path).collect();
    let mut links = 0;
    while let Some(name) = to_come.pop_front() {
        if name == ".." {
            reached.pop();
            continue;
        }
        reached.push(&name);
        // What lies there is another thing for each process: `/proc/self` here is gander, there it is the agent.
        if reached.starts_with("/proc") {
            return None;
        }
        match std::fs::symlink_metadata(&reached) {
            Ok(found) if found.is_symlink() => {
                links += 1;
                if links > LINKS {
                    return None;
                }
                let target = std::fs::read_link(&reached).ok()?;
                reached =
                    if target.is_absolute() { PathBuf::from("/") } else { reached.parent()?.to_owned() };
                for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
                    to_come.push_front(name);
                }
            }
            Ok(_) => {}
            // Below what does not exist there are no links. Below a file nothing can be opened.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(_) => return None,
        }
    }
    Some(reached)
}

fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn text_alone_takes_dots_back() {
        let plain = |text: &str| without_dots(Path::new(text)).to_string_lossy().into_owned();
        assert_eq!(plain("/a/./b/../c"), "/a/c");
        assert_eq!(plain("/../../etc"), "/etc");
        assert_eq!(absolute(Path::new("/work"), "a/../b"), Some("/work/a/../b".into()));
        assert_eq!(absolute(Path::new("/work"), "/etc/x"), Some("/etc/x".into()));
        assert_eq!(absolute(Path::new("/work"), "a\0b"), None);
        assert_eq!(absolute(Path::new("relative"), "a"), None);
        assert_eq!(absolute(Path::new("/work"), &"x/".repeat(3_000)), None);
    }

    #[test]
    fn links_are_followed_to_where_they_lead() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("work/deep")).unwrap();
        fs::create_dir_all(root.join("outside/inner")).unwrap();
        symlink(root.join("outside"), root.join("work/link")).unwrap();
        symlink("../../outside/new.txt", root.join("work/deep/dangling")).unwrap();
        symlink("circle", root.join("work/circle")).unwrap();
        symlink(root.join("outside/inner"), root.join("work/inner")).unwrap();
        symlink("/proc/self/cwd", root.join("work/here")).unwrap();
        let resolve = |path: &str| real_path(&root.join(path));
        assert_eq!(resolve("work/here/file"), None, "another folder for another process");
        assert_eq!(resolve("/dev/stdin"), None);
        assert_eq!(resolve("work/deep/new/file"), Some(root.join("work/deep/new/file")));
        assert_eq!(resolve("work/link/file"), Some(root.join("outside/file")));
        assert_eq!(
            resolve("work/deep/dangling"),
            Some(root.join("outside/new.txt")),
            "a write would make its target"
        );
        assert_eq!(resolve("work/circle/file"), None);
        assert_eq!(resolve("work/deep/../file"), Some(root.join("work/file")));
        assert_eq!(resolve("work/inner/../file"), None, "work/file by its text, outside/file for the system");
        assert_eq!(resolve("work/missing/../file"), Some(root.join("work/file")));
        let known = ResolvedPaths::look_up(BTreeSet::from([root.join("work/link")]));
        assert_eq!(known.get(&root.join("work/link")), Some(root.join("outside").as_path()));
        assert_eq!(known.get(&root.join("work")), None);
    }
}
