//! Finding goose, and asking it for its version once.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

use tokio::io::AsyncReadExt;

use super::{GooseLauncher, failed, not_made, not_spawned};
use crate::goose::servers::Servers;
use crate::goose::version::{self, Version};
use crate::process::ProcessSpec;
use crate::session::agent::LaunchError;

/// How long `goose --version` may take.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of its answer is read, in bytes.
const VERSION_BYTES: u64 = 4096;

/// What tells a file from a later one in its place.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl Stamp {
    pub(super) async fn of(path: &Path) -> io::Result<Self> {
        let file = tokio::fs::metadata(path).await?;
        Ok(Self { inode: file.ino(), length: file.len(), modified: (file.mtime(), file.mtime_nsec()) })
    }
}

/// A program file as it was when it was asked something.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct ProgramStamp {
    path: PathBuf,
    file: Stamp,
}

impl ProgramStamp {
    pub(super) async fn of(program: &Path) -> io::Result<Self> {
        Ok(Self { path: program.to_owned(), file: Stamp::of(program).await? })
    }
}

impl GooseLauncher {
    /// The tool servers that sessions get.
    pub(in crate::app) fn servers(&self) -> &Servers {
        &self.shared.settings.servers
    }

    /// Finds goose and looks whether it is new enough. The error is for people, without a path.
    pub(in crate::app) async fn find(&self) -> Result<(PathBuf, Version), LaunchError> {
        let Some(program) = (self.shared.settings.find_program)() else {
            return Err(failed("goose was not found: set goose.command to its path"));
        };
        let version = self.version_of(&program).await?;
        if version.is_supported() {
            return Ok((program, version));
        }
        Err(failed(format!("goose {version} is too old: gander needs {} or later", version::OLDEST)))
    }

    async fn version_of(&self, program: &Path) -> Result<Version, LaunchError> {
        let stamp = ProgramStamp::of(program).await.map_err(|error| {
            tracing::error!(program = %program.display(), %error, "goose cannot be read");
            not_made("goose cannot be read: see goose.command", &error)
        })?;
        let known = self.shared.versions.lock().unwrap_or_else(PoisonError::into_inner).get(&stamp).copied();
        if let Some(version) = known {
            return Ok(version);
        }
        let answer = tokio::time::timeout(VERSION_TIMEOUT, self.ask_version(program)).await;
        let answer = answer.map_err(|_| failed("goose did not tell its version"))??;
        let version = Version::find(&answer)
            .ok_or_else(|| failed("what goose.command names does not tell a version as goose does"))?;
        let mut versions = self.shared.versions.lock().unwrap_or_else(PoisonError::into_inner);
        // A program that is replaced often must not fill the memory.
        if versions.len() > 16 {
            versions.clear();
        }
        versions.insert(stamp, version);
        Ok(version)
    }

    async fn ask_version(&self, program: &Path) -> Result<String, LaunchError> {
        let path = self.shared.settings.launch.inherited.iter().filter(|(name, _)| name == "PATH");
        let spec = ProcessSpec {
            program: program.to_owned(),
            arguments: vec!["--version".into()],
            environment: path.map(|(name, value)| (name.into(), value.into())).collect(),
            cwd: PathBuf::from("/"),
        };
        let child = self.shared.spawner.spawn(spec).await.map_err(|error| not_spawned(&error))?;
        let control = child.control();
        drop(child.stdin);
        let mut answer = Vec::new();
        let read = child.stdout.take(VERSION_BYTES).read_to_end(&mut answer).await;
        control.kill();
        control.exited().await;
        read.map_err(|_| failed("goose did not tell its version"))?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}
