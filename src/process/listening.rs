//! Which process listens on a port.

use std::fs;

use rustix::process::Pid;

/// `TCP_LISTEN` in `/proc/<pid>/net/tcp`.
const LISTENING: &str = "0A";

/// Whether a process has a socket that listens on a TCP port.
pub(super) fn listens_on(pid: Pid, port: u16) -> bool {
    let pid = pid.as_raw_nonzero();
    let inodes: Vec<String> = ["tcp", "tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok())
        .flat_map(|table| listeners(&table, port))
        .collect();
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().filter_map(|descriptor| fs::read_link(descriptor.path()).ok()).any(|target| {
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.iter().any(|known| known == inode))
    })
}

/// The inodes of the sockets that listen on a port, from a table as proc(5) describes it.
fn listeners(table: &str, port: u16) -> Vec<String> {
    let ending = format!(":{port:04X}");
    let listener = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let local = fields.nth(1)?;
        let state = fields.nth(1)?;
        let inode = fields.nth(5)?;
        (local.ends_with(&ending) && state == LISTENING).then(|| inode.to_owned())
    };
    table.lines().skip(1).filter_map(listener).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustix::process::{getpid, getppid};

    use super::*;

    #[test]
    fn a_listener_is_found_with_the_one_that_has_it() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine without IPv6 has no such address.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            assert!(listens_on(getpid(), port), "{address}");
            assert!(!listens_on(getppid().unwrap(), port), "{address}");
            drop(listener);
            assert!(!listens_on(getpid(), port), "{address}");
        }
    }

    #[test]
    fn only_what_listens_counts() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:26DF 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0\n   \
                     1: 0100007F:26DF 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 78 1 0\n   \
                     2: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 79 1 0\n";
        assert_eq!(listeners(table, 0x26DF), ["77"]);
        assert_eq!(listeners(table, 80), ["79"]);
        assert!(listeners(table, 81).is_empty() && listeners("", 80).is_empty());
    }
}
