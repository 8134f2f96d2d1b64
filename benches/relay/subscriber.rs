//! A subscriber that costs as little as it can: it looks for marks in what it reads and takes nothing apart.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use memchr::memmem::Finder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Outcome;
use super::machine::monotonic_ns;

/// What comes before the text of a piece of a message, in gander's events and in the agent's lines alike.
const TEXT: &[u8] = b"\"text\":\"";
/// The fake agent's text: a sequence number of nine digits, a blank, the clock in nineteen.
const SEQUENCE_DIGITS: usize = 9;
const CLOCK_DIGITS: usize = 19;
const STAMP_BYTES: usize = SEQUENCE_DIGITS + 1 + CLOCK_DIGITS;
/// Longer than each mark with what belongs to it: what may be the beginning of one is at most so long.
const CARRY_BYTES: usize = 64;
/// How much one read takes, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// Where all subscribers of a bench read to, one after the other, so that thousands need no memory of their own.
#[derive(Clone)]
pub(crate) struct ReadBuffer(Rc<RefCell<Vec<u8>>>);

impl ReadBuffer {
    pub(crate) fn new() -> Self {
        Self(Rc::new(RefCell::new(vec![0; CARRY_BYTES + READ_BYTES])))
    }
}

/// One event of the fake agent, as it arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Its number in the flood, from 0.
    pub(crate) sequence: u64,
    /// From the agent's look at the clock to the end of the subscriber's read.
    pub(crate) latency_ns: i64,
}

impl Arrival {
    /// In milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "latencies are far below 2^52 ns")]
    pub(crate) fn latency_ms(self) -> f64 {
        self.latency_ns as f64 / 1e6
    }
}

/// What a subscriber got.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    /// Events of the flood.
    pub(crate) events: u64,
    /// Bytes on the wire.
    pub(crate) bytes: u64,
}

/// An open stream.
pub(crate) struct Subscriber {
    stream: TcpStream,
    buffer: ReadBuffer,
    /// Ends the flood.
    end: Finder<'static>,
    /// What was read and may be the beginning of a mark.
    carry: Vec<u8>,
}

impl Subscriber {
    /// Sends a request, `lines` without the last blank one, and waits for the head of a good answer.
    pub(crate) async fn open(
        address: SocketAddr,
        lines: &str,
        end: &'static str,
        buffer: &ReadBuffer,
    ) -> Outcome<Self> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("{lines}\r\n\r\n").as_bytes()).await?;
        let mut head = Vec::new();
        let head_end = loop {
            if stream.read_buf(&mut head).await? == 0 {
                return Err("a stream ended in its head".into());
            }
            if let Some(end) = Finder::new(b"\r\n\r\n").find(&head) {
                break end;
            }
        };
        if !head.starts_with(b"HTTP/1.1 200 ") {
            return Err(format!("no stream: {}", String::from_utf8_lossy(&head)).into());
        }
        let carry = head.split_off(head_end);
        Ok(Self { stream, buffer: buffer.clone(), end: Finder::new(end), carry })
    }

    /// Counts the flood's events until its end.
    pub(crate) async fn count(self) -> Outcome<Received> {
        self.read(|_, _| ()).await
    }

    /// Gives every event of the flood to `each`.
    pub(crate) async fn arrivals(self, mut each: impl FnMut(Arrival)) -> Outcome<Received> {
        self.read(|stamp, now_ns| {
            let (sequence, clock) = stamp.split_at(SEQUENCE_DIGITS);
            let clock_ns = number(&clock[1..]).cast_signed();
            each(Arrival { sequence: number(sequence), latency_ns: now_ns - clock_ns });
        })
        .await
    }

    async fn read(mut self, mut each: impl FnMut(&[u8], i64)) -> Outcome<Received> {
        let text = Finder::new(TEXT);
        let mut received = Received { bytes: self.carry.len() as u64, ..Received::default() };
        loop {
            self.stream.readable().await?;
            let mut buffer = self.buffer.0.borrow_mut();
            let kept = self.carry.len();
            if buffer.len() < kept + READ_BYTES {
                buffer.resize(kept + READ_BYTES, 0);
            }
            let count = match self.stream.try_read(&mut buffer[kept..]) {
                Ok(0) => return Err("a stream was cut".into()),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            };
            let now_ns = monotonic_ns();
            received.bytes += count as u64;
            buffer[..kept].copy_from_slice(&self.carry);
            let read = &buffer[..kept + count];
            let end = self.end.find(read);
            let flood = &read[..end.unwrap_or(read.len())];
            let mut seen = 0;
            for at in text.find_iter(flood) {
                let stamp = at + TEXT.len()..at + TEXT.len() + STAMP_BYTES;
                let Some(bytes) = flood.get(stamp.clone()) else { break };
                // Other texts, as the prompt's, begin with a letter.
                if bytes[0].is_ascii_digit() {
                    received.events += 1;
                    each(bytes, now_ns);
                }
                seen = stamp.end;
            }
            if end.is_some() {
                return Ok(received);
            }
            self.carry.clear();
            self.carry.extend_from_slice(&read[seen.max(read.len().saturating_sub(CARRY_BYTES))..]);
        }
    }
}

fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit.wrapping_sub(b'0')))
}
