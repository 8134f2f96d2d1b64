//! Lines that are meant to take the parser's time, memory or stack: all of them come back, and none is allowed.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::session::policy::shell::ShellLine;

/// What the parser goes deeper for, or looks ahead for.
const PIECES: &[&str] = &[
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "`",
    "$(",
    "${",
    "$((",
    "'",
    "\"",
    "\\",
    "!",
    "! ",
    "[[ ",
    "]] ",
    "if ",
    "elif x; then ",
    "else ",
    "fi; ",
    "do ",
    "done; ",
    "while ",
    "case x in ",
    "esac ",
    ";; ",
    "x) ",
    ";",
    "& ",
    "&& ",
    "|",
    "|| ",
    "a ",
    "a=",
    "a=( ",
    "a[",
    "<",
    "> ",
    "<<",
    "<<x\n",
    "<& ",
    "2>&1 ",
    "<(",
    "\n",
    "#\n",
    "$",
    "$'",
    "*",
    "~",
    "{a,",
    "a() ",
    "function a ",
    "coproc ",
    "time ",
    "for x in ",
    "select ",
    "1",
    "1>",
    "99999999999>",
    "a;\n",
    "=~ ",
    "-f x ",
    "\0",
    "\u{202e}",
];

const BEGINNINGS: &[&str] = &[
    "",
    "ls ",
    "[[ ",
    "[[ a =~ ",
    "if ls; then ls; ",
    "( ",
    "{ ",
    "a=(",
    "echo \"",
    "echo $(",
    "echo ${a:-",
    "echo `",
    "case x in ",
    "for ",
    "cat <(<<",
];

fn check(line: &str) {
    let rules = server(json!([{"action": "allow", "command": "ls"}, {"action": "reject", "command": "rm"}]));
    let verdict = Call::shell(line).decide(&rules, &[]);
    let commands = ShellLine::read(line).commands;
    let is_ls = commands.is_ok_and(|commands| commands.iter().all(|command| command.words == ["ls"]));
    assert!(verdict.action != Action::Allow || is_ls, "{line:?}: {verdict:?}");
}

#[test]
fn nesting_and_repetition_end() {
    for piece in PIECES {
        for beginning in BEGINNINGS {
            check(&format!("{beginning}{}", piece.repeat(15)));
        }
        for beginning in ["", "[[ "] {
            check(&format!("{beginning}{}", piece.repeat(1_000)));
        }
    }
    check(&"a".repeat(20_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_text_is_read(text in any::<String>(), pieces in prop::collection::vec(prop::sample::select(PIECES), 0..30)) {
        check(&text);
        check(&pieces.concat());
        check(&format!("{}{text}", pieces.concat()));
    }
}
