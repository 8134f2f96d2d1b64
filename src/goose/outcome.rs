//! How a turn really ended: what goose 1.52 says in words of its own instead of failing.
//!
//! goose ends most failed model calls as a success, with a message that says what went wrong. [`own_words`] reads such
//! a text; whether goose or the model wrote it is for `updates` to find out. What goose answers as an error is read by
//! [`of_error`].
//!
//! goose's words carry the provider's address and the body of its answer. Nothing of that may reach callers, so no
//! part of the text is passed on: what is recognised in it is said again in gander's words.

use crate::session::agent::{Notice, NoticeLevel};
use crate::session::turn::TurnErrorClass;

/// What goose says in a message of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnWords {
    /// The model's answer could not be had.
    Failure(Failure),
    /// `GOOSE_MAX_TURNS` is reached.
    MaxTurnRequests,
    /// The model's answer reached its limit of tokens. The only words that goose adds to the model's own message.
    OutputLimit,
}

impl OwnWords {
    /// The words for callers.
    #[must_use]
    pub fn notice(&self) -> Notice {
        let (level, code, message) = match self {
            Self::Failure(failure) => (NoticeLevel::Error, "model-call-failed", failure.words.as_str()),
            Self::MaxTurnRequests => (NoticeLevel::Warning, "max-turn-requests", MAX_TURN_REQUESTS),
            Self::OutputLimit => (NoticeLevel::Warning, "max-tokens", OUTPUT_LIMIT),
        };
        Notice { level, code: code.to_owned(), message: message.to_owned() }
    }
}

/// Why there is no answer of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// For programs.
    pub class: TurnErrorClass,
    /// For people, without anything of the provider's.
    pub message: String,
    /// What goose said of it, without anything of the provider's.
    words: String,
}

const ERROR: &str = "Ran into this error: ";
const COMPACTION: &str = "Ran into this error trying to compact: ";
const COMPACTION_CAUSE: &str = "Failed to compact: ";
const EMPTY: &str = "The model returned an empty response.";
const STILL_TOO_LONG: &str = "Unable to continue: Context limit still exceeded after compaction.";
const MAX_TURN_REQUESTS: &str =
    "I've reached the maximum number of actions I can do without user input. Would you like me to continue?";
const OUTPUT_LIMIT: &str = "Response stopped because the model reached its output-token limit.";
/// How goose's words begin that the account has no credit left: with and without a page to buy some.
const NO_CREDIT: [&str; 2] = [
    "Please check your account with your provider to add more credits",
    "Please add credits to your account",
];
/// What stands for the provider's part of goose's words.
const LEFT_OUT: &str = "[…]";

const TOO_LONG: &str = "the conversation is too long for the model";
const NO_CREDIT_LEFT: &str = "the account with the model's provider has no credit left";
const KEY_REFUSED: &str = "the model's provider refused the key";
const AGENTS_ERROR: &str = "the agent ran into an error of its own";

/// Reads a whole message as goose's own words. `None`: goose has no such words.
#[must_use]
pub fn own_words(text: &str) -> Option<OwnWords> {
    let failure = |class, message: &str, words: String| {
        Some(OwnWords::Failure(Failure { class, message: message.to_owned(), words }))
    };
    if let Some(error) = text.strip_prefix(COMPACTION) {
        let cause = error.strip_prefix(COMPACTION_CAUSE).unwrap_or(error);
        let (class, message) = match provider_error(cause) {
            Some(error) => (error.class, error.message),
            None => (TurnErrorClass::ProviderRejected, TOO_LONG.to_owned()),
        };
        return failure(class, &message, format!("{COMPACTION}{LEFT_OUT}"));
    }
    if let Some(error) = text.strip_prefix(ERROR) {
        return match provider_error(error) {
            Some(ProviderError { class, message, words }) => {
                failure(class, &message, format!("{ERROR}{words} {LEFT_OUT}"))
            }
            None => failure(TurnErrorClass::AgentError, AGENTS_ERROR, format!("{ERROR}{LEFT_OUT}")),
        };
    }
    // Of the network's it says so in every case, of others where a slash command's own call of the model failed.
    if let Some(ProviderError { class, message, words }) = provider_error(text) {
        return failure(class, &message, format!("{words} {LEFT_OUT}"));
    }
    if text.starts_with(EMPTY) {
        return failure(TurnErrorClass::ProviderEmpty, "the model's answer is empty", EMPTY.to_owned());
    }
    if text.starts_with(STILL_TOO_LONG) {
        return failure(TurnErrorClass::ProviderRejected, TOO_LONG, STILL_TOO_LONG.to_owned());
    }
    if let Some(words) = NO_CREDIT.into_iter().find(|words| text.starts_with(words)) {
        return failure(TurnErrorClass::ProviderRejected, NO_CREDIT_LEFT, format!("{words}."));
    }
    if text == MAX_TURN_REQUESTS {
        return Some(OwnWords::MaxTurnRequests);
    }
    is_output_limit(text).then_some(OwnWords::OutputLimit)
}

/// Whether these are the words that goose adds to the model's message when its answer reached its limit of tokens.
#[must_use]
pub fn is_output_limit(text: &str) -> bool {
    text == OUTPUT_LIMIT
}

/// Whether goose makes ids of this kind: for its own messages, and for a model's whose provider names none (measured).
#[must_use]
pub fn is_own_id(message_id: &str) -> bool {
    message_id
        .strip_prefix("msg_")
        .is_some_and(|id| id.len() == uuid::fmt::Hyphenated::LENGTH && uuid::Uuid::try_parse(id).is_ok())
}

/// What goose's answer to a request says went wrong: its JSON-RPC code, and its message with the error's data. The
/// message is for people, without anything of the provider's; `None`: goose's own will do, see [`without_addresses`].
#[must_use]
pub fn of_error(code: Option<i64>, message: &str) -> (TurnErrorClass, Option<String>) {
    /// ACP's code for "authentication required": the model's provider refused the key.
    const AUTH_REQUIRED: i64 = -32000;
    /// A prompt's and a setting's words without a provider.
    const NOT_SET: &str = "Provider not set";
    /// The session's start's, and a change of provider's words.
    const MISSING: &str = "Configuration value not found: ";
    const UNKNOWN_PROVIDER: &str = "Unknown provider: ";
    const NO_PROVIDER: &str = "Could not create provider";
    /// What stands before goose's words about the provider.
    const CIRCUMSTANCES: [&str; 2] = ["Internal error: ", "Error getting agent reply: "];

    if message.contains(NOT_SET) {
        let message = "no provider is set up for the agent, or its key is missing";
        return (TurnErrorClass::ProviderNotConfigured, Some(message.to_owned()));
    }
    if let Some((_, variable)) = message.split_once(MISSING) {
        let name = variable.split_whitespace().next().unwrap_or_default();
        let message = format!("the model's provider is not set up: {name} is missing");
        return (TurnErrorClass::ProviderNotConfigured, Some(message));
    }
    if message.contains(UNKNOWN_PROVIDER) {
        return (TurnErrorClass::AgentError, Some("the agent knows no provider of this name".to_owned()));
    }
    if message.contains(NO_PROVIDER) {
        return (TurnErrorClass::ProviderNotConfigured, None);
    }
    if code == Some(AUTH_REQUIRED) {
        return (TurnErrorClass::ProviderAuth, Some(KEY_REFUSED.to_owned()));
    }
    let words = CIRCUMSTANCES.iter().fold(message, |text, words| text.strip_prefix(words).unwrap_or(text));
    if let Some(error) = provider_error(words) {
        return (error.class, Some(error.message));
    }
    match own_words(words) {
        Some(OwnWords::Failure(failure)) => (failure.class, Some(failure.message)),
        _ => (TurnErrorClass::AgentError, None),
    }
}

/// `text` without URLs and without words that look like a host with a port.
#[must_use]
pub fn without_addresses(text: &str) -> String {
    text.split_inclusive(char::is_whitespace)
        .map(|word| {
            let bare = word.trim_end();
            if is_address(bare) { format!("[address]{}", &word[bare.len()..]) } else { word.to_owned() }
        })
        .collect()
}

fn is_address(word: &str) -> bool {
    if word.contains("://") {
        return true;
    }
    let word = word.trim_matches(|letter: char| letter.is_ascii_punctuation() && letter != ']');
    word.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && (1..=5).contains(&port.len()) && port.bytes().all(|digit| digit.is_ascii_digit())
    })
}

/// What goose's words say of the provider.
struct ProviderError {
    class: TurnErrorClass,
    message: String,
    /// How goose's words begin, as far as they are surely goose's.
    words: String,
}

/// Reads how goose words the errors of its providers. Only their beginnings are looked at: the rest is the provider's.
fn provider_error(error: &str) -> Option<ProviderError> {
    use TurnErrorClass::{
        AgentError, ProviderAuth, ProviderRateLimit, ProviderRejected, ProviderUnavailable,
    };

    let (kind, detail) = error.split_once(": ")?;
    let status = status_of(detail);
    let with_status = |text: &str| status.map_or(text.to_owned(), |status| format!("{text} (HTTP {status})"));
    let (class, message, words) = match kind {
        "Authentication error" => (ProviderAuth, KEY_REFUSED.to_owned(), None),
        "Rate limit exceeded" => {
            (ProviderRateLimit, "the model's provider takes no more requests for now".to_owned(), None)
        }
        "Server error" => (ProviderUnavailable, with_status("the model's provider failed"), None),
        "Network error" => {
            let (message, words) = if detail.starts_with("Could not connect") {
                ("the model's provider cannot be reached", Some("Could not connect"))
            } else if detail.starts_with("Request timed out") {
                ("the model's provider did not answer in time", Some("Request timed out"))
            } else if detail.starts_with("Stream decode error") {
                ("the model's answer broke off or is malformed", Some("Stream decode error"))
            } else {
                ("the connection to the model's provider failed", None)
            };
            (ProviderUnavailable, message.to_owned(), words)
        }
        "Request failed" => match status {
            Some(401 | 403) => (ProviderAuth, KEY_REFUSED.to_owned(), None),
            Some(429) => {
                (ProviderRateLimit, with_status("the model's provider takes no more requests for now"), None)
            }
            Some(408 | 500..) => (ProviderUnavailable, with_status("the model's provider failed"), None),
            _ => (ProviderRejected, with_status("the model's provider rejected the request"), None),
        },
        "Endpoint not found (404)" | "Unsupported operation" => {
            (ProviderRejected, "the model's provider does not offer what was asked".to_owned(), None)
        }
        "Context length exceeded" => (ProviderRejected, TOO_LONG.to_owned(), None),
        "Credits exhausted" => (ProviderRejected, NO_CREDIT_LEFT.to_owned(), None),
        "Execution error" | "Usage data error" => (AgentError, AGENTS_ERROR.to_owned(), None),
        _ => return None,
    };
    let words = match (words, status) {
        (Some(words), _) => format!("{kind}: {words}"),
        (None, Some(status)) => format!("{kind} ({status})"),
        (None, None) => kind.to_owned(),
    };
    Some(ProviderError { class, message, words })
}

/// The HTTP status in goose's words, where they begin with one.
fn status_of(detail: &str) -> Option<u16> {
    const BEFORE: [&str; 4] =
        ["Server error (", "Bad request (", "Resource not found (", "Request failed with status "];
    let rest = BEFORE.iter().find_map(|words| detail.strip_prefix(words))?;
    rest.get(..3)?.parse().ok().filter(|status| (100..600).contains(status))
}

#[cfg(test)]
mod tests;
