//! Callers: who makes a request, and what they may do.
//!
//! A caller shows a bearer token (RFC 6750); gander knows only the SHA-256 of each. Looking the hash up in a map tells
//! a guesser nothing: the time it takes depends on the hash of the guess, which cannot be steered towards the hash of a
//! token.

mod generated;
mod secret;
mod tickets;
mod tokens;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use utoipa::ToSchema;

pub use generated::{GeneratedToken, ensure_token};
use tickets::TicketInUse;
pub use tickets::{NewTicket, Tickets, VALID_UNUSED};
pub use tokens::TokensError;
use tokens::{FileMark, TokenEntry, TokenSet};

use super::Api;

use super::problem::{Code, Problem};
use super::request::Identifier;
use crate::session::audit::{AskedBy, By};
use crate::session::handle::{Refusal, SessionHandle};
use crate::session::id::SessionId;
use crate::shutdown::Tasks;

/// How often a tokens file is looked at while nobody calls, so that streams of a removed token end.
const WATCH_EVERY: Duration = Duration::from_millis(500);

/// How many callers there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tenancy {
    /// Any number: their sessions have nothing in common.
    Several,
    /// One: what sessions keep is shared by all, because of these settings (for people).
    One(String),
}

impl Tenancy {
    /// The error for as many callers, if they are too many.
    fn check(&self, path: &Path, callers: usize) -> Result<(), TokensError> {
        match self {
            Self::One(because) if callers > 1 => {
                Err(TokensError::SeveralCallers { path: path.to_owned(), callers, because: because.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// The SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// See its sessions and their events.
    Read,
    /// Make, change and delete sessions; begin and cancel turns.
    Prompt,
    /// Answer permission requests.
    Approve,
    /// All of it, for everybody's sessions.
    Admin,
}

impl Role {
    /// As in the tokens file and in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Prompt => "prompt",
            Self::Approve => "approve",
            Self::Admin => "admin",
        }
    }

    /// What a token may do when its entry does not say.
    #[must_use]
    pub fn default_set() -> BTreeSet<Self> {
        [Self::Read, Self::Prompt, Self::Approve].into()
    }
}

/// Who makes a request. As an extractor it gives the caller that the gate let in, else 401.
#[derive(Clone)]
pub struct Caller {
    entry: Arc<TokenEntry>,
    /// `None` where no token is needed.
    token: Option<(TokenHash, watch::Receiver<Arc<TokenSet>>)>,
    /// What it showed in place of a token. Kept so that the ticket does not grow old meanwhile.
    ticket: Option<Arc<TicketInUse>>,
    /// Its request.
    request: Option<AskedBy>,
}

impl Caller {
    /// The token's name: owns sessions, and is told as `by`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// The caller as one who asks for a change, with this request.
    #[must_use]
    pub fn by(&self) -> By {
        By::Caller { name: self.name().into(), request: self.request.clone() }
    }

    /// What the caller may do, as its token's entry says.
    #[must_use]
    pub fn roles(&self) -> &BTreeSet<Role> {
        &self.entry.roles
    }

    /// Whether the caller sees everybody's sessions.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.entry.roles.contains(&Role::Admin)
    }

    /// Whether the caller may see a session of `owner`.
    #[must_use]
    pub fn may_see(&self, owner: &str) -> bool {
        self.is_admin() || self.name() == owner
    }

    /// Whether the caller showed a token or a ticket, and did not just come from where none is needed.
    #[must_use]
    pub fn showed_token(&self) -> bool {
        self.token.is_some() || self.ticket.is_some()
    }

    /// 403 when the caller lacks a role. An admin has every role.
    pub fn require(&self, role: Role) -> Result<(), Problem> {
        if self.is_admin() || self.entry.roles.contains(&role) {
            return Ok(());
        }
        let detail = format!("this takes the role {}, which the caller's token does not have", role.as_str());
        Err(Problem::new(Code::RoleMissing, detail).with("role", role))
    }

    /// Completes when the token is no longer valid, or has lost a role that it had. A ticket counts as used for as long
    /// as this is kept.
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + 'static {
        let entry = Arc::clone(&self.entry);
        let token = self.token.clone();
        let ticket = self.ticket.clone();
        async move {
            let _in_use = ticket;
            let Some((hash, mut sets)) = token else { return std::future::pending().await };
            let holds = |set: &Arc<TokenSet>| {
                set.get(&hash)
                    .is_some_and(|now| now.name == entry.name && now.roles.is_superset(&entry.roles))
            };
            // An error means that the callers are gone, and with them every token.
            let _ = sets.wait_for(|set| !holds(set)).await;
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("name", &self.entry.name)
            .field("roles", &self.entry.roles)
            .finish_non_exhaustive()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Self>().cloned().ok_or_else(unauthenticated)?;
        let request = parts.extensions.get::<AskedBy>().cloned();
        Ok(Self { request, ..caller })
    }
}

/// The same words for a missing and for a wrong token: which of both it was helps nobody but a guesser.
pub(super) fn unauthenticated() -> Problem {
    Problem::new(
        Code::Unauthenticated,
        "this takes the header `Authorization: Bearer <token>` with a valid token",
    )
}

/// Everybody who may call. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Callers {
    source: Arc<Source>,
    tickets: Tickets,
}

#[derive(Debug)]
enum Source {
    /// No token is needed.
    Anyone(Arc<TokenEntry>),
    /// Tokens.
    Tokens {
        /// What is valid now. A watch, so that streams learn of a change.
        valid: watch::Sender<Arc<TokenSet>>,
        /// Where to look for a change.
        file: Option<TokensFile>,
    },
}

#[derive(Debug)]
struct TokensFile {
    path: PathBuf,
    tenancy: Tenancy,
    /// How the file was when it was last read. A standard mutex, held while the file is looked at and, after a change,
    /// read: two calls at once must not apply an older reading over a newer one.
    seen: Mutex<FileMark>,
}

impl Callers {
    /// No token is needed: every call is the caller `anonymous` with the default roles (`auth.required = false`).
    #[must_use]
    pub fn anyone() -> Self {
        let entry = TokenEntry { name: "anonymous".into(), roles: Role::default_set() };
        Self::of(Source::Anyone(Arc::new(entry)))
    }

    /// One caller, with the token that gander made.
    #[must_use]
    pub fn of_generated(token: &GeneratedToken) -> Self {
        let set = TokenSet::from([(hash(token.secret()), Arc::new(generated::owner_entry()))]);
        Self::of(Source::Tokens { valid: watch::Sender::new(Arc::new(set)), file: None })
    }

    /// The callers of a tokens file, which is read again when it changes.
    ///
    /// # Errors
    /// When the file cannot be used, and when it has more callers than may be.
    pub fn of_file(path: PathBuf, tenancy: Tenancy) -> Result<Self, TokensError> {
        let (mark, set) = tokens::read(&path)?;
        // Every token has a name of its own.
        tenancy.check(&path, set.len())?;
        let file = TokensFile { path, tenancy, seen: Mutex::new(mark) };
        Ok(Self::of(Source::Tokens { valid: watch::Sender::new(Arc::new(set)), file: Some(file) }))
    }

    fn of(source: Source) -> Self {
        Self { source: Arc::new(source), tickets: Tickets::unkept() }
    }

    /// The same callers, with tickets that are kept.
    #[must_use]
    pub fn with_tickets(self, tickets: Tickets) -> Self {
        Self { tickets, ..self }
    }

    /// Makes a stream ticket for a caller; `None` when it has `limit` valid ones.
    pub async fn make_ticket(
        &self,
        caller: &Caller,
        limit: usize,
        tasks: &Tasks,
    ) -> std::io::Result<Option<NewTicket>> {
        let token = caller.token.as_ref().map(|(hash, _)| *hash);
        self.tickets.make(token, limit, tasks).await
    }

    /// Looks at the tokens file again and again until the gateway stops, and keeps the tickets.
    pub fn watch(&self, tasks: &Tasks) {
        self.tickets.keep(tasks);
        if !matches!(&*self.source, Source::Tokens { file: Some(_), .. }) {
            return;
        }
        let (callers, stop) = (self.clone(), tasks.hard().clone());
        tasks.spawn(async move {
            while stop.run_until_cancelled(tokio::time::sleep(WATCH_EVERY)).await.is_some() {
                callers.refresh();
            }
        });
    }

    /// Who shows these headers; `None` without a valid token.
    ///
    /// Looks at the tokens file first, so that a removed token is refused by the very next call. That is one `stat` of
    /// a local file, about a microsecond: handing it to another thread would cost more than it takes.
    #[must_use]
    pub fn identify(&self, headers: &HeaderMap) -> Option<Caller> {
        match &*self.source {
            Source::Anyone(entry) => {
                Some(Caller { entry: Arc::clone(entry), token: None, ticket: None, request: None })
            }
            Source::Tokens { .. } => self.holder(hash(bearer(headers)?)),
        }
    }

    /// Whose ticket this is; `None` when it is not valid, or the token it was made with no longer is.
    #[must_use]
    pub fn identify_ticket(&self, secret: &str) -> Option<Caller> {
        let ticket = self.tickets.begin_use(secret)?;
        let caller = match (&*self.source, ticket.token) {
            (Source::Anyone(entry), None) => {
                Caller { entry: Arc::clone(entry), token: None, ticket: None, request: None }
            }
            (Source::Tokens { .. }, Some(token)) => self.holder(token)?,
            // gander was started anew with other settings.
            _ => return None,
        };
        Some(Caller { ticket: Some(Arc::new(ticket)), ..caller })
    }

    fn holder(&self, token: TokenHash) -> Option<Caller> {
        let Source::Tokens { valid, .. } = &*self.source else { return None };
        self.refresh();
        let entry = Arc::clone(valid.borrow().get(&token)?);
        Some(Caller { entry, token: Some((token, valid.subscribe())), ticket: None, request: None })
    }

    fn refresh(&self) {
        let Source::Tokens { valid, file: Some(file) } = &*self.source else { return };
        let mut seen = lock(&file.seen);
        let now = FileMark::of(&file.path);
        if !now.differs(&seen) {
            return;
        }
        // One line per state of the file, not one per call.
        let first_look = !now.same_state(&seen);
        match tokens::read(&file.path) {
            Ok((mark, mut set)) => {
                *seen = mark;
                if let Err(error) = file.tenancy.check(&file.path, set.len()) {
                    // The one that was let in stays, unless the file no longer has it. The new ones stay outside.
                    let before = valid.borrow().clone();
                    set.retain(|hash, entry| before.get(hash).is_some_and(|known| known.name == entry.name));
                    if first_look {
                        tracing::error!(%error, "callers that are new in the tokens file are not let in");
                    }
                }
                if **valid.borrow() != set {
                    tracing::info!(tokens = set.len(), "the tokens file has changed");
                    valid.send_replace(Arc::new(set));
                }
            }
            // Whoever takes the file away wants nobody in: a missing file fails closed.
            Err(TokensError::Missing { .. }) => {
                *seen = now;
                if first_look {
                    tracing::error!("the tokens file is gone: no token is valid until it is back");
                    valid.send_replace(Arc::default());
                }
            }
            // A file that cannot be read or understood is most often one that is being written, or one with a slip of
            // the pen. It names nobody who is to be shut out, so the last good tokens stay: locking everybody out, and
            // ending every stream, would do more harm. The error is in the log until the file is put right.
            Err(error) => {
                *seen = now;
                if first_look {
                    tracing::error!(%error, "the tokens file is not usable: the tokens read before stay valid");
                }
            }
        }
    }
}

fn lock(seen: &Mutex<FileMark>) -> MutexGuard<'_, FileMark> {
    // A panic while it was held leaves an old mark: the file is read once more than needed.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hash(token: &str) -> TokenHash {
    Sha256::digest(token).into()
}

/// The token of the `Authorization` header; `None` unless there is exactly one such header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (values.next().is_none() && scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The session that a caller names in a path: 404 for what is no id, what does not exist and what is somebody else's.
pub fn session_of(api: &Api, caller: &Caller, id: &str) -> Result<SessionHandle, Problem> {
    let id = SessionId::identify(id)?;
    let session = api.registry.find(id).ok_or_else(|| {
        // A session that is let go when gander stops is not lost: it is there again after the start.
        if api.tasks.soft().is_cancelled() { Refusal::Draining.into() } else { SessionId::not_found() }
    })?;
    if caller.may_see(session.owner()) { Ok(session) } else { Err(SessionId::not_found()) }
}

#[cfg(test)]
mod tests;
