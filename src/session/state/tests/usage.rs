//! What a turn used, and how much the agent may have told in it.

use super::*;
use crate::session::agent::{ContextUsage, Notice, NoticeLevel};
use crate::session::turn::{Cost, TurnUsage};

fn sums(input: u64, output: u64, cost: f64) -> AgentEvent {
    AgentEvent::UsageUpdated(ContextUsage {
        context_used: Some(16),
        input_tokens: Some(input),
        output_tokens: Some(output),
        cost: Some(Cost { amount: cost, currency: "USD".into() }),
        ..ContextUsage::default()
    })
}

fn call_used(input: u64, output: u64) -> AgentEvent {
    AgentEvent::ModelCallUsed(ModelCallUsage {
        input_tokens: Some(input),
        output_tokens: Some(output),
        total_tokens: Some(input + output),
        cost: Some(0.5),
        ..ModelCallUsage::default()
    })
}

/// Input, output, total and cost of a turn in which the agent tells this.
fn used(walk: &mut Walk, events: impl IntoIterator<Item = AgentEvent>) -> Option<(u64, u64, u64, f64)> {
    let turn = walk.prompt();
    for event in events {
        walk.agent(event);
    }
    walk.finish(turn, "end_turn");
    let TurnUsage { input_tokens, output_tokens, total_tokens, cost } = walk.last_turn().usage?;
    Some((input_tokens?, output_tokens?, total_tokens?, cost.map_or(0.0, |cost| cost.amount)))
}

#[test]
fn a_turn_uses_what_the_sessions_sums_grow_by() {
    let mut walk = Walk::ready();
    assert_eq!(
        used(&mut walk, [sums(0, 0, 0.0), call_used(10, 6), sums(10, 6, 0.1)]),
        Some((10, 6, 16, 0.1))
    );
    // With a call for a summary, of which no message tells.
    assert_eq!(used(&mut walk, [call_used(10, 6), sums(30, 18, 0.3)]), Some((20, 12, 32, 0.2)));
    // What is told between turns is no turn's.
    walk.agent(sums(40, 20, 0.4));
    walk.agent(call_used(10, 2));
    assert_eq!(used(&mut walk, [sums(41, 21, 0.5)]), Some((1, 1, 2, 0.1)));
    assert_eq!(used(&mut walk, [sums(41, 21, 0.5)]), None, "no call of the model");
    assert_eq!(walk.machine.snapshot().usage.total_tokens, Some(62));
}

#[test]
fn without_the_sums_the_calls_are_added_up() {
    let mut walk = Walk::ready();
    assert_eq!(used(&mut walk, [call_used(10, 6), call_used(1, 2)]), Some((11, 8, 19, 1.0)));
    assert_eq!(used(&mut walk, []), None);
    // Nor do sums say anything that fall, or that are not told in the turn.
    walk.agent(sums(100, 50, 1.0));
    assert_eq!(used(&mut walk, [call_used(10, 6)]), Some((10, 6, 16, 0.5)));
    assert_eq!(used(&mut walk, [call_used(10, 6), sums(20, 10, 1.0)]), Some((10, 6, 16, 0.5)));
}

#[test]
fn a_turn_that_breaks_off_before_its_sums_has_used_its_calls() {
    let mut walk = Walk::ready();
    walk.agent(sums(100, 50, 1.0));
    // What an agent tells that was started for the turn: the sums that it has kept.
    assert_eq!(used(&mut walk, [sums(100, 50, 1.0), call_used(10, 6)]), Some((10, 6, 16, 0.5)));
    // The first call's sums are told, the second one's are not.
    let calls = [call_used(10, 6), sums(110, 56, 1.1), call_used(20, 4)];
    assert_eq!(used(&mut walk, calls), Some((30, 10, 40, 1.0)));
    let no_total =
        ModelCallUsage { input_tokens: Some(3), output_tokens: Some(1), ..ModelCallUsage::default() };
    walk.prompt();
    walk.agent(sums(110, 56, 1.1));
    walk.agent(AgentEvent::ModelCallUsed(no_total));
    let turn = walk.machine.current_turn().unwrap();
    walk.finish(turn, "end_turn");
    assert_eq!(walk.last_turn().usage.unwrap().input_tokens, Some(3));
}

#[test]
fn an_agent_has_so_many_notices_for_a_turn() {
    let mut walk = Walk::ready();
    let notice = |number: usize| {
        let code = "agent-status".into();
        AgentEvent::Notice(Notice { level: NoticeLevel::Info, code, message: number.to_string() })
    };
    let told = |walk: &Walk, from: usize| -> Vec<String> {
        let notices = walk.events[from..].iter().filter_map(|(_, _, body)| match body {
            EventBody::Notice { message, .. } => Some(message.clone()),
            _ => None,
        });
        notices.collect()
    };
    for (before, within) in [(0, 8), (9, 7)] {
        let from = walk.events.len();
        for number in 0..before {
            walk.agent(notice(number));
        }
        assert_eq!(told(&walk, from).len(), before.min(BOUNDS.turn_notices));
        let from = walk.events.len();
        let turn = walk.prompt();
        for number in 0..within {
            walk.agent(notice(number));
        }
        walk.finish(turn, "end_turn");
        let told = told(&walk, from);
        assert_eq!(told[..BOUNDS.turn_notices], ["0", "1", "2", "3", "4"]);
        let left_out = before.saturating_sub(BOUNDS.turn_notices) + within - BOUNDS.turn_notices;
        assert_eq!(
            told[5..],
            [format!("{left_out} more notices of the agent were left out (limits.turn_notices)")]
        );
        let (kind, of, _) = &walk.events[walk.events.len() - 3];
        assert_eq!((*kind, *of), (EventKind::Notice, Some(turn)), "before the turn's end");
    }
}
