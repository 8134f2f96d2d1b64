//! What a command writes: bytes to text as they come, and the last of it kept.

/// Bytes to text, piece by piece. A character that is cut by the end of a piece waits for its rest.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The beginning of a character, at most three bytes.
    begun: Vec<u8>,
}

impl Decoder {
    /// The text of a piece; what is no UTF-8 is replaced.
    pub(super) fn decode(&mut self, piece: &[u8]) -> String {
        let joined;
        let mut rest = if self.begun.is_empty() {
            piece
        } else {
            joined = [std::mem::take(&mut self.begun), piece.to_vec()].concat();
            &joined
        };
        let mut text = String::with_capacity(rest.len());
        loop {
            let error = match str::from_utf8(rest) {
                Ok(sound) => {
                    text.push_str(sound);
                    return text;
                }
                Err(error) => error,
            };
            let (sound, after) = rest.split_at(error.valid_up_to());
            text.push_str(str::from_utf8(sound).unwrap_or_default());
            let Some(bad) = error.error_len() else {
                self.begun = after.to_vec();
                return text;
            };
            text.push(char::REPLACEMENT_CHARACTER);
            rest = &after[bad..];
        }
    }

    /// What is left when nothing follows.
    pub(super) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned()
    }
}

/// The end of a text.
#[derive(Debug)]
pub(super) struct KeptEnd {
    /// At most twice the limit.
    text: String,
    limit: usize,
    is_cut: bool,
}

impl KeptEnd {
    /// Keeps so many bytes, the last ones.
    pub(super) fn new(limit: usize) -> Self {
        Self { text: String::new(), limit, is_cut: false }
    }

    pub(super) fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
        if self.text.len() > self.limit.saturating_mul(2) {
            self.cut();
        }
    }

    /// The end, whole characters only, and whether something is missing before it.
    pub(super) fn get(&mut self) -> (&str, bool) {
        if self.text.len() > self.limit {
            self.cut();
        }
        (&self.text, self.is_cut)
    }

    fn cut(&mut self) {
        let surplus = self.text.len() - self.limit;
        self.text.drain(..self.text.ceil_char_boundary(surplus));
        self.is_cut = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_cut_of_any_bytes_gives_the_same_text(bytes: Vec<u8>, size in 1_usize..7) {
            let mut decoder = Decoder::default();
            let mut text: String = bytes.chunks(size).map(|piece| decoder.decode(piece)).collect();
            text.push_str(&decoder.finish());
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn the_end_is_kept_in_whole_characters(pieces: Vec<String>, limit in 0_usize..20) {
            let mut kept = KeptEnd::new(limit);
            for piece in &pieces {
                kept.push(piece);
                prop_assert!(kept.text.len() <= 2 * limit);
            }
            let whole = pieces.concat();
            let (end, is_cut) = kept.get();
            prop_assert!(whole.ends_with(end) && end.len() <= limit);
            prop_assert_eq!(is_cut, end.len() < whole.len());
            let before = whole[..whole.len() - end.len()].chars().next_back();
            prop_assert!(before.is_none_or(|before| end.len() + before.len_utf8() > limit));
        }
    }

    #[test]
    fn a_character_in_two_pieces_comes_whole() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(b"a\xc3"), "a");
        assert_eq!(decoder.decode(b"\xa4b"), "\u{e4}b");
        assert_eq!(decoder.decode(b"\xff\xe2\x82"), "\u{fffd}");
        assert_eq!(decoder.finish(), "\u{fffd}");
    }
}
