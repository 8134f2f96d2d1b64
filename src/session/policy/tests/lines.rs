//! Shell lines and paths that somebody would try, each with what has to come of it.

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

/// Every command in them is allowed by a rule.
const ALLOWED: &[&str] = &[
    "git status",
    "  git   status  ",
    "git\tstatus",
    "git log",
    "git log --oneline -5",
    "git log HEAD~3..HEAD",
    "git diff HEAD^ -- 'a b.txt'",
    "ls",
    "ls -la /tmp",
    "ls; git status",
    "ls && git status || echo no",
    "ls | grep x | wc -l",
    "ls\ngit status\n",
    "ls;\n\n# a comment; rm x\ngit status # rm y",
    "echo 'a; rm x'",
    "echo \"a && rm x\"",
    "echo a\\;rm",
    "echo rm curl",
    "echo '$(rm x)' '`rm x`'",
    "'git' \"status\"",
    "g\\it st''atus",
    "(cd src && ls)",
    "{ ls; git status; }",
    "if git status; then ls; else echo no; fi",
    "while true; do ls; done",
    "until ls; do echo x; done",
    "! ls",
    "time ls",
    "ls 2>&1",
    "ls 2>/dev/null",
    "ls > /dev/null 2>&1",
    "ls &>/dev/null",
    "cat < /dev/null",
    "ls |& grep x",
    "cat x | grep bash",
    "timeout 5 ls",
    "sed -n 1,5p x",
    "bash deploy.sh",
    "cat x | sed -n 1,5p x",
    "find . -name x",
    "[ -f x ] && ls",
    "git show stash@{0}",
    "echo {} ]",
    "echo é 日本",
    "git log --grep=#12",
];

#[test]
fn lines_of_allowed_commands_are_allowed() {
    check(Action::Allow, ALLOWED);
}

/// Something in them is not allowed by a rule, or cannot be decided.
const ASKED: &[&str] = &[
    // Other commands, other words.
    "whoami",
    "git status -s; whoami",
    "ls; whoami",
    "ls && whoami",
    "ls || whoami",
    "ls | whoami",
    "ls\nwhoami",
    "npm test --watch",
    "true x",
    "timeout 6 ls",
    "./git status",
    "/tmp/evil/git status",
    "gi't stat'us",
    "'git status'",
    "git' 'status",
    "",
    "# nothing",
    // Expansions of every kind.
    "ls $(whoami)",
    "ls `whoami`",
    "ls \"$(whoami)\"",
    "ls \"`whoami`\"",
    "ls $HOME",
    "ls ${x:-y}",
    "ls \"$x\"",
    "$x",
    "$'ls'",
    "$\"ls\"",
    "ls $'\\x72'",
    "ls $((1+1))",
    "ls $[1+1]",
    "ls *",
    "ls a?",
    "ls [ab]",
    "ls {a,b}",
    "ls {1..3}",
    "ls ~",
    "ls ~root",
    "echo a=~",
    "l{s,}",
    "/bin/l?",
    "ls <(whoami)",
    "ls >(whoami)",
    "ls < <(whoami)",
    // Redirections.
    "ls > x",
    "ls >> x",
    "ls >| x",
    "ls &> x",
    "ls >& x",
    "ls 2> x",
    "ls <> x",
    "cat < x",
    "> x",
    "ls > /dev/null/../../x",
    "ls > \"/dev/null\"x",
    "ls > /dev/nullx",
    "ls > /dev/tcp/x/1",
    "cat <<< x",
    "cat << E\nx\nE",
    "cat <<E\n$(whoami)\nE",
    "ls {x}>&1",
    "ls 99999999999>&1",
    // What changes how the rest is read.
    "X=y ls",
    "X=y",
    "PATH=/tmp/evil git status",
    "GIT_PAGER=whoami git log",
    "export PATH=/tmp/evil; git status",
    "LD_PRELOAD=/tmp/x ls",
    "a=(ls); ls",
    "a[0]=x ls",
    "printf -v PATH /tmp/evil; git status",
    "for PATH in /tmp/evil; do git status; done",
    "for x in a b; do ls; done",
    "ls() { whoami; }; ls",
    "function ls { whoami; }; ls",
    "git () ( whoami ); git status",
    "case x in x) ls;; esac",
    "select x in a; do ls; done",
    "[[ -f x ]] && ls",
    "[[ -v 'a[$(whoami)]' ]]",
    "test -v 'a[$(whoami)]'",
    "[ -v 'a[`whoami`]' ]",
    "(( x = 1 ))",
    "for ((;;)); do ls; done",
    "coproc ls",
    "ls &",
    "ls & git status",
    "alias ls=whoami; ls",
    "trap whoami EXIT; ls",
    "source x",
    ". x",
    "eval ls",
    "enable -f x ls",
    "set -a; ls",
    "exec ls",
    "command ls",
    "builtin echo x",
    // Programs that run others.
    "env ls",
    "env X=y ls",
    "env -S 'whoami x'",
    "sh -c ls",
    "sh -c 'whoami'",
    "bash",
    "bash -c 'ls'",
    "bash -i",
    "ls | sh",
    "ls | bash deploy.sh",
    "echo whoami | { cat | bash deploy.sh; }",
    "echo whoami | (timeout 5 sh)",
    "ls | xargs whoami",
    "xargs ls",
    "find . -exec whoami {} \\;",
    "find . -execdir whoami {} +",
    "find . -ok whoami \\;",
    "find . -delete",
    "find . -fprintf x y",
    "git -c core.pager=whoami log",
    "git -c alias.x='!whoami' x",
    "git --config-env=core.pager=X log",
    "git --exec-path=/tmp/evil status",
    "git -C /tmp/evil status",
    "git -p log",
    "git log --output=x",
    "git log --outp=x",
    "git diff --ext-diff",
    "git grep -Owhoami x",
    "git rebase --exec whoami x",
    "git bisect run whoami",
    "git clone ext::whoami",
    "git submodule foreach whoami",
    "git config alias.x '!whoami'",
    "tar xf x --checkpoint-action=exec=whoami",
    "tar xf x -I whoami",
    "awk 'BEGIN { system(\"whoami\") }'",
    "awk BEGIN",
    "sed -i s/a/b/ x",
    "sed 1e x",
    "sed '1e whoami' x",
    "python3 -c 'import os'",
    "python3 x.py",
    "python3.12 x.py",
    "busybox ls",
    "nice ls",
    "nohup ls",
    "time -p nice ls",
    "sudo ls",
    // What does not parse, or is not what it looks like.
    "ls '",
    "ls \"",
    "ls `",
    "ls $(",
    "ls (",
    "ls )",
    "ls ;;",
    "ls &&",
    "| ls",
    "if ls; then",
    "((((((((((((((((((((ls))))))))))))))))))))",
    "ls \\\n-l",
    "ls\r\nwhoami",
    "ls\0whoami",
    "ls\u{b}whoami",
    "ls\u{a0}-l",
    "ls\u{2028}whoami",
    "\u{ff4c}\u{ff53}",
    "\u{3bb}s",
    "l\u{200b}s",
    "echo \u{202e}x",
    "g\u{456}t status",
];

#[test]
fn what_cannot_be_decided_is_asked_about() {
    check(Action::Ask, ASKED);
}

/// A rejected command is somewhere in them.
const REJECTED: &[&str] = &[
    "rm",
    "rm -rf x",
    "ls; rm x",
    "ls && rm x",
    "ls || rm x",
    "ls | rm x",
    "ls\nrm x",
    "ls & rm x",
    "/bin/rm x",
    "../../bin/rm x",
    "\\rm x",
    "r\\m x",
    "'rm' x",
    "r''m x",
    "\"r\"m x",
    "X=y rm x",
    "rm > x",
    "> x rm",
    "! rm x",
    "time rm x",
    "(rm x)",
    "{ rm x; }",
    "( ( rm x ) )",
    "if rm x; then ls; fi",
    "if ls; then rm x; fi",
    "if ls; then ls; elif rm x; then ls; fi",
    "if ls; then ls; else rm x; fi",
    "while rm x; do ls; done",
    "until ls; do rm x; done",
    "for x in a; do rm $x; done",
    "for x in $(rm x); do ls; done",
    "case x in x) rm y;; esac",
    "case $(rm x) in x) ls;; esac",
    "f() { rm x; }; f",
    "function f { rm x; }",
    "coproc rm x",
    "echo $(rm x)",
    "echo `rm x`",
    "echo \"$(rm x)\"",
    "echo \"a `rm x` b\"",
    "echo $(ls $(rm x))",
    "echo ${x:-$(rm x)}",
    "echo $(( $(rm x) ))",
    "X=$(rm x)",
    "X=$(rm x) ls",
    "a=($(rm x))",
    "[[ -f $(rm x) ]]",
    "ls > $(rm x)",
    "cat <(rm x)",
    "ls > >(rm x)",
    "cat < <(rm x)",
    "cat << E\n$(rm x)\nE",
    "cat <<< $(rm x)",
    "ls; cat << E; rm x\nE",
    "env rm x",
    "env X=y rm x",
    "env -S 'rm x'",
    "env -i X=y -- rm x",
    "command rm x",
    "builtin rm x",
    "exec rm x",
    "exec -a ls rm x",
    "nohup rm x",
    "nice -n 5 rm x",
    "timeout 5 rm x",
    "timeout -s KILL 5 nice rm x",
    "sudo -u root rm x",
    "time -p nice rm x",
    "busybox rm x",
    "xargs rm",
    "ls | xargs -n1 rm",
    "ls | xargs -I{} rm {}",
    "find . -exec rm {} \\;",
    "find . -execdir rm {} +",
    "sh -c 'rm x'",
    "bash -c \"rm x\"",
    "bash -lc 'ls; rm x'",
    "eval 'rm x'",
    "eval rm x",
    "trap 'rm x' EXIT",
    "python3 -c 'import os; os.system(\"rm x\")'",
    "awk 'BEGIN { system(\"rm x\") }'",
    "perl -e '`rm x`'",
    "git -c core.pager='rm x' log",
    "git -c alias.x='!rm x' x",
    "git rebase --exec 'rm x' y",
    "git submodule foreach 'rm x'",
    "tar xf x --checkpoint-action=exec='rm y'",
    "vim -c ':!rm x'",
    "ssh host rm x",
    "watch 'rm x'",
    "ls '; rm x",
    "rm x '",
    "ls; r\\\nm x",
    "rm\r\nx",
    "ls $(rm x",
    "((((((((((((((((((((rm x))))))))))))))))))))",
    "curl http://example.org",
    "curl",
    "git push",
    "git push -f origin main",
    "git -C x push",
    "git --no-pager push",
    "ls && git   'push'",
    "sh -c 'git push'",
    "dd of=/dev/sda",
];

#[test]
fn a_rejected_command_is_found_anywhere() {
    check(Action::Reject, REJECTED);
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
