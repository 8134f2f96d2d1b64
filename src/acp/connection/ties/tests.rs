use serde_json::json;

use super::*;

fn call(id: &str, status: Option<ToolCallStatus>, content: Vec<Value>) -> ToolCall {
    ToolCall { id: id.to_owned(), status, content: Some(content), ..ToolCall::default() }
}

fn said(ties: &mut ToolTies, event: AgentEvent) -> Vec<AgentEvent> {
    let mut told = Vec::new();
    ties.said(event, &mut |event| told.push(event));
    told
}

fn happened(ties: &mut ToolTies, event: ClientToolEvent) -> Vec<AgentEvent> {
    let mut told = Vec::new();
    ties.happened(event, &mut |event| told.push(event));
    told
}

fn wrote(path: &str, old: &str, new: &str) -> ClientToolEvent {
    let content =
        json!({"type": "diff", "path": path, "old_text": old, "new_text": new, "unified_diff": "u"});
    ClientToolEvent::Written { path: path.into(), content }
}

fn output(terminal: &str, text: &str) -> ClientToolEvent {
    let (terminal, text) = (terminal.to_owned(), text.to_owned());
    ClientToolEvent::Output { terminal, stream: "stdout", text, truncated: false }
}

fn ended(terminal: &str, output: &str) -> ClientToolEvent {
    let content = json!({"type": "terminal", "output": output});
    ClientToolEvent::Ended { terminal: terminal.to_owned(), content }
}

/// What a call gave that says of a diff or a terminal and then ends.
fn given(ties: &mut ToolTies, id: &str, block: Value) -> Vec<Value> {
    said(ties, AgentEvent::ToolCallUpdated(call(id, None, vec![block])));
    let done = call(id, Some(ToolCallStatus::Completed), Vec::new());
    match said(ties, AgentEvent::ToolCallUpdated(done)).pop() {
        Some(AgentEvent::ToolCallUpdated(call)) => call.content.unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}

fn named(path: &str, new: &str) -> Value {
    json!({"type": "diff", "path": path, "old_text": null, "new_text": new})
}

#[test]
fn two_writes_of_one_file_each_belong_to_their_own_call_in_either_order() {
    for order in [["a", "b"], ["b", "a"]] {
        let mut ties = ToolTies::default();
        happened(&mut ties, wrote("/w/f", "", "a"));
        happened(&mut ties, wrote("/w/f", "a", "b"));
        for new in order {
            let old = if new == "a" { "" } else { "a" };
            let content = given(&mut ties, new, named("/w/f", new));
            assert_eq!((&content[0]["old_text"], &content[0]["new_text"]), (&json!(old), &json!(new)));
        }
        assert_eq!(ties.waiting, 0);
    }
}

#[test]
fn a_write_that_nobody_has_told_of_is_not_taken_for_a_later_one() {
    let mut ties = ToolTies::default();
    for (old, new) in [("", "x"), ("x", "y"), ("y", "x")] {
        happened(&mut ties, wrote("/w/f", old, new));
    }
    assert_eq!(given(&mut ties, "c", named("/w/f", "x"))[0]["old_text"], "y");
    assert_eq!(given(&mut ties, "d", named("/w/f", "y"))[0]["old_text"], "x");
    assert_eq!((ties.writes.len(), ties.waiting), (0, 0));
    happened(&mut ties, wrote("/w/f", "x", "z"));
    said(&mut ties, AgentEvent::ToolCallUpdated(call("e", None, vec![named("/w/f", "other")])));
    assert_eq!(ties.writes.len(), 1, "that is another write");
}

#[test]
fn what_a_call_names_when_it_begins_is_tied_too() {
    let mut ties = ToolTies::default();
    happened(&mut ties, output("t", "early"));
    let block = json!({"type": "terminal", "terminal_id": "t"});
    let told = said(&mut ties, AgentEvent::ToolCallStarted(call("c", None, vec![block])));
    let [AgentEvent::ToolCallStarted(started), AgentEvent::ToolOutput { text, .. }] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert_eq!((&started.content, text.as_str()), (&None, "early"));
    happened(&mut ties, ended("t", "all"));
    let done = call("c", Some(ToolCallStatus::Completed), Vec::new());
    let told = said(&mut ties, AgentEvent::ToolCallUpdated(done));
    let [AgentEvent::ToolCallUpdated(done)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(done.content, Some(vec![json!({"type": "terminal", "output": "all"})]));
}

#[test]
fn what_happens_after_a_call_s_end_is_not_kept() {
    let mut ties = ToolTies::default();
    assert_eq!(given(&mut ties, "c", json!({"type": "terminal", "terminal_id": "t"})), Vec::<Value>::new());
    assert_eq!(happened(&mut ties, output("t", "late")), []);
    happened(&mut ties, ended("t", "late"));
    assert_eq!(ties.waiting, 0);
    assert!(ties.commands.values().all(|command| command.held.is_empty() && command.content.is_none()));
}

#[test]
fn what_waits_for_its_call_is_bounded_by_its_bytes() {
    let mut ties = ToolTies::default();
    let text = "x".repeat(WAITING_BYTES / 8);
    for number in 0..20 {
        happened(&mut ties, output(&format!("t{number}"), &text));
        happened(&mut ties, ended(&format!("t{number}"), &text));
        happened(&mut ties, wrote(&format!("/w/{number}"), &text, &text));
    }
    let held = |command: &Command| command.held.iter().map(|piece| piece.text.len()).sum::<usize>();
    let of = |command: &Command| held(command) + command.content.as_ref().map_or(0, bytes_of);
    let commands: usize = ties.commands.values().map(of).sum();
    let writes: usize = ties.writes.iter().map(|(_, diff)| bytes_of(diff)).sum();
    assert!(commands + writes <= WAITING_BYTES);
    assert_eq!(commands + writes, ties.waiting);
    ties.turn_over();
    assert_eq!(ties.waiting, 0);
}
