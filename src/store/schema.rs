//! The database file: opened, checked, locked, and brought to this version's tables.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The database's name within the storage folder.
const DATABASE: &str = "gander.db";
/// The lock's name within the storage folder. The file stays; only the lock on it tells that a gateway runs.
const LOCK: &str = "gander.lock";
/// `gndr`: tells gander's databases from others'.
const APPLICATION_ID: i64 = 0x676e_6472;
/// A statement waits so long for another connection's lock. Readers never block the writer in WAL mode: this is for
/// the short moments in which the log of changes is reset.
pub(super) const BUSY: Duration = Duration::from_secs(5);
/// Statements that a connection keeps compiled: more than there are.
const STATEMENTS: usize = 64;
/// A larger write-ahead log is cut back to this when it restarts.
const WAL_BYTES_KEPT: i64 = 64 * 1024 * 1024;

/// Forward only: the first makes version 1 of an empty database, each further one the next version of the one before.
const MIGRATIONS: &[&str] = &[
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
    include_str!("schema/5.sql"),
    include_str!("schema/6.sql"),
];

/// Tables that start-up reads and that are small enough to be checked whole. The events are not: there may be
/// gigabytes of them, and whoever reads a damaged one gets an error.
const CHECKED_TABLES: [&str; 5] = ["sessions", "permissions", "deletions", "last_run", "lost"];

/// Why the store did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder or a file in it cannot be used.
    #[error("cannot use {}: {source}", .path.display())]
    File {
        /// The folder or file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another gateway runs on this folder.
    #[error("another gander is using {}", .dir.display())]
    InUse {
        /// The storage folder.
        dir: PathBuf,
    },
    /// Another program's database.
    #[error("{} is not gander's database", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// No database, or a broken one.
    #[error("{} is damaged: {detail}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A newer gander wrote it.
    #[error("{} was written by a newer gander (schema {found}, this one knows up to {known})", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The file's schema version.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// An older gander wrote it, and this one has not been started on it.
    #[error(
        "{} was written by an older gander (schema {found}, this one reads {known}): start this one on it first",
        .path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// The file's schema version.
        found: i64,
        /// The version that this program reads.
        known: i64,
    },
    /// Anything else that the database refused, e.g. a full disk.
    #[error("cannot open {}: {source}", .path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What `SQLite` says.
        source: rusqlite::Error,
    },
    /// A thread did not start.
    #[error("cannot start the store's threads: {0}")]
    Thread(io::Error),
}

/// How long the folder's lock is waited for. A gander that was killed while it started a process leaves that process
/// the lock until it runs its program, so the one that starts next can find it taken for a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// How long until the lock is tried again.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// How careful a commit is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// Survives the death of the process; the last moments may be lost with the power.
    #[default]
    Normal,
    /// Survives the loss of power too.
    Full,
}

/// Makes the folder if there is none, and takes its lock, which is free again when the file is dropped.
pub(super) fn lock(dir: &Path) -> Result<File, OpenError> {
    let file_error = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::File { path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(file_error(dir))?;
    let path = dir.join(LOCK);
    let file = private_file(&path).map_err(file_error(&path))?;
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK) => return Err(OpenError::InUse { dir: dir.to_owned() }),
            Err(errno) => return Err(OpenError::File { path, source: errno.into() }),
        }
    }
}

/// Opens or makes a file that only its owner can read.
fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Opens the writer's connection; makes or migrates the tables. The folder must be locked.
pub(super) fn open(dir: &Path, sync: Synchronous) -> Result<Connection, OpenError> {
    let path = dir.join(DATABASE);
    let file_error = |source| OpenError::File { path: path.clone(), source };
    // Closed again before `SQLite` opens it: closing a file gives up all of the process's locks on it.
    drop(private_file(&path).map_err(file_error)?);
    let connection = open_checked(&path, sync).map_err(|fault| fault.at(path.clone()))?;
    // Only now is it certain that the file is gander's. `SQLite` gives the files beside it the same permissions.
    fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(file_error)?;
    Ok(connection)
}

/// Opens one more connection, which can only read.
pub(super) fn open_reader(dir: &Path) -> Result<Connection, OpenError> {
    let path = dir.join(DATABASE);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    connect(&path, flags).map_err(|error| open_error(dir, error))
}

/// Opens one more connection that can write, for checkpoints.
pub(super) fn open_checkpointer(dir: &Path, sync: Synchronous) -> Result<Connection, OpenError> {
    let path = dir.join(DATABASE);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = connect(&path, flags).and_then(|connection| {
        set_up_writing(&connection, sync)?;
        Ok(connection)
    });
    opened.map_err(|error| open_error(dir, error))
}

/// Opens the database beside whoever may use it: for reading only, without a lock, and nothing is made.
pub(super) fn open_beside(dir: &Path) -> Result<Connection, OpenError> {
    let path = dir.join(DATABASE);
    fs::metadata(&path).map_err(|source| OpenError::File { path: path.clone(), source })?;
    let connection = open_reader(dir)?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let version = || -> rusqlite::Result<(i64, i64)> {
        Ok((pragma(&connection, "application_id")?, pragma(&connection, "user_version")?))
    };
    match version().map_err(|error| open_error(dir, error))? {
        (APPLICATION_ID, found) if found == known => Ok(connection),
        (APPLICATION_ID, found) if found > known => Err(OpenError::Newer { path, found, known }),
        (APPLICATION_ID, found) => Err(OpenError::Older { path, found, known }),
        _ => Err(OpenError::Foreign { path }),
    }
}

/// What an error of the database at opening means.
pub(super) fn open_error(dir: &Path, error: rusqlite::Error) -> OpenError {
    Fault::from(error).at(dir.join(DATABASE))
}

/// An [`OpenError`] without the file's name.
enum Fault {
    Foreign,
    Damaged(String),
    Newer { found: i64, known: i64 },
    Database(rusqlite::Error),
}

impl Fault {
    fn at(self, path: PathBuf) -> OpenError {
        match self {
            Self::Foreign => OpenError::Foreign { path },
            Self::Damaged(detail) => OpenError::Damaged { path, detail },
            Self::Newer { found, known } => OpenError::Newer { path, found, known },
            Self::Database(source) => OpenError::Database { path, source },
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Damaged(error.to_string()),
            _ => Self::Database(error),
        }
    }
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

fn open_checked(path: &Path, sync: Synchronous) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = connect(path, flags)?;
    // Nothing is written before it is certain that the file is gander's.
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let found = pragma(&connection, "user_version")?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    match pragma(&connection, "application_id")? {
        APPLICATION_ID if found > known => return Err(Fault::Newer { found, known }),
        APPLICATION_ID => {}
        0 if found == 0 && tables == 0 => {
            // Both hold only when they are set before the first page is written.
            connection.pragma_update(None, "page_size", 4096)?;
            connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        }
        _ => return Err(Fault::Foreign),
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    set_up_writing(&connection, sync)?;
    migrate(&mut connection, found)?;
    check(&connection)?;
    Ok(connection)
}

fn set_up_writing(connection: &Connection, sync: Synchronous) -> rusqlite::Result<()> {
    let level = match sync {
        Synchronous::Normal => "NORMAL",
        Synchronous::Full => "FULL",
    };
    connection.pragma_update(None, "synchronous", level)?;
    // A checkpoint within a commit makes everybody wait for it; a thread of its own does them.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)?;
    // What a deleted session said is overwritten where its page stays in use. Free pages leave the file.
    connection.pragma_update(None, "secure_delete", "FAST")
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

fn migrate(connection: &mut Connection, found: i64) -> rusqlite::Result<()> {
    for (version, sql) in (1_i64..).zip(MIGRATIONS) {
        if version <= found {
            continue;
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}

fn check(connection: &Connection) -> Result<(), Fault> {
    for table in CHECKED_TABLES {
        let verdict: String =
            connection.query_row(&format!("PRAGMA quick_check('{table}')"), (), |row| row.get(0))?;
        if verdict != "ok" {
            return Err(Fault::Damaged(verdict));
        }
    }
    Ok(())
}
