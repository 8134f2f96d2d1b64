//! The script that a prompt can carry, and which of its replies comes next.

use std::collections::BTreeMap;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::conversation::{ChatRequest, Role};
use super::reply::reply_of_call;

const FENCE_START: &str = "```script";
const FENCE_END: &str = "```";

/// One thing that the model does within a reply. The module documentation of [`crate::demo`] describes each.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Step {
    Text(String),
    Reasoning(String),
    WaitMs(u64),
    Call(Call),
    Usage(Usage),
    Finish(String),
    Error(HttpError),
    Hang,
    Drop,
    Malformed(String),
    NoId,
}

/// A tool call; its id is made when it is sent.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    pub(super) tool: String,
    #[serde(default = "empty_object")]
    pub(super) input: Value,
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

/// Token numbers that the reply reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Usage {
    pub(super) input: u64,
    pub(super) output: u64,
}

/// An HTTP answer in place of a reply.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpError {
    pub(super) status: u16,
    #[serde(default)]
    pub(super) body: Value,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
}

/// Why a script cannot be played.
#[derive(Debug, Error)]
pub(super) enum ScriptError {
    #[error("the fenced block has no end")]
    Unclosed,
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("reply {0}: an error must come before anything that is sent")]
    LateError(usize),
    #[error("reply {reply}: {status} is no final HTTP status")]
    Status { reply: usize, status: u16 },
    #[error("reply {reply}: {name:?} is no header that can be sent")]
    Header { reply: usize, name: String },
}

/// What a conversation asks of the model.
#[derive(Debug)]
pub(super) enum Cue {
    /// No script anywhere.
    Unscripted,
    /// This reply of the script.
    Reply(Vec<Step>),
    /// The script is over.
    Over,
    /// There is a script, but it cannot be played.
    Malformed(ScriptError),
}

/// Finds the last prompt that holds a script and counts the model's replies since. With a later prompt the script
/// is over; after a cancel goose may have joined the two prompts in one message.
pub(super) fn cue(request: &ChatRequest) -> Cue {
    let mut replies = 0;
    let mut counted_reply = None;
    let mut newer_prompt = false;
    for message in request.messages.iter().rev() {
        match message.role {
            Role::Assistant => {
                // goose sends each call of a reply as a message of its own (unless the reply holds reasoning).
                let reply = message.tool_calls.first().and_then(|call| reply_of_call(&call.id));
                if reply.is_none() || reply != counted_reply {
                    replies += 1;
                }
                counted_reply = reply;
            }
            Role::User => {
                let prompts = message.prompts();
                let Some(place) = prompts.iter().rposition(|prompt| last_block(prompt).is_some()) else {
                    newer_prompt |= message.has_context();
                    continue;
                };
                if newer_prompt || place + 1 < prompts.len() {
                    return Cue::Over;
                }
                return match parse(&prompts[place]) {
                    Ok(mut script) if replies < script.len() => Cue::Reply(script.swap_remove(replies)),
                    Ok(_) => Cue::Over,
                    Err(error) => Cue::Malformed(error),
                };
            }
            Role::System | Role::Tool | Role::Other => {}
        }
    }
    Cue::Unscripted
}

/// The text without its script blocks, for titles and the like.
pub(super) fn without_scripts(text: &str) -> String {
    let mut kept = text.to_owned();
    while let Some(block) = last_block(&kept) {
        let end = block.end.map_or(kept.len(), |end| end + FENCE_END.len());
        kept.replace_range(block.start..end, "");
    }
    kept.trim().to_owned()
}

/// Byte offsets of a script block: where its opening fence starts, where its body starts, and where its closing
/// fence starts, if there is one.
struct Block {
    start: usize,
    body: usize,
    end: Option<usize>,
}

fn last_block(text: &str) -> Option<Block> {
    let starts_a_line = |at: usize| at == 0 || text[..at].ends_with('\n');
    text.rmatch_indices(FENCE_START).find_map(|(start, _)| {
        let after_fence = start + FENCE_START.len();
        let line_end = after_fence + text[after_fence..].find('\n')?;
        let is_fence = starts_a_line(start) && text[after_fence..line_end].trim().is_empty();
        let body = line_end + 1;
        let closing = |(at, _): (usize, &str)| Some(body + at).filter(|at| starts_a_line(*at));
        is_fence.then(|| Block { start, body, end: text[body..].match_indices(FENCE_END).find_map(closing) })
    })
}

fn parse(text: &str) -> Result<Vec<Vec<Step>>, ScriptError> {
    let block = last_block(text).ok_or(ScriptError::Unclosed)?;
    let end = block.end.ok_or(ScriptError::Unclosed)?;
    let replies: Vec<Vec<Step>> = serde_json::from_str(&text[block.body..end])?;
    for (index, steps) in replies.iter().enumerate() {
        check(index + 1, steps)?;
    }
    Ok(replies)
}

fn check(reply: usize, steps: &[Step]) -> Result<(), ScriptError> {
    let mut sent = false;
    for step in steps {
        match step {
            Step::Error(_) if sent => return Err(ScriptError::LateError(reply)),
            Step::Error(error) => check_error(reply, error)?,
            Step::WaitMs(_) => {}
            _ => sent = true,
        }
    }
    Ok(())
}

fn check_error(reply: usize, error: &HttpError) -> Result<(), ScriptError> {
    let status = error.status;
    match StatusCode::from_u16(status) {
        Ok(known) if !known.is_informational() => {}
        _ => return Err(ScriptError::Status { reply, status }),
    }
    for (name, value) in &error.headers {
        if HeaderName::try_from(name.as_str()).is_err() || HeaderValue::try_from(value.as_str()).is_err() {
            return Err(ScriptError::Header { reply, name: name.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TWO_REPLIES: &str =
        "Do it.\n```script\n[[{\"text\": \"one\"}, \"hang\"], [{\"text\": \"two\"}]]\n```";

    fn request(messages: &Value) -> ChatRequest {
        serde_json::from_value(json!({ "messages": messages })).unwrap()
    }

    fn text_of(cue: Cue) -> String {
        match cue {
            Cue::Reply(steps) => match &steps[0] {
                Step::Text(text) => text.clone(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn with_context(text: &str) -> String {
        format!("{text}\n<turn-context>\n<current-time>now</current-time>\n</turn-context>")
    }

    #[test]
    fn every_step_can_be_written() {
        let script = r#"```script
            [[{"text": "a"}, {"reasoning": "b"}, {"wait_ms": 5}, {"call": {"tool": "shell", "input": {"command": "ls"}}},
              {"call": {"tool": "tree"}}, {"usage": {"input": 1, "output": 2}}, {"finish": "length"}, {"malformed": "{"}, "drop"],
             [{"error": {"status": 429, "body": {"error": {"message": "slow down"}}, "headers": {"retry-after": "3"}}}],
             ["hang"], []]
"#
        .to_owned()
            + "```";
        let replies = parse(&script).unwrap();
        assert_eq!(replies.len(), 4);
        assert_eq!(replies[0][4], Step::Call(Call { tool: "tree".into(), input: json!({}) }));
        assert_eq!(replies[0][5], Step::Usage(Usage { input: 1, output: 2 }));
        assert_eq!(replies[0][8], Step::Drop);
        assert!(matches!(&replies[1][0], Step::Error(error) if error.headers["retry-after"] == "3"));
        assert_eq!(replies[2], [Step::Hang]);
        assert!(replies[3].is_empty());
    }

    #[test]
    fn the_nth_call_gets_the_nth_reply_and_then_it_is_over() {
        let prompt = with_context(TWO_REPLIES);
        let mut messages =
            vec![json!({"role": "system", "content": "s"}), json!({"role": "user", "content": prompt})];
        assert_eq!(text_of(cue(&request(&json!(messages)))), "one");
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c", "function": {"name": "shell"}}]}));
        messages.push(json!({"role": "tool", "content": "out", "tool_call_id": "c"}));
        assert_eq!(text_of(cue(&request(&json!(messages)))), "two");
        messages.push(json!({"role": "user", "content": "a steer"}));
        assert_eq!(text_of(cue(&request(&json!(messages)))), "two");
        messages.push(json!({"role": "assistant", "content": "two"}));
        assert!(matches!(cue(&request(&json!(messages))), Cue::Over));
    }

    #[test]
    fn the_calls_of_one_reply_count_once_though_they_come_as_messages_of_their_own() {
        let call = |id: &str| json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "function": {"name": "shell"}}]});
        let result = |id: &str| json!({"role": "tool", "content": "out", "tool_call_id": id});
        let prompt = json!({"role": "user", "content": TWO_REPLIES});
        let one_reply =
            json!([prompt, call("call_a_0"), result("call_a_0"), call("call_a_1"), result("call_a_1")]);
        assert_eq!(text_of(cue(&request(&one_reply))), "two");
        let two_replies =
            json!([prompt, call("call_a_0"), result("call_a_0"), call("call_b_0"), result("call_b_0")]);
        assert!(matches!(cue(&request(&two_replies)), Cue::Over));
    }

    #[test]
    fn the_last_script_counts() {
        let newer = "```script\n[[{\"text\": \"new\"}]]\n```";
        let messages = json!([
            {"role": "user", "content": TWO_REPLIES}, {"role": "assistant", "content": "one"},
            {"role": "user", "content": with_context(newer)},
        ]);
        assert_eq!(text_of(cue(&request(&messages))), "new");
        let joined = format!("{}\n{}", with_context(TWO_REPLIES), with_context(newer));
        assert_eq!(text_of(cue(&request(&json!([{"role": "user", "content": joined}])))), "new");
    }

    #[test]
    fn a_cancelled_script_does_not_go_on_with_a_later_plain_prompt() {
        let joined = format!("{}\n{}", with_context(TWO_REPLIES), with_context("And now?"));
        assert!(matches!(cue(&request(&json!([{"role": "user", "content": joined}]))), Cue::Over));
        let kept_partial_reply = json!([
            {"role": "user", "content": with_context(TWO_REPLIES)}, {"role": "assistant", "content": "on"},
            {"role": "user", "content": with_context("And now?")},
        ]);
        assert!(matches!(cue(&request(&kept_partial_reply)), Cue::Over));
    }

    #[test]
    fn no_script_is_no_script() {
        for text in ["hello", "say ```script", "```scripted\n[]\n```", ""] {
            assert!(
                matches!(cue(&request(&json!([{"role": "user", "content": text}]))), Cue::Unscripted),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_wrong_with_a_script_is_said() {
        let error = |body: &str| match cue(&request(&json!([{"role": "user", "content": body}]))) {
            Cue::Malformed(error) => error.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(error("```script\n[[]]"), "the fenced block has no end");
        assert!(error("```script\n[[{\"txt\": \"a\"}]]\n```").contains("txt"));
        assert!(
            error("```script\n[[{\"text\": \"a\"}, {\"error\": {\"status\": 500}}]]\n```")
                .starts_with("reply 1: an error")
        );
        assert_eq!(
            error("```script\n[[], [{\"error\": {\"status\": 99}}]]\n```"),
            "reply 2: 99 is no final HTTP status"
        );
        assert!(
            error("```script\n[[{\"error\": {\"status\": 500, \"headers\": {\"a b\": \"c\"}}}]]\n```")
                .contains("\"a b\"")
        );
    }

    #[test]
    fn scripts_are_cut_out_of_a_text() {
        assert_eq!(without_scripts("Before\n```script\n[]\n```\nafter"), "Before\n\nafter");
        assert_eq!(without_scripts("Öh\n```script\n[["), "Öh");
        assert_eq!(without_scripts("plain"), "plain");
    }
}
