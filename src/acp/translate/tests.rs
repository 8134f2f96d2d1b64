use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::session::agent::{ConfigChoice, ConfigOption, Skill, SlashCommand};
use crate::session::tool_call::{ToolCall, ToolCallStatus};

/// What a notification of session `s` means.
fn events(method: &str, params: &str) -> Vec<AgentEvent> {
    let params: &RawValue = serde_json::from_str(params).unwrap();
    let mut events = Vec::new();
    notification(method, Some(params), Some("s"), &mut |event| events.push(event));
    events
}

fn update_events(update: &str) -> Vec<AgentEvent> {
    events(SESSION_UPDATE, &format!(r#"{{"sessionId":"s","update":{update}}}"#))
}

fn own_events(update: &str) -> Vec<AgentEvent> {
    events("_goose/unstable/session/update", &format!(r#"{{"sessionId":"s","update":{update}}}"#))
}

fn unknown(update: &str) -> AgentEvent {
    AgentEvent::Unknown(serde_json::from_str(update).unwrap())
}

fn call(id: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), ..ToolCall::default() }
}

fn line(update: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{update}}}}}"#)
}

#[test]
fn one_pass_and_steps_give_the_same() {
    for update in [
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\u00e4\n"},"messageId":"m"}"#,
        r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":""},"messageId":null,"new":[1]}"#,
        r#"{"_meta":{},"content":{"text":"t","annotations":{},"type":"text"},"sessionUpdate":"agent_message_chunk"}"#,
    ] {
        let in_one_pass = chunk_of_line(&line(update), Some("s")).unwrap();
        assert_eq!(update_events(update), [in_one_pass]);
    }
}

#[test]
fn what_is_no_piece_of_text_is_left_to_the_steps() {
    let text = r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"t"}}"#;
    assert!(chunk_of_line(&line(text), None).is_some());
    assert_eq!(chunk_of_line(&line(text), Some("other")), None, "of another session");
    assert_eq!(chunk_of_line(&line(text).replacen('{', r#"{"id":null,"#, 1), Some("s")), None, "a request");
    assert_eq!(chunk_of_line(&line(text).replace("session/update", "x/update"), Some("s")), None);
    for update in [
        r#"{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"t"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"image","text":"t"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":1}}"#,
        r#"{"sessionUpdate":"tool_call","content":{"type":"text","text":"t"}}"#,
    ] {
        assert_eq!(chunk_of_line(&line(update), Some("s")), None, "{update}");
    }
    assert_eq!(chunk_of_line(r#"{"id":1,"result":{}}"#, Some("s")), None);
}

#[test]
fn what_is_not_known_goes_on_as_it_came() {
    for update in [
        r#"{"sessionUpdate":"from_the_future","big":12345678901234567890,"x":{"b":1,"a":2}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"","mimeType":"image/png"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk"}"#,
        r#"{"sessionUpdate":"tool_call","title":"no id"}"#,
        r#"{"sessionUpdate":7}"#,
        r#"{"sessionUpdate":"session_info_update","title":null}"#,
        r#"{"sessionUpdate":"plan"}"#,
        r#"{"sessionUpdate":"usage_update"}"#,
        r#"{"sessionUpdate":"message_usage","usage":{"inputTokens":1}}"#,
        r"{}",
        r#""text""#,
        r"null",
    ] {
        assert_eq!(update_events(update), [unknown(update)], "{update}");
    }
    assert_eq!(own_events(r#"{"sessionUpdate":"new"}"#), [unknown(r#"{"sessionUpdate":"new"}"#)]);
    assert_eq!(
        events("new/thing", r#"{"sessionId":"s","x":[1]}"#),
        [AgentEvent::Unknown(json!({"method": "new/thing", "params": {"x": [1]}}))]
    );
    // What no value can hold stays text.
    let surrogate = r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\ud800"}}"#;
    assert_eq!(update_events(surrogate), [AgentEvent::Unknown(Value::String(surrogate.to_owned()))]);
}

#[test]
fn what_says_nothing_to_callers_is_silent() {
    assert_eq!(
        update_events(r#"{"sessionUpdate":"session_info_update","updatedAt":"2026-11-30T13:44:48Z"}"#),
        []
    );
    assert_eq!(events("$/progress", r#"{"x":1}"#), []);
    assert_eq!(events(SESSION_UPDATE, r#"{"sessionId":"other","update":{"sessionUpdate":"new"}}"#), []);
}

#[test]
fn a_tool_call_in_the_api_s_words() {
    let update = r#"{"sessionUpdate":"tool_call","toolCallId":"c","title":"edit","kind":"a_new_kind","status":"pending",
        "rawInput":{"oldText":"x"},"rawOutput":[1],"locations":[{"path":"/a","line":3}],
        "content":[
            {"type":"content","content":{"type":"image","mimeType":"image/png","data":""}},
            {"type":"diff","path":"/a","newText":"n","_meta":{"k":1}},
            {"type":"diff","path":"/a","oldText":"o","newText":"n"},
            {"type":"terminal","terminalId":"t"},
            {"type":"new","newText":1},
            "odd"],
        "_meta":{"goose":{"toolCall":{"toolName":"edit","extensionName":"developer"}}}}"#;
    let expected = ToolCall {
        id: "c".to_owned(),
        tool: Some("edit".to_owned()),
        extension: Some("developer".to_owned()),
        title: Some("edit".to_owned()),
        kind: Some("a_new_kind".to_owned()),
        status: Some(ToolCallStatus::Pending),
        input: Some(json!({"oldText": "x"})),
        output: Some(json!([1])),
        locations: Some(vec![json!({"path": "/a", "line": 3})]),
        content: Some(vec![
            json!({"type": "content", "content": {"type": "image", "mimeType": "image/png", "data": ""}}),
            json!({"type": "diff", "path": "/a", "_meta": {"k": 1}, "old_text": null, "new_text": "n"}),
            json!({"type": "diff", "path": "/a", "old_text": "o", "new_text": "n"}),
            json!({"type": "terminal", "terminal_id": "t"}),
            json!({"type": "new", "newText": 1}),
            json!("odd"),
        ]),
    };
    assert_eq!(update_events(update), [AgentEvent::ToolCallStarted(expected)]);
}

#[test]
fn a_field_that_cannot_be_read_never_stops_a_tool_call() {
    let update = r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","title":"t","status":"paused"}"#;
    let expected = ToolCall { title: Some("t".to_owned()), ..call("c") };
    assert_eq!(update_events(update), [AgentEvent::ToolCallUpdated(expected), unknown(update)]);
    for field in [r#""content":"text""#, r#""title":1"#, r#""locations":{}"#, r#""kind":[]"#, r#""status":1"#]
    {
        let update =
            format!(r#"{{"sessionUpdate":"tool_call_update","toolCallId":"c","rawOutput":1,{field}}}"#);
        let expected = ToolCall { output: Some(json!(1)), ..call("c") };
        assert_eq!(
            update_events(&update),
            [AgentEvent::ToolCallUpdated(expected), unknown(&update)],
            "{field}"
        );
    }
    let nulls = r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","title":null,"rawInput":null,"content":null,
        "_meta":{"goose":{"toolCall":3}}}"#;
    assert_eq!(update_events(nulls), [AgentEvent::ToolCallUpdated(call("c"))]);
    let surrogate = r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","rawOutput":{"a":"\ud800"}}"#;
    let expected = ToolCall { output: Some(json!(r#"{"a":"\ud800"}"#)), ..call("c") };
    assert_eq!(update_events(surrogate), [AgentEvent::ToolCallUpdated(expected)]);
}

fn live(sequence: u64, chunks: &str, truncated: bool) -> Vec<AgentEvent> {
    update_events(&format!(
        r#"{{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"in_progress","_meta":{{"toolNotification":
        {{"type":"live_output","params":{{"sequence":{sequence},"chunks":{chunks},"truncated":{truncated}}}}}}}}}"#
    ))
}

fn output(stream: &str, text: &str, truncated: bool) -> AgentEvent {
    let (tool_call_id, stream, text) = ("c".to_owned(), stream.to_owned(), text.to_owned());
    AgentEvent::ToolOutput { tool_call_id, stream, text, truncated }
}

#[test]
fn live_output_is_output_and_once_a_status() {
    let running =
        AgentEvent::ToolCallUpdated(ToolCall { status: Some(ToolCallStatus::InProgress), ..call("c") });
    assert_eq!(
        live(1, r#"[{"stream":"stdout","output":"a\u0000\n"}]"#, false),
        [running.clone(), output("stdout", "a\0\n", false)]
    );
    assert_eq!(
        live(2, r#"[{"stream":"stderr","output":"b"},{"stream":"stdout","output":"c"}]"#, true),
        [output("stderr", "b", false), output("stdout", "c", true)]
    );
    assert_eq!(live(3, "[]", true), [output("stdout", "", true)]);
    let other = r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"in_progress",
        "_meta":{"toolNotification":{"type":"progress","params":{"progress":1}}}}"#;
    assert_eq!(update_events(other), [running, unknown(other)]);
}

#[test]
fn usage_of_both_kinds() {
    let acp =
        r#"{"sessionUpdate":"usage_update","used":16,"size":128,"cost":{"amount":0.5,"currency":"EUR"}}"#;
    let cost = Some(Cost { amount: 0.5, currency: "EUR".to_owned() });
    let usage =
        ContextUsage { context_used: Some(16), context_size: Some(128), cost, ..ContextUsage::default() };
    assert_eq!(update_events(acp), [AgentEvent::UsageUpdated(usage)]);
    let own = r#"{"sessionUpdate":"usage_update","used":16,"contextLimit":128,"accumulatedInputTokens":1,
        "accumulatedOutputTokens":2,"accumulatedCost":0.1}"#;
    let usage = ContextUsage {
        context_used: Some(16),
        context_size: Some(128),
        input_tokens: Some(1),
        output_tokens: Some(2),
        cost: None,
    };
    assert_eq!(own_events(own), [AgentEvent::UsageUpdated(usage)]);
    let call = r#"{"sessionUpdate":"message_usage","messageId":"m","usage":{"inputTokens":1,"totalTokens":3,"cost":0.25,
        "timeToFirstTokenMs":4,"isCompaction":true}}"#;
    let usage = ModelCallUsage {
        message_id: Some("m".to_owned()),
        first_token_ms: Some(4),
        input_tokens: Some(1),
        output_tokens: None,
        total_tokens: Some(3),
        cost: Some(0.25),
    };
    assert_eq!(own_events(call), [AgentEvent::ModelCallUsed(usage)]);
    let status = r#"{"sessionUpdate":"status_message","status":{"type":"progress","message":"m"}}"#;
    let notice =
        Notice { level: NoticeLevel::Info, code: "agent-status".to_owned(), message: "m".to_owned() };
    assert_eq!(own_events(status), [AgentEvent::Notice(notice)]);
}

#[test]
fn plans_titles_modes_commands_and_settings() {
    let plan = r#"{"sessionUpdate":"plan","entries":[
        {"content":"a","priority":"high","status":"in_progress"},{"content":"b","status":"completed"}]}"#;
    let entry = |content: &str, status, priority| PlanEntry {
        content: content.to_owned(),
        status,
        priority,
        depth: 0,
    };
    let entries = vec![
        entry("a", PlanEntryStatus::InProgress, PlanEntryPriority::High),
        entry("b", PlanEntryStatus::Completed, PlanEntryPriority::Medium),
    ];
    assert_eq!(update_events(plan), [AgentEvent::PlanUpdated(entries)]);
    let odd = r#"{"sessionUpdate":"plan","entries":[{"content":"a","status":"blocked"},{"text":"?"}]}"#;
    let entries = vec![entry("a", PlanEntryStatus::Pending, PlanEntryPriority::Medium)];
    assert_eq!(update_events(odd), [AgentEvent::PlanUpdated(entries), unknown(odd)]);

    let title = r#"{"sessionUpdate":"session_info_update","title":"T","_meta":{"messageCount":3}}"#;
    assert_eq!(
        update_events(title),
        [AgentEvent::TitleChanged("T".to_owned()), AgentEvent::SessionMeta(json!({"messageCount": 3}))]
    );
    let run = r#"{"sessionUpdate":"session_info_update","_meta":{"goose":{"activeRunId":"r"}}}"#;
    assert_eq!(update_events(run), [AgentEvent::SessionMeta(json!({"goose": {"activeRunId": "r"}}))]);
    let mode = r#"{"sessionUpdate":"current_mode_update","currentModeId":"new_mode"}"#;
    assert_eq!(update_events(mode), [AgentEvent::ModeChanged("new_mode".to_owned())]);
    let commands = r#"{"sessionUpdate":"available_commands_update","availableCommands":[
        {"name":"a","description":"A"},{},{"name":"s","description":"S","_meta":{"commandType":"Skill"}}]}"#;
    let command = |name: &str, kind: Option<&str>| SlashCommand {
        name: name.to_owned(),
        description: name.to_uppercase(),
        kind: kind.map(ToOwned::to_owned),
    };
    let skill = Skill { name: "s".to_owned(), description: "S".to_owned(), path: None };
    let told = AgentEvent::CommandsUpdated {
        commands: vec![command("a", None), command("s", Some("skill"))],
        skills: vec![skill],
    };
    assert_eq!(update_events(commands), [told]);
    let options = r#"{"sessionUpdate":"config_option_update","configOptions":[{"id":"provider","name":"Provider",
        "type":"select","currentValue":"p","options":[{"value":"p","name":"P"}]},{"id":"odd"}]}"#;
    let option = ConfigOption {
        id: "provider".to_owned(),
        name: "Provider".to_owned(),
        category: None,
        current_value: Some("p".to_owned()),
        choices: vec![ConfigChoice { value: "p".to_owned(), name: "P".to_owned() }],
        omitted_choices: 0,
    };
    assert_eq!(update_events(options), [AgentEvent::ConfigOptionsUpdated(vec![option])]);
}

proptest! {
    /// Any text arrives as it was sent, by either way.
    #[test]
    fn text_is_lossless(text in ".*", id in prop::option::of(".*")) {
        let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}, "messageId": id});
        let expected = AgentEvent::MessageChunk { message_id: id, text };
        prop_assert_eq!(update_events(&update.to_string()), vec![expected.clone()]);
        prop_assert_eq!(chunk_of_line(&line(&update.to_string()), Some("s")), Some(expected));
    }

    /// No update is lost, whatever its kind and fields, and nothing panics.
    #[test]
    fn every_update_gives_an_event(
        kind in prop_oneof![
            Just("tool_call"), Just("tool_call_update"), Just("plan"), Just("usage_update"), Just("new"),
            Just("current_mode_update"), Just("config_option_update"), Just("available_commands_update"),
        ],
        name in prop_oneof![
            Just("toolCallId"), Just("content"), Just("entries"), Just("used"), Just("currentModeId"),
            Just("configOptions"), Just("availableCommands"), Just("_meta"),
        ],
        value in prop_oneof![
            Just(json!(null)), Just(json!([])), Just(json!([{}, 1, "x"])), Just(json!({"a": 1})), Just(json!("c")), Just(json!(1)),
        ],
    ) {
        let update = json!({"sessionUpdate": kind, name: value}).to_string();
        prop_assert!(!update_events(&update).is_empty(), "{}", update);
    }
}
