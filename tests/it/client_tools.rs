//! gander's own file system and terminal for goose's tools: what they do, what they refuse, what callers see of it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

mod commands;

use crate::process::machine::{Tag, eventually};
use crate::support::{Event, Gander, Session, Setup, carried, kinds, only, script, text, until};

/// A prompt whose model calls one tool and then tells so.
fn calls(tool: &str, input: &Value) -> String {
    script(&json!([[{"call": {"tool": tool, "input": input}}], [{"text": "done"}]]))
}

fn shell(command: &str) -> String {
    calls("shell", &json!({"command": command}))
}

/// A session in mode `auto` in a folder that the test has too.
struct Work {
    gander: Gander,
    folder: TempDir,
}

impl Work {
    async fn start(setup: Setup) -> Self {
        Self { gander: setup.start().await, folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    async fn session(&self) -> Session<'_> {
        self.gander.session(&json!({"mode": "auto", "cwd": self.path("")})).await
    }
}

/// Runs one call and gives how it ended.
async fn ran(session: &Session<'_>, prompt: &str) -> Value {
    let turn = session.turn(prompt).await;
    assert_eq!(turn["state"], "completed", "{turn}");
    let log = session.log().await;
    let of_turn: Vec<Event> = log.into_iter().filter(|event| event.data["turn_id"] == turn["id"]).collect();
    only(&of_turn, "tool_call.finished").data["tool_call"].clone()
}

/// What two streams gave, in whatever order.
fn sorted_words(output: &str) -> Vec<&str> {
    let mut words: Vec<&str> = output.split_whitespace().collect();
    words.sort_unstable();
    words
}

/// The two ways: through gander, and by goose itself.
fn both_ways() -> [(bool, Setup); 2] {
    let without = Setup::real().config("[goose]\nfilesystem = false\nterminal = false");
    [(true, Setup::real()), (false, without)]
}

#[tokio::test]
async fn every_change_of_a_file_is_a_whole_diff() {
    let work = Work::start(Setup::real()).await;
    let session = work.session().await;
    let file = work.path("a.txt");
    let old = [None, Some("one\n"), Some("zw\u{f6}lf\r\nno end"), Some("")];
    let new = ["one\n", "zw\u{f6}lf\r\nno end", "", "\u{1f986}\n"];
    for (old, new) in old.into_iter().zip(new) {
        let call = ran(&session, &calls("write", &json!({"path": "a.txt", "content": new}))).await;
        let [diff] = call["content"].as_array().unwrap().as_slice() else { panic!("{call}") };
        assert_eq!((&call["status"], &call["kind"]), (&json!("completed"), &json!("edit")), "{call}");
        assert_eq!(call["locations"], json!([{"path": file}]));
        assert_eq!((&diff["type"], &diff["path"]), (&json!("diff"), &json!(file)));
        assert_eq!((&diff["old_text"], &diff["new_text"]), (&json!(old), &json!(new)), "{call}");
        assert_eq!(fs::read_to_string(&file).unwrap(), new);
    }
    fs::write(&file, "one\r\ntwo\r\nthree").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let edit = json!({"path": file, "before": "two", "after": "2"});
    let call = ran(&session, &calls("edit", &edit)).await;
    let diff = &call["content"][0];
    assert_eq!(diff["old_text"], "one\r\ntwo\r\nthree");
    assert_eq!(diff["new_text"], "one\r\n2\r\nthree");
    let lines: Vec<&str> = diff["unified_diff"].as_str().unwrap().split('\n').skip(2).collect();
    assert_eq!(lines[..4], ["@@ -1,3 +1,3 @@", " one\r", "-two\r", "+2\r"]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
}

#[tokio::test]
async fn files_outside_of_the_folder_are_refused_and_those_in_extra_roots_are_not() {
    let (outside, extra) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = format!("[sessions]\nextra_roots = [{:?}]", extra.path());
    let work = Work::start(Setup::real().config(&config)).await;
    let session = work.session().await;
    symlink(outside.path(), work.path("link")).unwrap();
    fs::write(outside.path().join("secret"), "a secret").unwrap();
    let refused = [
        ("write", json!({"path": "link/x", "content": "x"})),
        ("write", json!({"path": outside.path().join("x"), "content": "x"})),
        ("edit", json!({"path": "link/secret", "before": "a", "after": "b"})),
        ("read", json!({"path": "link/secret"})),
    ];
    for (tool, input) in refused {
        let call = ran(&session, &calls(tool, &input)).await;
        assert_eq!(call["status"], "failed", "{call}");
        assert!(call["content"].to_string().contains("outside of the session's folder"), "{call}");
        assert!(!call.to_string().contains("a secret"), "{call}");
    }
    let names: Vec<_> =
        fs::read_dir(outside.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["secret"]);
    let shared = extra.path().join("new/shared");
    let call = ran(&session, &calls("write", &json!({"path": shared, "content": "x"}))).await;
    assert_eq!(call["status"], "completed", "{call}");
    assert_eq!(fs::read_to_string(shared).unwrap(), "x");
}

#[tokio::test]
async fn what_callers_see_of_a_call_has_one_form_whoever_does_it() {
    let mut seen = Vec::new();
    for (through_gander, setup) in both_ways() {
        let work = Work::start(setup).await;
        let session = work.session().await;
        let mut told = Vec::new();
        for (tool, input) in [
            ("write", json!({"path": "a", "content": "one\n"})),
            ("edit", json!({"path": "a", "before": "one\n", "after": "two\n"})),
            ("shell", json!({"command": "cat a; echo oops >&2; exit 3"})),
            ("shell", json!({"command": "printf end"})),
        ] {
            let before = session.now().await["last_event_id"].clone();
            ran(&session, &calls(tool, &input)).await;
            let events = session.events_with(&format!("?follow=false&after={before}")).await.rest().await;
            let events: Vec<Event> =
                events.into_iter().filter(|event| event.kind().starts_with("tool_call.")).collect();
            let started = &only(&events, "tool_call.started").data["tool_call"];
            let finished = &only(&events, "tool_call.finished").data["tool_call"];
            let mut content = finished["content"][0].clone();
            if content["type"] == "terminal" {
                // goose itself gives both streams apart, and trims them.
                content["output"] = json!(sorted_words(content["output"].as_str().unwrap()));
            }
            let shown = json!([
                started["kind"],
                started["locations"],
                finished["status"],
                finished["kind"],
                finished["locations"],
                content,
            ]);
            told.push(shown.to_string().replace(&text(&json!(work.path(""))), "FOLDER/"));
        }
        assert!(told[0].contains(r#""old_text":null"#), "{told:?}");
        let offered = work
            .gander
            .model
            .requests()
            .iter()
            .any(|request| crate::support::offered_tools(request).contains(&"read".to_owned()));
        assert_eq!(offered, through_gander, "goose has that tool only through gander");
        seen.push(told);
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn commands_have_no_key_in_their_environment_nor_in_their_parents() {
    let setup = Setup::real().env("GROQ_API_KEY", "sk-of-a-provider").env("LC_TEST", "passed");
    let work = Work::start(setup).await;
    let session = work.session().await;
    let command = "pwd; env; tr '\\0' '\\n' < /proc/$PPID/environ; readlink /proc/self/fd/0";
    let call = ran(&session, &shell(command)).await;
    let output = text(&call["content"][0]["output"]);
    assert_eq!(call["content"][0]["exit_code"], 0, "{call}");
    assert!(output.contains("LC_TEST=passed") && output.contains("AGENT_SESSION_ID="), "{output}");
    assert!(output.contains("GANDER_INSTANCE="), "the parent's environment was read: {output}");
    assert!(output.ends_with("/dev/null\n"), "{output}");
    assert!(output.starts_with(work.path("").to_string_lossy().trim_end_matches('/')), "{output}");
    for secret in ["API_KEY", "sk-of-a-provider", "OPENAI", &*work.gander.token] {
        assert!(!output.contains(secret), "{secret}: {output}");
    }
}

#[tokio::test]
async fn output_is_told_as_it_comes_also_without_a_line_end() {
    let work = Work::start(Setup::real()).await;
    let session = work.session().await;
    let mut events = session.events_with("?after=latest").await;
    let go_on = work.path("go-on");
    let command =
        format!("printf beginning; until [ -e {} ]; do sleep 0.05; done; printf ' end'", go_on.display());
    session.prompt(&shell(&command)).await;
    let told = events.through("tool_call.output").await;
    assert_eq!(told.last().unwrap().data["text"], "beginning");
    assert_eq!(told.last().unwrap().data["stream"], "stdout");
    assert!(kinds(&told).contains(&"tool_call.started"));
    fs::write(go_on, "").unwrap();
    let finished = events.until("tool_call.finished").await;
    let content = &finished.data["tool_call"]["content"];
    let expected = json!([{
        "type": "terminal", "output": "beginning end", "exit_code": 0, "signal": null, "truncated": false,
    }]);
    assert_eq!(content, &expected);
}

/// A process's memory now, in bytes.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_flood_of_output_is_bounded_and_said_to_be_cut() {
    let work = Work::start(Setup::real().config("[limits]\noutput_bytes = 100_000")).await;
    let session = work.session().await;
    let before = resident(work.gander.pid());
    // Characters of two bytes, with one of one byte before them: a cut by bytes alone would break one.
    let command =
        r#"printf x; head -c 104857600 /dev/zero | sed 's/\x00\x00/\xc3\xa4/g'; echo; echo "the end""#;
    let call = ran(&session, &shell(command)).await;
    let content = &call["content"][0];
    assert_eq!((&content["truncated"], &content["exit_code"]), (&json!(true), &json!(0)));
    let output = text(&content["output"]);
    assert!(output.ends_with("\u{e4}\nthe end\n") && !output.contains('\u{fffd}'));
    assert!((49_000..=50_000).contains(&output.len()), "{}", output.len());
    let log = session.log().await;
    let live: Vec<&Event> = log.iter().filter(|event| event.kind() == "tool_call.output").collect();
    let bytes: usize = live.iter().map(|event| text(&event.data["text"]).len()).sum();
    assert!((99_000..=100_000).contains(&bytes), "{bytes}");
    assert_eq!(live.last().unwrap().data["truncated"], true);
    let grown = resident(work.gander.pid()).saturating_sub(before);
    assert!(grown < 40 << 20, "100 MB of output took {grown} bytes");
}

/// Everything that a command can do to get away: the shell itself, a job, a session of its own.
fn escapes(tag: &Tag) -> String {
    format!("nohup sleep {tag} & setsid sleep {tag} & (sleep {tag} &); sleep {tag}")
}

#[tokio::test]
async fn a_cancel_kills_what_the_turn_s_command_started_and_not_an_earlier_job() {
    let work = Work::start(Setup::real()).await;
    let session = work.session().await;
    let (job, tag) = (Tag::new(), Tag::new());
    let call = ran(&session, &shell(&format!("nohup sleep {job} >/dev/null 2>&1 & echo started"))).await;
    assert_eq!(call["content"][0]["output"], "started\n");
    assert_eq!(job.sleeping(), 1, "a job goes on when its command has ended");
    let mut events = session.events_with("?after=latest").await;
    let turn = session.prompt(&shell(&escapes(&tag))).await;
    eventually("all run", || tag.sleeping() == 4).await;
    session.cancel(&turn).await;
    let told = events.through("turn.cancelled").await;
    assert_eq!((tag.sleeping(), job.sleeping()), (0, 1));
    let notice = &only(&told, "notice").data;
    assert_eq!(notice["code"], "processes-killed");
    assert!(notice["message"].as_str().unwrap().starts_with("4 processes"), "{notice}");
    assert_eq!(only(&told, "tool_call.finished").data["tool_call"]["status"], "cancelled");

    let hibernated = work.gander.post(&session.path("/hibernate"), &json!({}), reqwest::StatusCode::OK).await;
    assert_eq!((&hibernated["state"], job.sleeping()), (&json!("hibernated"), 0));
    assert!(hibernated["notices"].to_string().contains("1 processes that tools had left running"));
}

#[tokio::test]
async fn nothing_outlives_a_deleted_session_nor_a_killed_gander() {
    let mut work = Work::start(Setup::real()).await;
    let (deleted, left) = (Tag::new(), Tag::new());
    let session = work.session().await;
    session.prompt(&shell(&escapes(&deleted))).await;
    eventually("all run", || deleted.sleeping() == 4).await;
    session.delete().await;
    assert_eq!(deleted.sleeping(), 0);
    let session = work.session().await;
    ran(&session, &shell(&format!("nohup sleep {left} >/dev/null 2>&1 &"))).await;
    session.prompt(&shell(&escapes(&left))).await;
    eventually("all run", || left.sleeping() == 5).await;
    work.gander.signal("KILL");
    work.gander.ended().await;
    until("nothing of the commands is left", || left.running().is_empty()).await;
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_by_goose_s_limit_and_by_gander_s() {
    let work = Work::start(Setup::real().config("[limits]\nterminal_duration = \"2s\"")).await;
    let session = work.session().await;
    let tag = Tag::new();
    let line = format!("echo begun; sleep {tag}");
    let call = ran(&session, &calls("shell", &json!({"command": line, "timeout_secs": 1}))).await;
    let content = &call["content"][0];
    assert_eq!((&content["output"], &content["signal"]), (&json!("begun\n"), &json!("SIGKILL")), "{call}");
    assert_eq!(tag.running(), Vec::<u32>::new());
    let told = work
        .gander
        .model
        .requests()
        .iter()
        .any(|request| request.to_string().contains("timed out after 1 seconds"));
    assert!(told, "the model hears why");

    let call = ran(&session, &shell(&line)).await;
    assert_eq!((&call["content"][0]["exit_code"], tag.sleeping()), (&Value::Null, 0), "{call}");
    let said = text(&call["content"][0]["output"]);
    assert!(said.contains("ran longer than 2s"), "{said}");
}

#[tokio::test]
async fn more_commands_than_may_run_are_refused_and_goose_goes_on() {
    let work = Work::start(Setup::real().config("[limits]\nterminals = 1")).await;
    let session = work.session().await;
    let tag = Tag::new();
    ran(&session, &shell(&format!("sleep {tag} >/dev/null 2>&1 &"))).await;
    let refused = ran(&session, &shell("echo hello")).await;
    assert!(refused["content"].to_string().contains("1 commands run already"), "{refused}");
    for pid in tag.running() {
        crate::support::signal(pid, "KILL");
    }
    until("there is room again", || work.gander.descendants().len() <= 2).await;
    assert_eq!(ran(&session, &shell("echo hello")).await["content"][0]["output"], "hello\n");
}

#[tokio::test]
async fn nothing_is_asked_of_gander_for_a_call_that_was_rejected() {
    let work = Work::start(Setup::real()).await;
    let session = work.gander.session(&json!({"mode": "approve", "cwd": work.path("")})).await;
    for (tool, input, kind) in [
        ("shell", json!({"command": "touch ran"}), "execute"),
        ("write", json!({"path": "ran", "content": "x"}), "edit"),
    ] {
        let mut events = session.events_with("?after=latest").await;
        session.prompt(&calls(tool, &input)).await;
        let asked = events.until("permission.requested").await.data["permission"].clone();
        assert_eq!((&asked["tool_call"]["tool"], &asked["tool_call"]["kind"]), (&json!(tool), &json!(kind)));
        session.answer(&asked, "reject").await;
        let finished = events.until("tool_call.finished").await;
        assert_eq!(finished.data["tool_call"]["status"], "rejected");
        events.until("turn.completed").await;
        assert!(!Path::new(&work.path("ran")).exists(), "{tool}");
    }
}

/// goose sends nothing more once it is cancelled; another agent may, and one that does not hear of it.
#[tokio::test]
async fn what_is_asked_for_a_cancelled_turn_is_refused() {
    let deaf = Setup::fake().env("GANDER_GOOSE__ENV__FAKE_AGENT_CANCEL", "ignore");
    let work = Work::start(deaf.config("[cancel]\ngrace = \"20s\"")).await;
    let session = work.session().await;
    let mut events = session.events_with("?after=latest").await;
    let write = |name: &str| {
        format!("request fs/write_text_file {}\n", json!({"path": work.path(name), "content": "x"}))
    };
    let run = |command: &str| format!("request terminal/create {}\n", json!({"command": command}));
    let go_on = work.path("go-on");
    let prompt = [
        write("before"),
        run(&format!("until [ -e {} ]; do sleep 0.02; done", go_on.display())),
        "echo now\n".to_owned(),
        format!("request terminal/wait_for_exit {}\n", json!({"terminalId": "terminal-1"})),
        write("after"),
        run(&format!("touch {}", work.path("ran").display())),
    ];
    let turn = session.prompt(&prompt.concat()).await;
    while events.until("message.delta").await.data["text"] != "now" {}
    assert_eq!(fs::read_to_string(work.path("before")).unwrap(), "x");
    session.cancel(&turn).await;
    fs::write(go_on, "").unwrap();
    let told = events.through("turn.cancelled").await;
    let answers: Vec<String> =
        carried(&told, "message.delta", "text").iter().map(|words| text(words)).collect();
    let [waited, write, run] = answers.as_slice() else { panic!("{answers:?}") };
    assert!(waited.contains(r#""exitCode":0"#), "what was begun is answered: {waited}");
    for refusal in [write, run] {
        assert!(refusal.contains("-32603") && refusal.contains("is being cancelled"), "{refusal}");
    }
    assert!(!work.path("after").exists() && !work.path("ran").exists());
}
