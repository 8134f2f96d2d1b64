//! The token that gander makes when it is given none.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::Role;
use super::secret;
use super::tokens::TokenEntry;

const FILE_NAME: &str = "token";

/// Tells people, and secret scanners, what it is.
const PREFIX: &str = "gander_";

/// The token that gander made, kept in a file only its user can read.
///
/// Its caller is called `default` and has every role, `admin` too: it is the token of the gateway's owner, who could
/// read the database as well, and who has to see the sessions that callers of an earlier tokens file left.
#[derive(Clone, PartialEq, Eq)]
pub struct GeneratedToken {
    secret: String,
    path: PathBuf,
}

impl GeneratedToken {
    /// The token itself.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Where it is kept.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whom the token stands for.
pub(super) fn owner_entry() -> TokenEntry {
    let mut roles = Role::default_set();
    roles.insert(Role::Admin);
    TokenEntry { name: "default".into(), roles }
}

impl fmt::Debug for GeneratedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeneratedToken").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The token kept in `dir`; made when there is none. `dir` is made, too, for its user alone.
///
/// Two gateways that start at once end up with the same token. Fails when the file holds something else than a token.
pub fn ensure_token(dir: &Path) -> io::Result<GeneratedToken> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let path = dir.join(FILE_NAME);
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(dir, &path)?,
        read => return read,
    }
    // Not what was just written but what is there: another gateway may have been faster.
    read(&path)
}

fn read(path: &Path) -> io::Result<GeneratedToken> {
    let mut text = String::new();
    let file = File::open(path)?;
    // A backup or a copy may have widened the rights.
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    file.take(1024).read_to_string(&mut text)?;
    let secret = text.trim();
    let digits = secret.strip_prefix(PREFIX).unwrap_or("");
    if digits.len() != secret::DIGITS || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        let message = format!("{} does not hold a token; remove it and a new one is made", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(GeneratedToken { secret: secret.to_owned(), path: path.to_owned() })
}

/// Writes a new token beside its place and then puts it there in one step, unless one is there by then.
fn create(dir: &Path, path: &Path) -> io::Result<()> {
    let secret = secret::random(PREFIX)?;
    // Its own draft for everyone who tries at the same time.
    let draft = dir.join(format!(".{FILE_NAME}.{:016x}", getrandom::u64().map_err(io::Error::other)?));
    let written = write(&draft, &secret).and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    fs::remove_file(&draft)?;
    written?;
    // The file's name is safe on disk only once its folder is.
    File::open(dir)?.sync_all()
}

fn write(draft: &Path, secret: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    writeln!(file, "{secret}")?;
    file.sync_all()
}
