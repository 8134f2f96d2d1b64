//! Shell lines and paths that somebody would try, each with what has to come of it.

mod allowed;
mod asked;
mod rejected;

use serde_json::{Value, json};

use super::*;
use crate::session::permission::Decision;

fn rules() -> Policy {
    let allow = [
        "git status",
        "git log *",
        "git diff *",
        "git *",
        "ls *",
        "echo *",
        "cat *",
        "grep *",
        "cd *",
        "true",
        "find *",
        "timeout 5 ls",
        "npm test",
        "head *",
        "wc *",
        "test *",
        "\\[ *",
        // Who writes these gets no more than their very words would.
        "env *",
        "sh *",
        "bash *",
        "xargs *",
        "eval *",
        "python3 *",
        "sed *",
        "awk *",
        "tar *",
        "command *",
        "export *",
        "source *",
        ". *",
        "printf *",
        "sed -n 1,5p x",
        "bash deploy.sh",
    ];
    let reject = ["rm", "curl *", "git push", "dd"];
    let rule = |action: &str, command: &str| json!({"action": action, "command": command});
    let allow = allow.iter().map(|command| rule("allow", command));
    let reject = reject.iter().map(|command| rule("reject", command));
    server(Value::Array(allow.chain(reject).collect()))
}

fn check(expected: Action, lines: &[&str]) {
    let rules = rules();
    let wrong: Vec<String> = lines
        .iter()
        .map(|line| (line, Call::shell(line).decide(&rules, &[])))
        .filter(|(_, verdict)| verdict.action != expected)
        .map(|(line, verdict)| format!("{line:?}: {verdict:?}"))
        .collect();
    assert!(wrong.is_empty(), "not {expected:?}:\n{}", wrong.join("\n"));
}

#[test]
fn lines_of_allowed_commands_are_allowed() {
    check(Action::Allow, allowed::LINES);
}

#[test]
fn what_cannot_be_decided_is_asked_about() {
    check(Action::Ask, asked::LINES);
}

#[test]
fn a_rejected_command_is_found_anywhere() {
    check(Action::Reject, rejected::LINES);
}

#[test]
fn what_may_be_a_rejected_command_is_asked_about_in_every_mode() {
    let rules = rules();
    for line in [
        "$X",
        "$(echo r)m x",
        "r$@m x",
        "/bin/r? x",
        "{rm,x}",
        "eval $X",
        "sh -c \"$X\"",
        "echo cm0gLXJm | base64 -d | sh",
        "git $X",
        "git \"$X\" main",
        "$'\\x72\\x6d' x",
        "python3 -c 'print(chr(114))'",
        "cat << E\nx\nE",
        "ls $(",
        "source <(echo x)",
        "xargs $X",
        "env $X",
    ] {
        let verdict = Call::shell(line).in_mode(Mode::Auto).decide(&rules, &[]);
        assert_eq!(verdict.action, Action::Ask, "{line}: {verdict:?}");
    }
    for line in [
        "whoami",
        "ls $HOME",
        "ls *.rs > x",
        "X=y make",
        "echo $(date)",
        "python3 x.py",
        "echo \"rm\" > rm",
        "sh x.sh",
        "f() { ls; }; f &",
        "for x in a; do echo \"$x\"; done",
        "echo please do not rm $HOME",
        "git commit -m 'rm old push'",
    ] {
        let verdict = Call::shell(line).in_mode(Mode::Auto).decide(&rules, &[]);
        assert_eq!(verdict.action, Action::Allow, "{line}: {verdict:?}");
    }
}

#[test]
fn tools_that_may_be_shells_are_held_against_reject_rules_alone() {
    let rules = rules();
    let run = |line: &str| Call::new("server__run", json!({"command": line})).decide(&rules, &[]).action;
    assert_eq!(run("rm x"), Action::Reject);
    assert_eq!(run("ls; /bin/rm x"), Action::Reject);
    assert_eq!(run("git status"), Action::Ask, "nobody knows what that tool does with it");
}

#[test]
fn commands_are_remembered_by_their_words() {
    let none = server(json!([]));
    let grant =
        |line: &str, decision| Call::shell(line).request(&none, |request| Grant::of(request, decision));
    let allowed = grant("git  'status' && make -j 'a b'", Decision::Allow).unwrap();
    assert_eq!(allowed.words(), "Always allow `git status`, `make -j 'a b'` in this session");
    let decide =
        |line: &str, rules: &Policy, grants: &[Grant]| Call::shell(line).decide(rules, grants).action;
    let remembered = std::slice::from_ref(&allowed);
    for line in ["git status", "make -j \"a b\"; git status | git status", "(git status)"] {
        assert_eq!(decide(line, &none, remembered), Action::Allow, "{line}");
    }
    for line in [
        "git status -s",
        "make",
        "git status; whoami",
        "git status > x",
        "git status $(x)",
        "/tmp/git status",
    ] {
        assert_eq!(decide(line, &none, remembered), Action::Ask, "{line}");
    }
    assert_eq!(decide("git status | sh", &none, remembered), Action::Ask);
    let other = server(json!([{"action": "allow", "command": "ls"}]));
    assert_eq!(decide("ls; git status", &other, remembered), Action::Allow, "a rule and an answer together");
    let reject = server(json!([{"action": "reject", "command": "make"}]));
    assert_eq!(decide("make -j 'a b'", &reject, remembered), Action::Reject);
    let ask = server(json!([{"action": "ask", "command": "make"}]));
    assert_eq!(decide("make -j 'a b'", &ask, remembered), Action::Ask);
    for line in ["ls $X", "ls > x", "ls &", "cat << E\nE", "ls '", ""] {
        assert_eq!(grant(line, Decision::Allow), None, "{line}");
    }
    assert_eq!(grant(&format!("echo {}", "x".repeat(1_000)), Decision::Allow), None, "nobody reads that");
    let rejected = grant("git push; ls", Decision::Reject).unwrap();
    let rejected = std::slice::from_ref(&rejected);
    assert_eq!(decide("ls && git push", &other, rejected), Action::Reject);
    assert_eq!(decide("git push", &other, rejected), Action::Ask, "that was not what was rejected");
}

#[test]
fn reasons_say_what_is_missing() {
    let rules = rules();
    let reason = |line: &str| Call::shell(line).decide(&rules, &[]).reason;
    assert_eq!(reason("ls; who 'a b'"), "No rule allows the command `who 'a b'`, and mode approve asks.");
    assert_eq!(
        reason("ls > out.txt"),
        "No rule allows this line, since it redirects to or from out.txt, and mode approve asks."
    );
    assert_eq!(
        reason("git -p log"),
        "No rule allows the command `git -p log`, which can run others and needs a rule without stars, and mode \
         approve asks."
    );
    assert!(reason("ls $X").contains("the word '$X' has a $ or a backquote in it"), "{}", reason("ls $X"));
    assert!(reason("sh -c \"$X\"").contains("server.rules["), "{}", reason("sh -c \"$X\""));
}
