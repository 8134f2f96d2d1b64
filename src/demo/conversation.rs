//! A chat completion request as far as the scripted model reads it: who said what, and which tools it may call.

use serde::Deserialize;

/// goose appends a block between these to every prompt it sends to a model (time, folder, todo list). A steer
/// carries none.
const CONTEXT_START: &str = "<turn-context>";
const CONTEXT_END: &str = "</turn-context>";

/// The request body of `POST /v1/chat/completions`. Fields that decide nothing here are not read.
#[derive(Debug, Deserialize)]
pub(super) struct ChatRequest {
    /// As it is called by who asks.
    #[serde(default)]
    pub(super) model: Option<String>,
    pub(super) messages: Vec<Message>,
    #[serde(default)]
    pub(super) tools: Vec<Tool>,
    #[serde(default)]
    pub(super) stream: bool,
}

/// One message of the conversation.
#[derive(Debug, Deserialize)]
pub(super) struct Message {
    pub(super) role: Role,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    pub(super) tool_calls: Vec<ToolCall>,
    #[serde(default)]
    pub(super) tool_call_id: Option<String>,
}

/// Who a message is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    #[serde(alias = "developer")]
    System,
    User,
    Assistant,
    Tool,
    /// A role that the model does not know; its message is passed over.
    #[serde(other)]
    Other,
}

/// OpenAI's API takes a text or a list of parts.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

/// A part of a message. Images have no text and are passed over.
#[derive(Debug, Deserialize)]
struct Part {
    #[serde(default)]
    text: Option<String>,
}

/// A tool call of an earlier reply.
#[derive(Debug, Deserialize)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) function: NamedFunction,
}

/// A tool on offer.
#[derive(Debug, Deserialize)]
pub(super) struct Tool {
    pub(super) function: NamedFunction,
}

/// The function of a call or of a tool, by its name.
#[derive(Debug, Deserialize)]
pub(super) struct NamedFunction {
    pub(super) name: String,
}

impl ChatRequest {
    /// Whether the model may call this tool.
    pub(super) fn offers(&self, tool: &str) -> bool {
        self.tools.iter().any(|offered| offered.function.name == tool)
    }

    /// The system prompt, empty when there is none.
    pub(super) fn system(&self) -> String {
        self.messages
            .iter()
            .find(|message| message.role == Role::System)
            .map(Message::text)
            .unwrap_or_default()
    }

    /// What the user said last, empty when nothing.
    pub(super) fn last_user_text(&self) -> String {
        let last = self.messages.iter().rev().find(|message| message.role == Role::User);
        last.map(Message::text).unwrap_or_default()
    }
}

impl Message {
    /// The message's text, parts joined by line ends.
    pub(super) fn text(&self) -> String {
        match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                parts.iter().filter_map(|part| part.text.as_deref()).collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// Whether this is a prompt of its own and not a steer within a turn: only prompts get a context block.
    pub(super) fn has_context(&self) -> bool {
        self.role == Role::User && self.text().contains(CONTEXT_START)
    }

    /// The prompts in a user message, without goose's context blocks. There is more than one when a turn was
    /// cancelled before the model's reply was kept: goose then joins that prompt and the next one.
    pub(super) fn prompts(&self) -> Vec<String> {
        let text = self.text();
        let mut prompts = Vec::new();
        let mut rest = text.as_str();
        while let Some((prompt, context)) = rest.split_once(CONTEXT_START) {
            prompts.push(prompt.trim().to_owned());
            rest = context.split_once(CONTEXT_END).map_or("", |(_, after)| after);
        }
        if !rest.trim().is_empty() || prompts.is_empty() {
            prompts.push(rest.trim().to_owned());
        }
        prompts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(value: serde_json::Value) -> Message {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_prompt_loses_its_context_block() {
        let one = message(json!({"role": "user", "content": "look\n<turn-context>\ntime\n</turn-context>"}));
        assert_eq!(one.prompts(), ["look"]);
    }

    #[test]
    fn joined_prompts_are_told_apart() {
        let both = message(json!({"role": "user",
            "content": "a\n<turn-context>\n1\n</turn-context>\nb\n<turn-context>\n2\n</turn-context>"}));
        assert_eq!(both.prompts(), ["a", "b"]);
        let steered = message(json!({"role": "user", "content": "a\n<turn-context>1</turn-context>\nsteer"}));
        assert_eq!(steered.prompts(), ["a", "steer"]);
    }

    #[test]
    fn an_unclosed_context_block_swallows_the_rest_and_nothing_panics() {
        let open = message(json!({"role": "user", "content": "a<turn-context>b"}));
        assert_eq!(open.prompts(), ["a"]);
        assert_eq!(message(json!({"role": "user"})).prompts(), [""]);
    }

    #[test]
    fn parts_and_unknown_roles_are_read() {
        let parts = message(json!({"role": "user",
            "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, {"text": "b"}]}));
        assert_eq!(parts.text(), "a\nb");
        assert_eq!(message(json!({"role": "narrator", "content": null})).role, Role::Other);
    }
}
