//! One item of a todo list: its text and how far it is.
//!
//! A status word where models put it says how far the item is; without one a check mark or strikethrough;
//! without those the box; else it is pending. What told the status is dropped from the text. Nothing else
//! is, and a word that is all there is stays.

use super::PlanEntryStatus::{self, Completed, InProgress, Pending};

/// The status words; of two that end alike the longer comes first.
const WORDS: [(&str, PlanEntryStatus); 13] = [
    ("not started", Pending),
    ("pending", Pending),
    ("todo", Pending),
    ("in progress", InProgress),
    ("in-progress", InProgress),
    ("wip", InProgress),
    ("doing", InProgress),
    ("started", InProgress),
    ("ongoing", InProgress),
    ("completed", Completed),
    ("complete", Completed),
    ("finished", Completed),
    ("done", Completed),
];

/// Check marks, each perhaps followed by a variation selector.
const CHECK_MARKS: [char; 3] = ['\u{2705}', '\u{2714}', '\u{2611}'];
const VARIATION_SELECTORS: [char; 2] = ['\u{fe0e}', '\u{fe0f}'];
/// What emphasis and inline code are made of.
const EMPHASIS: [char; 3] = ['*', '_', '`'];
const LONG_DASHES: [char; 2] = ['\u{2013}', '\u{2014}'];
const DASHES: [char; 3] = ['-', LONG_DASHES[0], LONG_DASHES[1]];
/// What may follow a trailing status.
const SENTENCE_ENDS: [char; 3] = ['.', '!', '\u{2026}'];

/// Reads the text behind a list marker. `None` when it has no text besides its status.
pub(super) fn read(text: &str) -> Option<(String, PlanEntryStatus)> {
    let mut item = Item { text: text.trim(), ..Item::default() };
    // Each step but the check marks' succeeds once at most, and those shrink the text, so this ends.
    while item.take_box()
        || item.take_check_marks()
        || item.take_strikethrough()
        || item.take_trailing_word()
        || item.take_leading_word()
    {}
    if item.text.is_empty() {
        return None;
    }
    let marked = item.is_marked.then_some(Completed);
    let status = item.trailing.or(item.leading).or(marked).or(item.box_status).unwrap_or(Pending);
    Some((item.text.to_owned(), status))
}

/// What is left of the text, and what has been found in it.
#[derive(Default)]
struct Item<'text> {
    text: &'text str,
    box_status: Option<PlanEntryStatus>,
    is_marked: bool,
    is_struck: bool,
    trailing: Option<PlanEntryStatus>,
    leading: Option<PlanEntryStatus>,
}

impl<'text> Item<'text> {
    fn take_box(&mut self) -> bool {
        if self.box_status.is_some() {
            return false;
        }
        let Some((status, rest)) = after_box(self.text) else {
            return false;
        };
        (self.box_status, self.text) = (Some(status), rest.trim_start());
        true
    }

    fn take_check_marks(&mut self) -> bool {
        let Some(rest) = self.text.strip_prefix(CHECK_MARKS) else {
            return false;
        };
        self.is_marked = true;
        self.text = rest.trim_start_matches(VARIATION_SELECTORS).trim_start();
        true
    }

    fn take_strikethrough(&mut self) -> bool {
        let inner = self.text.strip_prefix("~~").and_then(|rest| rest.strip_suffix("~~")).map(str::trim);
        match inner {
            // Two struck parts with something between them are not one.
            Some(inner) if !self.is_struck && !inner.is_empty() && !inner.contains("~~") => {
                (self.is_struck, self.is_marked, self.text) = (true, true, inner);
                true
            }
            _ => false,
        }
    }

    fn take_trailing_word(&mut self) -> bool {
        let found = if self.trailing.is_none() { before_trailing_word(self.text) } else { None };
        self.keep_rest(found, |item| &mut item.trailing)
    }

    fn take_leading_word(&mut self) -> bool {
        let found = if self.leading.is_none() { after_leading_word(self.text) } else { None };
        self.keep_rest(found, |item| &mut item.leading)
    }

    /// Drops a status word, unless nothing that can be read would be left.
    fn keep_rest(
        &mut self,
        found: Option<(PlanEntryStatus, &'text str)>,
        place: fn(&mut Self) -> &mut Option<PlanEntryStatus>,
    ) -> bool {
        match found {
            Some((status, rest)) if rest.chars().any(char::is_alphanumeric) => {
                *place(self) = Some(status);
                self.text = rest;
                true
            }
            _ => false,
        }
    }
}

/// `[x]` and its like. A link (`[x](…)`, `[x][…]`, `[x]: …`) is none.
fn after_box(text: &str) -> Option<(PlanEntryStatus, &str)> {
    let rest = text.strip_prefix('[')?;
    let mark = rest.chars().next()?;
    let status = match mark {
        ' ' => Pending,
        'x' | 'X' => Completed,
        '-' | '~' | '/' | '>' => InProgress,
        _ => return None,
    };
    let rest = rest[mark.len_utf8()..].strip_prefix(']')?;
    if rest.starts_with(['(', '[', ':']) { None } else { Some((status, rest)) }
}

/// `… (done)`, `… [DONE]`, `… — done`, `…: done`; what comes before it.
fn before_trailing_word(text: &str) -> Option<(PlanEntryStatus, &str)> {
    let text = text.trim_end_matches(SENTENCE_ENDS).trim_end();
    let open = match text.chars().next_back()? {
        ')' => '(',
        ']' => '[',
        _ => return before_word_after_separator(text),
    };
    let inner_end = text.len() - 1;
    let start = text.rfind(open)?;
    let status = status_of(&text[start + 1..inner_end])?;
    let before = &text[..start];
    // Right behind a letter it is a call or an index, right behind a bracket the target of a link.
    if before.ends_with(|last: char| last.is_alphanumeric() || last == ']') {
        return None;
    }
    let before = before.trim_end();
    Some((status, before_separator(before).map_or(before, |(before, _)| before)))
}

fn before_word_after_separator(text: &str) -> Option<(PlanEntryStatus, &str)> {
    let bare = text.trim_end_matches(EMPHASIS);
    let emphasis = &text[bare.len()..];
    WORDS.iter().find_map(|(word, status)| {
        let before = strip_suffix_ignoring_case(bare, word)?.strip_suffix(emphasis)?;
        let before = without_check_mark_at_end(before);
        let (rest, separator) = before_separator(before.trim_end())?;
        let is_apart = separator == Separator::LongDash || before.ends_with(char::is_whitespace);
        is_apart.then_some((*status, rest))
    })
}

/// What parts a trailing status word from the text.
#[derive(PartialEq, Eq)]
enum Separator {
    /// An en or em dash, which parts words by itself.
    LongDash,
    /// A colon, or a hyphen with white space before it. Without white space behind it too, it is part of a
    /// word: `tag:done`.
    Other,
}

/// The text before the colon or dash that it ends with.
fn before_separator(text: &str) -> Option<(&str, Separator)> {
    if let Some(before) = text.strip_suffix(':') {
        return Some((before.trim_end(), Separator::Other));
    }
    let before = text.trim_end_matches(DASHES);
    let separator = if text[before.len()..].contains(LONG_DASHES) {
        Separator::LongDash
    } else if before.len() < text.len() && before.ends_with(char::is_whitespace) {
        Separator::Other
    } else {
        return None;
    };
    Some((before.trim_end(), separator))
}

/// `[DONE] …`, `(done) …`, `WIP: …`; what comes behind it.
fn after_leading_word(text: &str) -> Option<(PlanEntryStatus, &str)> {
    let (open, close) = match text.chars().next()? {
        '[' => ('[', ']'),
        '(' => ('(', ')'),
        _ => return after_word_before_colon(text),
    };
    let inner = text.strip_prefix(open)?;
    let end = inner.find(close)?;
    let status = status_of(&inner[..end])?;
    let rest = &inner[end + 1..];
    if open == '[' && rest.starts_with(['(', '[']) {
        return None;
    }
    let rest = rest.trim_start();
    let unseparated = rest.trim_start_matches(|letter| letter == ':' || DASHES.contains(&letter));
    let is_separator = unseparated.starts_with(char::is_whitespace);
    Some((status, if is_separator { unseparated.trim_start() } else { rest }))
}

fn after_word_before_colon(text: &str) -> Option<(PlanEntryStatus, &str)> {
    let bare = text.trim_start_matches(EMPHASIS);
    let emphasis = &text[..text.len() - bare.len()];
    WORDS.iter().find_map(|(word, status)| {
        let rest = strip_prefix_ignoring_case(bare, word)?;
        // `**WIP**: …` and `**WIP:** …`
        let rest = match rest.strip_prefix(emphasis).and_then(|rest| rest.strip_prefix(':')) {
            Some(rest) => rest,
            None => rest.strip_prefix(':')?.strip_prefix(emphasis)?,
        };
        rest.starts_with(char::is_whitespace).then(|| (*status, rest.trim_start()))
    })
}

/// The status that the whole text is a word for.
fn status_of(text: &str) -> Option<PlanEntryStatus> {
    let text = text.trim().trim_start_matches(CHECK_MARKS).trim_start_matches(VARIATION_SELECTORS);
    let text = text.trim().trim_matches(EMPHASIS).trim_end_matches(SENTENCE_ENDS);
    WORDS.iter().find(|(word, _)| text.eq_ignore_ascii_case(word)).map(|(_, status)| *status)
}

/// `— ✅ done`: the mark says the same again.
fn without_check_mark_at_end(text: &str) -> &str {
    let unmarked = text.trim_end().trim_end_matches(VARIATION_SELECTORS);
    unmarked.strip_suffix(CHECK_MARKS).unwrap_or(text)
}

fn strip_suffix_ignoring_case<'text>(text: &'text str, suffix: &str) -> Option<&'text str> {
    let start = text.len().checked_sub(suffix.len())?;
    let (before, end) = text.split_at_checked(start)?;
    end.eq_ignore_ascii_case(suffix).then_some(before)
}

fn strip_prefix_ignoring_case<'text>(text: &'text str, prefix: &str) -> Option<&'text str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}
