//! The process table, read from `/proc`, and kills that cannot hit a stranger.
//!
//! A scan is never one moment: processes start, end and change parents while it runs. Whoever kills by it
//! scans again until nothing is found.

use std::collections::{HashMap, HashSet};
use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process_group, pidfd_open, pidfd_send_signal};

/// One process for as long as the machine runs: numbers are given again, start times are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) pid: Pid,
    /// Clock ticks after boot, field 22 of `/proc/<pid>/stat`.
    pub(super) start_ticks: u64,
}

/// What the sweeps need to know of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub(super) identity: Identity,
    /// `None` for the first process of a pid namespace.
    pub(super) parent: Option<Pid>,
    /// The process group; `None` for kernel threads, and for a group outside the pid namespace.
    pub(super) group: Option<Pid>,
    /// Dead already, only not reaped.
    pub(super) zombie: bool,
}

impl Entry {
    /// Reads one process; `None` when there is none with this number.
    pub(super) fn read(pid: Pid) -> Option<Self> {
        let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Self::parse(pid, &stat)
    }

    /// Parses `/proc/<pid>/stat`. The second field is the program's own choice of bytes in parentheses, so
    /// fields are counted from the last closing parenthesis.
    fn parse(pid: Pid, stat: &[u8]) -> Option<Self> {
        let name_end = memchr::memrchr(b')', stat)?;
        let fields = str::from_utf8(stat.get(name_end + 1..)?).ok()?;
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        // Field 22, of which the state was field 3.
        let start_ticks = fields.nth(16)?.parse().ok()?;
        Some(Self {
            identity: Identity { pid, start_ticks },
            parent: positive(parent),
            group: positive(group),
            zombie: matches!(state, "Z" | "X"),
        })
    }

    /// Kills this process; false when it is gone.
    pub(super) fn kill(&self) -> bool {
        let pid = self.identity.pid;
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        // The handle holds whatever process has the number now. Only the one that was scanned has this start
        // time, and the handle cannot move on to another.
        Self::read(pid).is_some_and(|now| now.identity == self.identity)
            && pidfd_send_signal(&handle, Signal::KILL).is_ok()
    }

    /// Kills this process and its group, which hits what it forks at the same moment. Only for processes whose
    /// whole group is to die.
    pub(super) fn kill_with_group(&self) -> bool {
        if Self::read(self.identity.pid).is_some_and(|now| now.identity == self.identity)
            && let Some(group) = self.group
            // Signalling "group 1" means every process there is.
            && group != Pid::INIT
            // Not `getpgrp`: a container's first process may be in a group outside, and that call panics at it.
            && let Some(own) = Self::read(getpid())
            && own.group != Some(group)
        {
            // The group may have gone between the check and now, then this fails; the kill below still tells.
            let _gone = kill_process_group(group, Signal::KILL);
        }
        self.kill()
    }
}

/// A process's arguments, with the program's name first; empty when it has ended.
fn command_line(pid: Pid) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
    if bytes.is_empty() {
        Vec::new()
    } else {
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }
}

/// A process number from a field of `/proc`, where 0 and less mean "none".
pub(super) fn positive(raw: i32) -> Option<Pid> {
    if raw > 0 { Pid::from_raw(raw) } else { None }
}

/// All processes that one scan saw.
#[derive(Debug, Default)]
pub(super) struct ProcessTable {
    entries: Vec<Entry>,
    children: HashMap<Pid, Vec<usize>>,
}

impl ProcessTable {
    /// Scans `/proc`. What cannot be read has ended or is hidden, and is left out.
    pub(super) fn read() -> Self {
        let Ok(folder) = fs::read_dir("/proc") else { return Self::default() };
        let numbers = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Self::new(numbers.filter_map(positive).filter_map(Entry::read))
    }

    /// A table of the given processes.
    pub(super) fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let mut children: HashMap<Pid, Vec<usize>> = HashMap::new();
        for (index, entry) in entries.iter().enumerate() {
            if let Some(parent) = entry.parent {
                children.entry(parent).or_default().push(index);
            }
        }
        Self { entries, children }
    }

    /// Every process of the scan.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The process with this number.
    pub(super) fn get(&self, pid: Pid) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.identity.pid == pid)
    }

    /// The direct children of a process.
    pub(super) fn children(&self, parent: Pid) -> impl Iterator<Item = &Entry> {
        self.children.get(&parent).into_iter().flatten().filter_map(|index| self.entries.get(*index))
    }

    /// The command lines of a process's children, the oldest first.
    pub(super) fn command_lines_below(&self, parent: Identity) -> Vec<Vec<String>> {
        let mut children: Vec<&Entry> = self.children(parent.pid).filter(|child| !child.zombie).collect();
        // Within one tick the numbers tell, unless they have just begun anew.
        children.sort_by_key(|child| (child.identity.start_ticks, child.identity.pid.as_raw_nonzero()));
        children
            .iter()
            .map(|child| command_line(child.identity.pid))
            .filter(|line| !line.is_empty())
            .collect()
    }

    /// Everything below a process, itself excluded.
    pub(super) fn descendants(&self, ancestor: Pid) -> Vec<Entry> {
        let mut found = Vec::new();
        // A scan may see a number twice with different parents, so a circle is possible.
        let mut seen = HashSet::from([ancestor]);
        let mut open = vec![ancestor];
        while let Some(parent) = open.pop() {
            for child in self.children(parent) {
                if seen.insert(child.identity.pid) {
                    found.push(*child);
                    open.push(child.identity.pid);
                }
            }
        }
        found
    }

    /// A process's parent, its parent and so on.
    pub(super) fn ancestors(&self, pid: Pid) -> HashSet<Pid> {
        let mut found = HashSet::new();
        let mut next = self.get(pid).and_then(|entry| entry.parent);
        while let Some(parent) = next {
            if !found.insert(parent) {
                break;
            }
            next = self.get(parent).and_then(|entry| entry.parent);
        }
        found
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rustix::process::getppid;

    use super::*;

    pub(in crate::process) fn pid(number: i32) -> Pid {
        positive(number).unwrap()
    }

    /// A living process that started at tick 1.
    pub(in crate::process) fn entry(number: i32, parent: i32, group: i32) -> Entry {
        Entry {
            identity: Identity { pid: pid(number), start_ticks: 1 },
            parent: positive(parent),
            group: positive(group),
            zombie: false,
        }
    }

    #[test]
    fn a_name_full_of_parentheses_spaces_and_bad_bytes_does_not_shift_the_fields() {
        let stat =
            b"7 (a) R 1 (\xff) S 3 5 6 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99 1000 2 18446744073709551615";
        let parsed = Entry::parse(pid(7), stat).unwrap();
        let expected = Entry { identity: Identity { pid: pid(7), start_ticks: 99 }, ..entry(7, 3, 5) };
        assert_eq!(parsed, expected);
    }

    #[test]
    fn cut_off_lines_are_no_process() {
        for stat in ["", "7", "7 (a", "7 (a)", "7 (a) S 1 2 3", "7 (a) S x 2 3"] {
            assert_eq!(Entry::parse(pid(7), stat.as_bytes()), None, "{stat}");
        }
    }

    #[test]
    fn this_process_is_found_below_its_parent() {
        let table = ProcessTable::read();
        let parent = getppid().unwrap();
        assert!(table.descendants(parent).iter().any(|entry| entry.identity.pid == getpid()));
        assert!(table.ancestors(getpid()).contains(&parent));
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let table = ProcessTable::new([entry(2, 3, 2), entry(3, 2, 2), entry(4, 3, 2)]);
        let numbers: HashSet<Pid> =
            table.descendants(pid(2)).iter().map(|entry| entry.identity.pid).collect();
        assert_eq!(numbers, HashSet::from([pid(3), pid(4)]));
        assert_eq!(table.ancestors(pid(4)), HashSet::from([pid(2), pid(3)]));
    }

    #[test]
    fn a_process_with_another_start_time_is_not_killed() {
        let own = Entry::read(getpid()).unwrap();
        let earlier = Identity { start_ticks: own.identity.start_ticks - 1, ..own.identity };
        // Were the start time not compared, the test would end here.
        assert!(!Entry { identity: earlier, ..own }.kill());
    }
}
