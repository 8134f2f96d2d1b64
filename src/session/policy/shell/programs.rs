//! Programs that run other commands than their name says, or are told to by an option.
//!
//! A pattern with a star would allow whatever they are given, so only the exact words allow them. The lists cannot be
//! complete, and what a program does by itself (the hooks of git, the recipes of a build) no list can tell:
//! `docs/permission-rules.md` says so.

use super::SimpleCommand;

/// Take commands from their standard input, and from a file or an argument.
const INTERPRETERS: &str = "sh bash rbash dash ash zsh ksh mksh fish csh tcsh elvish nu xonsh pwsh powershell python pypy ipython perl \
    ruby irb node nodejs deno bun php lua luajit tclsh wish expect R Rscript julia guile elixir iex erl ghci \
    groovy scala jshell sqlite3 mysql mariadb psql gdb lldb ed m4 dc at batch xargs parallel";

/// Run what their arguments say.
const WRAPPERS: &str = "env command builtin exec eval source . trap coproc nohup nice ionice chrt taskset time timeout stdbuf unbuffer \
    setsid setarch linux32 linux64 unshare nsenter chroot pivot_root sudo sudoedit su doas runuser pkexec run0 \
    systemd-run sg newgrp capsh prlimit numactl chpst envdir setpriv start-stop-daemon run-parts watch entr strace \
    ltrace valgrind perf script busybox toybox flock ssh scp sftp rsync mosh dbus-run-session xvfb-run faketime \
    fakeroot proot bwrap firejail tmux screen socat nc ncat openvt crontab npx uvx bunx pipx make gmake ninja awk \
    gawk mawk nawk sed zip ld ld-linux-x";

/// Open an editor or a pager, from which anything can be run.
const VIEWERS: &str = "vi vim view nvim ex emacs nano pico less more most man info";

/// Change how the shell reads what follows.
const BUILTINS: &str = "alias unalias bind compgen complete compopt declare typeset local export readonly enable getopts hash \
    let mapfile readarray read set shopt unset select function";

/// Long options of git by which it runs another program or writes elsewhere.
const GIT_OPTIONS: &str = "output output-directory ext-diff textconv open-files-in-pager upload-pack receive-pack exec extcmd config \
    config-env exec-path template paginate git-dir work-tree to-cmd cc-cmd sendmail-cmd smtp-server";

/// git's commands that run what they are told to, or that change what others run.
const GIT_COMMANDS: &str = "bisect submodule filter-branch config difftool mergetool send-email daemon shell for-each-repo hook remote-ext \
    instaweb credential";

/// git's own options, before its command, that change nothing of the kind.
const GIT_HARMLESS: &str = "--no-pager -P --version -v --help -h --no-optional-locks --literal-pathspecs";

/// Whether a command can run others than its name says, or takes much more than its name says.
pub(super) fn runs_others(command: &SimpleCommand) -> bool {
    let Some((name, words)) = command.split_first() else { return false };
    let name = plain_name(name);
    [INTERPRETERS, WRAPPERS, VIEWERS, BUILTINS].iter().any(|list| has(list, name))
        || by_options(name, words)
        || words.iter().any(|word| is_evaluated(word))
}

/// Whether a command may run what is written to its standard input.
pub(super) fn interprets_input(command: &[String]) -> bool {
    let Some(name) = command.first().map(|name| plain_name(name)) else { return false };
    let interprets = |word: &str| has(INTERPRETERS, word) || matches!(word, "." | "source");
    interprets(name) || (has(WRAPPERS, name) && command.iter().any(|word| interprets(plain_name(word))))
}

/// Whether a list of names has this one.
fn has(list: &str, name: &str) -> bool {
    list.split(' ').any(|own| own == name)
}

/// The name without its folder and its version: `/usr/bin/python3.12` is `python`.
fn plain_name(word: &str) -> &str {
    let name = word.rsplit('/').next().unwrap_or(word);
    let plain = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || matches!(letter, '.' | '-'));
    match name {
        // These are names to their last character.
        "sqlite3" | "linux32" | "linux64" | "run0" | "." => name,
        _ if name.starts_with("ld-linux") || name.starts_with("ld-musl") => "ld",
        _ => plain,
    }
}

/// bash evaluates the index of `a[…]` where a builtin takes the name of a variable.
fn is_evaluated(word: &str) -> bool {
    word.contains('[') && (word.contains("$(") || word.contains('`'))
}

fn by_options(name: &str, words: &[String]) -> bool {
    let any = |test: &dyn Fn(&str) -> bool| words.iter().any(|word| test(word));
    match name {
        "git" => git(words),
        "find" => any(&|word| {
            ["-exec", "-ok", "-delete", "-fprint", "-fls"].iter().any(|action| word.starts_with(action))
        }),
        "fd" | "fdfind" => any(&|word| has_short(word, "xX") || has_long(word, "exec exec-batch")),
        "rg" => any(&|word| has_long(word, "pre hostname-bin")),
        "tar" | "bsdtar" => {
            const LONG: &str = "to-command checkpoint-action use-compress-program rsh-command info-script new-volume-script rmt-command";
            any(&|word| has_short(word, "IF") || has_long(word, LONG))
                || words.first().is_some_and(|first| !first.starts_with('-') && first.contains(['I', 'F']))
        }
        "sort" => any(&|word| has_short(word, "o") || has_long(word, "output compress-program")),
        "wget" => any(&|word| has_short(word, "e") || has_long(word, "execute use-askpass")),
        "printf" | "wait" => any(&|word| has_short(word, "vp")),
        "npm" | "pnpm" | "yarn" => {
            any(&|word| matches!(word, "exec" | "x" | "dlx" | "explore" | "config" | "set"))
        }
        _ => false,
    }
}

fn git(words: &[String]) -> bool {
    let mut rest = words.iter().map(String::as_str).skip_while(|word| has(GIT_HARMLESS, word));
    let Some(command) = rest.next() else { return false };
    if command.starts_with('-') || has(GIT_COMMANDS, command) {
        return true;
    }
    let short = match command {
        "clone" => "uc",
        "ls-remote" | "fetch-pack" => "u",
        "rebase" => "x",
        "grep" => "O",
        "archive" | "format-patch" => "o",
        _ => "",
    };
    rest.any(|word| has_long(word, GIT_OPTIONS) || has_short(word, short) || word.starts_with("ext::"))
}

/// Whether the word is one of these long options, or short for one.
fn has_long(word: &str, options: &str) -> bool {
    let Some(name) = word.strip_prefix("--").map(|option| option.split('=').next().unwrap_or(option)) else {
        return false;
    };
    !name.is_empty() && options.split(' ').any(|option| option.starts_with(name))
}

/// Whether the word has one of these short options among its own.
fn has_short(word: &str, options: &str) -> bool {
    word.strip_prefix('-').is_some_and(|letters| {
        !letters.starts_with('-') && letters.contains(|letter| options.contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(line: &str) -> bool {
        runs_others(&line.split(' ').map(str::to_owned).collect())
    }

    #[test]
    fn programs_that_run_others_are_known() {
        for line in [
            "bash x.sh",
            "/bin/sh",
            "python3.12 -m x",
            "python3 x",
            "env X=y ls",
            "xargs ls",
            "timeout 5 ls",
            ". x",
            "eval x",
            "busybox rm",
            "find . -exec ls",
            "find . -delete",
            "find . -okdir x",
            "git -c core.pager=x log",
            "git --git-dir=x log",
            "git log --output=x",
            "git log --outp=x",
            "git log --ext-diff",
            "git grep -Oless x",
            "git rebase -x ls",
            "git bisect run x",
            "git clone -u x y",
            "git clone ext::sh",
            "git config alias.x !y",
            "git --exec-path=/x status",
            "tar --checkpoint-action=exec=x",
            "tar xIf y z",
            "tar -cf x --to-comm=y",
            "sort -o x",
            "sort -uo x",
            "sed -n 1p x",
            "awk {print}",
            "awk system()",
            "less x",
            "printf -v PATH x",
            "test -v a[$(x)]",
            "export PATH=x",
            "make x",
            "/lib64/ld-linux-x86-64.so.2 /bin/rm",
            "sqlite3 x",
            "command ls",
            "rg --pre=x y",
            "fd -x rm",
            "nohup ls",
            "sudo ls",
            "vim x",
            "trap x EXIT",
            "source x",
            "npm exec x",
        ] {
            assert!(runs(line), "{line}");
        }
        for line in [
            "ls -l",
            "git status",
            "git log --oneline -5",
            "git --no-pager diff",
            "git push -u origin main",
            "git diff --stat -O x",
            "find . -name x",
            "tar tf x",
            "tar -xzf x",
            "sort -u x",
            "cargo test",
            "printf %s x",
            "grep -o x y",
            "test -f x",
            "cat x",
            "npm test",
            "ruby-build x",
        ] {
            assert!(!runs(line), "{line}");
        }
    }
}
