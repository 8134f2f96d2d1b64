//! One start of `goose serve`.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::super::process::process_spec;
use super::super::{GooseLauncher, agent::described, not_spawned};
use super::{Serve, Served, ask_health};
use crate::acp::StderrTail;
use crate::config::Secret;
use crate::goose::launch::Launch;
use crate::goose::serve;

/// How many ports are tried, when somebody else is faster.
const PORTS: usize = 10;
/// How long to wait before it is asked again whether it is there: it takes 12 to 23 ms.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// 256 bits.
const SECRET_BYTES: usize = 32;
/// How much of its standard output is kept, which says nothing.
const STDOUT_BYTES: usize = 1024;

/// Why it did not start.
enum Failed {
    /// Somebody else has the port.
    PortTaken,
    /// For people, without a path.
    Why(String),
}

impl GooseLauncher {
    /// Starts it and waits until it answers. The error is for people, without a path.
    pub(super) async fn start_serving(&self, serve: &Serve) -> Result<Arc<Served>, String> {
        let (program, version) = self.find().await.map_err(|error| error.to_string())?;
        if version < serve::OLDEST {
            return Err(format!(
                "goose {version} is too old for goose.transport = \"websocket\", which needs {} or later",
                serve::OLDEST
            ));
        }
        let launch = self.prepare_serving(&serve.spec).await.map_err(|error| error.to_string())?;
        let ServeAddress { host, fixed_port } = ServeAddress::of(serve);
        for _ in 0..PORTS {
            let port = match fixed_port {
                Some(port) => port,
                None => {
                    free_port(host).map_err(|error| format!("there is no free port on {host}: {error}"))?
                }
            };
            match self.start_on(serve, program.clone(), launch.clone(), port).await {
                Ok(served) => return Ok(Arc::new(served)),
                Err(Failed::Why(why)) => return Err(why),
                Err(Failed::PortTaken) if fixed_port.is_some() => {
                    return Err(format!("another process has its port: {host}:{port} (goose.serve.port)"));
                }
                Err(Failed::PortTaken) => {
                    tracing::info!(port, "another process was faster on the port for goose");
                }
            }
        }
        Err(format!("other processes were faster on {PORTS} free ports"))
    }

    async fn start_on(
        &self,
        serve: &Serve,
        program: PathBuf,
        mut launch: Launch,
        port: u16,
    ) -> Result<Served, Failed> {
        let settings = &self.shared.settings;
        let host = serve.settings.host;
        let secret = new_secret().map_err(|error| Failed::Why(format!("no random number: {error}")))?;
        launch.arguments = serve::arguments(host, port, &launch.builtins, settings.launch.scheduler);
        launch.environment.insert(serve::SECRET_VARIABLE.to_owned(), secret.expose().to_owned());
        launch
            .environment
            .entry(serve::MAX_ACTIVE_VARIABLE.to_owned())
            .or_insert_with(|| serve.sessions.to_string());
        let spec = process_spec(program, &launch, PathBuf::from("/"));
        let spawned = self.shared.spawner.spawn(spec).await;
        let child = spawned.map_err(|error| Failed::Why(not_spawned(&error).to_string()))?;
        let control = child.control();
        drop(child.stdin);
        let redactor = settings.redactor.with_secrets([secret.expose().to_owned()]);
        let tasks = &self.shared.tasks;
        let _stdout = StderrTail::read(child.stdout, STDOUT_BYTES, redactor.clone(), tasks);
        let stderr = StderrTail::read(child.stderr, settings.stderr_bytes, redactor, tasks);
        let address = SocketAddr::new(reachable(host), port);
        let served = Served { control, address, secret, stderr };
        let until = Instant::now() + serve.settings.startup_timeout;
        tokio::select! {
            biased;
            status = served.control.exited() => {
                let said = served.stderr.text_at_exit().await;
                if serve::says_port_is_taken(&said) {
                    return Err(Failed::PortTaken);
                }
                tracing::error!(stderr = said, "goose serve ended as it started");
                Err(Failed::Why(format!("it ended as it started: {}", described(status))))
            }
            () = answers(&served) => Ok(served),
            () = tokio::time::sleep_until(until) => {
                served.control.kill();
                served.control.exited().await;
                let limit = humantime::format_duration(serve.settings.startup_timeout);
                Err(Failed::Why(format!("it did not answer {} within {limit}", serve::HEALTH_PATH)))
            }
        }
    }
}

/// Waits until it is well, and it is it that says so: whoever else has the port could do that too.
async fn answers(served: &Served) {
    loop {
        let asked = timeout_at(Instant::now() + Duration::from_secs(1), ask_health(served.address)).await;
        if matches!(asked, Ok(Ok(true))) && served.control.listens_on(served.address.port()).await {
            return;
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

struct ServeAddress {
    host: IpAddr,
    fixed_port: Option<u16>,
}

impl ServeAddress {
    fn of(serve: &Serve) -> Self {
        let port = serve.settings.port;
        Self { host: serve.settings.host, fixed_port: (port != 0).then_some(port) }
    }
}

/// A port that nobody has now. goose tells nobody which one it takes by itself.
fn free_port(host: IpAddr) -> std::io::Result<u16> {
    Ok(TcpListener::bind((host, 0))?.local_addr()?.port())
}

/// Where a listener on "any address" is reached from this host.
fn reachable(host: IpAddr) -> IpAddr {
    match host {
        IpAddr::V4(host) if host.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(host) if host.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        host => host,
    }
}

fn new_secret() -> std::io::Result<Secret> {
    let mut random = [0; SECRET_BYTES];
    getrandom::fill(&mut random).map_err(std::io::Error::other)?;
    let digits = random.iter().fold(String::new(), |mut digits, byte| {
        // Writing into a string does not fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    });
    Ok(Secret::new(digits))
}
