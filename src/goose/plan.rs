//! goose's todo list, read as the plan.
//!
//! goose sends no ACP plan: its `todo_write` tool call carries the whole list as markdown, in whatever shape
//! the model gave it. This reads that markdown line by line. A line with a list marker is an item; headings,
//! prose, continuation lines and everything between code fences are not. The module `item` reads one item's text.
//!
//! Architecture invariant: nothing here fails. Any text is either a plan, an empty plan, or no plan, and
//! the work is linear in its length.

mod item;
#[cfg(test)]
mod tests;

/// One entry of the plan. Its priority is always medium: markdown has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    /// The item's text, without marker, box and status; never empty, without a line feed.
    pub content: String,
    /// How far it is.
    pub status: PlanEntryStatus,
    /// How deeply it is nested; 0 is the outermost, and it grows by at most one from entry to entry.
    pub depth: u32,
}

/// How far a plan entry is, in ACP's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanEntryStatus {
    /// Not begun.
    Pending,
    /// Being worked on.
    InProgress,
    /// Done.
    Completed,
}

/// What a todo write means for the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedPlan {
    /// The list's items in their order; at least one.
    Entries(Vec<PlanEntry>),
    /// The write is empty, or only white space: the plan is cleared.
    Cleared,
    /// There is text but no list item with text in it: the write is an ordinary tool call.
    NoItems,
}

/// Columns that a nested item is indented by at least, seen from its parent's marker. Models nest by two
/// spaces below ordered items too, where markdown itself wants three.
const NESTING: usize = 2;

/// Columns from one tab stop to the next.
const TAB: usize = 4;

/// Reads what `todo_write` was given.
#[must_use]
pub fn parse(markdown: &str) -> ParsedPlan {
    if markdown.trim().is_empty() {
        return ParsedPlan::Cleared;
    }
    let mut reader = Reader::default();
    for line in markdown.split(['\n', '\r']) {
        reader.read(line);
    }
    if reader.entries.is_empty() { ParsedPlan::NoItems } else { ParsedPlan::Entries(reader.entries) }
}

/// What is known after the lines read so far.
#[derive(Default)]
struct Reader {
    entries: Vec<PlanEntry>,
    /// The columns of the markers of the items that a following one may be nested in, outermost first.
    parents: Vec<usize>,
    /// The open code fence.
    fence: Option<Fence>,
    after_blank_line: bool,
}

impl Reader {
    fn read(&mut self, line: &str) {
        let (column, text) = indentation(line);
        if text.is_empty() {
            self.after_blank_line = true;
            return;
        }
        let after_blank_line = std::mem::take(&mut self.after_blank_line);
        if let Some(fence) = &self.fence {
            // A line further out than the item that holds the fence ends the item, and the fence with it.
            if column >= fence.container {
                if fence.is_closed_by(text) {
                    self.fence = None;
                }
                return;
            }
            self.fence = None;
        }
        if is_thematic_break(text) {
            self.leave(column);
        } else if let Some(item) = after_markers(text) {
            self.add(column, item);
        } else if let Some(fence) = Fence::opened_by(text, self.content_column(column)) {
            self.fence = Some(fence);
        } else if after_blank_line || text.starts_with('#') {
            // A heading or a paragraph of its own ends the lists that it is not indented into.
            self.leave(column);
        }
    }

    fn add(&mut self, column: usize, text: &str) {
        self.leave(column);
        self.fence = Fence::opened_by(text, column + NESTING);
        if self.fence.is_some() && !text.contains(char::is_alphanumeric) {
            return;
        }
        let Some((content, status)) = item::read(text) else {
            return;
        };
        let depth = u32::try_from(self.parents.len()).unwrap_or(u32::MAX);
        self.parents.push(column);
        self.entries.push(PlanEntry { content, status, depth });
    }

    /// Forgets the items that nothing at this column can be nested in.
    fn leave(&mut self, column: usize) {
        while self.parents.last().is_some_and(|parent| column < parent + NESTING) {
            self.parents.pop();
        }
    }

    /// Where the text of the innermost item begins that something at this column belongs to; 0 outside.
    fn content_column(&self, column: usize) -> usize {
        // The columns grow from parent to parent.
        let around = self.parents.partition_point(|parent| parent + NESTING <= column);
        around.checked_sub(1).map_or(0, |innermost| self.parents[innermost] + NESTING)
    }
}

/// An open code fence (`CommonMark` 0.31, section 4.5).
struct Fence {
    mark: char,
    length: usize,
    /// The column that the lines of the item around it have at least.
    container: usize,
}

impl Fence {
    fn opened_by(text: &str, container: usize) -> Option<Self> {
        let mark = text.chars().next().filter(|first| matches!(first, '`' | '~'))?;
        let info = text.trim_start_matches(mark);
        let length = text.len() - info.len();
        // With another mark behind it, it is code or strikethrough within one line.
        (length >= 3 && !info.contains(['`', '~'])).then_some(Self { mark, length, container })
    }

    fn is_closed_by(&self, text: &str) -> bool {
        let rest = text.trim_start_matches(self.mark);
        text.len() - rest.len() >= self.length && rest.trim().is_empty()
    }
}

/// The column at which the line's text begins, and the text without the white space around it.
fn indentation(line: &str) -> (usize, &str) {
    let text = line.trim_start();
    let blank = line[..line.len() - text.len()].chars();
    let column = blank.fold(0, |column, letter| match letter {
        '\t' => column / TAB * TAB + TAB,
        _ => column + 1,
    });
    (column, text.trim_end())
}

/// Whether the line is a rule across the page: three or more of one mark and nothing else.
fn is_thematic_break(text: &str) -> bool {
    let Some(mark) = text.chars().next().filter(|first| matches!(first, '-' | '*' | '_')) else {
        return false;
    };
    let mut marks = 0_usize;
    for letter in text.chars() {
        if letter == mark {
            marks += 1;
        } else if !letter.is_whitespace() {
            return false;
        }
    }
    marks >= 3
}

/// The text behind the item's marker, or `None` when the line is no item. Further bullets right behind it
/// (`- - text`) are nested lists in markdown; they hold one item between them.
fn after_markers(text: &str) -> Option<&str> {
    let mut item = after_bullet(text).or_else(|| after_number(text))?;
    while let Some(inner) = after_bullet(item) {
        item = inner;
    }
    Some(item)
}

fn after_bullet(text: &str) -> Option<&str> {
    blank_or_nothing(text.strip_prefix(['-', '*', '+'])?)
}

/// A number has one to nine digits (`CommonMark` 0.31, section 5.2).
fn after_number(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let digits = text.len() - rest.len();
    if !(1..=9).contains(&digits) {
        return None;
    }
    blank_or_nothing(rest.strip_prefix(['.', ')'])?)
}

/// What follows a marker's white space; without any, it was no marker.
fn blank_or_nothing(text: &str) -> Option<&str> {
    let rest = text.trim_start();
    (text.is_empty() || rest.len() < text.len()).then_some(rest)
}
