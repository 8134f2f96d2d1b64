//! How the gateway tells a new child what to run, and learns how that went.
//!
//! A socket pair stands in for the shim's standard error, and so for the exec helper's:
//!
//! 1. the gateway puts one byte with the real standard error's descriptor into it, then starts the shim (before it one
//!    with the pipe for the shim's own reports, if the shim lingers);
//! 2. the exec helper says [`Report::Started`] and waits, so that the gateway can take hold of it by its number;
//! 3. the gateway writes the [`ProcessSpec`] and closes its direction;
//! 4. the exec helper says [`Report::Ready`] and becomes the program, which closes the socket: the end of the
//!    stream after `Ready` means that the program runs. [`Report::Failed`] may come in place of anything.
//!
//! Neither command line nor environment of a helper ever shows the program's, and nothing has to be taken off
//! the front of the program's own standard input.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::ProcessSpec;
use super::table::positive;

/// What went wrong in a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Making the process ready: sessions, signals, descriptors.
    Setup,
    /// Entering the working directory.
    WorkingDirectory,
    /// Becoming the program.
    Exec,
}

/// What a helper tells the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The exec helper lives and waits; its number will be the program's.
    Started(Pid),
    /// The specification was read; the next thing is the program.
    Ready,
    /// The helper gave up, with the system's error number.
    Failed(Step, i32),
    /// The program has ended, with the system's word for how. Of a shim that lingers.
    Ended(i32),
}

impl Report {
    const LENGTH: usize = 5;

    /// A kind and a number.
    fn encode(self) -> [u8; Self::LENGTH] {
        let (kind, number) = match self {
            Self::Started(pid) => (b'S', pid.as_raw_nonzero().get()),
            Self::Ready => (b'R', 0),
            Self::Failed(Step::Setup, errno) => (b'h', errno),
            Self::Failed(Step::WorkingDirectory, errno) => (b'w', errno),
            Self::Failed(Step::Exec, errno) => (b'x', errno),
            Self::Ended(status) => (b'E', status),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [kind, a, b, c, d]
    }

    fn decode([kind, a, b, c, d]: [u8; Self::LENGTH]) -> Option<Self> {
        let number = i32::from_le_bytes([a, b, c, d]);
        Some(match kind {
            b'S' => Self::Started(positive(number)?),
            b'R' => Self::Ready,
            b'h' => Self::Failed(Step::Setup, number),
            b'w' => Self::Failed(Step::WorkingDirectory, number),
            b'x' => Self::Failed(Step::Exec, number),
            b'E' => Self::Ended(number),
            _ => return None,
        })
    }

    /// Sends the report. Nobody may be left to read it, and then there is nothing more to do about that.
    pub(super) fn send(self, control: impl AsFd) {
        let _unread = rustix::io::write(control, &self.encode());
    }

    /// The next report; `None` at the end of the stream, and for anything that is no report.
    pub(super) async fn receive(control: &mut (impl AsyncRead + Unpin)) -> Option<Self> {
        let mut frame = [0; Self::LENGTH];
        control.read_exact(&mut frame).await.ok()?;
        Self::decode(frame)
    }
}

/// Puts a descriptor into the socket, with the one byte it has to travel with.
pub(super) fn send_descriptor(control: impl AsFd, descriptor: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(control, &[IoSlice::new(b"D")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes the descriptor out of the socket. It is closed when the program starts, unless it is duplicated.
pub(super) fn receive_descriptor(control: impl AsFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(control, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    ancillary
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        })
        .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Why a specification cannot be handed to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSpec {
    /// The system's strings end at a NUL.
    #[error("a NUL byte in the program, an argument, the environment or the working directory")]
    NulByte,
    /// An empty name, or `=` in one, would be read as another variable.
    #[error("an environment variable whose name is empty or holds `=`")]
    VariableName,
}

/// Writes a specification as NUL-terminated strings: program, working directory, numbers of arguments and of
/// variables, the arguments, then the environment's `NAME=value`. The numbers tell when the end is missing.
pub(super) fn encode_spec(spec: &ProcessSpec) -> Result<Vec<u8>, InvalidSpec> {
    let mut encoded = Vec::new();
    let mut push = |parts: &[&OsStr]| {
        for part in parts {
            if memchr::memchr(0, part.as_bytes()).is_some() {
                return Err(InvalidSpec::NulByte);
            }
            encoded.extend_from_slice(part.as_bytes());
        }
        encoded.push(0);
        Ok(())
    };
    push(&[spec.program.as_os_str()])?;
    push(&[spec.cwd.as_os_str()])?;
    push(&[OsStr::new(&spec.arguments.len().to_string())])?;
    push(&[OsStr::new(&spec.environment.len().to_string())])?;
    for argument in &spec.arguments {
        push(&[argument])?;
    }
    for (name, value) in &spec.environment {
        if name.is_empty() || memchr::memchr(b'=', name.as_bytes()).is_some() {
            return Err(InvalidSpec::VariableName);
        }
        push(&[name, OsStr::new("="), value])?;
    }
    Ok(encoded)
}

/// Reads what [`encode_spec`] wrote; `None` when it was cut off.
pub(super) fn decode_spec(encoded: &[u8]) -> Option<ProcessSpec> {
    let mut strings = encoded.strip_suffix(&[0])?.split(|byte| *byte == 0);
    let mut next = || strings.next().map(|bytes| OsString::from_vec(bytes.to_vec()));
    let program = PathBuf::from(next()?);
    let cwd = PathBuf::from(next()?);
    let argument_count: usize = next()?.to_str()?.parse().ok()?;
    let variable_count: usize = next()?.to_str()?.parse().ok()?;
    let arguments = (0..argument_count).map(|_| next()).collect::<Option<Vec<_>>>()?;
    let environment = strings
        .map(|variable| {
            let equals = memchr::memchr(b'=', variable)?;
            let (name, value) = (variable.get(..equals)?, variable.get(equals + 1..)?);
            Some((OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec())))
        })
        .collect::<Option<Vec<_>>>()?;
    if environment.len() != variable_count {
        return None;
    }
    Some(ProcessSpec { program, arguments, environment, cwd })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = OsString> {
        prop::collection::vec(1..=u8::MAX, 0..12).prop_map(OsString::from_vec)
    }

    fn name() -> impl Strategy<Value = OsString> {
        prop::collection::vec((1..=u8::MAX).prop_filter("no =", |byte| *byte != b'='), 1..12)
            .prop_map(OsString::from_vec)
    }

    proptest! {
        #[test]
        fn every_specification_arrives_as_it_was_or_not_at_all(
            program in text(),
            cwd in text(),
            arguments in prop::collection::vec(text(), 0..5),
            environment in prop::collection::vec((name(), text()), 0..5),
        ) {
            let spec = ProcessSpec { program: program.into(), arguments, environment, cwd: cwd.into() };
            let encoded = encode_spec(&spec).unwrap();
            for end in 0..encoded.len() {
                prop_assert_eq!(decode_spec(&encoded[..end]), None);
            }
            prop_assert_eq!(decode_spec(&encoded), Some(spec));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _read = decode_spec(&bytes);
        }
    }

    #[test]
    fn what_the_system_cannot_carry_is_refused() {
        let spec = |argument: &str, variable: &str| ProcessSpec {
            program: "p".into(),
            arguments: vec![argument.into()],
            environment: vec![(variable.into(), "v".into())],
            cwd: "/".into(),
        };
        assert!(encode_spec(&spec("a", "V")).is_ok());
        assert_eq!(encode_spec(&spec("a\0b", "V")), Err(InvalidSpec::NulByte));
        assert_eq!(encode_spec(&spec("a", "V\0")), Err(InvalidSpec::NulByte));
        assert_eq!(encode_spec(&spec("a", "V=W")), Err(InvalidSpec::VariableName));
        assert_eq!(encode_spec(&spec("a", "")), Err(InvalidSpec::VariableName));
    }

    #[tokio::test]
    async fn reports_arrive_in_order_and_then_end() {
        let reports = [
            Report::Started(positive(4711).unwrap()),
            Report::Ready,
            Report::Failed(Step::Setup, 1),
            Report::Failed(Step::WorkingDirectory, 2),
            Report::Failed(Step::Exec, 13),
            Report::Ended(3 << 8),
        ];
        let (ours, theirs) = UnixStream::pair().unwrap();
        for report in reports {
            report.send(&theirs);
        }
        drop(theirs);
        ours.set_nonblocking(true).unwrap();
        let mut ours = tokio::net::UnixStream::from_std(ours).unwrap();
        for report in reports {
            assert_eq!(Report::receive(&mut ours).await, Some(report));
        }
        assert_eq!(Report::receive(&mut ours).await, None);
    }

    #[test]
    fn a_descriptor_travels() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        send_descriptor(&ours, &writer).unwrap();
        drop(writer);
        let received = receive_descriptor(&theirs).unwrap();
        rustix::io::write(&received, b"x").unwrap();
        let mut byte = [0];
        rustix::io::read(&reader, &mut byte).unwrap();
        assert_eq!(byte, *b"x");
    }
}
