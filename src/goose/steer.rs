//! Putting words into goose's running turn, by a method of its own.
//!
//! goose gives each prompt a run and wants the run's id with the words, so that they reach no other. It tells the id
//! when the run begins, within milliseconds of the prompt, and null when it ends. Measured with goose 1.52: it answers
//! at once with the id of the message that the words become, tells that message when it uses it, before its next model
//! call, and forgets what it has not used when the run ends.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::session::agent::{AgentEvent, AgentFailure, SteerFailure};
use crate::session::id::{MessageId, TurnId};

/// goose's method.
pub const METHOD: &str = "_goose/unstable/session/steer";

/// JSON-RPC's codes for a method that there is not, and for parameters that do not fit.
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// What goose's method takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SteerParams {
    /// goose's id of the session.
    pub session_id: String,
    /// The run that the words are for.
    pub expected_run_id: String,
    /// ACP content blocks.
    pub prompt: Vec<Value>,
}

/// How far the run of a turn is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Run {
    #[default]
    NotNamed,
    Named(String),
    Over,
}

/// The run of the turn that was begun last. Cheap to clone, all the same.
#[derive(Clone, Debug, Default)]
pub struct ActiveRun {
    run: Arc<watch::Sender<(Option<TurnId>, Run)>>,
}

impl ActiveRun {
    /// goose is about to be sent the prompt of a turn.
    pub fn begin(&self, turn: TurnId) {
        self.run.send_replace((Some(turn), Run::NotNamed));
    }

    /// goose has answered the prompt, or is gone.
    pub(super) fn over(&self) {
        self.run.send_modify(|(_, run)| *run = Run::Over);
    }

    /// Takes what goose says in the `_meta` of its session's information.
    pub(super) fn hear(&self, meta: &Value) {
        let Some(id) = meta.pointer("/goose/activeRunId") else { return };
        let run = id.as_str().map_or(Run::Over, |id| Run::Named(id.to_owned()));
        self.run.send_modify(|(_, current)| *current = run);
    }

    /// The id of a turn's run, once goose has named it; an error when the turn is over.
    pub async fn of(&self, turn: TurnId) -> Result<String, SteerFailure> {
        let mut run = self.run.subscribe();
        let run = run.wait_for(|(current, run)| *current != Some(turn) || *run != Run::NotNamed).await;
        match run.map(|run| run.clone()) {
            Ok((current, Run::Named(id))) if current == Some(turn) => Ok(id),
            _ => Err(SteerFailure::TurnOver),
        }
    }
}

/// What goose's answer means: it has taken the words.
#[must_use]
pub fn taken(message: MessageId, answer: &RawValue) -> AgentEvent {
    let answer: Value = serde_json::from_str(answer.get()).unwrap_or_default();
    AgentEvent::Steered { message, agents_id: answer["messageId"].as_str().map(ToOwned::to_owned) }
}

/// What goose's refusal means.
#[must_use]
pub fn refused(failure: AgentFailure) -> SteerFailure {
    match failure.code {
        Some(METHOD_NOT_FOUND) => SteerFailure::Unsupported,
        // "no active run to steer", "expected active run id … but found …"
        Some(INVALID_PARAMS) if failure.message.contains("active run") => SteerFailure::TurnOver,
        _ => SteerFailure::Failed(failure),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::session::turn::TurnErrorClass;

    fn named(id: &str) -> Value {
        json!({"goose": {"activeRunId": id}})
    }

    #[tokio::test]
    async fn a_run_is_its_turns_alone_and_is_waited_for() {
        let run = ActiveRun::default();
        let (first, second) = (TurnId::new(), TurnId::new());
        assert_eq!(run.of(first).await, Err(SteerFailure::TurnOver));
        run.begin(first);
        let (found, ()) = tokio::join!(run.of(first), async { run.hear(&named("run_1")) });
        assert_eq!(found, Ok("run_1".into()));
        run.hear(&json!({"goose": {"queuedSteer": {"messageId": "steer_1", "runId": "run_1"}}}));
        run.hear(&json!({"messageCount": 1}));
        assert_eq!(run.of(first).await, Ok("run_1".into()));
        run.hear(&json!({"goose": {"activeRunId": null}}));
        assert_eq!(run.of(first).await, Err(SteerFailure::TurnOver));
        run.begin(second);
        // Who waited for the first turn's run does not get the second one's.
        let (late, found, ()) =
            tokio::join!(run.of(first), run.of(second), async { run.hear(&named("run_2")) });
        assert_eq!((late, found), (Err(SteerFailure::TurnOver), Ok("run_2".into())));
        run.over();
        assert_eq!(run.of(second).await, Err(SteerFailure::TurnOver));
    }

    #[tokio::test]
    async fn a_turn_that_ends_before_its_run_is_named_is_waited_for_no_longer() {
        let run = ActiveRun::default();
        let turn = TurnId::new();
        run.begin(turn);
        let (found, ()) = tokio::join!(run.of(turn), async { run.over() });
        assert_eq!(found, Err(SteerFailure::TurnOver));
    }

    #[test]
    fn what_goose_refuses_says_why() {
        let failure = |code, message: &str| AgentFailure {
            class: TurnErrorClass::AgentError,
            code,
            message: message.into(),
        };
        let cases = [
            (Some(-32602), "Invalid params: no active run to steer", SteerFailure::TurnOver),
            (
                Some(-32602),
                "Invalid params: expected active run id `run_1` but found `run_2`",
                SteerFailure::TurnOver,
            ),
            (Some(-32601), "Method not found", SteerFailure::Unsupported),
        ];
        for (code, message, expected) in cases {
            assert_eq!(refused(failure(code, message)), expected, "{message}");
        }
        for other in [failure(Some(-32602), "Invalid params: missing field"), failure(None, "gone")] {
            assert_eq!(refused(other.clone()), SteerFailure::Failed(other));
        }
    }

    #[test]
    fn the_message_that_the_words_become_is_told_by_the_answer() {
        let message = MessageId::new();
        for (answer, agents_id) in
            [(r#"{"runId":"run_1","messageId":"steer_1"}"#, Some("steer_1".into())), ("null", None)]
        {
            let answer: Box<RawValue> = serde_json::from_str(answer).unwrap();
            assert_eq!(taken(message, &answer), AgentEvent::Steered { message, agents_id });
        }
    }
}
