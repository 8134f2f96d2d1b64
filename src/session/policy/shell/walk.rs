//! From the parser's tree to what a line runs for certain, and to what it may run.

use std::panic::{AssertUnwindSafe, catch_unwind};

use brush_parser::ast::{
    AndOr, AndOrList, Command, CommandPrefixOrSuffixItem as Item, CompoundCommand, CompoundList,
    IoFileRedirectKind as Redirects, IoFileRedirectTarget as Target, IoRedirect, Program, RedirectList,
    SeparatorOperator, SimpleCommand as Simple, Word,
};
use brush_parser::word::{WordPiece, WordPieceWithSource};
use brush_parser::{Parser, ParserOptions};

use super::found::{Found, FoundCommand};
use super::raw::RawWords;
use super::word::{literal, quoted};
use super::{LineCommand, ShellLine, filter, programs};

/// Substitutions within substitutions that are still looked into.
const DEPTH: usize = 4;

pub(super) fn read(line: &str) -> ShellLine {
    let mut reader = Reader::default();
    reader.line(line, 0);
    let Reader { commands, refusal, found, .. } = reader;
    ShellLine { commands: refusal.map_or(Ok(commands), Err), found }
}

fn options() -> ParserOptions {
    // As in `bash -c`.
    ParserOptions { enable_extended_globbing: false, ..ParserOptions::default() }
}

fn parse(line: &str) -> Option<Program> {
    // A parser that gives up in a panic has not understood the line.
    let program = catch_unwind(AssertUnwindSafe(|| Parser::new(line.as_bytes(), &options()).parse_program()));
    program.ok()?.ok()
}

/// Collects what a line runs.
#[derive(Default)]
struct Reader {
    /// What it runs for certain, unless there is a refusal.
    commands: Vec<LineCommand>,
    /// The first thing that cannot be decided.
    refusal: Option<String>,
    found: Found,
    depth: usize,
    /// Whether the commands read what others write.
    piped: bool,
}

impl Reader {
    fn refuse(&mut self, why: impl Into<String>) {
        self.refusal.get_or_insert_with(|| why.into());
    }

    fn line(&mut self, line: &str, depth: usize) {
        self.depth = depth;
        let refusal = filter::refuse(line);
        match refusal.map_or_else(|| parse(line), |_| None) {
            Some(program) => {
                if program.complete_commands.is_empty() && depth == 0 {
                    self.refuse("it runs nothing");
                }
                program.complete_commands.iter().for_each(|list| self.list(list));
            }
            None => {
                self.refuse(refusal.unwrap_or("it cannot be parsed"));
                self.text(line);
            }
        }
    }

    /// A text that is not understood, but in which there may be commands.
    fn text(&mut self, text: &str) {
        self.found.texts.push(RawWords::of(text));
        self.found.more = true;
    }

    fn list(&mut self, list: &CompoundList) {
        for item in &list.0 {
            if matches!(item.1, SeparatorOperator::Async) {
                self.refuse("it runs a command in the background");
            }
            self.and_or(&item.0);
        }
    }

    fn and_or(&mut self, list: &AndOrList) {
        let more = list.additional.iter().map(|next| match next {
            AndOr::And(pipeline) | AndOr::Or(pipeline) => pipeline,
        });
        for pipeline in std::iter::once(&list.first).chain(more) {
            let outer = self.piped;
            if pipeline.seq.is_empty() {
                self.refuse("it has an empty command in it");
            }
            for command in &pipeline.seq {
                self.command(command);
                self.piped = true;
            }
            self.piped = outer;
        }
    }

    fn command(&mut self, command: &Command) {
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Compound(compound, redirects) => {
                self.compound(compound);
                self.redirects(redirects.as_ref());
            }
            Command::Function(function) => {
                self.refuse("it defines a function");
                self.compound(&function.body.0);
                self.redirects(function.body.1.as_ref());
            }
            Command::ExtendedTest(test, redirects) => {
                self.refuse("it has a [[ … ]] in it");
                self.unread(&test.to_string());
                self.redirects(redirects.as_ref());
            }
        }
    }

    fn compound(&mut self, compound: &CompoundCommand) {
        match compound {
            CompoundCommand::BraceGroup(group) => self.list(&group.list),
            CompoundCommand::Subshell(subshell) => self.list(&subshell.list),
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition);
                self.list(&clause.then);
                for other in clause.elses.iter().flatten() {
                    other.condition.iter().for_each(|condition| self.list(condition));
                    self.list(&other.body);
                }
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.list(&clause.0);
                self.list(&clause.1.list);
            }
            CompoundCommand::ForClause(clause) => {
                self.refuse("it has a for loop in it, which sets a variable");
                clause.values.iter().flatten().for_each(|word| self.inside(word));
                self.list(&clause.body.list);
            }
            CompoundCommand::CaseClause(clause) => {
                self.refuse("it has a case in it");
                self.inside(&clause.value);
                for case in &clause.cases {
                    case.patterns.iter().for_each(|word| self.inside(word));
                    case.cmd.iter().for_each(|list| self.list(list));
                }
            }
            CompoundCommand::Arithmetic(arithmetic) => {
                // The parser takes `( (ls) )` for one too.
                self.refuse("it calculates");
                self.text(&arithmetic.expr.value);
            }
            CompoundCommand::ArithmeticForClause(clause) => {
                self.refuse("it calculates");
                let parts = [&clause.initializer, &clause.condition, &clause.updater];
                parts.into_iter().flatten().for_each(|part| self.unread(&part.value));
                self.list(&clause.body.list);
            }
            CompoundCommand::Coprocess(coprocess) => {
                self.refuse("it runs a coprocess");
                self.command(&coprocess.body);
            }
        }
    }

    fn simple(&mut self, simple: &Simple) {
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                Item::AssignmentWord(_, word) => {
                    self.refuse(format!("it sets a variable ({})", quoted(&word.value)));
                    self.inside(word);
                }
                Item::IoRedirect(redirect) => self.redirect(redirect),
                Item::Word(word) => self.inside(word),
                Item::ProcessSubstitution(_, subshell) => self.process(&subshell.list),
            }
        }
        let Some(name) = &simple.word_or_name else {
            self.refuse("it has a redirection without a command in it");
            return;
        };
        let mut words = vec![self.word(name)];
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            match item {
                Item::Word(word) | Item::AssignmentWord(_, word) => words.push(self.word(word)),
                Item::IoRedirect(redirect) => self.redirect(redirect),
                Item::ProcessSubstitution(_, subshell) => {
                    self.process(&subshell.list);
                    words.push(None);
                }
            }
        }
        self.run(words);
    }

    /// A simple command whose words are known, or not.
    fn run(&mut self, words: Vec<Option<String>>) {
        let known: Vec<String> = words.iter().flatten().cloned().collect();
        let runs_others = words[0].is_some() && programs::runs_others(&known);
        let takes_input = self.piped && programs::interprets_input(&known);
        if takes_input {
            self.refuse(format!("{} may run what is written to it", quoted(&known[0])));
        }
        // What it runs may be in any of its words, in part of one, or in what is written to it.
        if words[0].is_none() || takes_input || (runs_others && words.contains(&None)) {
            self.found.more = true;
        }
        if runs_others {
            for word in known.iter().filter(|word| !is_simple(word)) {
                self.found.texts.push(RawWords::of(word));
                self.found.more |= !word.chars().all(|letter| " =,".contains(letter) || is_plain(letter));
            }
        }
        if known.len() == words.len() {
            self.commands.push(LineCommand { words: known, runs_others });
        }
        self.found.commands.push(FoundCommand { words, runs_others });
    }

    /// What a word says, when that is known.
    fn word(&mut self, word: &Word) -> Option<String> {
        match literal(&word.value) {
            Ok(literal) => Some(literal),
            Err(why) => {
                self.refuse(format!("the word {} {}", shown(&word.value), why.words()));
                self.inside(word);
                None
            }
        }
    }

    /// The commands within a word.
    fn inside(&mut self, word: &Word) {
        if literal(&word.value).is_ok() {
            return;
        }
        self.refuse("it has a word in it that is only known when it is run");
        self.unread(&word.value);
    }

    /// The commands within a text of words: its substitutions.
    fn unread(&mut self, text: &str) {
        if !has_substitution(text) {
            return;
        }
        let pieces = catch_unwind(AssertUnwindSafe(|| brush_parser::word::parse(text, &options())));
        match pieces {
            Ok(Ok(pieces)) if self.depth < DEPTH => self.pieces(&pieces),
            _ => self.text(text),
        }
    }

    fn pieces(&mut self, pieces: &[WordPieceWithSource]) {
        for piece in pieces {
            match &piece.piece {
                WordPiece::CommandSubstitution(line) => self.nested(line),
                WordPiece::BackquotedCommandSubstitution(line) if !line.contains('\\') => self.nested(line),
                WordPiece::BackquotedCommandSubstitution(line) => self.text(line),
                WordPiece::DoubleQuotedSequence(pieces) | WordPiece::GettextDoubleQuotedSequence(pieces) => {
                    self.pieces(pieces);
                }
                WordPiece::SingleQuotedText(_)
                | WordPiece::EscapeSequence(_)
                | WordPiece::TildeExpansion(_) => {}
                WordPiece::Text(text) | WordPiece::AnsiCQuotedText(text) => self.piece_text(text),
                WordPiece::ParameterExpansion(expansion) => self.piece_text(&format!("{expansion:?}")),
                WordPiece::ArithmeticExpression(expression) => self.piece_text(&expression.value),
            }
        }
    }

    fn piece_text(&mut self, text: &str) {
        if has_substitution(text) {
            self.text(text);
        }
    }

    /// A line within the line.
    fn nested(&mut self, line: &str) {
        let (depth, piped) = (self.depth, self.piped);
        self.piped = false;
        self.line(line, depth + 1);
        (self.depth, self.piped) = (depth, piped);
    }

    fn process(&mut self, list: &CompoundList) {
        self.refuse("it has a process substitution in it");
        self.list(list);
    }

    fn redirects(&mut self, redirects: Option<&RedirectList>) {
        redirects.iter().flat_map(|redirects| &redirects.0).for_each(|redirect| self.redirect(redirect));
    }

    /// Only from one descriptor to another, and to nothing.
    fn redirect(&mut self, redirect: &IoRedirect) {
        match redirect {
            IoRedirect::File(_, Redirects::DuplicateInput | Redirects::DuplicateOutput, Target::Fd(_)) => {}
            IoRedirect::File(
                _,
                Redirects::DuplicateInput | Redirects::DuplicateOutput,
                Target::Duplicate(word),
            ) if is_descriptor(&word.value) => {}
            IoRedirect::File(_, kind, Target::Filename(word))
                if !matches!(kind, Redirects::ReadAndWrite) && is_nothing(&word.value) => {}
            IoRedirect::OutputAndError(word, _) if is_nothing(&word.value) => {}
            IoRedirect::File(_, _, Target::Filename(word) | Target::Duplicate(word))
            | IoRedirect::OutputAndError(word, _)
            | IoRedirect::HereString(_, word) => {
                self.refuse(format!("it redirects to or from {}", shown(&word.value)));
                self.inside(word);
            }
            IoRedirect::File(_, _, Target::ProcessSubstitution(_, subshell)) => self.process(&subshell.list),
            IoRedirect::File(_, _, Target::Fd(_)) => self.refuse("it redirects a descriptor"),
            IoRedirect::HereDocument(_, document) => {
                self.refuse("it has a here-document in it");
                self.text(&document.doc.value);
            }
        }
    }
}

fn is_descriptor(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_nothing(word: &str) -> bool {
    word == "/dev/null"
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_./:@%+^-".contains(letter)
}

/// A word in which no command can be but the word itself.
fn is_simple(word: &str) -> bool {
    matches!(word, "{}" | ";") || word.chars().all(is_plain)
}

fn has_substitution(text: &str) -> bool {
    ["$(", "`", "<(", ">(", "${"].iter().any(|opening| text.contains(opening))
}

/// A word's text for a message: not much of it.
fn shown(text: &str) -> String {
    const CHARS: usize = 40;
    let short: String = text.chars().take(CHARS).collect();
    let dots = if short.len() < text.len() { "…" } else { "" };
    format!("{}{dots}", quoted(&short))
}
