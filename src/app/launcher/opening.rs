//! A session of goose's is made, or loaded, while what goose remembers of permissions is left alone.

use std::path::Path;
use std::time::Duration;

use super::guard::{Guard, RESTLESS};
use super::servers::SessionServers;
use super::settle::{NotReady, Origin};
use super::{GooseLauncher, Waiting, failed};
use crate::acp::{Connection, NewSession};
use crate::goose::remembered::Memory;
use crate::session::agent::{Resume, ResumeToken, Unfit};

/// How many times a session is loaded again before its start fails.
const AGAIN: usize = 4;
/// How long goose may take to let go of a session.
const CLOSING: Duration = Duration::from_secs(5);

impl From<Unfit> for NotReady {
    fn from(Unfit(reason): Unfit) -> Self {
        Self::Refused(failed(reason))
    }
}

impl GooseLauncher {
    /// Has goose make the session, or load the one that is gone on with.
    ///
    /// A goose that sessions share reads what it remembers of permissions meanwhile, and others can write that: when it
    /// has been touched, what goose has read is not known, and it has to let go of the session and load it again.
    pub(super) async fn open_session(
        &self,
        connection: &Connection,
        cwd: &Path,
        servers: &SessionServers,
        resume: Option<&Resume>,
        guard: &Guard,
        waiting: &Waiting,
    ) -> Result<(Origin, NewSession), NotReady> {
        let origin = if resume.is_some() { Origin::Loaded } else { Origin::New };
        let mut before = self.memory_of_all(guard).await?;
        let mut session = match resume {
            None => {
                waiting.now("goose has not answered session/new");
                let made = connection.new_session(cwd, &servers.servers).await?;
                self.note_made(connection, &guard.places).await?;
                made
            }
            Some(Resume { token: ResumeToken(kept), .. }) => {
                self.check_still_ours(connection, &guard.places, kept).await?;
                waiting.now("goose has not answered session/load");
                connection.load_session(kept, cwd, &servers.to_load()).await?
            }
        };
        for _ in 0..AGAIN {
            let Some(known) = before else { return Ok((origin, session)) };
            if guard.memory().await? == known {
                return Ok((origin, session));
            }
            tracing::warn!("{RESTLESS} while goose opens a session: it has to do so again");
            connection.close_session(CLOSING).await?;
            before = self.memory_of_all(guard).await?;
            let Some(name) = connection.session() else { break };
            waiting.now("goose has not answered session/load");
            session = connection.load_session(name, cwd, &servers.to_load()).await?;
        }
        match before {
            Some(known) if guard.memory().await? != known => Err(Unfit(RESTLESS.into()).into()),
            _ => Ok((origin, session)),
        }
    }

    /// What the goose that all sessions share remembers, before it opens one; `None`: each has its own, and has read it.
    async fn memory_of_all(&self, guard: &Guard) -> Result<Option<Memory>, Unfit> {
        if self.one_serves_all() { guard.memory_at_rest().await.map(Some) } else { Ok(None) }
    }
}
