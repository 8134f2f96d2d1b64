//! `gander audit`: who did what, and when.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write as _};
use std::time::{Duration, SystemTime};

use clap::Args;

use super::{ConfigArguments, Failure};
use crate::app;
use crate::session::audit::{AuditEntry, AuditFilter, By};
use crate::session::id::{SessionId, Timestamp};

#[derive(Args)]
pub(super) struct AuditArguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Only what was done in this session; it may be deleted.
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// Only what was done since then: a time such as 2026-11-30T12:00:00Z, or how long ago, such as 24h.
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<Timestamp>,
    /// Only what this caller did.
    #[arg(long, value_name = "NAME")]
    caller: Option<String>,
    /// Each entry as a line of JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the entries, oldest first.
pub(super) fn audit(arguments: AuditArguments) -> Result<(), Failure> {
    let AuditArguments { config, session, since, caller, json } = arguments;
    let filter = AuditFilter { session, since, who: caller.map(|name| By::caller(&name).who()) };
    let mut log = app::read_audit(&config.load()?, filter).map_err(Failure::new)?;
    let mut out = BufWriter::new(io::stdout().lock());
    loop {
        let entries = log.next_page().map_err(Failure::new)?;
        if entries.is_empty() {
            return or_closed(out.flush());
        }
        for entry in entries {
            let line =
                if json { serde_json::to_string(&entry).map_err(Failure::new)? } else { line_of(&entry) };
            if let Err(error) = writeln!(out, "{line}") {
                return or_closed(Err(error));
            }
        }
    }
}

/// Who reads no further, as `head` does, has what it wanted.
fn or_closed(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(error)),
        _ => Ok(()),
    }
}

fn since(text: &str) -> Result<Timestamp, String> {
    let ago = |ago: Duration| SystemTime::now().checked_sub(ago).ok_or("that is too long ago".to_owned());
    let at = match humantime::parse_duration(text) {
        Ok(span) => ago(span)?,
        Err(_) => humantime::parse_rfc3339_weak(text)
            .map_err(|_| "not a time such as 2026-11-30T12:00:00Z, nor a span such as 24h".to_owned())?,
    };
    Ok(at.into())
}

/// For people: when, who, what, in which session, and the rest as `name=value`.
fn line_of(entry: &AuditEntry) -> String {
    let AuditEntry { at, who, what, session, request, details } = entry;
    let mut line = format!("{at}  {who:<20}  {what:<22}");
    // Writing to a string does not fail.
    let _ = match session {
        Some(session) => write!(line, "  session={session}"),
        None => Ok(()),
    };
    for (name, value) in details {
        let _ = match value.as_str() {
            // A name that somebody else chose stays on its line, and is no command to a terminal.
            Some(text) if text.chars().all(|letter| letter.is_ascii_graphic()) => {
                write!(line, "  {name}={text}")
            }
            _ => write!(line, "  {name}={value}"),
        };
    }
    if let Some(request) = request {
        let _ = write!(line, "  request={request}");
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_says_all_and_stays_a_line() {
        let details = json!({"decision": "allow", "tool": "a\n\u{1b}[2Jb", "fields": ["mode", "title"]});
        let entry = AuditEntry {
            at: Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123)),
            who: "caller:alice".into(),
            what: "permission.resolved".into(),
            session: None,
            request: Some("r-1".into()),
            details: details.as_object().unwrap().clone(),
        };
        assert_eq!(
            line_of(&entry),
            "2023-11-14T22:13:20.123Z  caller:alice          permission.resolved     decision=allow  \
             tool=\"a\\n\\u001b[2Jb\"  fields=[\"mode\",\"title\"]  request=r-1"
        );
    }

    #[test]
    fn since_is_a_time_or_a_span() {
        let at = since("2023-11-14T22:13:20.123Z").unwrap();
        assert_eq!(at.as_millis(), 1_700_000_000_123);
        assert_eq!(since("2023-11-14 22:13:20").unwrap().as_millis(), 1_700_000_000_000);
        let day = Timestamp::now().as_millis() - since("24h").unwrap().as_millis();
        assert!((86_400_000..86_460_000).contains(&day), "{day}");
        for bad in ["", "yesterday", "2023-13-01T00:00:00Z", "in 2h"] {
            assert!(since(bad).is_err(), "{bad}");
        }
    }
}
