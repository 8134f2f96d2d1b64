use std::path::Path;

use serde_json::Value;

use super::*;

const PLEASE_RETRY: &str = "Please retry if you think this is a transient or recoverable error.";
/// What must reach no caller, in the errors below.
const LEAKS: [&str; 7] = ["http", "//", "127.0.0.1", "9931", "fake error", "sk-leak", "{not"];

fn failure(text: &str) -> Failure {
    match own_words(text) {
        Some(OwnWords::Failure(failure)) => failure,
        other => panic!("{text:?}: {other:?}"),
    }
}

fn assert_clean(text: &str) {
    let lower = text.to_lowercase().replace("(http ", "(");
    for leak in LEAKS {
        assert!(!lower.contains(leak), "{leak:?} in {text:?}");
    }
}

/// The texts of goose's own messages in a transcript.
fn own_texts(transcript: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire").join(transcript);
    std::fs::read_to_string(file)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["msg"]["params"]["update"].clone())
        .filter(|update| update["sessionUpdate"] == "agent_message_chunk")
        .filter(|update| is_own_id(update["messageId"].as_str().unwrap()))
        .map(|update| update["content"]["text"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn recorded_failures_have_their_class_and_are_clean() {
    use TurnErrorClass::{ProviderEmpty, ProviderRateLimit, ProviderRejected, ProviderUnavailable};
    for (transcript, class, message) in [
        ("07-http-400", ProviderRejected, "the model's provider rejected the request (HTTP 400)"),
        ("07-http-404", ProviderRejected, "the model's provider rejected the request (HTTP 404)"),
        ("07-http-429-retry-after", ProviderRateLimit, "the model's provider takes no more requests for now"),
        ("07-http-500", ProviderUnavailable, "the model's provider failed (HTTP 500)"),
        ("07-http-503", ProviderUnavailable, "the model's provider failed (HTTP 503)"),
        ("07-server-down", ProviderUnavailable, "the model's provider cannot be reached"),
        ("07-drop-mid-stream", ProviderUnavailable, "the model's answer broke off or is malformed"),
        ("07-hang-mid-stream", ProviderUnavailable, "the model's answer broke off or is malformed"),
        ("07-malformed-sse", ProviderUnavailable, "the model's answer broke off or is malformed"),
        ("07-not-sse", ProviderEmpty, "the model's answer is empty"),
    ] {
        let texts = own_texts(&format!("{transcript}.jsonl"));
        let [text] = texts.as_slice() else { panic!("{transcript}: {texts:?}") };
        let failure = failure(text);
        assert_eq!((failure.class, failure.message.as_str()), (class, message), "{transcript}");
        assert_clean(&failure.message);
        let notice = OwnWords::Failure(failure).notice();
        assert_eq!((notice.level, notice.code.as_str()), (NoticeLevel::Error, "model-call-failed"));
        assert_clean(&notice.message);
    }
}

#[test]
fn a_slash_command_whose_model_call_failed_is_a_failure() {
    let failure = failure("Request failed: Bad request (400): http://127.0.0.1:9931 fake error");
    assert_eq!(failure.class, TurnErrorClass::ProviderRejected);
    let notice = OwnWords::Failure(failure).notice();
    assert_eq!(notice.message, "Request failed (400) […]");
    for text in ["Compaction complete", "**Session status**\n\n- Model: gpt-4o", "Unknown: Bad request (400)"]
    {
        assert_eq!(own_words(text), None, "{text}");
    }
}

#[test]
fn the_recorded_limits_are_told_apart() {
    let texts = own_texts("13-stop-reasons-and-late-updates.jsonl");
    assert_eq!(
        texts.iter().map(|text| own_words(text)).collect::<Vec<_>>(),
        [Some(OwnWords::MaxTurnRequests)]
    );
    assert_eq!(
        own_words("Response stopped because the model reached its output-token limit."),
        Some(OwnWords::OutputLimit)
    );
}

#[test]
fn every_error_of_a_provider_has_its_class() {
    use TurnErrorClass::{
        AgentError, ProviderAuth, ProviderRateLimit, ProviderRejected, ProviderUnavailable,
    };
    let at = "at http://127.0.0.1:9931/v1/chat/completions: fake error sk-leak";
    for (error, class, words) in [
        (
            "Authentication error: Authentication failed for http://127.0.0.1:9931/v1. Status: 401 Unauthorized. Response: fake error".to_owned(),
            ProviderAuth,
            "Authentication error",
        ),
        (format!("Request failed: Request failed with status 401 Unauthorized {at}"), ProviderAuth, "Request failed (401)"),
        (format!("Request failed: Request failed with status 408 Request Timeout {at}"), ProviderUnavailable, "Request failed (408)"),
        (format!("Request failed: Request failed with status 422 Unprocessable Entity {at}"), ProviderRejected, "Request failed (422)"),
        (format!("Request failed: Request failed with status 429 Too Many {at}"), ProviderRateLimit, "Request failed (429)"),
        (format!("Request failed: Request failed with status 5ä {at}"), ProviderRejected, "Request failed"),
        (format!("Request failed: {at}"), ProviderRejected, "Request failed"),
        (format!("Server error: Server error (529 <unknown status code>) {at}"), ProviderUnavailable, "Server error (529)"),
        (format!("Server error: {at}"), ProviderUnavailable, "Server error"),
        ("Server error: fake error: Server error (400 Bad)".to_owned(), ProviderUnavailable, "Server error"),
        ("Rate limit exceeded: fake error".to_owned(), ProviderRateLimit, "Rate limit exceeded"),
        ("Network error: Request timed out — check 127.0.0.1:9931".to_owned(), ProviderUnavailable, "Network error: Request timed out"),
        (format!("Network error: {at}"), ProviderUnavailable, "Network error"),
        ("Context length exceeded: fake error".to_owned(), ProviderRejected, "Context length exceeded"),
        ("Credits exhausted: fake error".to_owned(), ProviderRejected, "Credits exhausted"),
        ("Endpoint not found (404): fake error".to_owned(), ProviderRejected, "Endpoint not found (404)"),
        ("Execution error: fake error".to_owned(), AgentError, "Execution error"),
    ] {
        let failure = failure(&format!("Ran into this error: {error}.\n\n{PLEASE_RETRY}"));
        assert_eq!(failure.class, class, "{error}");
        assert_eq!(failure.words, format!("Ran into this error: {words} […]"));
        assert_clean(&failure.message);
        assert_eq!(of_error(Some(-32603), &format!("Internal error: Error getting agent reply: {error}")).0, class);
    }
    for (text, class) in [
        ("Ran into this error: fake error: http://127.0.0.1:9931", AgentError),
        ("Ran into this error: ", AgentError),
        ("Ran into this error trying to compact: Failed to compact: fake error.", ProviderRejected),
        (
            "Ran into this error trying to compact: Failed to compact: Rate limit exceeded: fake error.",
            ProviderRateLimit,
        ),
        (
            "Unable to continue: Context limit still exceeded after compaction. Try fake error",
            ProviderRejected,
        ),
        (
            "Please check your account with your provider to add more credits, then http://127.0.0.1",
            ProviderRejected,
        ),
        ("Please add credits to your account, at http://127.0.0.1", ProviderRejected),
    ] {
        let failure = failure(text);
        assert_eq!(failure.class, class, "{text}");
        assert_clean(&failure.message);
        assert_clean(&failure.words);
    }
}

#[test]
fn what_goose_never_says_is_the_models() {
    for text in [
        "",
        "Ran",
        "He said: Ran into this error: Server error: x",
        "Response stopped because the model reached its output-token limit. Really.",
        "I've reached the maximum number of actions I can do.",
        "network error: x",
    ] {
        assert_eq!(own_words(text), None, "{text}");
    }
}

#[test]
fn only_gooses_ids_are_its_own() {
    assert!(is_own_id("msg_9cad291b-080a-4b43-8878-0a0ac0c7c77d"));
    for id in [
        "",
        "msg_",
        "msg_1",
        "msg_9cad291b080a4b4388780a0ac0c7c77d",
        "9cad291b-080a-4b43-8878-0a0ac0c7c77d",
        "msg_01XFDUDYJgAACzvnptvVoYEL",
        "chatcmpl-190",
        "steer_9cad291b-080a-4b43-8878-0a0ac0c7c77d",
    ] {
        assert!(!is_own_id(id), "{id}");
    }
}

#[test]
fn gooses_answers_are_classified() {
    for (code, message, class, said) in [
        (
            -32603,
            "Internal error: Error getting agent reply: Provider not set",
            TurnErrorClass::ProviderNotConfigured,
            Some("no provider is set up for the agent, or its key is missing"),
        ),
        (
            -32603,
            "Internal error: Failed to resolve provider: Configuration value not found: GOOSE_PROVIDER",
            TurnErrorClass::ProviderNotConfigured,
            Some("the model's provider is not set up: GOOSE_PROVIDER is missing"),
        ),
        (
            -32603,
            "Internal error: Failed to recreate provider: Could not create provider: Unknown provider: nosuch",
            TurnErrorClass::AgentError,
            Some("the agent knows no provider of this name"),
        ),
        (
            -32603,
            "Internal error: Failed to recreate provider: Could not create provider: its certificate is bad",
            TurnErrorClass::ProviderNotConfigured,
            None,
        ),
        (-32000, "Authentication required", TurnErrorClass::ProviderAuth, Some(KEY_REFUSED)),
        (
            -32603,
            "Please check your account with your provider to add more credits, then resend your message to continue.",
            TurnErrorClass::ProviderRejected,
            Some(NO_CREDIT_LEFT),
        ),
        (-32602, "Invalid params", TurnErrorClass::AgentError, None),
    ] {
        assert_eq!(of_error(Some(code), message), (class, said.map(ToOwned::to_owned)), "{message}");
    }
}

#[test]
fn addresses_are_left_out() {
    for (text, clean) in [
        ("cannot reach (http://127.0.0.1:9931/v1): refused", "cannot reach [address] refused"),
        ("error at 127.0.0.1:9931.\nMore", "error at [address]\nMore"),
        ("at [::1]:80, localhost:8080", "at [address] [address]"),
        ("Invalid params: line 1 column 2: a: b", "Invalid params: line 1 column 2: a: b"),
        ("größer: 5 ", "größer: 5 "),
        ("", ""),
    ] {
        assert_eq!(without_addresses(text), clean);
    }
}
