//! What the machine says about processes, and tools that are found again by a number nobody else has.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Waits until something is so; fails after a time in which it should have been so many times over.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A number that is a duration for `sleep`, a few months, and in no other command line.
pub(crate) struct Tag(String);

impl Tag {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(format!("9999999.{:08}{count:04}", std::process::id()))
    }

    /// The living processes that have the tag as an argument.
    pub(crate) fn running(&self) -> Vec<u32> {
        let tagged = |pid: &u32| command_line(*pid).contains(&self.0);
        processes().into_iter().filter(tagged).collect()
    }

    /// How many of them are a `sleep`, and not what is about to become one.
    pub(crate) fn sleeping(&self) -> usize {
        self.running().into_iter().filter(|pid| command_line(*pid)[0] == "sleep").count()
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Four ways in which tools leave something running.
pub(crate) struct Tools {
    pub(crate) plain: Tag,
    pub(crate) session: Tag,
    pub(crate) unmarked: Tag,
    pub(crate) forked: Tag,
}

impl Tools {
    pub(crate) fn new() -> Self {
        Self { plain: Tag::new(), session: Tag::new(), unmarked: Tag::new(), forked: Tag::new() }
    }

    /// For bash, on one line.
    pub(crate) fn script(&self) -> String {
        let Self { plain, session, unmarked, forked } = self;
        let python = "import os,sys; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); \
                      os.execvp(\"sleep\",[\"sleep\",sys.argv[1]])";
        format!(
            "sleep {plain} & setsid sleep {session} & env -i setsid sleep {unmarked} & python3 -c '{python}' {forked};"
        )
    }

    fn tags(&self) -> [&Tag; 4] {
        [&self.plain, &self.session, &self.unmarked, &self.forked]
    }

    pub(crate) async fn all_run(&self) {
        eventually("all tools run", || self.tags().iter().all(|tag| tag.sleeping() == 1)).await;
    }

    pub(crate) fn running(&self) -> Vec<u32> {
        self.tags().iter().flat_map(|tag| tag.running()).collect()
    }
}

fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// All processes that are not dead.
fn processes() -> Vec<u32> {
    numbers().filter(|pid| is_alive(*pid)).collect()
}

pub(crate) fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] != "Z" && fields[0] != "X")
}

/// Direct children that live.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    processes().into_iter().filter(|pid| field(*pid, 4) == Some(parent)).collect()
}

/// Direct children that are dead but not reaped.
pub(crate) fn zombies_below(parent: u32) -> Vec<u32> {
    let children = numbers().filter(|pid| field(*pid, 4) == Some(parent));
    children.filter(|pid| stat(*pid).is_some_and(|fields| fields[0] == "Z")).collect()
}

/// `/proc/<pid>/stat` from its third field on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned();
    Some(stat.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

/// A numeric field of `/proc/<pid>/stat`, counted from 1: 4 is the parent, 5 the group, 6 the session.
pub(crate) fn field(pid: u32, number: usize) -> Option<u32> {
    stat(pid)?.get(number - 3)?.parse().ok()
}

pub(crate) fn command_line(pid: u32) -> Vec<String> {
    strings(&format!("/proc/{pid}/cmdline"))
}

pub(crate) fn environment(pid: u32) -> BTreeMap<String, String> {
    let variables = strings(&format!("/proc/{pid}/environ"));
    let variables = variables.into_iter().filter(|variable| !variable.is_empty());
    variables.map(|variable| variable.split_once('=').map(|(n, v)| (n.into(), v.into())).unwrap()).collect()
}

/// NUL-terminated strings; one empty string for a file that cannot be read.
fn strings(path: &str) -> Vec<String> {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.strip_suffix('\0').unwrap_or(&text).split('\0').map(str::to_owned).collect()
}

/// Open descriptors, lowest first.
pub(crate) fn descriptors(pid: u32) -> Vec<u32> {
    let numbers = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let mut numbers: Vec<u32> =
        numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// Descriptors above standard error that every child of this process gets: its own parent left them open.
pub(crate) fn inherited_descriptors() -> Vec<u32> {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let goes_on = |number: &u32| {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        flags.is_some_and(|flags| u32::from_str_radix(flags.trim(), 8).unwrap() & CLOSE_ON_EXEC == 0)
    };
    let own = descriptors(std::process::id());
    own.into_iter().filter(|number| *number > 2).filter(goes_on).collect()
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}
