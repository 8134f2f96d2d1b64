//! Which lines are parsed at all.
//!
//! The parser alone takes all memory on a here-document that is not closed within a substitution, is exponential in
//! nested parentheses, and overflows its stack on thousands of them (measured). What is not let through here is never
//! understood, hence never allowed.

/// Bytes of a line.
const LINE_BYTES: usize = 16 * 1024;
/// Parentheses, braces, brackets, backquotes, exclamation marks and keywords: what the parser goes a level deeper for.
const NESTING: usize = 16;
/// Digits before a redirection: the parser reads them as a 32-bit number.
const DESCRIPTOR_DIGITS: usize = 4;

const OPENING_WORDS: [&str; 10] =
    ["if", "while", "until", "for", "case", "select", "function", "coproc", "do", "then"];

/// Why a line is not to be parsed.
pub(super) fn refuse(line: &str) -> Option<&'static str> {
    if line.len() > LINE_BYTES {
        Some("it is longer than 16 KiB")
    } else if line.contains("<<") {
        Some("it has a here-document or a here-string in it")
    } else if line.contains("((") {
        Some("it has (( in it")
    } else if line.contains("=~") {
        Some("it compares with a regular expression")
    } else if line.contains("}<") || line.contains("}>") {
        Some("it may redirect a descriptor that a variable names")
    } else if line.contains("\\\n") {
        Some("it has a line that goes on after a backslash")
    } else if line.chars().any(is_deceptive) {
        Some("it has a character in it that is not seen or looks like a blank")
    } else if nesting(line) > NESTING {
        Some("it is nested too much")
    } else if has_long_descriptor(line) {
        Some("it redirects a file descriptor that does not exist")
    } else {
        None
    }
}

/// Control characters, and those that people do not see, take for a blank, or see in another order.
pub(super) fn is_deceptive(letter: char) -> bool {
    match letter {
        '\t' | '\n' | ' ' => false,
        // Unicode's default ignorable characters, and those that turn the direction of writing.
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        letter => letter.is_control() || letter.is_whitespace(),
    }
}

fn nesting(line: &str) -> usize {
    // Each `!` in [[ … ]] is one level deeper too.
    let signs = line.chars().filter(|letter| "(){}[]`!".contains(*letter)).count();
    let words = line.split(|letter: char| !letter.is_ascii_alphanumeric());
    signs + words.filter(|word| OPENING_WORDS.contains(word)).count()
}

fn has_long_descriptor(line: &str) -> bool {
    let mut digits = 0;
    line.bytes().any(|byte| {
        let is_long = matches!(byte, b'<' | b'>') && digits > DESCRIPTOR_DIGITS;
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        is_long
    })
}
