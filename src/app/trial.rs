//! One start of goose for `gander check`, outside of any gateway.

use std::path::PathBuf;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::launcher::{GooseLauncher, make_private_folder};
use super::settings::tenancy;
use super::{StartError, launcher, spawner};
use crate::config::Config;
use crate::goose::version::Version;
use crate::http::auth;
use crate::session::agent::{AgentFacts, AgentLauncher, LaunchError, LaunchSpec, LaunchedAgent};
use crate::session::id::SessionId;
use crate::shutdown::Tasks;

/// Starts a goose as a session would get it, and ends it again: what `gander check` shows. What is left of it, in the
/// shared home too, is removed.
pub async fn try_goose(config: &Config, tasks: &Tasks) -> Result<Trial, StartError> {
    if let Some(file) = &config.auth.tokens_file
        && config.auth.required
    {
        auth::Callers::of_file(file.clone(), tenancy(config))?;
    }
    let dir = config.storage.dir.join(format!("check-{}", std::process::id()));
    let mut config = config.clone();
    config.storage.dir.clone_from(&dir);
    make_private_folder(&dir).map_err(|source| StartError::Storage { dir: dir.clone(), source })?;
    let launcher = launcher(&config, None, spawner(&dir, tasks)?, tasks);
    let program = launcher.find().await;
    let session = match &program {
        Ok(_) => {
            launcher.supervise();
            let tried = try_session(&launcher, &config).await;
            launcher.stop_serving().await;
            Some(tried)
        }
        Err(_) => None,
    };
    if let Err(error) = std::fs::remove_dir_all(&dir) {
        tracing::warn!(path = %dir.display(), %error, "a folder is left");
    }
    Ok(Trial { program, session })
}

/// What [`try_goose`] saw.
pub struct Trial {
    /// The program and its version.
    pub program: Result<(PathBuf, Version), LaunchError>,
    /// What a session would get; `None` without a usable program.
    pub session: Option<Result<AgentFacts, LaunchError>>,
}

async fn try_session(launcher: &GooseLauncher, config: &Config) -> Result<AgentFacts, LaunchError> {
    let spec = LaunchSpec {
        provider: config.goose.provider.clone(),
        model: config.goose.model.clone(),
        mcp_servers: launcher.servers().choose(None).unwrap_or_default(),
        ..LaunchSpec::new(config.goose.mode)
    };
    let (events, mut said) = mpsc::channel(1);
    let session = SessionId::new();
    let start = AgentLauncher::launch(launcher, session, spec, None, events, CancellationToken::new());
    tokio::pin!(start);
    // What it says has to be taken for it to go on.
    let started = loop {
        tokio::select! {
            started = &mut start => break started,
            Some(_) = said.recv() => {}
        }
    };
    said.close();
    let facts = match started {
        Ok(LaunchedAgent { agent, facts, .. }) => {
            agent.end(config.goose.end_grace).await;
            Ok(facts)
        }
        Err(error) => Err(error),
    };
    if let Err(error) = launcher.discard(session).await {
        tracing::warn!(%error, "a session made for a check is left");
    }
    facts
}
