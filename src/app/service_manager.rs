//! Tells the service manager (systemd with `Type=notify`) how far gander is.
//!
//! The protocol is a datagram of `NAME=value` lines to the socket that `NOTIFY_SOCKET` names (`sd_notify(3)`). Without
//! that variable nobody wants to know, and nothing is sent. gander's agents do not get the variable.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::time::Duration;

/// Who started gander and wants to know, if anybody does.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceManager {
    socket: Option<PathBuf>,
}

impl ServiceManager {
    /// One that listens on this socket: an absolute path, or a name that begins with `@` for the abstract namespace.
    pub(super) fn new(socket: Option<PathBuf>) -> Self {
        Self { socket }
    }

    /// gander serves.
    pub(super) fn ready(&self) {
        self.tell("READY=1");
    }

    /// gander stops, which may take so long.
    pub(super) fn stopping(&self, within: Duration) {
        // Without the second line it would be killed after the unit's own time, however long turns may go on.
        self.tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}", within.as_micros()));
    }

    fn tell(&self, state: &str) {
        if let Err(error) = self.send(state) {
            tracing::warn!(%error, "the service manager cannot be told how far gander is (NOTIFY_SOCKET)");
        }
    }

    fn send(&self, state: &str) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let address = match socket.as_os_str().as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(socket)?,
            _ => return Err(io::Error::from(io::ErrorKind::InvalidInput)),
        };
        // A manager that does not read must not hold up the start or the end.
        let sender = UnixDatagram::unbound()?;
        sender.set_nonblocking(true)?;
        sender.send_to_addr(state.as_bytes(), &address).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(manager: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let count = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..count].to_vec()).unwrap()
    }

    #[test]
    fn the_manager_is_told_by_path_and_by_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("@gander-test-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name.as_bytes()[1..]).unwrap();
        for (manager, socket) in [
            (UnixDatagram::bind(&path).unwrap(), path),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), PathBuf::from(name)),
        ] {
            let told = ServiceManager::new(Some(socket));
            told.ready();
            assert_eq!(received(&manager), "READY=1");
            told.stopping(Duration::from_millis(1500));
            assert_eq!(received(&manager), "STOPPING=1\nEXTEND_TIMEOUT_USEC=1500000");
        }
    }

    #[test]
    fn nobody_to_tell_is_no_trouble() {
        for socket in [None, Some("/no/such/socket"), Some("relative"), Some("")] {
            ServiceManager::new(socket.map(PathBuf::from)).ready();
        }
    }
}
