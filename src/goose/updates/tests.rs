use serde_json::json;

use super::*;
use crate::session::agent::{AgentExit, AgentFailure, AgentOption, Notice, NoticeLevel, ReplyToken};
use crate::session::id::TurnId;

fn filtered(updates: &mut GooseUpdates, events: impl IntoIterator<Item = AgentEvent>) -> AgentEvents {
    let mut passed = Vec::new();
    for event in events {
        updates.filter(event, &mut passed);
    }
    passed
}

fn in_auto(events: impl IntoIterator<Item = AgentEvent>) -> AgentEvents {
    filtered(&mut GooseUpdates::new(Mode::Auto), events)
}

fn call(id: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), ..ToolCall::default() }
}

fn write(id: &str, markdown: &str) -> AgentEvent {
    AgentEvent::ToolCallStarted(ToolCall {
        tool: Some(PLAN_TOOL.to_owned()),
        extension: Some(PLAN_EXTENSION.to_owned()),
        title: Some("todo: todo write".to_owned()),
        input: Some(json!({"content": markdown})),
        ..call(id)
    })
}

fn shell(id: &str) -> AgentEvent {
    AgentEvent::ToolCallStarted(ToolCall {
        tool: Some("shell".to_owned()),
        kind: Some("execute".to_owned()),
        ..call(id)
    })
}

fn ended(id: &str, status: ToolCallStatus, text: &str) -> AgentEvent {
    let content = Some(vec![json!({"type": "content", "content": {"type": "text", "text": text}})]);
    AgentEvent::ToolCallUpdated(ToolCall { status: Some(status), content, ..call(id) })
}

fn done(id: &str) -> AgentEvent {
    ended(id, ToolCallStatus::Completed, "Updated (7 chars)")
}

fn plan(contents: &[&str]) -> AgentEvent {
    AgentEvent::PlanUpdated(
        contents
            .iter()
            .map(|content| PlanEntry {
                content: (*content).to_owned(),
                status: PlanEntryStatus::Pending,
                priority: PlanEntryPriority::Medium,
                depth: 0,
            })
            .collect(),
    )
}

fn asked(id: &str, title: &str, input: Value) -> AgentEvent {
    AgentEvent::PermissionRequested(AgentPermissionRequest {
        reply: ReplyToken("token".to_owned()),
        tool_call: ToolCall {
            title: Some(title.to_owned()),
            kind: Some("other".to_owned()),
            status: Some(ToolCallStatus::Pending),
            input: Some(input),
            ..call(id)
        },
        options: vec![AgentOption { id: "allow_once".to_owned(), kind: "allow_once".to_owned() }],
        plan_write: false,
    })
}

fn output(id: &str) -> AgentEvent {
    let (tool_call_id, stream, text) = (id.to_owned(), "stdout".to_owned(), "x".to_owned());
    AgentEvent::ToolOutput { tool_call_id, stream, text, truncated: false }
}

#[test]
fn a_done_write_is_the_plan_and_nothing_else() {
    let running =
        AgentEvent::ToolCallUpdated(ToolCall { status: Some(ToolCallStatus::InProgress), ..call("c") });
    let late = AgentEvent::ToolCallUpdated(ToolCall { title: Some("a label".to_owned()), ..call("c") });
    assert_eq!(in_auto([write("c", "- [ ] a\n- b")]), []);
    assert_eq!(
        in_auto([write("c", "- [ ] a\n- b"), running, output("c"), done("c"), late, done("c")]),
        [plan(&["a", "b"])]
    );
    assert_eq!(in_auto([write("c", "  \n"), done("c")]), [plan(&[])], "an empty write clears the plan");
}

#[test]
fn a_write_that_was_not_done_changes_nothing() {
    for (status, text) in [
        (ToolCallStatus::Failed, "The user has declined to run this tool."),
        (ToolCallStatus::Completed, "Let the user know the tool call was skipped in goose chat mode. More."),
        (ToolCallStatus::Completed, ""),
        (ToolCallStatus::Failed, "Updated (7 chars)"),
        (ToolCallStatus::Cancelled, "Updated (7 chars)"),
    ] {
        assert_eq!(
            in_auto([write("c", "- a"), ended("c", status, text), done("c")]),
            [],
            "{status:?} {text}"
        );
    }
}

#[test]
fn a_write_without_a_list_is_an_ordinary_call() {
    let no_content = AgentEvent::ToolCallStarted(ToolCall {
        tool: Some(PLAN_TOOL.to_owned()),
        extension: Some(PLAN_EXTENSION.to_owned()),
        input: Some(json!({"wrong": 1})),
        ..call("c")
    });
    for first in [write("c", "just words"), no_content, shell("c")] {
        let events = vec![
            first,
            asked("c", "todo: todo write", json!({"content": "just words"})),
            output("c"),
            done("c"),
        ];
        assert_eq!(in_auto(events.clone()), events);
    }
}

#[test]
fn another_tool_of_that_name_is_no_plan() {
    for (tool, extension) in
        [(PLAN_TOOL, Some("other")), (PLAN_TOOL, None), ("todo_write", Some(PLAN_EXTENSION))]
    {
        let AgentEvent::ToolCallStarted(mut started) = write("c", "- a") else { panic!() };
        (started.tool, started.extension) = (Some(tool.to_owned()), extension.map(ToOwned::to_owned));
        let events = vec![AgentEvent::ToolCallStarted(started), done("c")];
        assert_eq!(in_auto(events.clone()), events);
    }
}

#[test]
fn the_permission_of_a_write_tells_all_of_the_call() {
    let request = asked("c", "todo: todo write", json!({"content": "- a"}));
    let passed = in_auto([write("c", "- a"), request]);
    let [AgentEvent::PermissionRequested(request)] = passed.as_slice() else { panic!("{passed:?}") };
    assert!(request.plan_write);
    assert_eq!(
        request.tool_call,
        ToolCall {
            tool: Some(PLAN_TOOL.to_owned()),
            extension: Some(PLAN_EXTENSION.to_owned()),
            title: Some("todo: todo write".to_owned()),
            kind: Some("other".to_owned()),
            status: Some(ToolCallStatus::Pending),
            input: Some(json!({"content": "- a"})),
            ..call("c")
        }
    );
}

#[test]
fn a_request_for_something_else_under_a_write_s_id_is_no_plan_write() {
    for request in [
        asked("c", "shell · rm -r x", json!({"command": "rm -r x"})),
        asked("c", "shell · rm -r x", json!({"content": "- a"})),
        asked("c", "todo: todo write", json!({"command": "rm -r x"})),
    ] {
        assert_eq!(in_auto([write("c", "- a"), request.clone()]), [request]);
    }
    let request = asked("c", "todo: todo write", json!({"content": "- a"}));
    let passed = in_auto([write("c", "- a"), done("c"), request.clone()]);
    assert_eq!(passed, [plan(&["a"]), request], "a write that is over asks for nothing");
}

#[test]
fn an_id_used_again_belongs_to_the_later_call() {
    let events =
        [write("c", "- a"), done("c"), shell("c"), output("c"), done("c"), write("c", "- b"), done("c")];
    assert_eq!(in_auto(events), [plan(&["a"]), shell("c"), output("c"), done("c"), plan(&["b"])]);
}

#[test]
fn a_real_plan_wins() {
    let events = [write("c", "- a"), done("c"), plan(&["real"]), write("d", "- b"), done("d"), plan(&[])];
    assert_eq!(in_auto(events), [plan(&["a"]), plan(&["real"]), plan(&[])]);
}

#[test]
fn writes_are_remembered_up_to_a_number() {
    let mut updates = GooseUpdates::new(Mode::Auto);
    for number in 0..10 * REMEMBERED_WRITES {
        assert_eq!(filtered(&mut updates, [write(&number.to_string(), "- a")]), []);
    }
    assert_eq!(updates.writes.len(), REMEMBERED_WRITES);
    let last = (10 * REMEMBERED_WRITES - 1).to_string();
    assert_eq!(filtered(&mut updates, [done(&last)]), [plan(&["a"])]);
}

#[test]
fn only_chat_mode_skips() {
    let skipped = |status| ended("c", status, &format!("{SKIPPED} DO NOT apologize"));
    let (as_told, as_meant) = (skipped(ToolCallStatus::Completed), skipped(ToolCallStatus::Skipped));
    let mut updates = GooseUpdates::new(Mode::Chat);
    assert_eq!(filtered(&mut updates, [shell("c"), as_told.clone()]), [shell("c"), as_meant.clone()]);
    assert_eq!(
        filtered(&mut updates, [ended("d", ToolCallStatus::Completed, "ran")]),
        [ended("d", ToolCallStatus::Completed, "ran")]
    );
    let mode = AgentEvent::ModeChanged("auto".to_owned());
    assert_eq!(filtered(&mut updates, [mode.clone(), as_told.clone()]), [mode, as_told.clone()]);
    let option = crate::session::agent::ConfigOption {
        id: "mode".to_owned(),
        name: "Mode".to_owned(),
        category: None,
        current_value: Some("chat".to_owned()),
        choices: Vec::new(),
        omitted_choices: 0,
    };
    let options = AgentEvent::ConfigOptionsUpdated(vec![option]);
    assert_eq!(filtered(&mut updates, [options.clone(), as_told]), [options, as_meant]);
}

#[test]
fn errors_are_said_without_what_is_the_providers() {
    for (class, code, message, expected) in [
        (
            TurnErrorClass::AgentError,
            Some(-32603),
            "Internal error: Error getting agent reply: Provider not set",
            (
                TurnErrorClass::ProviderNotConfigured,
                "no provider is set up for the agent, or its key is missing",
            ),
        ),
        (
            TurnErrorClass::ProviderAuth,
            Some(-32000),
            "Authentication required",
            (TurnErrorClass::ProviderAuth, "the model's provider refused the key"),
        ),
        (
            TurnErrorClass::AgentError,
            Some(-32603),
            "Internal error: no luck at http://127.0.0.1:9/v1",
            (TurnErrorClass::AgentError, "Internal error: no luck at [address]"),
        ),
        (
            TurnErrorClass::AgentUnresponsive,
            None,
            "the agent did not answer",
            (TurnErrorClass::AgentUnresponsive, "the agent did not answer"),
        ),
    ] {
        let failure = AgentFailure { class, code, message: message.to_owned() };
        let turn = TurnId::new();
        let passed = in_auto([AgentEvent::PromptFinished { turn, result: Err(failure) }]);
        let failure = AgentFailure { class: expected.0, code, message: expected.1.to_owned() };
        assert_eq!(passed, [AgentEvent::PromptFinished { turn, result: Err(failure) }]);
    }
}

#[test]
fn goose_s_own_words_are_no_message_and_end_the_turn_as_what_it_is() {
    let message_id = Some("msg_9cad291b-080a-4b43-8878-0a0ac0c7c77d".to_owned());
    let text = "The model returned an empty response. Please resend your message to continue.".to_owned();
    let turn = TurnId::new();
    let passed = in_auto([
        AgentEvent::MessageChunk { message_id, text },
        AgentEvent::PromptFinished { turn, result: Ok("end_turn".to_owned()) },
    ]);
    let [AgentEvent::Notice(notice), AgentEvent::PromptFinished { result: Err(failure), .. }] =
        passed.as_slice()
    else {
        panic!("{passed:?}")
    };
    assert_eq!(notice.code, "model-call-failed");
    assert_eq!(failure.class, TurnErrorClass::ProviderEmpty);
}

#[test]
fn compaction_has_its_own_code() {
    let notice = |code: &str, message: &str| {
        AgentEvent::Notice(Notice {
            level: NoticeLevel::Info,
            code: code.to_owned(),
            message: message.to_owned(),
        })
    };
    assert_eq!(
        in_auto([notice("agent-status", "Compaction complete")]),
        [notice("compaction", "Compaction complete")]
    );
    assert_eq!(in_auto([notice("agent-status", "hello")]), [notice("agent-status", "hello")]);
    assert_eq!(in_auto([notice("update-dropped", "compact")]), [notice("update-dropped", "compact")]);
    // When a caller asks for it, goose says so in a message; a model that says the same is only heard.
    let echo = |text: &str| AgentEvent::UserMessage { message_id: None, text: text.to_owned() };
    let says = |id: &str| AgentEvent::MessageChunk {
        message_id: Some(id.to_owned()),
        text: "Compaction complete".to_owned(),
    };
    let own = "msg_387c5c88-2563-4abf-b2cd-f3790d33b70f";
    assert_eq!(
        in_auto([echo("/compact"), says(own)]),
        [echo("/compact"), says(own), notice("compaction", "Compaction complete")]
    );
    for events in
        [vec![says(own)], vec![echo("hello"), says(own)], vec![echo("/compact"), says("chatcmpl-1")]]
    {
        assert_eq!(in_auto(events.clone()), events);
    }
}

#[tokio::test]
async fn the_run_of_a_turn_is_heard_and_not_passed_on() {
    let mut updates = GooseUpdates::new(Mode::Auto);
    let (run, turn) = (updates.run(), TurnId::new());
    run.begin(turn);
    let meta = |id: Value| AgentEvent::SessionMeta(json!({"goose": {"activeRunId": id}}));
    assert_eq!(filtered(&mut updates, [meta(json!("run_1"))]), []);
    assert_eq!(run.of(turn).await, Ok("run_1".to_owned()));
    let finished = AgentEvent::PromptFinished { turn, result: Ok("end_turn".to_owned()) };
    assert_eq!(filtered(&mut updates, [finished.clone()]), [finished]);
    assert!(run.of(turn).await.is_err());
    run.begin(turn);
    filtered(&mut updates, [meta(json!("run_2"))]);
    let exit =
        AgentExit { how: "signal 9".into(), stderr_tail: String::new(), class: TurnErrorClass::AgentExited };
    filtered(&mut updates, [AgentEvent::Exited(exit)]);
    assert!(run.of(turn).await.is_err(), "nobody waits for a goose that is gone");
}
