use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;

fn prompt(uris: &[&str]) -> Prompt {
    let link = |uri: &&str| json!({"type": "resource_link", "name": "x", "uri": uri});
    Prompt::Blocks(
        [json!({"type": "text", "text": "look"})].into_iter().chain(uris.iter().map(link)).collect(),
    )
}

/// Where one link leads, with room for ten bytes.
fn lead(uri: &str, directory: &Path) -> Result<String, String> {
    match resolve(prompt(&[uri]), Some(directory), 10) {
        Ok(Prompt::Blocks(blocks)) => Ok(blocks[1]["uri"].as_str().unwrap().to_owned()),
        Ok(Prompt::Text(text)) => panic!("{text}"),
        Err(faults) => {
            assert_eq!((faults.len(), faults[0].block), (1, 1), "{faults:?}");
            Err(faults[0].detail.clone())
        }
    }
}

/// A directory beside another, with files in both.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for folder in ["in/sub", "inside-too"] {
        fs::create_dir_all(place.path().join(folder)).unwrap();
    }
    for file in ["in/a b.txt", "in/%41", "in/sub/ü", "inside-too/x", "out.txt"] {
        fs::write(place.path().join(file), "text").unwrap();
    }
    fs::write(place.path().join("in/large"), "more than ten").unwrap();
    symlink("../out.txt", place.path().join("in/leads-out")).unwrap();
    symlink("sub/ü", place.path().join("in/leads-within")).unwrap();
    symlink("../..", place.path().join("in/sub/up")).unwrap();
    symlink("in", place.path().join("alias")).unwrap();
    place
}

#[test]
fn what_is_in_the_directory_is_found_in_any_spelling() {
    let place = place();
    let place = place.path().canonicalize().unwrap();
    let host = place.to_str().unwrap();
    for (uri, file) in [
        (format!("file://{host}/in/a%20b.txt"), "a%20b.txt"),
        (format!("file://{host}/in/a b.txt"), "a%20b.txt"),
        (format!("FILE:{host}/in/a%20b.txt"), "a%20b.txt"),
        (format!(" file://localhost{host}/in/a%20b.txt?x#y"), "a%20b.txt"),
        (format!("fi\tle://{host}/elsewhere/../in/%2e/a%20b.txt"), "a%20b.txt"),
        (format!("file://{host}/alias/a%20b.txt"), "a%20b.txt"),
        (format!("file://{host}/in/%2541"), "%2541"),
        (format!("file://{host}/in/leads-within"), "sub/%C3%BC"),
        (format!("file://{host}/in/sub/up/in/sub/ü"), "sub/%C3%BC"),
    ] {
        let expected = Ok(format!("file://{host}/in/{file}"));
        assert_eq!(lead(&uri, &place.join("in")), expected, "{uri}");
        assert_eq!(lead(&uri, &place.join("alias")), expected, "{uri}, in a directory that is a link itself");
    }
}

#[test]
fn what_is_elsewhere_nowhere_or_no_file_is_refused_in_the_same_words() {
    let place = place();
    let place = place.path().canonicalize().unwrap();
    let (host, inside) = (place.to_str().unwrap(), place.join("in"));
    let _socket = std::os::unix::net::UnixListener::bind(inside.join("socket")).unwrap();
    for uri in [
        "file:///etc/hostname".to_owned(),
        "FILE:/etc/hostname".to_owned(),
        "file:///etc/no-such-file".to_owned(),
        "file:///".to_owned(),
        format!("file://{host}/out.txt"),
        format!("file://{host}/inside-too/x"),
        format!("file://{host}/in/leads-out"),
        format!("file://{host}/in/../out.txt"),
        format!("file://{host}/in/%2e%2e/out.txt"),
        format!("file://{host}/in/..%2Fout.txt"),
        format!("file://{host}/in/sub/up/out.txt"),
        format!("file://{host}/in/missing"),
        format!("file://{host}/in/sub"),
        format!("file://{host}/in/socket"),
        format!("file://{host}/in/a%20b.txt/"),
        format!("file://{host}/in/a%00"),
        format!("file://elsewhere.example{host}/in/a%20b.txt"),
    ] {
        assert_eq!(lead(&uri, &inside), Err(ELSEWHERE.to_owned()), "{uri}");
    }
    let homeless = resolve(prompt(&["file:///etc/hostname"]), None, 10).unwrap_err();
    assert_eq!(homeless[0].detail, ELSEWHERE, "a session that has no directory yet");
}

#[test]
fn linked_files_are_counted_together() {
    let place = place();
    let inside = place.path().canonicalize().unwrap().join("in");
    let uri = |file: &str| String::from(Url::from_file_path(inside.join(file)).unwrap());
    let refused = lead(&uri("large"), &inside).unwrap_err();
    assert!(refused.contains("10 bytes") && refused.contains("limits.linked_file_bytes"), "{refused}");
    let (first, second) = (uri("a b.txt"), uri("sub/ü"));
    let three = prompt(&[&first, "https://example.org/a", &second, &first]);
    let faults = resolve(three, Some(&inside), 10).unwrap_err();
    assert_eq!(faults.iter().map(|fault| fault.block).collect::<Vec<_>>(), [4]);
    assert!(resolve(prompt(&[&first, &second]), Some(&inside), 8).is_ok());
}

#[test]
fn a_link_leads_to_a_file_or_into_the_web() {
    let nowhere = Path::new("/nonexistent");
    for uri in ["http://example.org/a", "HTTPS://example.org"] {
        assert_eq!(lead(uri, nowhere), Ok(uri.to_owned()), "as it came");
    }
    for uri in [
        "",
        "/etc/hostname",
        "a.txt",
        "data:text/plain,hi",
        "file://%2Fetc/hostname",
        "view-source:file:///etc/hostname",
        "http:",
        "x://y",
    ] {
        assert!(lead(uri, nowhere).unwrap_err().contains("web page"), "{uri}");
    }
}

#[test]
fn a_prompt_without_links_needs_no_look() {
    assert!(has_links(&prompt(&["http://example.org"])));
    for plain in [Prompt::Text("file:///etc/hostname".into()), prompt(&[])] {
        assert!(!has_links(&plain));
        assert_eq!(resolve(plain.clone(), None, 0), Ok(plain));
    }
}
