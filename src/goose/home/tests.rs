use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, os::unix};

use serde_yaml_ng::Value;
use tempfile::TempDir;

use super::{HomeError, prepare, remove, renew, temporary_folder};

struct Folders {
    config_dir: PathBuf,
    root: PathBuf,
    _folder: TempDir,
}

fn folders() -> Folders {
    let folder = tempfile::tempdir().unwrap();
    let config_dir = folder.path().join("goose");
    fs::create_dir(&config_dir).unwrap();
    Folders { config_dir, root: folder.path().join("homes/one"), _folder: folder }
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// The home's configuration after a prepare from one of this text.
fn prepared(configuration: &str, off: &[&str]) -> Result<Value, String> {
    let folders = folders();
    fs::write(folders.config_dir.join("config.yaml"), configuration).unwrap();
    prepare(&folders.root, Some(&folders.config_dir), &names(off))
        .map_err(|error| error.to_string().replace(folders.config_dir.to_str().unwrap(), "DIR"))?;
    let text = fs::read_to_string(folders.root.join("config/config.yaml")).unwrap();
    Ok(serde_yaml_ng::from_str(&text).unwrap())
}

fn yaml(text: &str) -> Value {
    serde_yaml_ng::from_str(text).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_home_without_a_start_has_only_the_switches() {
    let folders = folders();
    let absent = folders.config_dir.join("absent");
    prepare(&folders.root, Some(&absent), &names(&["summon"])).unwrap();
    let path = folders.root.join("config/config.yaml");
    assert_eq!(yaml(&fs::read_to_string(&path).unwrap()), yaml("extensions: {summon: {enabled: false}}"));
    assert_eq!((mode(&folders.root), mode(&folders.root.join("config")), mode(&path)), (0o700, 0o700, 0o600));
    assert_eq!(fs::read_dir(folders.root.join("config")).unwrap().count(), 1);
    let temporary = temporary_folder(&folders.root);
    assert_eq!((mode(&temporary), fs::read_dir(&temporary).unwrap().count()), (0o700, 0));
    let other = folders.root.with_file_name("two");
    prepare(&other, None, &names(&[])).unwrap();
    assert_eq!(yaml(&fs::read_to_string(other.join("config/config.yaml")).unwrap()), yaml("extensions: {}"));
}

#[test]
fn everything_is_copied_but_what_goose_remembers() {
    let folders = folders();
    let dir = &folders.config_dir;
    fs::create_dir_all(dir.join("recipes/deep")).unwrap();
    fs::create_dir(dir.join("memory")).unwrap();
    fs::create_dir(dir.join("recipes/memory")).unwrap();
    for (file, text) in [
        ("permission.yaml", "user: {always_allow: [shell]}"),
        ("secrets.yaml", "OPENAI_API_KEY: k"),
        ("recipes/deep/permission.yaml", "a recipe's own"),
        ("memory/words.txt", "heliotrope"),
        ("recipes/memory/words.txt", "a recipe's own"),
        ("run.sh", "#!/bin/sh"),
        ("../outside", "linked"),
    ] {
        fs::write(dir.join(file), text).unwrap();
    }
    fs::set_permissions(dir.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    unix::fs::symlink("../outside", dir.join("link")).unwrap();
    unix::fs::symlink("nowhere", dir.join("dangling")).unwrap();
    unix::fs::symlink("recipes", dir.join("linked-folder")).unwrap();
    let _socket = unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    prepare(&folders.root, Some(dir), &names(&[])).unwrap();

    let copy = folders.root.join("config");
    let mut copied: Vec<String> =
        fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    copied.sort();
    assert_eq!(copied, ["config.yaml", "link", "recipes", "run.sh", "secrets.yaml"]);
    assert_eq!(fs::read_to_string(copy.join("link")).unwrap(), "linked");
    assert!(fs::symlink_metadata(copy.join("link")).unwrap().is_file());
    assert_eq!(fs::read_to_string(copy.join("recipes/deep/permission.yaml")).unwrap(), "a recipe's own");
    assert!(copy.join("recipes/memory/words.txt").is_file());
    assert_eq!((mode(&copy.join("run.sh")), mode(&copy.join("secrets.yaml"))), (0o600, 0o600));
    assert_eq!(mode(&copy.join("recipes/deep")), 0o700);
}

#[test]
fn a_renewed_home_is_as_new_but_for_sessions_and_memories() {
    let folders = folders();
    let (dir, root) = (&folders.config_dir, &folders.root);
    fs::create_dir(dir.join("memory")).unwrap();
    fs::write(dir.join("memory/words.txt"), "the user's").unwrap();
    let outside = dir.with_file_name("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("words.txt"), "outside").unwrap();
    let renew = || renew(root, Some(dir), &names(&["summon"])).unwrap();
    renew();
    assert!(!root.join("config/memory").exists());
    for folder in ["data", "config/memory/deep", "config/left", "tmp/left"] {
        fs::create_dir_all(root.join(folder)).unwrap();
        fs::write(root.join(folder).join("words.txt"), "heliotrope").unwrap();
    }
    fs::write(root.join("config/permission.yaml"), "user: {always_allow: [shell]}").unwrap();
    fs::write(root.join("config/config.yaml"), "extensions: {summon: {enabled: true}}").unwrap();
    unix::fs::symlink(&outside, root.join("config/link")).unwrap();
    renew();
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    assert_eq!(yaml(&read("config/config.yaml")), yaml("extensions: {summon: {enabled: false}}"));
    assert_eq!([read("config/memory/deep/words.txt"), read("data/words.txt")], ["heliotrope"; 2]);
    let mut left: Vec<_> =
        fs::read_dir(root.join("config")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["config.yaml", "memory"]);
    assert_eq!(fs::read_dir(root.join("tmp")).unwrap().count(), 0);

    // What a session's shell has put in the place of a folder is not followed.
    fs::remove_dir_all(root.join("config/memory")).unwrap();
    unix::fs::symlink(&outside, root.join("config/memory")).unwrap();
    renew();
    assert!(!root.join("config/memory").exists());
    fs::remove_dir_all(root.join("config")).unwrap();
    unix::fs::symlink(&outside, root.join("config")).unwrap();
    renew();
    assert!(fs::symlink_metadata(root.join("config")).unwrap().is_dir());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn switches_are_merged_into_what_is_there() {
    let configuration = "GOOSE_PROVIDER: openai\nextensions:\n  developer:\n    enabled: true\n    type: platform\n    \
                         name: developer\n  analyze: {enabled: true}\n";
    assert_eq!(
        prepared(configuration, &["developer", "summon"]).unwrap(),
        yaml(
            "{GOOSE_PROVIDER: openai, extensions: {developer: {enabled: false, type: platform, name: developer}, \
             analyze: {enabled: true}, summon: {enabled: false}}}"
        )
    );
    for (extensions, expected) in [
        ("", "developer: {enabled: false}"),
        ("developer: ", "developer: {enabled: false}"),
        ("developer: true", "developer: {enabled: false}"),
        ("developer: {enabled: 'false'}", "developer: {enabled: false}"),
        ("Developer: {enabled: true}", "Developer: {enabled: false}, developer: {enabled: false}"),
        (
            "x: {enabled: true, name: developer}",
            "x: {enabled: false, name: developer}, developer: {enabled: false}",
        ),
        ("1: {enabled: true}", "1: {enabled: true}, developer: {enabled: false}"),
    ] {
        assert_eq!(
            prepared(&format!("extensions: {{{extensions}}}"), &["developer"]).unwrap(),
            yaml(&format!("extensions: {{{expected}}}")),
            "{extensions}"
        );
    }
    let merged = "base: &base {Extension Manager: {enabled: true}}\nextensions: {<<: *base}\n";
    let settings = prepared(merged, &["extensionmanager"]).unwrap();
    assert_eq!(
        settings["extensions"],
        yaml("{Extension Manager: {enabled: false}, extensionmanager: {enabled: false}}")
    );
    for empty in ["", "# nothing\n", "---\n", "extensions:\n"] {
        assert_eq!(
            prepared(empty, &["tom"]).unwrap(),
            yaml("extensions: {tom: {enabled: false}}"),
            "{empty:?}"
        );
    }
}

#[test]
fn a_malformed_configuration_is_an_error_that_names_it() {
    for (configuration, reason) in [
        ("a: [", "did not find expected node content at line 2 column 1, while parsing a flow node"),
        ("- a", "it is no mapping"),
        ("text", "it is no mapping"),
        ("extensions: [developer]", "`extensions` is no mapping"),
        ("extensions: {a: {}, a: {}}", "extensions: duplicate entry with key \"a\" at line 1 column 13"),
        ("a: 1\n---\nb: 2\n", "deserializing from YAML containing more than one document is not supported"),
    ] {
        let error = prepared(configuration, &["summon"]).unwrap_err();
        assert!(error.starts_with("DIR/config.yaml is not what goose expects: "), "{error}");
        assert!(error.ends_with(reason), "{error}");
    }
}

#[test]
fn what_is_too_much_is_refused() {
    let folders = folders();
    let large = fs::File::create(folders.config_dir.join("large")).unwrap();
    large.set_len((64 << 20) + 1).unwrap();
    let error = prepare(&folders.root, Some(&folders.config_dir), &names(&[])).unwrap_err();
    assert!(matches!(error, HomeError::TooLarge { .. }), "{error}");

    large.set_len(0).unwrap();
    let mut deep = folders.config_dir.clone();
    (0..20).for_each(|_| deep.push("d"));
    fs::create_dir_all(&deep).unwrap();
    remove(&folders.root).unwrap();
    let error = prepare(&folders.root, Some(&folders.config_dir), &names(&[])).unwrap_err();
    assert!(matches!(error, HomeError::TooLarge { .. }), "{error}");
}

#[test]
fn a_home_is_new_and_not_inside_its_start() {
    let folders = folders();
    let inside = folders.config_dir.join("homes/one");
    let error = prepare(&inside, Some(&folders.config_dir), &names(&[])).unwrap_err();
    assert!(matches!(error, HomeError::Nested { .. }), "{error}");

    prepare(&folders.root, None, &names(&[])).unwrap();
    let error = prepare(&folders.root, None, &names(&[])).unwrap_err();
    assert!(matches!(error, HomeError::Io { action: "make", .. }), "{error}");
    remove(&folders.root).unwrap();
    assert!(!folders.root.exists());
    remove(&folders.root).unwrap();
}
