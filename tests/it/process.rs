//! Children and their ends, on real processes that are really killed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use gander::process::{Child, InvalidSpec, ProcessSpec, SpawnError, Spawner};
use gander::shutdown::Tasks;
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

mod gateway;
pub(crate) mod machine;

use machine::{Tag, Tools, eventually, field, signal};

const GRACE: Duration = Duration::from_secs(20);

fn spawner(storage_id: &str) -> Spawner {
    Spawner::new(env!("CARGO_BIN_EXE_gander").into(), storage_id.into(), Tasks::new()).unwrap()
}

fn spec(program: &str, arguments: &[&str]) -> ProcessSpec {
    ProcessSpec {
        program: program.into(),
        arguments: arguments.iter().map(OsString::from).collect(),
        environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        cwd: "/".into(),
    }
}

fn bash(script: &str) -> ProcessSpec {
    spec("/bin/bash", &["-c", script])
}

async fn spawn(spec: ProcessSpec) -> Child {
    spawner("test").spawn(spec).await.unwrap()
}

/// A program that starts the tools and then lives until its standard input ends.
async fn with_tools(tools: &Tools) -> Child {
    let child = spawn(bash(&format!("{}\ncat", tools.script()))).await;
    tools.all_run().await;
    child
}

#[tokio::test]
async fn the_programs_own_exit_code_passes_through() {
    for code in [0, 1, 42, 126, 127, 255] {
        let child = spawn(bash(&format!("exit {code}"))).await;
        assert_eq!(child.control().exited().await.code(), Some(code));
    }
}

#[tokio::test]
async fn the_programs_own_signal_passes_through() {
    for signal in [Signal::TERM, Signal::KILL, Signal::SEGV, Signal::BUS, Signal::ABORT, Signal::HUP] {
        let child = spawn(bash(&format!("kill -{} $$; sleep 60", signal.as_raw()))).await;
        assert_eq!(child.control().exited().await.signal(), Some(signal.as_raw()));
    }
    let child = spawn(bash("kill -PIPE $$; sleep 60")).await;
    assert_eq!(child.control().exited().await.code(), Some(128 + Signal::PIPE.as_raw()));
}

#[tokio::test]
async fn any_number_may_wait_for_the_end() {
    let child = spawn(bash("read line; exit 3")).await;
    let (one, two) = (child.control(), child.control());
    let Child { mut stdin, .. } = child;
    let (first, second, ()) = tokio::join!(one.exited(), two.exited(), async {
        stdin.write_all(b"\n").await.unwrap();
    });
    assert_eq!((first.code(), second.code(), one.exited().await.code()), (Some(3), Some(3), Some(3)));
}

#[tokio::test]
async fn the_program_finds_what_was_given_and_the_mark() {
    let folder = tempfile::tempdir().unwrap();
    let cwd = folder.path().canonicalize().unwrap();
    // More than a socket holds, so that it has to be read while it is written.
    let long = "x".repeat(100_000);
    let mut environment = vec![("LONG".to_owned(), long), ("EMPTY".to_owned(), String::new())];
    environment.extend((0..8).map(|number| (format!("LONG_{number}"), "y".repeat(60_000))));
    let given = ProcessSpec {
        environment: environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        cwd: cwd.clone(),
        ..spec("/bin/cat", &["-", "/dev/null", "--"])
    };
    let mut child = spawn(given).await;
    let pid = child.pid();
    assert_eq!(machine::command_line(pid), ["/bin/cat", "-", "/dev/null", "--"]);
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), cwd);
    // Nothing that the gateway opened; what it was itself started with without a mark to close it goes on.
    // The program's own loader has a library open for a moment.
    let expected = [vec![0, 1, 2], machine::inherited_descriptors()].concat();
    crate::support::until("only what is to be open is", || machine::descriptors(pid) == expected).await;
    // A session and a group of its own.
    assert_eq!((field(pid, 5), field(pid, 6)), (Some(pid), Some(pid)));

    let mut found = machine::environment(pid);
    let mark = found.remove("GANDER_INSTANCE").unwrap();
    assert!(mark.starts_with(&format!("test:{}:", std::process::id())), "{mark}");
    assert_eq!(found, environment.into_iter().collect());

    // No helper carries the program's command line, nor its environment.
    let shim = field(pid, 4).unwrap();
    assert_eq!(machine::command_line(shim), ["gander", "shim", &std::process::id().to_string()]);
    assert_eq!(machine::environment(shim), BTreeMap::from([("GANDER_INSTANCE".into(), mark)]));

    child.stdin.write_all(b"through").await.unwrap();
    let control = child.control();
    let Child { stdin, mut stdout, .. } = child;
    drop(stdin);
    let mut output = String::new();
    stdout.read_to_string(&mut output).await.unwrap();
    assert_eq!(output, "through");
    assert_eq!(control.end(GRACE).await.code(), Some(0));
}

#[tokio::test]
async fn standard_error_is_the_programs() {
    let mut child = spawn(bash("echo out; echo err >&2")).await;
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.read_to_string(&mut out).await.unwrap();
    child.stderr.read_to_string(&mut err).await.unwrap();
    assert_eq!((out.as_str(), err.as_str()), ("out\n", "err\n"));
}

#[tokio::test]
async fn the_output_pipe_is_large() {
    let child = spawn(bash("cat")).await;
    assert!(rustix::pipe::fcntl_getpipe_size(&child.stdout).unwrap() >= 1 << 20);
}

#[tokio::test]
async fn no_tool_outlives_a_clean_end() {
    let tools = Tools::new();
    let child = with_tools(&tools).await;
    let control = child.control();
    drop(child);
    assert_eq!(control.end(GRACE).await.code(), Some(0));
    // Not "soon": the end is the proof that nothing is left.
    assert_eq!(tools.running(), Vec::<u32>::new());
}

#[tokio::test]
async fn no_tool_outlives_a_killed_program() {
    let tools = Tools::new();
    let child = with_tools(&tools).await;
    signal(child.pid(), Signal::KILL);
    assert_eq!(child.control().exited().await.signal(), Some(Signal::KILL.as_raw()));
    assert_eq!(tools.running(), Vec::<u32>::new());
}

#[tokio::test]
async fn a_program_that_ignores_its_end_of_input_is_killed_after_the_grace() {
    let tools = Tools::new();
    let child = spawn(bash(&format!("trap '' TERM\n{}\nwhile :; do sleep 60; done", tools.script()))).await;
    tools.all_run().await;
    let control = child.control();
    drop(child);
    assert_eq!(control.end(Duration::from_millis(50)).await.signal(), Some(Signal::KILL.as_raw()));
    assert_eq!(tools.running(), Vec::<u32>::new());
}

#[tokio::test]
async fn a_stopped_program_ends_too() {
    let tools = Tools::new();
    let child = with_tools(&tools).await;
    signal(child.pid(), Signal::STOP);
    let control = child.control();
    drop(child);
    control.end(Duration::from_millis(50)).await;
    assert_eq!(tools.running(), Vec::<u32>::new());
}

#[tokio::test]
async fn what_forks_for_ever_ends_too() {
    let tag = Tag::new();
    // Each process makes a session of its own, forks, and leaves the rest to its child.
    let script = "import os\nwhile True:\n if os.fork(): os._exit(0)\n os.setsid()";
    let child = spawn(bash(&format!("python3 -c '{script}' {tag} &\ncat"))).await;
    eventually("the forks run", || !tag.running().is_empty()).await;
    let control = child.control();
    drop(child);
    control.end(GRACE).await;
    assert_eq!(tag.running(), Vec::<u32>::new());
}

#[tokio::test]
async fn with_the_last_control_the_program_is_killed() {
    let tools = Tools::new();
    let (stdin, control) = {
        let child = with_tools(&tools).await;
        let control = child.control();
        (child.stdin, control)
    };
    assert_eq!(tools.running().len(), 4, "a clone is left");
    drop(control);
    eventually("all tools are gone", || tools.running().is_empty()).await;
    drop(stdin);
}

#[tokio::test]
async fn the_hard_shutdown_ends_all_and_waits_for_it() {
    let tasks = Tasks::new();
    let spawner = Spawner::new(env!("CARGO_BIN_EXE_gander").into(), "test".into(), tasks.clone()).unwrap();
    let tools = Tools::new();
    let child = spawner.spawn(bash(&format!("{}\ncat", tools.script()))).await.unwrap();
    tools.all_run().await;
    tasks.hard().cancel();
    tasks.finished().await;
    assert_eq!(tools.running(), Vec::<u32>::new());
    assert_eq!(child.control().exited().await.signal(), Some(Signal::KILL.as_raw()));
}

#[tokio::test]
async fn a_sweep_takes_what_was_started_since_and_nothing_else() {
    let (server, earlier_job, earlier_session) = (Tag::new(), Tag::new(), Tag::new());
    let new_server = Tag::new();
    let (tool, job, session, nested) = (Tag::new(), Tag::new(), Tag::new(), Tag::new());
    let mut child = spawn(spec("/bin/bash", &[])).await;
    let control = child.control();

    // With job control a job gets a group of its own, like a server that the program keeps.
    let before = format!(
        "set -m; sleep {server} & set +m\n(sleep {earlier_job} &)\n(setsid sleep {earlier_session} &)\n"
    );
    child.stdin.write_all(before.as_bytes()).await.unwrap();
    let spared = [&server, &earlier_job, &earlier_session];
    eventually("the earlier ones run", || spared.iter().all(|tag| tag.sleeping() == 1)).await;
    // Each was left by its subshell by then, or the snapshot would be of a moment in between.
    let shim = field(child.pid(), 4);
    eventually("they were adopted", || spared[1..].iter().all(|tag| field(tag.running()[0], 4) == shim))
        .await;
    let since = control.snapshot().await;
    assert_eq!(control.sweep(&since).await, (0, true));

    let turn = format!(
        "(setsid sleep {nested} & exec sleep {tool}) &\n(sleep {job} &)\n(env -i setsid sleep {session} &)\n\
         set -m; sleep {new_server} & set +m\n"
    );
    child.stdin.write_all(turn.as_bytes()).await.unwrap();
    let swept = [&tool, &job, &session, &nested];
    let spared = [&server, &earlier_job, &earlier_session, &new_server];
    eventually("the turn's run", || swept.iter().chain(&spared).all(|tag| tag.sleeping() == 1)).await;
    assert_eq!(control.background(&since).await, 4);
    assert_eq!(control.sweep(&since).await, (4, true));
    for tag in swept {
        assert_eq!(tag.sleeping(), 0);
    }
    for tag in spared {
        assert_eq!(tag.sleeping(), 1);
    }

    child.stdin.write_all(b"echo still here\n").await.unwrap();
    let mut line = String::new();
    BufReader::new(&mut child.stdout).read_line(&mut line).await.unwrap();
    assert_eq!(line, "still here\n");
    // The shim reaps what the sweep killed although nothing wakes it.
    let shim = shim.unwrap();
    eventually("no zombie is left", || machine::zombies_below(shim).is_empty()).await;
    drop(child);
    control.end(GRACE).await;
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let closed = file("closed", "#!/bin/sh\n", 0o644);
    let bad_interpreter = file("bad-interpreter", "#!/no/such/interpreter\n", 0o755);
    let below_a_file = format!("{closed}/program");
    let spawner = spawner("test");

    for program in ["/no/such/program", "no-such-program-anywhere", &below_a_file] {
        let error = spawner.spawn(spec(program, &[])).await.unwrap_err();
        assert!(matches!(error, SpawnError::ProgramNotFound { .. }), "{program}: {error:?}");
        assert_eq!(error.to_string(), format!("program {program} was not found"));
    }
    for program in [&closed, &bad_interpreter, "/tmp"] {
        let error = spawner.spawn(spec(program, &[])).await.unwrap_err();
        assert!(matches!(error, SpawnError::NotExecutable { .. }), "{program}: {error:?}");
    }
    for cwd in ["/no/such/folder", &closed] {
        let spec = ProcessSpec { cwd: cwd.into(), ..spec("/bin/true", &[]) };
        let error = spawner.spawn(spec).await.unwrap_err();
        assert!(matches!(error, SpawnError::WorkingDirectory { .. }), "{cwd}: {error:?}");
    }
    let error = spawner.spawn(spec("/bin/true", &["a\0b"])).await.unwrap_err();
    assert!(matches!(error, SpawnError::Invalid(InvalidSpec::NulByte)), "{error:?}");
    // More than the system lets one argument be.
    let error = spawner.spawn(spec("/bin/true", &[&"x".repeat(1 << 20)])).await.unwrap_err();
    assert!(matches!(error, SpawnError::System(_)), "{error:?}");

    let absent = Spawner::new("/no/such/gander".into(), "test".into(), Tasks::new()).unwrap();
    let error = absent.spawn(spec("/bin/true", &[])).await.unwrap_err();
    assert!(matches!(error, SpawnError::System(_)), "{error:?}");
    let no_helper = Spawner::new("/bin/true".into(), "test".into(), Tasks::new()).unwrap();
    let error = no_helper.spawn(spec("/bin/true", &[])).await.unwrap_err();
    assert!(matches!(error, SpawnError::HelperEnded), "{error:?}");
}

#[tokio::test]
async fn a_bare_name_is_looked_for_in_the_given_path() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("only-there");
    fs::write(&program, "#!/bin/sh\necho found\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let environment = vec![("PATH".into(), folder.path().into())];
    let mut child = spawn(ProcessSpec { environment, ..spec("only-there", &[]) }).await;
    let mut output = String::new();
    child.stdout.read_to_string(&mut output).await.unwrap();
    assert_eq!(output, "found\n");
}
