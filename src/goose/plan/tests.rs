use proptest::prelude::*;

use super::PlanEntryStatus::{self, Completed, InProgress, Pending};
use super::{ParsedPlan, PlanEntry, parse};

fn entries(markdown: &str) -> Vec<PlanEntry> {
    match parse(markdown) {
        ParsedPlan::Entries(entries) => entries,
        ParsedPlan::Cleared | ParsedPlan::NoItems => Vec::new(),
    }
}

/// The list as lines of `depth content`.
fn outline(markdown: &str) -> Vec<String> {
    entries(markdown).iter().map(|entry| format!("{} {}", entry.depth, entry.content)).collect()
}

/// Items and what they are read as; the text is what follows the bullet.
const ITEMS: &[(&str, PlanEntryStatus, &str)] = &[
    // Boxes.
    ("[ ] Draft", Pending, "Draft"),
    ("[x] Draft", Completed, "Draft"),
    ("[X] Draft", Completed, "Draft"),
    ("[-] Draft", InProgress, "Draft"),
    ("[~] Draft", InProgress, "Draft"),
    ("[/] Draft", InProgress, "Draft"),
    ("[>] Draft", InProgress, "Draft"),
    ("[x]Draft", Completed, "Draft"),
    ("[x]   Draft  ", Completed, "Draft"),
    ("Draft", Pending, "Draft"),
    ("[?] Draft", Pending, "[?] Draft"),
    ("[xx] Draft", Pending, "[xx] Draft"),
    ("[x](https://a.example) Draft", Pending, "[x](https://a.example) Draft"),
    ("[x][1] Draft", Pending, "[x][1] Draft"),
    ("[link](https://a.example)", Pending, "[link](https://a.example)"),
    ("[x] [link](https://a.example)", Completed, "[link](https://a.example)"),
    ("[ ] [x] Draft", Pending, "[x] Draft"),
    // Trailing words after a dash.
    ("Draft report — in progress", InProgress, "Draft report"),
    ("Draft report – in-progress", InProgress, "Draft report"),
    ("Draft report - done", Completed, "Draft report"),
    ("Draft report -- done", Completed, "Draft report"),
    ("Draft report—done", Completed, "Draft report"),
    ("Draft report — not started", Pending, "Draft report"),
    ("Draft report — started", InProgress, "Draft report"),
    ("[x] Draft report — pending", Pending, "Draft report"),
    ("[ ] Draft report — Completed.", Completed, "Draft report"),
    ("Draft report — **done**", Completed, "Draft report"),
    ("Draft report — _in progress_ …", InProgress, "Draft report"),
    ("Draft report — ✅ done", Completed, "Draft report"),
    ("Draft report - ✅ done!", Completed, "Draft report"),
    ("Draft report — DOING", InProgress, "Draft report"),
    ("Über uns – FINISHED", Completed, "Über uns"),
    // Trailing words after a colon.
    ("Draft report: in progress", InProgress, "Draft report"),
    ("Draft report : wip", InProgress, "Draft report"),
    ("Draft report:ongoing", Pending, "Draft report:ongoing"),
    // Trailing words in brackets.
    ("Draft report (done)", Completed, "Draft report"),
    ("Draft report [DONE]", Completed, "Draft report"),
    ("Draft report ( In Progress )", InProgress, "Draft report"),
    ("Draft report (**done**)", Completed, "Draft report"),
    ("Draft report (✅ done)", Completed, "Draft report"),
    ("Draft report — (done)", Completed, "Draft report"),
    ("Draft report: [WIP]", InProgress, "Draft report"),
    ("Draft report (done).", Completed, "Draft report"),
    ("**Draft** (complete)", Completed, "**Draft**"),
    ("Draft (part 1) (todo)", Pending, "Draft (part 1)"),
    ("Call run(done)", Pending, "Call run(done)"),
    ("Read [the list](done)", Pending, "Read [the list](done)"),
    ("Read [the list][done]", Pending, "Read [the list][done]"),
    ("Draft (done, see below)", Pending, "Draft (done, see below)"),
    // Leading words.
    ("[DONE] Draft report", Completed, "Draft report"),
    ("(done) Draft report", Completed, "Draft report"),
    ("[in progress]: Draft report", InProgress, "Draft report"),
    ("[WIP] - Draft report", InProgress, "Draft report"),
    ("WIP: Draft report", InProgress, "Draft report"),
    ("In progress: Draft report", InProgress, "Draft report"),
    ("**WIP:** Draft report", InProgress, "Draft report"),
    ("**WIP**: Draft report", InProgress, "Draft report"),
    ("TODO: Draft report", Pending, "Draft report"),
    ("[x] TODO: Draft report", Pending, "Draft report"),
    ("todo:draft", Pending, "todo:draft"),
    ("[done](https://a.example) Draft", Pending, "[done](https://a.example) Draft"),
    ("Done - Draft report", Pending, "Done - Draft report"),
    // Words that are only words.
    ("Get the work done today", Pending, "Get the work done today"),
    ("Make sure that it is done", Pending, "Make sure that it is done"),
    ("Build a todo app", Pending, "Build a todo app"),
    ("A job well-done", Pending, "A job well-done"),
    ("Ship it — almost done", Pending, "Ship it — almost done"),
    ("Undone: nothing", Pending, "Undone: nothing"),
    ("Done", Pending, "Done"),
    ("[x] Done", Completed, "Done"),
    ("(done)", Pending, "(done)"),
    ("WIP:", Pending, "WIP:"),
    ("Todo: in progress", InProgress, "Todo"),
    ("Explain the word — todo: done", Completed, "Explain the word — todo"),
    // Check marks and strikethrough.
    ("✅ Draft", Completed, "Draft"),
    ("✔ Draft", Completed, "Draft"),
    ("✔\u{fe0f} Draft", Completed, "Draft"),
    ("☑\u{fe0f}Draft", Completed, "Draft"),
    ("✅✅ Draft", Completed, "Draft"),
    ("[ ] ✅ Draft", Completed, "Draft"),
    ("✅ [ ] Draft", Completed, "Draft"),
    ("Draft ✅", Pending, "Draft ✅"),
    ("~~Draft~~", Completed, "Draft"),
    ("[ ] ~~Draft the report~~", Completed, "Draft the report"),
    ("~~Draft~~ (in progress)", InProgress, "Draft"),
    ("~~Draft — done~~", Completed, "Draft"),
    ("✅ ~~Draft~~", Completed, "Draft"),
    ("~~✅ Draft~~", Completed, "Draft"),
    ("~~Draft~~ and ~~send~~", Pending, "~~Draft~~ and ~~send~~"),
    ("~~Draft~~ Send", Pending, "~~Draft~~ Send"),
    // All at once.
    ("[ ] ✅ Done thing (done)", Completed, "Done thing"),
    ("[x] [WIP] Draft", InProgress, "Draft"),
    ("[DONE] Draft (in progress)", InProgress, "Draft"),
    // Other markdown stays.
    ("**Bold** and `code` _too_", Pending, "**Bold** and `code` _too_"),
    ("[ ] # no heading", Pending, "# no heading"),
    ("1. in a bullet", Pending, "1. in a bullet"),
];

#[test]
fn items_are_read_as_the_table_says() {
    for (text, status, content) in ITEMS {
        for marker in ["-", "*", "+", "1.", "23)", "  -"] {
            let expected = PlanEntry { content: (*content).to_owned(), status: *status, depth: 0 };
            assert_eq!(entries(&format!("{marker} {text}")), [expected], "{marker} {text}");
        }
    }
}

#[test]
fn every_word_is_known_everywhere() {
    let words = [
        (Completed, &["done", "completed", "complete", "finished"][..]),
        (InProgress, &["in progress", "in-progress", "wip", "doing", "started", "ongoing"]),
        (Pending, &["pending", "todo", "not started"]),
    ];
    for (status, word) in
        words.iter().flat_map(|(status, words)| words.iter().map(move |word| (status, word)))
    {
        for written in [(*word).to_owned(), word.to_uppercase(), word[..1].to_uppercase() + &word[1..]] {
            for text in [
                format!("A — {written}"),
                format!("A – {written}"),
                format!("A - {written}"),
                format!("A: {written}"),
                format!("A ({written})"),
                format!("A [{written}]"),
                format!("[{written}] A"),
                format!("({written}) A"),
                format!("{written}: A"),
            ] {
                // Both boxes, so that a word that changed nothing would be seen.
                for (mark, other) in [("x", Completed), ("-", InProgress)] {
                    let read = entries(&format!("- [{mark}] {text}"));
                    assert_eq!(
                        (read[0].content.as_str(), read[0].status),
                        ("A", *status),
                        "{text} {other:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_is_no_item_is_skipped() {
    for (markdown, expected) in [
        ("# Plan\nSome words\n- a\nmore words\n## Next\n- b\n", &["0 a", "0 b"][..]),
        ("- a\r\n- b\r\n", &["0 a", "0 b"]),
        ("- a\r- b", &["0 a", "0 b"]),
        ("---\n- a\n***\n* * *\n- - -\n___\n- b", &["0 a", "0 b"]),
        ("-a\n*b*\n+1\n1.5 is\n1234567890. x\n-- c\n- d", &["0 d"]),
        ("1986. was a year", &["0 was a year"]),
        ("- [ ]\n- [x] \n-\n- ✅\n- a", &["0 a"]),
        ("- a\n  continued\n- b", &["0 a", "0 b"]),
        ("> - quoted\n- a", &["0 a"]),
        ("- - a\n- * + b", &["0 a", "0 b"]),
        // Code.
        ("```\n- code\n```\n- a", &["0 a"]),
        ("~~~ text\n- code\n```\n- code\n~~~~\n- a", &["0 a"]),
        ("````\n```\n- code\n````\n- a", &["0 a"]),
        ("- a\n  ```sh\n  - code\n  ```\n- b", &["0 a", "0 b"]),
        ("- a\n  ```sh\n  - code\n- b", &["0 a", "0 b"]),
        ("- a\n  - b\n    ```\n    - code\n  - c", &["0 a", "1 b", "1 c"]),
        ("- ```\n  - code\n  ```\n- a", &["0 a"]),
        ("- ```sh\n  - code\n  ```\n- a", &["0 ```sh", "0 a"]),
        ("- ```inline``` code\n- a", &["0 ```inline``` code", "0 a"]),
        ("- a\n```\n- never closed", &["0 a"]),
    ] {
        assert_eq!(outline(markdown), expected, "{markdown:?}");
    }
}

#[test]
fn nesting_is_told_by_indentation() {
    for (markdown, expected) in [
        ("- a\n  - b\n    - c\n- d", &["0 a", "1 b", "2 c", "0 d"][..]),
        ("- a\n    - b\n        - c\n    - d", &["0 a", "1 b", "2 c", "1 d"]),
        ("- a\n\t- b\n\t\t- c\n\t- d", &["0 a", "1 b", "2 c", "1 d"]),
        ("- a\n\t- b\n    - c\n  \t- d\n", &["0 a", "1 b", "1 c", "1 d"]),
        ("1. a\n   - b\n   - c\n2. d", &["0 a", "1 b", "1 c", "0 d"]),
        ("1. a\n  1) b\n2. c", &["0 a", "1 b", "0 c"]),
        ("- a\n - b\n- c", &["0 a", "0 b", "0 c"]),
        ("    - a\n    - b\n      - c", &["0 a", "0 b", "1 c"]),
        ("- a\n        - b\n  - c\n      - d", &["0 a", "1 b", "1 c", "2 d"]),
        ("    - a\n  - b\n- c", &["0 a", "0 b", "0 c"]),
        ("- a\n\n  - b\n\n- c", &["0 a", "1 b", "0 c"]),
        ("- a\n\n  words of a\n\n  - b", &["0 a", "1 b"]),
        ("- a\nlazy words\n  - b", &["0 a", "1 b"]),
        ("- a\n\nA paragraph\n\n  - b", &["0 a", "0 b"]),
        ("- a\n# Heading\n  - b", &["0 a", "0 b"]),
        ("- a\n---\n  - b", &["0 a", "0 b"]),
        ("- [ ]\n  - a\n    - b", &["0 a", "1 b"]),
    ] {
        assert_eq!(outline(markdown), expected, "{markdown:?}");
    }
}

#[test]
fn an_empty_write_clears_and_prose_is_no_plan() {
    for empty in ["", " ", "\n\t\r\n", "\u{a0}\u{3000}"] {
        assert_eq!(parse(empty), ParsedPlan::Cleared, "{empty:?}");
    }
    for prose in ["Buy milk", "# Heading", "---", "- [ ]", "```\n- a\n```", "-", "2026-11-30", "\u{feff}"] {
        assert_eq!(parse(prose), ParsedPlan::NoItems, "{prose:?}");
    }
}

#[test]
fn hostile_text_takes_no_longer_than_its_length() {
    // A megabyte each: anything quadratic would take minutes.
    let megabyte = |pattern: &str| pattern.repeat((1 << 20) / pattern.len());
    for pattern in
        ["- ", "- - - a\n", "✅ ", "- [x", "- (", "~~", "- ~~a", "```\n", "- a: ", "[done] ", "a\t", "1. "]
    {
        for text in
            [megabyte(pattern), format!("- {}", megabyte(pattern)), format!("- a{}(done)", megabyte(pattern))]
        {
            assert_ne!(parse(&text), ParsedPlan::Cleared);
        }
    }
    let deep = (0..1000).map(|level| format!("{}- a\n", "  ".repeat(level))).collect::<Vec<_>>().concat();
    assert_eq!(entries(&deep).last().map(|entry| entry.depth), Some(999));
    assert_eq!(entries(&(deep + &megabyte("```\n"))).len(), 1000);
}

/// The letters and digits of a text.
fn readable(text: &str) -> String {
    text.chars().filter(|letter| letter.is_alphanumeric()).collect()
}

/// What may be missing at an end of an item's readable text.
fn is_status(text: &str) -> bool {
    const WORDS: [&str; 12] = [
        "done",
        "completed",
        "complete",
        "finished",
        "inprogress",
        "wip",
        "doing",
        "started",
        "ongoing",
        "pending",
        "todo",
        "notstarted",
    ];
    text.is_empty() || WORDS.contains(&text.to_ascii_lowercase().as_str())
}

/// Text in which everything that means something is frequent.
fn item_text() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "[",
        "]",
        "(",
        ")",
        "[x]",
        "[ ]",
        "[-]",
        "✅",
        "\u{fe0f}",
        "~~",
        "~",
        "**",
        "_",
        "`",
        ":",
        " - ",
        "—",
        "–",
        "-",
        " ",
        "  ",
        "\t",
        ".",
        "!",
        "…",
        "done",
        "Done",
        "in progress",
        "in-progress",
        "WIP",
        "todo",
        "not started",
        "started",
        "a",
        "ß",
        "report",
        "1",
        "1.",
        "#",
        ">",
        "é",
        "日本",
    ]);
    prop::collection::vec(prop_oneof![6 => pieces.prop_map(str::to_owned), 1 => "\\PC{0,3}"], 0..14)
        .prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_text_is_read(markdown in "(?s).{0,300}") {
        prop_assert_eq!(parse(&markdown) == ParsedPlan::Cleared, markdown.trim().is_empty());
    }

    #[test]
    fn any_markdown_is_read_into_a_flat_tree(lines in prop::collection::vec(("[ \t]{0,9}", "([-*+]|1[.)]|```|~~~|#|)", " ?", item_text()), 0..30)) {
        let lines: Vec<String> =
            lines.iter().map(|(indent, marker, blank, text)| format!("{indent}{marker}{blank}{text}\n")).collect();
        let markdown = lines.concat();
        let mut deepest = 0;
        for entry in entries(&markdown) {
            prop_assert!(entry.depth <= deepest, "{} after {}", entry.depth, deepest);
            prop_assert!(!entry.content.trim().is_empty() && !entry.content.contains(['\n', '\r']));
            prop_assert_eq!(entry.content.trim(), &entry.content);
            deepest = entry.depth + 1;
        }
    }

    #[test]
    fn no_text_of_an_item_is_lost_but_its_status(text in item_text()) {
        let before = readable(&text);
        let read = entries(&format!("- {text}"));
        let Some(entry) = read.first() else {
            // Nothing to read, but for the x of a box.
            prop_assert!(before.is_empty() || before == "x", "{} was lost", text);
            return Ok(());
        };
        let after = readable(&entry.content);
        // A box's x and one status word may be missing before it, one status word behind it.
        let is_explained = before.match_indices(&after).any(|(start, _)| {
            let lead = &before[..start];
            let words = [Some(lead), lead.strip_prefix('x'), lead.strip_suffix('x')];
            words.into_iter().flatten().any(is_status) && is_status(&before[start + after.len()..])
        });
        prop_assert!(is_explained, "{:?} became {:?}", text, entry.content);
    }

    #[test]
    fn no_item_is_lost(items in prop::collection::vec(("[a-z][a-z ]{0,20}[b-z]q", 0_usize..4), 1..20)) {
        let lines: Vec<String> =
            items.iter().map(|(text, depth)| format!("{}- [ ] {text}\n", "  ".repeat(*depth))).collect();
        let contents: Vec<String> = entries(&lines.concat()).into_iter().map(|entry| entry.content).collect();
        let expected: Vec<String> = items.into_iter().map(|(text, _)| text).collect();
        prop_assert_eq!(contents, expected);
    }
}
