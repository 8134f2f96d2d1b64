//! The settings in the files that `deploy/` and the Dockerfile show: gander knows each of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use reqwest::{Method, StatusCode};

use crate::callers::hash;
use crate::support::{Setup, answer};

fn repository(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// gander's exit code for a configuration that it does not take.
const UNUSABLE: i32 = 64;

/// Has gander read a configuration; it then asks in vain whether a gander lives there.
fn read(arguments: &[&str], environment: &BTreeMap<String, String>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gander"));
    // Nobody listens on that port, whatever else runs on this machine.
    command.arg("health").args(arguments).args(["--listen", "127.0.0.1:1"]);
    command.env_clear().env("HOME", "/nonexistent").envs(environment).output().unwrap()
}

/// Every `GANDER_…` variable that a file sets, as `NAME=value` or `NAME: value`.
fn variables(file: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(repository(file)).unwrap();
    let words = text.split_inclusive(char::is_whitespace).collect::<Vec<_>>();
    let mut found = BTreeMap::new();
    for (index, word) in words.iter().enumerate() {
        let Some(start) = word.find("GANDER_") else { continue };
        let (name, value) = word[start..].split_once(['=', ':']).unwrap_or((&word[start..], ""));
        let value = if value.trim().is_empty() { words.get(index + 1).copied().unwrap_or("") } else { value };
        let value = value.trim().trim_end_matches([',', '`', '.']);
        found.insert(name.trim().to_owned(), value.to_owned());
    }
    found
}

#[test]
fn every_variable_that_is_shown_is_a_key() {
    for file in ["Dockerfile", "deploy/compose.yaml", "deploy/gander.service"] {
        let variables = variables(file);
        assert!(variables.contains_key("GANDER_AUTH__TOKENS_FILE"), "{file}: {variables:?}");
        for (name, value) in &variables {
            let one = BTreeMap::from([(name.clone(), value.clone())]);
            let output = read(&[], &one);
            assert_eq!(output.status.code(), Some(1), "{file}: {name}={value}: {output:?}");
        }
    }
    let mistyped = BTreeMap::from([("GANDER_AUTH__TOKEN_FILE".to_owned(), "/tokens.toml".to_owned())]);
    assert_eq!(read(&[], &mistyped).status.code(), Some(UNUSABLE));
}

#[test]
fn the_configuration_of_the_pod_is_one() {
    let file = repository("deploy/kubernetes/gander.toml");
    let output = read(&["--config", file.to_str().unwrap()], &BTreeMap::new());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[tokio::test]
async fn the_tokens_file_that_is_shown_works_with_its_hashes_filled_in() {
    let example = fs::read_to_string(repository("deploy/tokens.example.toml")).unwrap();
    let filled = example.replacen("<64 hexadecimal digits>", &hash("a token"), 1);
    let filled = filled.replace("<64 hexadecimal digits>", &"0".repeat(64));
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let file = dir.path().join("tokens.toml");
    fs::write(&file, filled).unwrap();
    let setup = Setup::fake().dir(dir).env("GANDER_AUTH__TOKENS_FILE", file.to_str().unwrap());
    let gander = setup.start().await;
    let info = answer(gander.request_as("a token", Method::GET, "/v1/info"), StatusCode::OK).await;
    assert_eq!(info["caller"]["name"], "web");
    gander.stop().await;
}
