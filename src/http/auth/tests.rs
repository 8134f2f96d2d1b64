use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use axum::http::HeaderValue;
use futures_util::FutureExt;
use tempfile::TempDir;

use tokio::time::Instant;

use super::*;

/// An entry of a tokens file.
fn entry(name: &str, token: &str, rest: &str) -> String {
    format!("[[tokens]]\nname = \"{name}\"\nsha256 = \"{}\"\n{rest}\n", hex(token))
}

/// The hash of a token as `sha256sum` prints it.
fn hex(token: &str) -> String {
    hash(token).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

fn bearing(token: &str) -> HeaderMap {
    HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}")).unwrap())])
}

fn name_of(callers: &Callers, token: &str) -> Option<String> {
    callers.identify(&bearing(token)).map(|caller| caller.name().to_owned())
}

struct TokensOnDisk {
    dir: TempDir,
}

impl TokensOnDisk {
    fn new(text: &str) -> (Self, Callers) {
        let disk = Self { dir: TempDir::new().unwrap() };
        disk.write(text);
        let callers = Callers::of_file(disk.path(), Tenancy::Several).unwrap();
        (disk, callers)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("tokens.toml")
    }

    fn write(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
    }
}

#[test]
fn a_token_names_its_caller_and_roles() {
    let text = entry("alice", "a", "") + &entry("bob", "b", r#"roles = ["read", "admin"]"#);
    let (_disk, callers) = TokensOnDisk::new(&text);
    let alice = callers.identify(&bearing("a")).unwrap();
    assert_eq!((alice.name(), alice.roles()), ("alice", &Role::default_set()));
    assert!(alice.showed_token() && !alice.is_admin());
    assert!(alice.may_see("alice") && !alice.may_see("bob"));
    let bob = callers.identify(&bearing("b")).unwrap();
    assert!(bob.is_admin() && bob.may_see("alice"));
    assert!(callers.identify(&bearing("c")).is_none());
    // The hash is not the token.
    assert!(callers.identify(&bearing(&hex("a"))).is_none());
}

#[test]
fn only_one_bearer_header_counts() {
    let (_disk, callers) = TokensOnDisk::new(&entry("alice", "a", ""));
    let with = |values: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_static(value));
        }
        callers.identify(&headers).is_some()
    };
    for (values, known) in [
        (&["Bearer a"][..], true),
        (&["bearer  a"][..], true),
        (&[][..], false),
        (&["a"][..], false),
        (&["Bearer"][..], false),
        (&["Bearer "][..], false),
        (&["Basic a"][..], false),
        (&["Bearer a", "Bearer a"][..], false),
        (&["Bearer A"][..], false),
    ] {
        assert_eq!(with(values), known, "{values:?}");
    }
}

#[test]
fn a_missing_role_is_refused_and_an_admin_lacks_none() {
    let text = entry("reader", "r", r#"roles = ["read"]"#) + &entry("admin", "a", r#"roles = ["admin"]"#);
    let (_disk, callers) = TokensOnDisk::new(&text);
    let reader = callers.identify(&bearing("r")).unwrap();
    assert!(reader.require(Role::Read).is_ok());
    for role in [Role::Prompt, Role::Approve, Role::Admin] {
        assert_eq!(reader.require(role).unwrap_err().code(), Code::RoleMissing);
        assert!(callers.identify(&bearing("a")).unwrap().require(role).is_ok());
    }
}

#[test]
fn without_required_tokens_everybody_is_anonymous_and_no_admin() {
    let callers = Callers::anyone();
    for headers in [HeaderMap::new(), bearing("whatever")] {
        let caller = callers.identify(&headers).unwrap();
        assert_eq!((caller.name(), caller.roles()), ("anonymous", &Role::default_set()));
        assert!(!caller.showed_token());
    }
}

#[test]
fn a_tokens_file_with_a_mistake_is_refused_in_one_line() {
    let good = entry("alice", "a", "");
    let with = |from: &str, to: &str| good.replace(from, to);
    for (text, says) in [
        (String::new(), "no [[tokens]]"),
        ("[[tokens]".into(), "TOML"),
        (good.clone() + &entry("alice", "b", ""), "name is there twice"),
        (good.clone() + &entry("bob", "a", ""), "same sha256"),
        (with("sha256 = \"", "sha256 = \"0"), "64 hexadecimal digits"),
        (
            with(&good[good.find("sha256").unwrap()..good.len() - 1], "sha256 = \"é\""),
            "64 hexadecimal digits",
        ),
        (with("name", "nmae"), "nmae"),
        (good.clone() + "role = [\"read\"]", "role"),
        (entry("a", "a", r#"roles = ["root"]"#), "root"),
        (entry("a", "a", "roles = []"), "roles is empty"),
        (entry("", "a", ""), "printable"),
        (entry("a\\nb", "a", ""), "printable"),
        (entry(&"x".repeat(65), "a", ""), "printable"),
        ("[[tokens]]\nname = \"a\"".into(), "sha256"),
    ] {
        let error = tokens::parse(&text).unwrap_err();
        assert!(error.contains(says) && !error.contains('\n'), "{says}: {error}");
    }
}

#[test]
fn a_hash_may_be_in_upper_case() {
    let text = entry("alice", "a", "");
    let (before, hex) = text.split_once("sha256").unwrap();
    let upper = format!("{before}sha256{}", hex.to_uppercase());
    assert_eq!(tokens::parse(&upper).unwrap(), tokens::parse(&text).unwrap());
}

#[test]
fn a_tokens_file_that_is_not_there_at_start_is_an_error() {
    let dir = TempDir::new().unwrap();
    let error = Callers::of_file(dir.path().join("none.toml"), Tenancy::Several).unwrap_err();
    assert!(matches!(error, TokensError::Missing { .. }));
    let error = Callers::of_file(dir.path().to_owned(), Tenancy::Several).unwrap_err();
    assert!(matches!(error, TokensError::Unreadable { .. }));
}

#[test]
fn the_next_call_sees_a_changed_file() {
    let (disk, callers) = TokensOnDisk::new(&entry("alice", "a", ""));
    assert_eq!(name_of(&callers, "a").as_deref(), Some("alice"));
    // Same length, perhaps the same time stamp.
    disk.write(&entry("carol", "a", ""));
    assert_eq!(name_of(&callers, "a").as_deref(), Some("carol"));
    disk.write(&entry("carol", "b", ""));
    assert_eq!(name_of(&callers, "a"), None);
    assert_eq!(name_of(&callers, "b").as_deref(), Some("carol"));
    // Replaced in one step, as careful tools do.
    let draft = disk.dir.path().join("draft");
    fs::write(&draft, entry("dave", "d", "")).unwrap();
    fs::rename(draft, disk.path()).unwrap();
    assert_eq!(name_of(&callers, "b"), None);
    assert_eq!(name_of(&callers, "d").as_deref(), Some("dave"));
}

#[test]
fn where_sessions_share_a_home_there_is_one_caller() {
    let (alice, bob, carol) = (entry("alice", "a", ""), entry("bob", "b", ""), entry("carol", "c", ""));
    let (disk, _) = TokensOnDisk::new(&(alice.clone() + &bob));
    let one = || Tenancy::One("a = \"b\"".into());
    let error = Callers::of_file(disk.path(), one()).unwrap_err();
    assert!(matches!(error, TokensError::SeveralCallers { callers: 2, .. }), "{error}");
    assert!(error.to_string().contains("with a = \"b\" there may be one"), "{error}");
    disk.write(&alice);
    let callers = Callers::of_file(disk.path(), one()).unwrap();
    let revoked = callers.identify(&bearing("a")).unwrap().revoked();
    let valid = |callers: &Callers| {
        ["a", "b", "c"].into_iter().filter_map(|token| name_of(callers, token)).collect::<Vec<_>>()
    };
    // The new one stays outside, and the one that was there is not cut off.
    disk.write(&(alice.clone() + &bob));
    assert_eq!(valid(&callers), ["alice"]);
    assert!(revoked.now_or_never().is_none());
    // Another one's token under the name that was let in is another one's.
    disk.write(&(entry("alice", "c", "") + &bob));
    assert_eq!(valid(&callers), Vec::<String>::new());
    // One alone may come in the place of another.
    disk.write(&bob);
    assert_eq!(valid(&callers), ["bob"]);
    disk.write(&(alice + &carol));
    assert_eq!(valid(&callers), Vec::<String>::new(), "who is no longer there is shut out all the same");
}

#[test]
fn a_file_is_read_again_while_its_time_stamp_may_hide_a_change() {
    let (disk, _) = TokensOnDisk::new(&entry("alice", "a", ""));
    let fresh = FileMark::of(&disk.path());
    assert!(fresh.same_state(&fresh) && fresh.differs(&fresh));
    // Older than this test's compilation.
    let old = FileMark::of(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")));
    assert!(!old.differs(&old));
}

#[test]
fn a_broken_file_keeps_the_last_good_tokens_and_a_removed_one_keeps_none() {
    let (disk, callers) = TokensOnDisk::new(&entry("alice", "a", ""));
    for broken in ["", "[[tokens]]\nname = \"al"] {
        disk.write(broken);
        assert_eq!(name_of(&callers, "a").as_deref(), Some("alice"), "{broken:?}");
    }
    disk.write(&entry("bob", "b", ""));
    assert_eq!(name_of(&callers, "a"), None);
    assert_eq!(name_of(&callers, "b").as_deref(), Some("bob"));
    fs::remove_file(disk.path()).unwrap();
    assert_eq!(name_of(&callers, "b"), None);
    disk.write(&entry("bob", "b", ""));
    assert_eq!(name_of(&callers, "b").as_deref(), Some("bob"));
}

#[tokio::test(start_paused = true)]
async fn who_waits_learns_within_a_second_that_a_token_is_revoked_although_nobody_calls() {
    let text = entry("alice", "a", "") + &entry("bob", "b", "");
    let (disk, callers) = TokensOnDisk::new(&text);
    let tasks = Tasks::new();
    callers.watch(&tasks);
    let (alice, bob) = (callers.identify(&bearing("a")).unwrap(), callers.identify(&bearing("b")).unwrap());
    let bob_revoked = bob.revoked();
    disk.write(&entry("bob", "b", r#"roles = ["read", "prompt", "approve", "admin"]"#));
    let written = Instant::now();
    alice.revoked().await;
    assert!(written.elapsed() <= Duration::from_secs(1), "{:?}", written.elapsed());
    // More roles are no reason to be shut out; fewer are.
    assert!(bob_revoked.now_or_never().is_none());
    let bob_revoked = bob.revoked();
    disk.write(&entry("bob", "b", r#"roles = ["prompt"]"#));
    let written = Instant::now();
    bob_revoked.await;
    assert!(written.elapsed() <= Duration::from_secs(1), "{:?}", written.elapsed());
    tasks.hard().cancel();
    tasks.finished().await;
}

#[tokio::test]
async fn nothing_is_revoked_where_no_token_is_needed() {
    let caller = Callers::anyone().identify(&HeaderMap::new()).unwrap();
    assert!(caller.revoked().now_or_never().is_none());
}

#[test]
fn a_token_is_made_once_and_only_its_user_can_read_it() {
    let dir = TempDir::new().unwrap();
    let state = dir.path().join("state/gander");
    let made = ensure_token(&state).unwrap();
    assert_eq!(ensure_token(&state).unwrap(), made);
    assert_eq!(made.path(), state.join("token"));
    assert_eq!(fs::read_to_string(made.path()).unwrap(), format!("{}\n", made.secret()));
    let rights = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((rights(made.path()), rights(&state)), (0o600, 0o700));
    assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "a draft is left");
    assert_eq!(made.secret().len(), "gander_".len() + 64);
    assert_ne!(ensure_token(dir.path()).unwrap().secret(), made.secret());
    assert!(!format!("{made:?}").contains(made.secret()));

    let caller = Callers::of_generated(&made).identify(&bearing(made.secret())).unwrap();
    assert_eq!(caller.name(), "default");
    assert!(caller.is_admin());
}

#[test]
fn gateways_that_start_at_once_share_one_token() {
    let dir = TempDir::new().unwrap();
    let tokens: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| ensure_token(dir.path()).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(tokens.iter().all(|token| *token == tokens[0]));
}

#[test]
fn a_kept_token_gets_its_rights_back_and_a_broken_one_is_not_used() {
    let dir = TempDir::new().unwrap();
    let made = ensure_token(dir.path()).unwrap();
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(ensure_token(dir.path()).unwrap(), made);
    assert_eq!(fs::metadata(made.path()).unwrap().permissions().mode() & 0o777, 0o600);
    for broken in ["", "gander_", "gander_zz", "secret"] {
        fs::write(made.path(), broken).unwrap();
        assert_eq!(ensure_token(dir.path()).unwrap_err().kind(), ErrorKind::InvalidData, "{broken:?}");
    }
}
