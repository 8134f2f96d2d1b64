use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, RenameFlags, mknodat, renameat_with};
use serde_json::json;
use tempfile::TempDir;

use super::*;

const BOUNDS: Bounds = Bounds { file_bytes: 1 << 20, diff_bytes: 1 << 20 };

/// A folder `work` that is a session's, and `outside` beside it.
struct Folders {
    _dir: TempDir,
    base: PathBuf,
    roots: Roots,
}

impl Folders {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for name in ["work/sub", "outside", "extra"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        let roots = Roots::new(base.join("work"), vec![base.join("extra"), base.join("missing")]);
        Self { _dir: dir, base, roots }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    fn read(&self, name: &str) -> Result<String, String> {
        read(&self.roots, &self.path(name), None, None, 1 << 20).map_err(|refusal| refusal.0)
    }

    fn write(&self, name: &str, text: &str) -> Result<Value, String> {
        self.write_if(name, text, || Ok(()))
    }

    fn write_if(
        &self,
        name: &str,
        text: &str,
        may_go_on: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<Value, String> {
        write(&self.roots, &self.path(name), text, BOUNDS, may_go_on).map_err(|refusal| refusal.0)
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let names = fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<_> =
            names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

#[test]
fn a_write_replaces_the_file_keeps_its_mode_and_tells_the_change() {
    let folders = Folders::new();
    let diff = folders.write("work/new/deep/a.sh", "one\n").unwrap();
    assert_eq!((&diff["old_text"], &diff["new_text"]), (&Value::Null, &json!("one\n")));
    let file = folders.path("work/new/deep/a.sh");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o751)).unwrap();
    for (old, new) in [("one\n", "zw\u{f6}lf\r\n"), ("zw\u{f6}lf\r\n", ""), ("", "no end")] {
        let diff = folders.write("work/new/deep/a.sh", new).unwrap();
        assert_eq!((&diff["old_text"], &diff["new_text"]), (&json!(old), &json!(new)));
        assert_eq!(fs::read_to_string(&file).unwrap(), new);
    }
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(folders.names("work/new/deep"), ["a.sh"]);
    folders.write("extra/b", "x").unwrap();
    assert_eq!(folders.read("extra/b").unwrap(), "x");
}

/// What the model writes does not run as somebody else, and whoever may not read the old text may not read the new one.
#[test]
fn a_replaced_file_keeps_its_owner_and_permissions_and_nothing_more() {
    let folders = Folders::new();
    let file = folders.path("work/a");
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6755)).unwrap();
    let is_root = chown(&file, Some(1234), Some(5678)).is_ok();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6755)).unwrap();
    let before = fs::metadata(&file).unwrap();
    assert_eq!(before.mode() & 0o7777, 0o6755);
    let mut hidden = None;
    let look = || {
        let names = folders.names("work");
        let new = names.iter().find(|name| name.starts_with(".gander-")).unwrap();
        hidden = Some(fs::metadata(folders.path("work").join(new)).unwrap().mode() & 0o7777);
        Ok(())
    };
    folders.write_if("work/a", "new", look).unwrap();
    assert_eq!(hidden, Some(0o600), "before it takes the other's place");
    let after = fs::metadata(&file).unwrap();
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    assert_eq!(after.uid() == 1234, is_root);
    assert_eq!(after.mode() & 0o7777, 0o755);
}

#[test]
fn a_write_that_may_not_go_on_leaves_everything_as_it_was() {
    let folders = Folders::new();
    folders.write("work/a", "old").unwrap();
    let refusal = folders.write_if("work/a", "new", || Err(refused("too late"))).unwrap_err();
    assert_eq!(
        (refusal.as_str(), &*fs::read_to_string(folders.path("work/a")).unwrap()),
        ("too late", "old")
    );
    assert_eq!(folders.names("work"), ["a", "sub"]);
}

#[test]
fn a_binary_file_can_be_replaced_and_its_old_content_is_not_made_up() {
    let folders = Folders::new();
    fs::write(folders.path("work/b"), b"\xff\xfe\0").unwrap();
    assert!(folders.read("work/b").unwrap_err().contains("not UTF-8"));
    let diff = folders.write("work/b", "text").unwrap();
    assert_eq!((&diff["old_text"], &diff["unified_diff"]), (&Value::Null, &Value::Null));
    assert_eq!(diff["new_text"], "text");
}

#[test]
fn nothing_outside_is_read_or_written_whatever_leads_there() {
    let folders = Folders::new();
    fs::write(folders.path("outside/secret"), "secret").unwrap();
    symlink(folders.path("outside"), folders.path("work/folder")).unwrap();
    symlink(folders.path("outside/secret"), folders.path("work/file")).unwrap();
    symlink("../outside/new", folders.path("work/dangling")).unwrap();
    symlink("/proc/self/environ", folders.path("work/proc")).unwrap();
    for name in ["outside/secret", "work/folder/secret", "work/file", "work/../outside/secret", "work/proc"] {
        let read = folders.read(name);
        assert!(read.as_ref().is_err_and(|why| why.contains("outside")), "{name}: {read:?}");
    }
    for name in ["outside/x", "work/folder/x", "work/file", "work/dangling", "work/../x", "/etc/gander-x"] {
        let written = folders.write(name, "x");
        assert!(written.as_ref().is_err_and(|why| why.contains("outside")), "{name}: {written:?}");
    }
    assert_eq!(folders.names("outside"), ["secret"]);
    assert_eq!(fs::read_to_string(folders.path("outside/secret")).unwrap(), "secret");
    assert!(
        read(&folders.roots, Path::new("work/a"), None, None, 9).unwrap_err().0.contains("not an absolute")
    );
}

#[test]
fn links_within_are_followed_and_stay_links() {
    let folders = Folders::new();
    fs::write(folders.path("work/sub/real"), "old").unwrap();
    symlink(folders.path("work/sub/real"), folders.path("work/absolute")).unwrap();
    symlink("sub/real", folders.path("work/relative")).unwrap();
    symlink(folders.path("extra"), folders.path("work/extra")).unwrap();
    assert_eq!(folders.read("work/absolute").unwrap(), "old");
    folders.write("work/relative", "new").unwrap();
    assert_eq!(fs::read_to_string(folders.path("work/sub/real")).unwrap(), "new");
    assert!(fs::symlink_metadata(folders.path("work/relative")).unwrap().is_symlink());
    folders.write("work/extra/x", "x").unwrap();
    assert_eq!(folders.names("extra"), ["x"]);
}

/// What is looked up by name and what is then opened cannot be two things.
#[test]
fn a_link_put_in_the_way_meanwhile_is_not_followed() {
    let folders = Folders::new();
    fs::write(folders.path("outside/secret"), "secret").unwrap();
    fs::create_dir(folders.path("work/turns")).unwrap();
    fs::write(folders.path("work/turns/secret"), "mine").unwrap();
    symlink(folders.path("outside"), folders.path("work/link")).unwrap();
    // What was looked up a moment ago may be such a link now.
    let work = File::open(folders.path("work")).unwrap();
    for (way, why) in [("link/secret", Errno::LOOP), ("../outside/secret", Errno::XDEV)] {
        assert_eq!(beneath(&work, way, READ).unwrap_err(), why, "{way}");
    }
    let stop = AtomicBool::new(false);
    let refused = thread::scope(|scope| {
        scope.spawn(|| {
            let (folder, link) = (folders.path("work/turns"), folders.path("work/link"));
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let mut refused = 0;
        for _ in 0..2_000 {
            match folders.read("work/turns/secret") {
                Ok(text) => assert_eq!(text, "mine"),
                Err(_) => refused += 1,
            }
            let _ = folders.write("work/turns/secret", "mine");
        }
        stop.store(true, Ordering::Relaxed);
        refused
    });
    assert!(refused > 0, "the link was never there");
    assert_eq!(fs::read_to_string(folders.path("outside/secret")).unwrap(), "secret");
    assert_eq!(folders.names("outside"), ["secret"]);
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let folders = Folders::new();
    mknodat(CWD, folders.path("work/pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert!(folders.read("work/pipe").unwrap_err().contains("no regular file"));
    assert!(folders.write("work/pipe", "x").unwrap_err().contains("no regular file"));
    assert!(folders.read("work/sub").unwrap_err().contains("is a folder"));
    assert!(folders.write("work/sub", "x").unwrap_err().contains("is a folder"));
    assert!(folders.write("work", "x").unwrap_err().contains("is a folder"));
    assert!(folders.read("work/none").unwrap_err().contains("does not exist"));
    fs::write(folders.path("work/file"), "").unwrap();
    assert!(folders.write("work/file/x", "x").unwrap_err().contains("no folder"));
}

#[test]
fn lines_are_counted_from_one_and_keep_their_ends() {
    let folders = Folders::new();
    fs::write(folders.path("work/l"), "one\r\ntwo\nthree").unwrap();
    let lines = |line, limit, most| {
        read(&folders.roots, &folders.path("work/l"), line, limit, most).map_err(|refusal| refusal.0)
    };
    assert_eq!(lines(Some(1), Some(1), 99).unwrap(), "one\r\n");
    assert_eq!(lines(Some(2), None, 99).unwrap(), "two\nthree");
    assert_eq!(lines(Some(0), Some(2), 99).unwrap(), "one\r\ntwo\n");
    assert_eq!(lines(Some(9), Some(2), 99).unwrap(), "");
    assert_eq!(lines(None, Some(0), 99).unwrap(), "");
    assert!(lines(None, None, 13).unwrap_err().contains("at most 13"));
    assert!(lines(Some(2), None, 8).unwrap_err().contains("at most 8"));
    assert_eq!(lines(Some(2), Some(1), 8).unwrap(), "two\n");
    let bounds = Bounds { file_bytes: 3, ..BOUNDS };
    assert!(write(&folders.roots, &folders.path("work/l"), "four", bounds, || Ok(())).is_err());
    assert_eq!(fs::read(folders.path("work/l")).unwrap().len(), 14);
}

/// Whoever reads meanwhile sees one text or another, whole.
#[test]
fn a_thousand_writes_at_once_leave_no_half_file() {
    let folders = Folders::new();
    let text = |number: usize| format!("{number}\n").repeat(4_000);
    folders.write("work/f", &text(0)).unwrap();
    thread::scope(|scope| {
        for writer in 0..20 {
            let folders = &folders;
            scope.spawn(move || {
                for round in 0..50 {
                    folders.write("work/f", &text(writer * 50 + round)).unwrap();
                    let seen = folders.read("work/f").unwrap();
                    let number = seen.lines().next().unwrap().parse().unwrap();
                    assert_eq!(seen, text(number));
                }
            });
        }
    });
    assert_eq!(folders.names("work"), ["f", "sub"]);
}
