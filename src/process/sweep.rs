//! Kills what has to be gone: all that is below a shim, what a turn started, what an earlier run left.
//!
//! All of it works in rounds, since processes fork while the process table is read, and every kill checks that the
//! number still means the process that was seen.

use std::collections::HashSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, getpid};

use super::table::{Entry, Identity, ProcessTable, positive};

/// How long one sweep goes on at most. Something that forks for ever was dead after 2 to 7 rounds of some
/// milliseconds; what is left after this hangs in the kernel.
pub(super) const SWEEP_LIMIT: Duration = Duration::from_secs(2);

/// Lets killed processes end before the next look.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(2);

/// The variable that marks every process of a gateway's children, unless they clear their environment.
pub(super) const MARKER: &str = "GANDER_INSTANCE";

/// Kills everything below this process until there is nothing to wait for. `childless` reaps and tells so.
pub(super) fn kill_every_descendant(mut childless: impl FnMut() -> bool) {
    let deadline = Instant::now() + SWEEP_LIMIT;
    while !childless() && Instant::now() < deadline {
        for entry in ProcessTable::read().descendants(getpid()).iter().filter(|entry| !entry.zombie) {
            entry.kill_with_group();
        }
        thread::sleep(BETWEEN_ROUNDS);
    }
}

/// Kills the given processes and everything below them, groups included.
pub(super) fn kill_trees(table: &ProcessTable, roots: &[Entry]) {
    for root in roots {
        for entry in table.descendants(root.identity.pid).iter().chain([root]) {
            if !entry.zombie {
                entry.kill_with_group();
            }
        }
    }
    thread::sleep(BETWEEN_ROUNDS);
}

/// What ran below a child at one moment: usually the start of a turn, for [`super::ChildControl::sweep`].
#[derive(Clone, Debug, Default)]
pub struct DescendantSnapshot {
    identities: HashSet<Identity>,
}

impl DescendantSnapshot {
    /// Everything below the shim now.
    pub(super) fn take(shim: Identity) -> Self {
        Self::of(&ProcessTable::read(), shim)
    }

    fn of(table: &ProcessTable, shim: Identity) -> Self {
        let descendants = table.descendants(shim.pid);
        Self { identities: descendants.into_iter().map(|entry| entry.identity).collect() }
    }

    #[cfg(test)]
    pub(super) fn of_identities(identities: impl IntoIterator<Item = Identity>) -> Self {
        Self { identities: identities.into_iter().collect() }
    }

    pub(super) fn contains(&self, entry: &Entry) -> bool {
        self.identities.contains(&entry.identity)
    }
}

/// How many processes below a shim the program's tools have left running: what [`sweep_since`] would kill.
pub(super) fn count_background(shim: Identity, program: Identity, since: &DescendantSnapshot) -> usize {
    started_since(&ProcessTable::read(), shim, program, since).len()
}

/// How many processes run below these shims, none of which is below another.
pub(super) fn count_running(shims: &[Identity]) -> usize {
    let table = ProcessTable::read();
    let is_there = |shim: &&Identity| table.get(shim.pid).is_some_and(|entry| entry.identity == **shim);
    let below = shims.iter().filter(is_there).flat_map(|shim| table.descendants(shim.pid));
    below.filter(|entry| !entry.zombie).count()
}

/// Kills what was started below a shim since the snapshot and is not the program's own doing. How many processes, and
/// whether none was left.
pub(super) fn sweep_since(shim: Identity, program: Identity, since: &DescendantSnapshot) -> (usize, bool) {
    kill_in_rounds(|table| started_since(table, shim, program, since))
}

/// Kills what is found in the process table until twice nothing is. How many processes, and whether none was left.
pub(super) fn kill_in_rounds(find: impl Fn(&ProcessTable) -> Vec<Entry>) -> (usize, bool) {
    let mut killed = HashSet::new();
    let mut empty_rounds = 0;
    let deadline = Instant::now() + SWEEP_LIMIT;
    while empty_rounds < 2 && Instant::now() < deadline {
        let victims = find(&ProcessTable::read());
        empty_rounds = if victims.is_empty() { empty_rounds + 1 } else { 0 };
        for victim in victims {
            // Never by group: a tool shares the program's.
            if victim.kill() {
                killed.insert(victim.identity);
            }
        }
        thread::sleep(BETWEEN_ROUNDS);
    }
    (killed.len(), empty_rounds >= 2)
}

/// Two kinds of roots: what has no parent of its own any more and so was adopted by the shim, and children of the
/// program in the program's process group (a server that the program keeps has a group of its own). With them goes
/// what is below them. Spared is what was there at the snapshot.
fn started_since(
    table: &ProcessTable,
    shim: Identity,
    program: Identity,
    since: &DescendantSnapshot,
) -> Vec<Entry> {
    let is = |identity: Identity| table.get(identity.pid).filter(|entry| entry.identity == identity);
    let (Some(_), Some(program)) = (is(shim), is(program)) else {
        // The shim kills everything by itself when the program is gone.
        return Vec::new();
    };
    let adopted = table.children(shim.pid).filter(|entry| entry.identity != program.identity);
    let tools = table.children(program.identity.pid).filter(|entry| entry.group == program.group);
    let roots = adopted.chain(tools).filter(|entry| !since.contains(entry));
    roots
        .flat_map(|root| table.descendants(root.identity.pid).into_iter().chain([*root]))
        .filter(|entry| !entry.zombie && !since.contains(entry))
        .collect()
}

/// The value of [`MARKER`]: which storage the children belong to, and which process is their gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark<'a> {
    pub(super) storage: &'a str,
    pub(super) gateway: Identity,
}

impl<'a> Mark<'a> {
    pub(super) fn render(&self) -> String {
        let gateway = self.gateway;
        format!("{}:{}:{}", self.storage, gateway.pid.as_raw_nonzero(), gateway.start_ticks)
    }

    /// Finds the mark in an environment as `/proc/<pid>/environ` gives it.
    fn find(environment: &'a [u8]) -> Option<Self> {
        let value = environment
            .split(|byte| *byte == 0)
            .find_map(|variable| variable.strip_prefix(MARKER.as_bytes())?.strip_prefix(b"="))?;
        let mut parts = str::from_utf8(value).ok()?.rsplitn(3, ':');
        let start_ticks = parts.next()?.parse().ok()?;
        let pid = positive(parts.next()?.parse().ok()?)?;
        Some(Self { storage: parts.next()?, gateway: Identity { pid, start_ticks } })
    }
}

/// Kills what carries the mark of a gateway of this storage that is gone, and all below. How many processes.
pub(super) fn kill_left_over(storage: &str) -> usize {
    let mut killed = HashSet::new();
    let deadline = Instant::now() + SWEEP_LIMIT;
    while Instant::now() < deadline {
        let table = ProcessTable::read();
        let victims = left_over(&table, storage);
        if victims.is_empty() {
            break;
        }
        for victim in victims {
            if victim.kill() {
                killed.insert(victim.identity);
            }
        }
        thread::sleep(BETWEEN_ROUNDS);
    }
    killed.len()
}

/// What an earlier run left, and what is below it: some of that may have cleared its environment.
fn left_over(table: &ProcessTable, storage: &str) -> HashSet<Entry> {
    // A gateway that was started out of another's child carries that one's mark.
    let mut spared = table.ancestors(getpid());
    spared.insert(getpid());
    let marked = table.entries().iter().filter(|entry| !entry.zombie && is_left_over(table, entry, storage));
    let mut victims = HashSet::new();
    for entry in marked {
        let mut below = table.descendants(entry.identity.pid);
        below.retain(|entry| !entry.zombie);
        // A shim goes last: whatever loses its parent below it would else move out of sight.
        if below.is_empty() || !is_shim(entry.identity.pid) {
            victims.insert(*entry);
        }
        victims.extend(below.into_iter().filter(|entry| !is_shim(entry.identity.pid)));
    }
    victims.retain(|victim| !spared.contains(&victim.identity.pid));
    victims
}

fn is_left_over(table: &ProcessTable, entry: &Entry, storage: &str) -> bool {
    // Another user's process cannot be read, and is none of ours.
    let Ok(environment) = fs::read(format!("/proc/{}/environ", entry.identity.pid.as_raw_nonzero())) else {
        return false;
    };
    let Some(mark) = Mark::find(&environment) else { return false };
    let gateway_lives =
        table.get(mark.gateway.pid).is_some_and(|now| now.identity == mark.gateway && !now.zombie);
    mark.storage == storage && !gateway_lives
}

fn is_shim(pid: Pid) -> bool {
    let command_line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    command_line.split(|byte| *byte == 0).nth(1) == Some(super::SHIM.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::{entry, pid};
    use super::*;

    fn numbers(entries: &[Entry]) -> Vec<i32> {
        let mut numbers: Vec<i32> =
            entries.iter().map(|entry| entry.identity.pid.as_raw_nonzero().get()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Shim 10, program 20 in group 20, its server 30 in a group of its own with 31 below, an earlier background
    /// job 40 with 41 below.
    fn before() -> Vec<Entry> {
        vec![
            entry(10, 1, 10),
            entry(20, 10, 20),
            entry(30, 20, 30),
            entry(31, 30, 30),
            entry(40, 10, 20),
            entry(41, 40, 20),
        ]
    }

    fn swept(added: &[Entry]) -> Vec<i32> {
        let shim = entry(10, 1, 10).identity;
        let program = entry(20, 10, 20).identity;
        let since = DescendantSnapshot::of(&ProcessTable::new(before()), shim);
        let table = ProcessTable::new(before().into_iter().chain(added.iter().copied()));
        numbers(&started_since(&table, shim, program, &since))
    }

    #[test]
    fn nothing_new_is_nothing_to_sweep() {
        assert_eq!(swept(&[]), Vec::<i32>::new());
    }

    #[test]
    fn a_tool_goes_with_all_below_it_whatever_group_that_is_in() {
        assert_eq!(swept(&[entry(50, 20, 20), entry(51, 50, 51), entry(52, 51, 52)]), [50, 51, 52]);
    }

    #[test]
    fn what_the_shim_adopted_since_goes() {
        assert_eq!(swept(&[entry(60, 10, 60), entry(61, 60, 60)]), [60, 61]);
    }

    #[test]
    fn a_new_server_of_the_program_and_what_it_starts_stay() {
        assert_eq!(swept(&[entry(70, 20, 70), entry(71, 70, 70), entry(32, 30, 30)]), Vec::<i32>::new());
    }

    #[test]
    fn the_dead_are_left_to_be_reaped() {
        assert_eq!(swept(&[Entry { zombie: true, ..entry(50, 20, 20) }]), Vec::<i32>::new());
    }

    #[test]
    fn a_number_given_again_is_not_what_was_there_before() {
        let since = DescendantSnapshot::of(&ProcessTable::new(before()), entry(10, 1, 10).identity);
        let mut table = before();
        table[4].identity.start_ticks = 2;
        let (shim, program) = (table[0].identity, table[1].identity);
        assert_eq!(numbers(&started_since(&ProcessTable::new(table), shim, program, &since)), [40]);
    }

    #[test]
    fn without_the_program_the_shim_is_left_alone() {
        let other = Identity { pid: pid(20), start_ticks: 2 };
        let shim = entry(10, 1, 10).identity;
        let table = ProcessTable::new(before());
        assert!(started_since(&table, shim, other, &DescendantSnapshot::default()).is_empty());
    }

    #[test]
    fn a_mark_is_found_again_among_other_variables() {
        let mark = Mark { storage: "a:b", gateway: Identity { pid: pid(7), start_ticks: 99 } };
        let environment = format!("A=1\0X{MARKER}=no\0{MARKER}={}\0B=2\0", mark.render());
        assert_eq!(Mark::find(environment.as_bytes()), Some(mark));
        for value in ["", "a", "a:7", "a:x:99", "a:0:99", "a:7:"] {
            assert_eq!(Mark::find(format!("{MARKER}={value}\0").as_bytes()), None, "{value}");
        }
    }
}
