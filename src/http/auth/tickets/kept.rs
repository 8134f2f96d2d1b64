//! The file of stream tickets: their hashes, and when each was used last.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::super::secret::{from_hex, to_hex};
use super::{Ticket, TicketHash};

/// Far more than all tickets take.
const MAX_BYTES: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct Line {
    ticket: String,
    token: Option<String>,
    last_used_s: u64,
}

/// No file is no ticket.
pub(super) fn read(path: &Path) -> io::Result<HashMap<TicketHash, Ticket>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
        file => file?,
    };
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    let mut tickets = HashMap::new();
    for line in text.lines() {
        let Line { ticket, token, last_used_s } = serde_json::from_str(line)?;
        let hash = |text: &str| {
            from_hex(text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a hash"))
        };
        let token = token.as_deref().map(hash).transpose()?;
        let last_used = SystemTime::UNIX_EPOCH + Duration::from_secs(last_used_s);
        tickets.insert(hash(&ticket)?, Ticket { token, uses: 0, last_used });
    }
    Ok(tickets)
}

/// Puts the new file in the old one's place in one step.
pub(super) fn write(path: &Path, tickets: &HashMap<TicketHash, Ticket>) -> io::Result<()> {
    let mut text = Vec::new();
    for (hash, ticket) in tickets {
        let since_epoch = ticket.last_used.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let line = Line {
            ticket: to_hex(hash),
            token: ticket.token.as_ref().map(to_hex),
            last_used_s: since_epoch.as_secs(),
        };
        serde_json::to_writer(&mut text, &line)?;
        text.push(b'\n');
    }
    let draft = path.with_extension(format!("{:016x}", getrandom::u64().map_err(io::Error::other)?));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut file| file.write_all(&text))
        .and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // Nothing more can be done about a draft that cannot be removed either.
        let _ = fs::remove_file(&draft);
    }
    written
}
