//! The demo job: what the model does with a prompt that holds no script.
//!
//! The model keeps no state; where the job stands is read from the conversation each time:
//!
//! ```text
//! prompt ─▶ write the list ─▶ shell command ─▶ update the list ─▶ summary
//!              │ (no todo tool,       │ (no shell tool)    ▲ (only when the first write worked)
//!              └──── or refused) ─────┴────────────────────┘
//! ```
//!
//! Without either tool, and in chat mode (where goose offers tools but skips every call), it only talks.

use std::time::Duration;

use serde_json::json;

use super::conversation::{ChatRequest, Message, Role};
use super::script::{Call, Step, without_scripts};

const TODO: &str = "todo__todo_write";
const SHELL: &str = "shell";
/// Harmless, quick, and the same in every folder.
const COMMAND: &str = "uname -sr && date -u";
/// What goose gives the model as the result of a call that a person refused, and of one skipped in chat mode.
const REFUSED_MARK: &str = "declined to run this tool";
const SKIPPED_MARK: &str = "skipped in goose chat mode";
/// Words in one streamed chunk.
const WORDS_PER_CHUNK: usize = 3;
/// Longest quotation of a prompt or of the command's output, in characters.
const QUOTE_CHARS: usize = 80;

/// How a tool call of the job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Ran(String),
    Refused,
    Skipped,
}

/// The job so far, read from the conversation.
#[derive(Debug, Default)]
struct Progress {
    subject: String,
    lists: Vec<Outcome>,
    commands: Vec<Outcome>,
}

/// The job's next reply, with a pause of `pace` after each chunk of text.
pub(super) fn next_reply(request: &ChatRequest, pace: Duration) -> Vec<Step> {
    let progress = Progress::of(request);
    let subject = &progress.subject;
    let todo = request.offers(TODO);
    let shell = request.offers(SHELL);
    if progress.lists.contains(&Outcome::Skipped) || progress.commands.contains(&Outcome::Skipped) {
        return speak(
            &format!(
                "This session is in chat mode, so I only talk about \"{subject}\": in any other mode I would write a list, run one harmless command and report."
            ),
            pace,
        );
    }
    if !todo && !shell {
        return speak(
            &format!(
                "You asked: \"{subject}\". I am the built-in demo model and have no tools in this session, so I only talk."
            ),
            pace,
        );
    }
    if todo && progress.lists.is_empty() {
        let words = format!(
            "You asked: \"{subject}\". I am the built-in demo model: I write a short list, look at this machine with one harmless command, and report."
        );
        return speak_and_call(&words, pace, TODO, json!({ "content": list_at_the_start() }));
    }
    if shell && progress.commands.is_empty() {
        let words = "Now I run one harmless command to look at this machine.";
        return speak_and_call(words, pace, SHELL, json!({ "command": COMMAND }));
    }
    if todo && matches!(progress.lists[..], [Outcome::Ran(_)]) {
        let content = list_at_the_end(shell, progress.commands.first());
        return speak_and_call("I bring the list up to date.", pace, TODO, json!({ "content": content }));
    }
    speak(&progress.summary(), pace)
}

impl Progress {
    fn of(request: &ChatRequest) -> Self {
        let messages = &request.messages;
        // A user message right after a tool's result is a steer within the job, unless it is marked as a prompt:
        // then the turn before was cancelled.
        let follows_tool = |index: usize| index > 0 && messages[index - 1].role == Role::Tool;
        let is_prompt = |index: &usize| {
            let message = &messages[*index];
            message.role == Role::User && (!follows_tool(*index) || message.has_context())
        };
        let Some(start) = (0..messages.len()).rev().find(is_prompt) else { return Self::default() };
        let prompt = messages[start].prompts().pop().unwrap_or_default();
        let mut progress = Self { subject: quote(&without_scripts(&prompt)), ..Self::default() };
        for call in messages[start..].iter().flat_map(|message| &message.tool_calls) {
            let is_result = |message: &&Message| message.tool_call_id.as_ref() == Some(&call.id);
            let result = messages[start..].iter().find(is_result).map(Message::text).unwrap_or_default();
            match call.function.name.as_str() {
                TODO => progress.lists.push(Outcome::of(result)),
                SHELL => progress.commands.push(Outcome::of(result)),
                _ => {}
            }
        }
        progress
    }

    fn summary(&self) -> String {
        let subject = &self.subject;
        let mut summary = match self.commands.first() {
            Some(Outcome::Ran(output)) => format!(
                "Done with \"{subject}\". The command `{COMMAND}` said: {}. That is all this demo does: with a provider set up, a real model does the work.",
                quote(output)
            ),
            Some(_) => format!(
                "Done with \"{subject}\", but the command `{COMMAND}` was not allowed, so I have not run it and know nothing about this machine."
            ),
            None => format!("Done with \"{subject}\". There is no shell in this session, so I ran nothing."),
        };
        if self.lists.contains(&Outcome::Refused) {
            summary.push_str(" The list was not allowed, so there is no plan to look at.");
        }
        summary
    }
}

impl Outcome {
    fn of(result: String) -> Self {
        if result.contains(REFUSED_MARK) {
            Self::Refused
        } else if result.contains(SKIPPED_MARK) {
            Self::Skipped
        } else {
            Self::Ran(result)
        }
    }
}

fn list_at_the_start() -> &'static str {
    "- [-] Write down what to do\n- [ ] Look at this machine with one harmless command\n- [ ] Report what it said"
}

fn list_at_the_end(shell: bool, command: Option<&Outcome>) -> &'static str {
    match (shell, command) {
        (true, Some(Outcome::Ran(_))) => {
            "- [x] Write down what to do\n- [x] Look at this machine with one harmless command\n- [x] Report what it said"
        }
        (true, _) => {
            "- [x] Write down what to do\n- [ ] Look at this machine with one harmless command, which was not allowed\n- [x] Report that"
        }
        (false, _) => {
            "- [x] Write down what to do\n- [ ] Look at this machine, for which there is no shell here\n- [x] Report that"
        }
    }
}

/// The first line of a text, cut to a length that reads well.
fn quote(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("(nothing)");
    match line.char_indices().nth(QUOTE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

fn speak_and_call(words: &str, pace: Duration, tool: &str, input: serde_json::Value) -> Vec<Step> {
    let mut steps = speak(words, pace);
    steps.push(Step::Call(Call { tool: tool.to_owned(), input }));
    steps
}

/// A text in several chunks, so that it is seen to stream.
fn speak(text: &str, pace: Duration) -> Vec<Step> {
    let words: Vec<&str> = text.split_inclusive(' ').collect();
    let pause_ms = u64::try_from(pace.as_millis()).unwrap_or(u64::MAX);
    let mut steps = Vec::new();
    for chunk in words.chunks(WORDS_PER_CHUNK) {
        steps.push(Step::Text(chunk.concat()));
        if pause_ms > 0 {
            steps.push(Step::WaitMs(pause_ms));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// Plays the job with these tools and these results, and gives each reply's text and call.
    fn play(tools: &[&str], results: &[&str]) -> Vec<(String, Option<Call>)> {
        let mut messages =
            vec![json!({"role": "user", "content": "Look around\n<turn-context>x</turn-context>"})];
        let mut replies = Vec::new();
        for (number, result) in results.iter().chain(std::iter::repeat(&"")).enumerate().take(6) {
            let offered: Vec<Value> = tools.iter().map(|name| json!({"function": {"name": name}})).collect();
            let request = serde_json::from_value(json!({"messages": messages, "tools": offered})).unwrap();
            let (mut text, mut call) = (String::new(), None);
            for step in next_reply(&request, Duration::ZERO) {
                match step {
                    Step::Text(chunk) => text.push_str(&chunk),
                    Step::Call(made) => call = Some(made),
                    other => panic!("{other:?}"),
                }
            }
            replies.push((text, call.clone()));
            let Some(call) = call else { return replies };
            let id = format!("call_{number}");
            messages.push(json!({"role": "assistant", "content": null,
                "tool_calls": [{"id": id, "function": {"name": call.tool}}]}));
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
        }
        panic!("the job does not end: {replies:?}");
    }

    fn tools_called(replies: &[(String, Option<Call>)]) -> Vec<&str> {
        replies.iter().filter_map(|(_, call)| call.as_ref().map(|call| call.tool.as_str())).collect()
    }

    #[test]
    fn the_whole_job_quotes_the_command_and_closes_its_list() {
        let replies = play(&[TODO, SHELL], &["Updated (7 chars)", "Linux 6.18\nMon", "Updated (7 chars)"]);
        assert_eq!(tools_called(&replies), [TODO, SHELL, TODO]);
        assert!(replies[0].0.contains("Look around"));
        let end = replies[2].1.as_ref().unwrap().input["content"].as_str().unwrap();
        assert_eq!(end.matches("- [x]").count(), 3);
        assert!(replies[3].0.contains("Linux 6.18") && replies[3].0.contains("Look around"));
    }

    #[test]
    fn a_refused_command_is_said_and_left_open() {
        let refused = "The user has declined to run this tool. DO NOT attempt";
        let replies = play(&[TODO, SHELL], &["Updated (7 chars)", refused, "Updated (7 chars)"]);
        let end = replies[2].1.as_ref().unwrap().input["content"].as_str().unwrap();
        assert!(end.contains("- [ ] Look at this machine"));
        assert!(replies[3].0.contains("was not allowed"));
        assert!(!replies[3].0.contains("The user has"));
    }

    #[test]
    fn a_refused_list_is_not_written_again() {
        let replies = play(&[TODO, SHELL], &["The user has declined to run this tool.", "Linux 6.18"]);
        assert_eq!(tools_called(&replies), [TODO, SHELL]);
        assert!(replies[2].0.contains("no plan"));
    }

    #[test]
    fn it_copes_without_either_tool_and_in_chat_mode() {
        assert_eq!(tools_called(&play(&[SHELL], &["Linux"])), [SHELL]);
        assert_eq!(tools_called(&play(&[TODO], &["Updated (1 chars)", "Updated (1 chars)"])), [TODO, TODO]);
        let talk = play(&["tree"], &[]);
        assert!(talk[0].1.is_none() && talk[0].0.contains("no tools"));
        let chat = play(&[TODO, SHELL], &["Let the user know the tool call was skipped in goose chat mode."]);
        assert!(chat[1].0.contains("chat mode"));
    }

    #[test]
    fn a_second_prompt_starts_the_job_again_and_a_steer_does_not() {
        let offered = json!([{"function": {"name": TODO}}, {"function": {"name": SHELL}}]);
        let mut messages = vec![
            json!({"role": "user", "content": "First"}),
            json!({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": TODO}}]}),
            json!({"role": "tool", "tool_call_id": "c", "content": "Updated (1 chars)"}),
            json!({"role": "user", "content": "a steer"}),
        ];
        let call_of = |messages: &Vec<Value>| {
            let request = serde_json::from_value(json!({"messages": messages, "tools": offered})).unwrap();
            next_reply(&request, Duration::ZERO).pop()
        };
        assert!(matches!(call_of(&messages), Some(Step::Call(call)) if call.tool == SHELL));
        messages[3] = json!({"role": "user", "content": "after a cancel\n<turn-context>x</turn-context>"});
        assert!(matches!(call_of(&messages), Some(Step::Call(call)) if call.tool == TODO));
        messages.push(json!({"role": "assistant", "content": "done"}));
        messages.push(json!({"role": "user", "content": "Second"}));
        assert!(matches!(call_of(&messages), Some(Step::Call(call)) if call.tool == TODO));
    }

    #[test]
    fn a_long_subject_is_cut_between_characters_and_the_text_comes_in_chunks() {
        assert_eq!(quote(&"ü".repeat(200)).chars().count(), QUOTE_CHARS + 1);
        assert_eq!(quote(" \n\n"), "(nothing)");
        let steps = speak("one two three four", Duration::from_millis(30));
        assert_eq!(
            steps,
            [
                Step::Text("one two three ".into()),
                Step::WaitMs(30),
                Step::Text("four".into()),
                Step::WaitMs(30)
            ]
        );
    }
}
