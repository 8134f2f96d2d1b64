//! Processes below a child that carry a variable in their environment, or work in a folder: the part of them that belongs
//! together when one program works for several.
//!
//! What clears its environment, leaves its parent and works elsewhere cannot be told any more; it goes with the child.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use rustix::process::Pid;

use super::sweep::{DescendantSnapshot, kill_in_rounds};
use super::table::{Entry, Identity, ProcessTable};

/// What tells the processes that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessMark {
    /// A variable with its value, as `/proc/<pid>/environ` has it.
    variable: Vec<u8>,
    /// A folder in which nobody else works.
    folder: PathBuf,
}

impl ProcessMark {
    /// The mark of processes that have been given this variable with this value, or that work in this folder or below.
    #[must_use]
    pub fn new((name, value): (&str, &str), folder: PathBuf) -> Self {
        Self { variable: format!("{name}={value}").into_bytes(), folder }
    }

    fn is_in(&self, environment: &[u8]) -> bool {
        environment.split(|byte| *byte == 0).any(|variable| variable == self.variable)
    }

    fn is_on(&self, pid: Pid) -> bool {
        let pid = pid.as_raw_nonzero();
        // Another user's process cannot be read, and cannot be killed either.
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| self.is_in(&environment))
            || fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&self.folder))
    }
}

/// Which of the marked processes are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// What tools have started: not the program's children in process groups of their own, which are its servers.
    Tools,
    /// All.
    All,
}

/// The marked processes below a shim, and what is below them, but for what was there at the snapshot.
pub(super) fn marked(
    table: &ProcessTable,
    (shim, program): (Identity, Identity),
    since: &DescendantSnapshot,
    which: Which,
    is_marked: impl Fn(Pid) -> bool,
) -> Vec<Entry> {
    let is = |identity: Identity| table.get(identity.pid).filter(|entry| entry.identity == identity);
    let (Some(_), Some(program)) = (is(shim), is(program)) else {
        // The shim kills everything by itself when the program is gone.
        return Vec::new();
    };
    let adopted = table.children(shim.pid).filter(|entry| entry.identity != program.identity);
    let own = table
        .children(program.identity.pid)
        .filter(|entry| which == Which::All || entry.group == program.group);
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for top in adopted.chain(own) {
        for entry in table.descendants(top.identity.pid).into_iter().chain([*top]) {
            if !is_marked(entry.identity.pid) {
                continue;
            }
            for part in table.descendants(entry.identity.pid).into_iter().chain([entry]) {
                if !part.zombie && !since.contains(&part) && seen.insert(part.identity) {
                    found.push(part);
                }
            }
        }
    }
    found
}

/// Kills the marked processes in rounds. How many, and whether none was left.
pub(super) fn kill_marked(
    ends: (Identity, Identity),
    since: &DescendantSnapshot,
    which: Which,
    mark: &ProcessMark,
) -> (usize, bool) {
    kill_in_rounds(|table| marked(table, ends, since, which, |pid| mark.is_on(pid)))
}

/// How many marked processes tools have left running.
pub(super) fn count_marked(
    ends: (Identity, Identity),
    since: &DescendantSnapshot,
    mark: &ProcessMark,
) -> usize {
    marked(&ProcessTable::read(), ends, since, Which::Tools, |pid| mark.is_on(pid)).len()
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::entry;
    use super::*;

    /// Shim 10, program 20 in group 20; of session A the tool 30 with 31 below and the server 40 in a group of its own
    /// with 41 below; of session B the tool 50. 60 was adopted and is A's.
    fn found(which: Which, of: &[i32], spared: &[i32]) -> Vec<i32> {
        let entries = [
            entry(10, 1, 10),
            entry(20, 10, 20),
            entry(30, 20, 20),
            entry(31, 30, 31),
            entry(40, 20, 40),
            entry(41, 40, 40),
            entry(50, 20, 20),
            entry(51, 50, 20),
            entry(60, 10, 60),
        ];
        let table = ProcessTable::new(entries);
        let ends = (entries[0].identity, entries[1].identity);
        let spared = entries.iter().filter(|entry| spared.contains(&number(entry)));
        let since = DescendantSnapshot::of_identities(spared.map(|entry| entry.identity));
        let is_marked = |pid: Pid| of.contains(&pid.as_raw_nonzero().get());
        let mut numbers: Vec<i32> =
            marked(&table, ends, &since, which, is_marked).iter().map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    fn number(entry: &Entry) -> i32 {
        entry.identity.pid.as_raw_nonzero().get()
    }

    #[test]
    fn only_what_is_marked_is_found_with_all_below_it() {
        // 31 has cleared its environment, 51 has set another session's: both belong to their parents.
        assert_eq!(found(Which::Tools, &[30, 40, 41, 60], &[]), [30, 31, 60]);
        assert_eq!(found(Which::All, &[30, 40, 41, 60], &[]), [30, 31, 40, 41, 60]);
        assert_eq!(found(Which::Tools, &[50], &[]), [50, 51]);
        assert_eq!(found(Which::All, &[], &[]), Vec::<i32>::new());
        assert_eq!(found(Which::Tools, &[30, 60], &[60]), [30, 31]);
        // The program itself never is, whatever it carries.
        assert_eq!(found(Which::All, &[10, 20], &[]), Vec::<i32>::new());
    }

    #[test]
    fn a_mark_is_a_whole_variable() {
        let mark = ProcessMark::new(("SESSION", "1_2"), "/nowhere".into());
        assert!(mark.is_in(b"A=1\0SESSION=1_2\0"));
        for other in [&b"SESSION=1_23\0"[..], b"XSESSION=1_2\0", b"SESSION=1_\0", b"A=SESSION=1_2\0", b""] {
            assert!(!mark.is_in(other), "{other:?}");
        }
    }

    #[test]
    fn a_folder_marks_what_works_in_it() {
        let marks =
            |folder: PathBuf| ProcessMark::new(("NOT", "SET"), folder).is_on(rustix::process::getpid());
        let here = std::env::current_dir().unwrap();
        assert!(marks(here.clone()) && marks(here.parent().unwrap().to_owned()));
        assert!(!marks(here.join("below")) && !marks("/nowhere".into()));
    }
}
