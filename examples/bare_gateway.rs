//! A gateway without sessions: only what starts children and sees to their ends. The tests kill it and give it strays.
//!
//! `bare_gateway GANDER` reads commands from its standard input, one a line, and answers each with a line. The first
//! line is the storage's id.
//!
//! | command | does | answer |
//! |---|---|---|
//! | `spawn SCRIPT` | starts a bash with the script | its pid |
//! | `end MS` | ends it, within a grace of so many milliseconds | how it ended |
//! | `exit-codes` | starts children that end with codes of their own, many at once | `all as they were` |

#![expect(clippy::print_stdout, reason = "its answers")]
#![expect(clippy::unwrap_used, reason = "what goes wrong ends it, and with it the test")]

use std::io;
use std::time::Duration;

use gander::process::{ProcessSpec, Spawner};
use gander::shutdown::Tasks;

fn bash(script: &str) -> ProcessSpec {
    ProcessSpec {
        program: "/bin/bash".into(),
        arguments: vec!["-c".into(), script.into()],
        environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        cwd: "/".into(),
    }
}

#[tokio::main]
async fn main() {
    let gander = std::env::args_os().nth(1).unwrap();
    let mut lines = io::stdin().lines().map_while(Result::ok);
    let Some(storage_id) = lines.next() else { return };
    let spawner = Spawner::new(gander.into(), storage_id, Tasks::new()).unwrap();
    spawner.adopt_and_kill_strays().unwrap();
    println!("ready");
    let mut child = None;
    for line in lines {
        let (command, argument) = line.split_once(' ').unwrap_or((&line, ""));
        match command {
            "spawn" => {
                let started = spawner.spawn(bash(argument)).await.unwrap();
                println!("{}", started.pid());
                child = Some(started);
            }
            "end" => {
                let ended = child.take().unwrap();
                let control = ended.control();
                drop(ended);
                let grace = Duration::from_millis(argument.parse().unwrap());
                println!("{}", control.end(grace).await);
            }
            "exit-codes" => {
                for _ in 0..3 {
                    let codes = (0..16).map(|code| {
                        let spawner = &spawner;
                        async move {
                            let child = spawner.spawn(bash(&format!("exit {code}"))).await.unwrap();
                            (child.control().exited().await.code(), Some(code))
                        }
                    });
                    for (found, expected) in futures_util::future::join_all(codes).await {
                        assert_eq!(found, expected);
                    }
                }
                println!("all as they were");
            }
            other => panic!("unknown command {other}"),
        }
    }
}
