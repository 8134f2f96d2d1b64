//! goose's calls to the model that are not the conversation itself. They never use up a script's reply.

use serde::Deserialize;
use serde_json::{Value, json};

use super::conversation::ChatRequest;
use super::script::{Call, Step, without_scripts};

const PERMISSION_TOOL: &str = "platform__tool_by_tool_permission";
/// How the system prompts of the side calls of goose 1.52 start, or a phrase of theirs.
const TITLE_START: &str = "Generate a short title";
const COMPACTION_PHRASE: &str = "An llm context limit was reached";
const MESSAGES_START: &str = "---BEGIN USER MESSAGES---";
const MESSAGES_END: &str = "---END USER MESSAGES---";
const TITLE_WORDS: usize = 4;
const TITLE_CHARS: usize = 40;
const SUMMARY_MESSAGES: usize = 20;
const SUMMARY_CHARS: usize = 200;
/// First words of the names of tools that only look.
const LOOKING: [&str; 9] = ["analyze", "find", "get", "list", "load", "read", "search", "show", "tree"];

/// Which side call a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SideCall {
    /// A short title for the session: made for each of its first three prompts.
    Title,
    /// Whether tools without a read-only mark only read: asked in `smart_approve`.
    Permission,
    /// A summary in place of a conversation that has grown too long.
    Compaction,
}

impl SideCall {
    /// The side call that this request is, if it is one.
    pub(super) fn of(request: &ChatRequest) -> Option<Self> {
        let system = request.system();
        if request.offers(PERMISSION_TOOL) {
            Some(Self::Permission)
        } else if system.starts_with(TITLE_START) {
            Some(Self::Title)
        } else if system.contains(COMPACTION_PHRASE) && request.tools.is_empty() {
            Some(Self::Compaction)
        } else {
            None
        }
    }

    /// The model's answer to it.
    pub(super) fn answer(self, request: &ChatRequest) -> Vec<Step> {
        match self {
            Self::Title => vec![Step::Text(title(&request.last_user_text()))],
            Self::Permission => {
                let input = json!({ "read_only_request_ids": read_only_ids(&request.last_user_text()) });
                vec![Step::Call(Call { tool: PERMISSION_TOOL.to_owned(), input })]
            }
            Self::Compaction => vec![Step::Text(summary(&request.system()))],
        }
    }
}

/// The first words of the first prompt.
fn title(asked: &str) -> String {
    let messages = asked.split_once(MESSAGES_START).map_or(asked, |(_, after)| after);
    let messages = messages.split_once(MESSAGES_END).map_or(messages, |(before, _)| before);
    let text = without_scripts(messages);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("Scripted session");
    let words = line.split_whitespace().take(TITLE_WORDS).collect::<Vec<_>>().join(" ");
    words.chars().take(TITLE_CHARS).collect()
}

/// A call that goose asks to be judged.
#[derive(Debug, Deserialize)]
struct JudgedCall {
    request_id: String,
    tool_name: String,
}

/// The ids of the calls that only read, judged by the tool's name. What cannot be read is not read-only.
fn read_only_ids(asked: &str) -> Vec<String> {
    let list = asked.find('[').map_or("", |start| &asked[start..]);
    let calls = serde_json::from_str::<Vec<JudgedCall>>(list).unwrap_or_default();
    calls.into_iter().filter(|call| only_looks(&call.tool_name)).map(|call| call.request_id).collect()
}

fn only_looks(tool: &str) -> bool {
    let name = tool.rsplit("__").next().unwrap_or(tool);
    name.split('_').next().is_some_and(|verb| LOOKING.contains(&verb))
}

/// A summary in the shape that goose asks for: an analysis that it throws away, and one JSON block.
fn summary(system: &str) -> String {
    let said = system.lines().filter_map(|line| line.strip_prefix("[user]: "));
    let prompts = said.filter(|text| !text.starts_with("tool_response"));
    let prompts: Vec<Value> = prompts
        .map(|text| text.replace('`', "").chars().take(SUMMARY_CHARS).collect::<String>())
        .filter(|text| !text.trim().is_empty())
        .take(SUMMARY_MESSAGES)
        .map(Value::from)
        .collect();
    let document = json!({
        "user_intent": prompts, "technical_concepts": [], "files": [], "errors_and_fixes": [],
        "problem_solving": [], "user_messages": prompts, "pending_tasks": [],
        "current_work": "The conversation with the built-in demo model.",
    });
    format!("<analysis>A conversation with the built-in demo model.</analysis>\n```json\n{document}\n```")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(system: &str, user: &str, tools: &[&str]) -> ChatRequest {
        let tools: Vec<Value> = tools.iter().map(|name| json!({"function": {"name": name}})).collect();
        let messages = json!([{"role": "system", "content": system}, {"role": "user", "content": user}]);
        serde_json::from_value(json!({"messages": messages, "tools": tools})).unwrap()
    }

    fn answer(request: &ChatRequest) -> Step {
        SideCall::of(request).unwrap().answer(request).remove(0)
    }

    #[test]
    fn a_conversation_is_no_side_call() {
        let talk =
            request("You are a general-purpose AI agent called goose", "Generate a short title", &["shell"]);
        assert_eq!(SideCall::of(&talk), None);
        assert_eq!(SideCall::of(&request("", "hello", &[])), None);
    }

    #[test]
    fn the_title_is_the_prompts_first_words_without_its_script() {
        let user = "---BEGIN HINTS---\nfolder: x\n---END HINTS---\n\n---BEGIN USER MESSAGES---\n```script\n[]\n```\nShow me the date of today\n\nAnd more\n---END USER MESSAGES---\n\nGenerate a short title for the above messages.";
        let asked = request("Generate a short title (four words or less) for this conversation.", user, &[]);
        assert_eq!(SideCall::of(&asked), Some(SideCall::Title));
        assert_eq!(answer(&asked), Step::Text("Show me the date".into()));
        let only_script = "---BEGIN USER MESSAGES---\n```script\n[]\n```\n---END USER MESSAGES---";
        assert_eq!(title(only_script), "Scripted session");
    }

    #[test]
    fn the_classifier_names_only_the_calls_that_read() {
        let user = r#"UNTRUSTED TOOL REQUEST DATA (JSON):
            [{"request_id": "a", "tool_name": "load_skill", "arguments": {}},
             {"request_id": "b", "tool_name": "mail__send", "arguments": {}},
             {"request_id": "c", "tool_name": "files__read_file", "arguments": {}}]"#;
        let asked = request("You are a permission-safety classifier.", user, &[PERMISSION_TOOL]);
        let Step::Call(call) = answer(&asked) else { panic!("no call") };
        assert_eq!(call.tool, PERMISSION_TOOL);
        assert_eq!(call.input, json!({"read_only_request_ids": ["a", "c"]}));
        assert!(read_only_ids("nothing to parse").is_empty());
    }

    #[test]
    fn a_compaction_gets_a_summary_that_carries_no_script_along() {
        let system = "## Task Context\n- An llm context limit was reached when\n[user]: Look around\n[user]: ```script\n[user]: tool_response: ls";
        let asked = request(system, "Please summarize the conversation history", &[]);
        assert_eq!(SideCall::of(&asked), Some(SideCall::Compaction));
        let Step::Text(text) = answer(&asked) else { panic!("no text") };
        assert!(
            text.contains("Look around") && !text.contains("```script") && !text.contains("tool_response")
        );
    }
}
