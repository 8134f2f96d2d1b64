use serde_json::json;

use super::*;
use crate::session::agent::{ContextUsage, ModelCallUsage, NoticeLevel};
use crate::session::id::{MessageId, TurnId};
use crate::session::tool_call::ToolCall;
use crate::session::turn::TurnErrorClass;

const ERROR: &str = "Ran into this error: Server error: x.";
const EMPTY: &str = "The model returned an empty response. Please resend your message to continue.";
const LIMIT: &str = "Response stopped because the model reached its output-token limit.";
const ENOUGH: &str =
    "I've reached the maximum number of actions I can do without user input. Would you like me to continue?";
const OWN: &str = "msg_9cad291b-080a-4b43-8878-0a0ac0c7c77d";
const OTHER: &str = "msg_2139ffac-e854-4006-9018-269c33520a9f";

fn heard(events: impl IntoIterator<Item = AgentEvent>) -> AgentEvents {
    let mut speech = Speech::default();
    let mut passed = Vec::new();
    for event in events {
        let event = speech.hear(event, &mut passed);
        passed.extend(event);
    }
    passed
}

fn chunk(id: &str, text: &str) -> AgentEvent {
    AgentEvent::MessageChunk { message_id: Some(id.to_owned()), text: text.to_owned() }
}

fn usage_of(id: &str, first_token_ms: Option<u64>) -> AgentEvent {
    let message_id = Some(id.to_owned());
    AgentEvent::ModelCallUsed(ModelCallUsage { message_id, first_token_ms, ..ModelCallUsage::default() })
}

fn aside() -> AgentEvent {
    AgentEvent::UsageUpdated(ContextUsage::default())
}

fn steer() -> AgentEvent {
    AgentEvent::UserMessage { message_id: Some("steer_1".to_owned()), text: "And?".to_owned() }
}

fn end(reason: &str) -> AgentEvent {
    AgentEvent::PromptFinished { turn: TurnId::from(uuid::Uuid::nil()), result: Ok(reason.to_owned()) }
}

fn notice(text: &str) -> AgentEvent {
    AgentEvent::Notice(outcome::own_words(text).unwrap().notice())
}

/// How a turn with these events ended.
fn ended(events: &[AgentEvent]) -> Result<&str, TurnErrorClass> {
    match events.last() {
        Some(AgentEvent::PromptFinished { result: Ok(reason), .. }) => Ok(reason),
        Some(AgentEvent::PromptFinished { result: Err(failure), .. }) => Err(failure.class),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failure_at_the_end_is_a_notice_and_fails_the_turn() {
    for (text, usage, class) in [
        (ERROR, aside(), TurnErrorClass::ProviderUnavailable),
        (EMPTY, usage_of(OWN, None), TurnErrorClass::ProviderEmpty),
        (EMPTY, usage_of("c1", Some(3)), TurnErrorClass::ProviderEmpty),
    ] {
        let passed = heard([chunk("c1", "So "), chunk(OWN, text), usage.clone(), aside(), end("end_turn")]);
        assert_eq!(passed[..4], [chunk("c1", "So "), usage, aside(), notice(text)]);
        assert_eq!(ended(&passed), Err(class));
        let (AgentEvent::Notice(Notice { message, .. }), 5) = (&passed[3], passed.len()) else { panic!() };
        assert!(!message.contains('x'), "{message}");
    }
}

#[test]
fn a_model_that_quotes_goose_is_heard() {
    let quote = [chunk(OWN, ERROR), usage_of(OWN, Some(1)), end("end_turn")];
    assert_eq!(heard(quote.clone()), quote, "without ids");
    let quote = [chunk(OWN, EMPTY), usage_of(OWN, Some(1)), end("end_turn")];
    assert_eq!(heard(quote.clone()), quote, "of an empty answer");
    let quote = [chunk(OWN, ERROR), chunk(OWN, " it said."), end("end_turn")];
    assert_eq!(heard(quote.clone()), quote, "that goes on");
    let quote = [chunk(OWN, "It said: "), chunk(OWN, ERROR), end("end_turn")];
    assert_eq!(heard(quote.clone()), quote, "that has begun");
    let call = AgentEvent::ToolCallStarted(ToolCall { id: "c".to_owned(), ..ToolCall::default() });
    let quote = [chunk(OWN, ERROR), call, end("end_turn")];
    assert_eq!(heard(quote.clone()), quote, "with a tool call");
    let thought = AgentEvent::ThoughtChunk { message_id: Some(OWN.to_owned()), text: "Hm".to_owned() };
    let quote = [thought, chunk(OWN, ERROR), end("end_turn")];
    assert_eq!(heard(quote.clone()), quote, "after a thought");
    let nameless = AgentEvent::MessageChunk { message_id: None, text: ERROR.to_owned() };
    for first in [chunk("c1", ERROR), chunk("", ERROR), nameless] {
        assert_eq!(heard([first.clone(), end("end_turn")]), [first, end("end_turn")], "with ids of its own");
    }
}

#[test]
fn only_a_chunk_that_may_be_gooses_is_held() {
    for text in ["Ran", "Hello", ""] {
        assert_eq!(heard([chunk(OWN, text)]), [chunk(OWN, text)]);
    }
    assert_eq!(heard([chunk(OWN, ERROR)]), []);
    assert_eq!(heard([chunk(OWN, ERROR), chunk(OWN, "."), chunk(OWN, ERROR)]).len(), 3);
}

#[test]
fn a_failure_before_a_steer_is_told_and_the_turn_goes_on() {
    let passed =
        heard([chunk(OWN, ERROR), steer(), chunk("c1", "Yes."), usage_of("c1", Some(1)), end("end_turn")]);
    assert_eq!(
        passed,
        [notice(ERROR), steer(), chunk("c1", "Yes."), usage_of("c1", Some(1)), end("end_turn")]
    );
    let passed = heard([chunk(OWN, ERROR), steer(), chunk(OTHER, EMPTY), end("end_turn")]);
    assert_eq!(passed[..3], [notice(ERROR), steer(), notice(EMPTY)]);
    assert_eq!(ended(&passed), Err(TurnErrorClass::ProviderEmpty), "the last one counts");
}

#[test]
fn a_cancelled_turn_stays_cancelled() {
    assert_eq!(heard([chunk(OWN, ERROR), end("cancelled")]), [notice(ERROR), end("cancelled")]);
}

#[test]
fn limits_are_stop_reasons() {
    let passed = heard([chunk("c1", "loop"), chunk(OWN, ENOUGH), aside(), end("end_turn")]);
    assert_eq!(passed, [chunk("c1", "loop"), aside(), notice(ENOUGH), end("max_turn_requests")]);
    let quote = [chunk(OWN, ENOUGH), usage_of(OWN, Some(2)), end("end_turn")];
    assert_eq!(heard(quote.clone()), quote);

    for id in ["c1", OWN] {
        let usage = usage_of(id, Some(2));
        let passed = heard([chunk(id, "So"), chunk(id, LIMIT), usage.clone(), end("max_tokens")]);
        assert_eq!(passed, [chunk(id, "So"), usage.clone(), notice(LIMIT), end("max_tokens")]);
        let quote = heard([chunk(id, LIMIT), usage.clone(), end("end_turn")]);
        assert_eq!(quote, [usage, chunk(id, LIMIT), end("end_turn")]);
    }
    let unknown = AgentEvent::Unknown(json!({"sessionUpdate": "new"}));
    assert_eq!(heard([unknown.clone(), end("refusal")]), [unknown, end("refusal")]);
}

#[test]
fn an_agent_that_dies_leaves_nothing_unsaid() {
    let exit = AgentEvent::Exited(crate::session::agent::AgentExit {
        how: "signal 9".to_owned(),
        stderr_tail: String::new(),
        class: TurnErrorClass::AgentExited,
    });
    assert_eq!(heard([chunk(OWN, ERROR), exit.clone()]), [notice(ERROR), exit]);
}

#[test]
fn a_failure_told_as_a_status_counts_when_nothing_follows() {
    const TOO_LONG: &str = "Unable to continue: Context limit still exceeded after compaction. Try x.";
    let status = |text: &str| {
        let (code, message) = ("agent-status".to_owned(), text.to_owned());
        AgentEvent::Notice(Notice { level: NoticeLevel::Info, code, message })
    };
    let passed = heard([status("compacting"), status(TOO_LONG), aside(), end("end_turn")]);
    assert_eq!(passed[..3], [status("compacting"), notice(TOO_LONG), aside()]);
    assert_eq!(ended(&passed), Err(TurnErrorClass::ProviderRejected));
    let passed = heard([status(TOO_LONG), steer(), chunk("c1", "Yes."), end("end_turn"), end("end_turn")]);
    assert_eq!(passed[1..], [steer(), chunk("c1", "Yes."), end("end_turn"), end("end_turn")]);
}

#[test]
fn words_that_are_taken_meanwhile_do_not_tell_who_spoke() {
    let taken = || AgentEvent::Steered { message: MessageId::from(uuid::Uuid::nil()), agents_id: None };
    let own = [chunk(OWN, ERROR), taken(), end("end_turn")];
    let heard_own = heard(own);
    assert_eq!(heard_own[..2], [taken(), notice(ERROR)]);
    assert!(matches!(heard_own[2], AgentEvent::PromptFinished { result: Err(_), .. }));
    let models = [chunk(OWN, ERROR), taken(), usage_of(OWN, Some(1))];
    assert_eq!(heard(models), [taken(), chunk(OWN, ERROR), usage_of(OWN, Some(1))]);
}
