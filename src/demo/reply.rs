//! A reply's steps as the bytes of OpenAI's streaming format, and as one JSON document.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use uuid::Uuid;

use super::script::{Step, Usage};

/// A part of a streamed answer, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// One server-sent event.
    Frame(Bytes),
    /// Nothing is sent for this long.
    Wait(Duration),
    /// Nothing is ever sent again; the connection stays open.
    Hang,
    /// The connection is cut here.
    Cut,
}

/// What every chunk of one reply repeats.
#[derive(Debug)]
pub(super) struct Envelope {
    /// Unique for each reply: goose takes it as the message id and tells messages apart by it.
    id: Uuid,
    /// As it was asked for: goose knows some models' prices by their names.
    model: String,
    /// Seconds since the epoch.
    created: u64,
    /// Reported where the steps name no usage.
    prompt_tokens: u64,
}

impl Envelope {
    pub(super) fn new(model: impl Into<String>, created: u64, prompt_tokens: u64) -> Self {
        Self { id: Uuid::now_v7(), model: model.into(), created, prompt_tokens }
    }

    /// The pieces of a streamed answer: a chunk for each step that sends something, then the finish reason, the
    /// usage and the end mark, unless the steps hang or drop before.
    pub(super) fn pieces(&self, steps: &[Step]) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(steps.len() + 3);
        let mut calls = 0;
        let has_id = !steps.contains(&Step::NoId);
        for step in steps {
            let delta = match step {
                Step::Text(text) => json!({ "role": "assistant", "content": text }),
                Step::Reasoning(text) => json!({ "role": "assistant", "reasoning_content": text }),
                Step::Call(_) => {
                    let mut call = self.call(step, calls);
                    call["index"] = json!(calls);
                    calls += 1;
                    json!({ "role": "assistant", "tool_calls": [call] })
                }
                Step::WaitMs(wait_ms) => {
                    pieces.push(Piece::Wait(Duration::from_millis(*wait_ms)));
                    continue;
                }
                Step::Malformed(text) => {
                    pieces.push(frame(text));
                    continue;
                }
                Step::Hang => {
                    pieces.push(Piece::Hang);
                    return pieces;
                }
                Step::Drop => {
                    pieces.push(Piece::Cut);
                    return pieces;
                }
                Step::Usage(_) | Step::Finish(_) | Step::Error(_) | Step::NoId => continue,
            };
            let choice = json!([{ "index": 0, "delta": delta, "finish_reason": null }]);
            pieces.push(self.chunk(&choice, None, has_id));
        }
        let finish = json!([{ "index": 0, "delta": {}, "finish_reason": finish_reason(steps) }]);
        pieces.push(self.chunk(&finish, None, has_id));
        pieces.push(self.chunk(&json!([]), Some(self.usage(steps)), has_id));
        pieces.push(frame("[DONE]"));
        pieces
    }

    /// The answer to a call that does not stream. Waits, hangs and drops are the caller's to act out.
    pub(super) fn document(&self, steps: &[Step]) -> Value {
        let joined = |part: fn(&Step) -> Option<&str>| steps.iter().filter_map(part).collect::<String>();
        let mut message = json!({ "role": "assistant", "content": joined(text_of) });
        let reasoning = joined(reasoning_of);
        if !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.into();
        }
        let calls = steps.iter().filter(|step| matches!(step, Step::Call(_))).enumerate();
        let calls: Vec<Value> = calls.map(|(index, step)| self.call(step, index)).collect();
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        json!({
            "id": self.message_id(), "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": [{ "index": 0, "message": message, "finish_reason": finish_reason(steps) }],
            "usage": self.usage(steps),
        })
    }

    fn message_id(&self) -> String {
        format!("chatcmpl-{}", self.id.simple())
    }

    fn call(&self, step: &Step, index: usize) -> Value {
        let Step::Call(call) = step else { return Value::Null };
        json!({
            "id": format!("call_{}_{index}", self.id.simple()), "type": "function",
            "function": { "name": call.tool, "arguments": call.input.to_string() },
        })
    }

    fn chunk(&self, choices: &Value, usage: Option<Value>, has_id: bool) -> Piece {
        let mut chunk = json!({
            "object": "chat.completion.chunk", "created": self.created,
            "model": self.model, "choices": choices,
        });
        if has_id {
            chunk["id"] = self.message_id().into();
        }
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        }
        frame(&chunk.to_string())
    }

    fn usage(&self, steps: &[Step]) -> Value {
        let named = steps.iter().rev().find_map(|step| match step {
            Step::Usage(usage) => Some(*usage),
            _ => None,
        });
        let Usage { input, output } = named.unwrap_or_else(|| {
            let written = steps.iter().filter_map(text_of).map(str::len).sum::<usize>();
            Usage { input: self.prompt_tokens, output: tokens(written) }
        });
        json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input.saturating_add(output) })
    }
}

/// What the ids of all calls of one reply have in common: see [`Envelope::call`].
pub(super) fn reply_of_call(call_id: &str) -> Option<&str> {
    call_id.rsplit_once('_').map(|(reply, _)| reply)
}

/// A rough number of tokens for so many bytes of text.
pub(super) fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

fn frame(data: &str) -> Piece {
    Piece::Frame(Bytes::from(format!("data: {data}\n\n")))
}

fn finish_reason(steps: &[Step]) -> &str {
    let named = steps.iter().rev().find_map(|step| match step {
        Step::Finish(reason) => Some(reason.as_str()),
        _ => None,
    });
    let calls = steps.iter().any(|step| matches!(step, Step::Call(_)));
    named.unwrap_or(if calls { "tool_calls" } else { "stop" })
}

fn text_of(step: &Step) -> Option<&str> {
    match step {
        Step::Text(text) => Some(text),
        _ => None,
    }
}

fn reasoning_of(step: &Step) -> Option<&str> {
    match step {
        Step::Reasoning(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::script::Call;

    fn text(text: &str) -> Step {
        Step::Text(text.to_owned())
    }

    fn call(tool: &str) -> Step {
        Step::Call(Call { tool: tool.to_owned(), input: json!({"a": 1}) })
    }

    fn chunks(pieces: &[Piece]) -> Vec<Value> {
        pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Frame(bytes) => {
                    let line = std::str::from_utf8(bytes).unwrap();
                    serde_json::from_str(line.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap())
                        .ok()
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn each_text_step_is_one_chunk_and_the_end_is_marked() {
        let pieces = Envelope::new("m", 7, 9).pieces(&[text("Hel"), Step::WaitMs(3), text("lo")]);
        assert_eq!(pieces[1], Piece::Wait(Duration::from_millis(3)));
        assert_eq!(pieces.last(), Some(&frame("[DONE]")));
        let chunks = chunks(&pieces);
        assert_eq!(chunks.len(), 4);
        assert_eq!(chunks[0]["choices"][0]["delta"]["content"], "Hel");
        assert_eq!(chunks[1]["choices"][0]["delta"]["content"], "lo");
        assert_eq!(chunks[0]["id"], chunks[1]["id"]);
        assert_eq!(chunks[2]["choices"][0]["finish_reason"], "stop");
        assert_eq!(
            chunks[3]["usage"],
            json!({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11})
        );
    }

    #[test]
    fn several_calls_have_their_own_index_and_id_also_across_replies() {
        let steps = [call("shell"), call("tree")];
        let mut ids = std::collections::HashSet::new();
        for _ in 0..2 {
            let chunks = chunks(&Envelope::new("m", 7, 9).pieces(&steps));
            for (index, tool) in ["shell", "tree"].into_iter().enumerate() {
                let call = &chunks[index]["choices"][0]["delta"]["tool_calls"][0];
                assert_eq!(call["index"], index);
                assert_eq!(call["function"], json!({"name": tool, "arguments": "{\"a\":1}"}));
                assert!(ids.insert(call["id"].as_str().unwrap().to_owned()));
            }
            let replies: std::collections::HashSet<_> =
                ids.iter().filter_map(|id| reply_of_call(id)).collect();
            assert_eq!(replies.len() * 2, ids.len());
            assert_eq!(chunks[2]["choices"][0]["finish_reason"], "tool_calls");
        }
    }

    #[test]
    fn nothing_follows_a_hang_or_a_drop() {
        let envelope = Envelope::new("m", 7, 9);
        assert_eq!(envelope.pieces(&[text("a"), Step::Hang, text("b")])[1..], [Piece::Hang]);
        assert_eq!(envelope.pieces(&[text("a"), Step::Drop, text("b")])[1..], [Piece::Cut]);
    }

    #[test]
    fn finish_usage_and_malformed_chunks_are_as_the_script_says() {
        let steps = [
            Step::Malformed("{oops".to_owned()),
            Step::Finish("length".to_owned()),
            Step::Usage(Usage { input: 10, output: 6 }),
        ];
        let pieces = Envelope::new("m", 7, 9).pieces(&steps);
        assert_eq!(pieces[0], Piece::Frame(Bytes::from_static(b"data: {oops\n\n")));
        let chunks = chunks(&pieces);
        assert_eq!(chunks[0]["choices"][0]["finish_reason"], "length");
        assert_eq!(chunks[1]["usage"]["total_tokens"], 16);
    }

    #[test]
    fn a_reply_can_be_without_an_id() {
        let pieces = Envelope::new("m", 7, 9).pieces(&[Step::NoId, text("a")]);
        let chunks = chunks(&pieces);
        assert_eq!(chunks.len(), 3);
        assert!(chunks.iter().all(|chunk| chunk.get("id").is_none()), "{chunks:?}");
    }

    #[test]
    fn the_unstreamed_document_holds_the_same() {
        let steps = [Step::Reasoning("why".to_owned()), text("a"), text("b"), call("shell")];
        let document = Envelope::new("m", 7, 9).document(&steps);
        let message = &document["choices"][0]["message"];
        assert_eq!(message["content"], "ab");
        assert_eq!(message["reasoning_content"], "why");
        assert_eq!(message["tool_calls"][0]["function"]["name"], "shell");
    }
}
