//! Secrets that gander makes.

use std::fmt::Write as _;
use std::io;

/// 256 bits.
const RANDOM_BYTES: usize = 32;

/// Hexadecimal digits of a secret behind its prefix.
pub(super) const DIGITS: usize = RANDOM_BYTES * 2;

/// A new secret. The prefix tells people, and secret scanners, what it is.
pub(super) fn random(prefix: &str) -> io::Result<String> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(prefix.to_owned() + &to_hex(&bytes))
}

/// As digits in lower case.
pub(super) fn to_hex(bytes: &[u8; RANDOM_BYTES]) -> String {
    bytes.iter().fold(String::with_capacity(DIGITS), |mut text, byte| {
        // Writing into a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The other way round; `None` for anything else than that many digits.
pub(super) fn from_hex(text: &str) -> Option<[u8; RANDOM_BYTES]> {
    let digits = text.as_bytes();
    if digits.len() != DIGITS {
        return None;
    }
    let mut bytes = [0; RANDOM_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(bytes)
}
