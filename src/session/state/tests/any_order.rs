//! Any inputs in any order: what was begun is ended once, and the snapshot is what the events say.

mod inputs;
mod ledger;

use std::collections::HashSet;

use proptest::prelude::*;

use self::inputs::{apply, exit, input};
use self::ledger::Ledger;
use super::*;

proptest! {
    #[test]
    fn whatever_comes_in_whatever_order(inputs in proptest::collection::vec(input(), 1..120)) {
        let mut walk = Walk::new();
        let mut asked = 0;
        for input in inputs {
            apply(&mut walk, &input, &mut asked);
        }
        let mut ledger = Ledger::of(walk.machine.is_deleting());
        for (kind, turn, body) in &walk.events {
            ledger.read(*kind, *turn, body);
        }
        let snapshot = walk.machine.snapshot().clone();
        // The counter that ids are given from counts every event.
        prop_assert_eq!(snapshot.last_event_id.0, walk.events.len() as u64);
        // What the snapshot shows as open is what the events leave open.
        let current: Vec<TurnId> = snapshot.current_turn.iter().map(|turn| turn.id).collect();
        prop_assert_eq!(ledger.in_state(TurnState::Running), current);
        let queued: Vec<TurnId> = snapshot.queued_turns.iter().map(|turn| turn.id).collect();
        prop_assert_eq!(Vec::from(ledger.queue.clone()), queued);
        prop_assert!(snapshot.queued_turns.iter().all(|turn| turn.prompt.is_none()));
        // The records say the same, and each has its prompt, but for those that went with their session.
        for (id, state) in &ledger.turns {
            let stored = walk.stored(*id);
            prop_assert_eq!(stored.state, *state);
            prop_assert!(stored.prompt.is_some() || walk.machine.is_deleting());
        }
        prop_assert_eq!(
            ledger.calls.iter().filter(|(_, open)| **open).map(|(id, _)| id.clone()).collect::<HashSet<_>>(),
            snapshot.open_tool_calls.iter().map(|call| call.id.clone()).collect::<HashSet<_>>()
        );
        prop_assert_eq!(
            ledger.permissions.iter().filter(|(_, open)| **open).map(|(id, _)| *id).collect::<HashSet<_>>(),
            snapshot.pending_permissions.iter().map(|pending| pending.id).collect::<HashSet<_>>()
        );
        // Every question has exactly one answer, or is still pending, or died with the agent.
        let mut answered = HashSet::new();
        for command in &walk.commands {
            if let AgentCommand::AnswerPermission { reply, .. } = command {
                prop_assert!(answered.insert(reply.clone()), "two answers to {reply:?}");
            }
        }
        // Once there is no agent nothing stays open.
        walk.agent(exit());
        // What was queued waits for the next agent, and then has its turn.
        while let Some(next) = walk.machine.next_queued() {
            walk.begin_queued(next);
            walk.step(|machine, step| machine.started(step, facts(), token(), Vec::new()));
            walk.finish(next, "end_turn");
            prop_assert_eq!(walk.last_turn().id, next);
        }
        let snapshot = walk.machine.snapshot();
        prop_assert!(snapshot.current_turn.is_none() && snapshot.queued_turns.is_empty());
        prop_assert!(snapshot.open_tool_calls.is_empty() && snapshot.pending_permissions.is_empty());
    }
}
