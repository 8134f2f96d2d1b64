//! Who decides a permission when many want to at once: one of them, and the agent hears it once.

use std::time::Duration;

use tokio::time::Instant;

use super::doubles::{RunningAgent, World};
use super::prompt;
use crate::session::agent::{
    AgentCommand, AgentEvent, AgentOption, AgentPermissionRequest, PermissionReply, ReplyToken,
};
use crate::session::audience::{LINGER, Readership};
use crate::session::event::EventKind;
use crate::session::fake_permissions::permissions;
use crate::session::handle::{Refusal, SessionHandle};
use crate::session::log::Owner;
use crate::session::permission::{
    Answer, DecidedBy, Decision, Permission, PermissionSettings, PermissionState, Scope,
};
use crate::session::policy::OnNoSubscriber;
use crate::session::tool_call::ToolCall;
use crate::session::turn::Turn;

/// How long a question waits in these tests, in milliseconds.
const TIMEOUT_MS: u64 = 60_000;
/// How many callers answer at once.
const CALLERS: usize = 100;

fn question() -> AgentEvent {
    let option = |kind: &str| AgentOption { id: format!("agents_{kind}"), kind: kind.into() };
    AgentEvent::PermissionRequested(AgentPermissionRequest {
        reply: ReplyToken("question".into()),
        tool_call: ToolCall { id: "call".into(), tool: Some("shell".into()), ..ToolCall::default() },
        options: ["allow_always", "allow_once", "reject_once", "reject_always"].map(option).into(),
        plan_write: false,
    })
}

async fn world() -> World {
    let timeout = Duration::from_millis(TIMEOUT_MS);
    World::new(|settings| settings.permissions = PermissionSettings { timeout, ..permissions() }.into()).await
}

/// A session that waits for an answer.
async fn asked(world: &mut World) -> (SessionHandle, RunningAgent, Turn, Permission) {
    let (session, agent) = world.ready().await;
    let turn = prompt(&session).await.unwrap();
    agent.says(question()).await;
    super::until(&session, crate::session::snapshot::SessionState::AwaitingPermission).await;
    let permission = session.snapshot().await.unwrap().pending_permissions.remove(0);
    (session, agent, turn, permission)
}

/// Callers who answer at once, each so long after now: half of them allow.
async fn all_answer(
    session: &SessionHandle,
    permission: &Permission,
    after: impl Fn(usize) -> Duration,
) -> Vec<(Decision, Result<Permission, Refusal>)> {
    let answers: Vec<_> = (0..CALLERS)
        .map(|number| {
            let (session, permission, after) = (session.clone(), permission.id, after(number));
            let decision = if number % 2 == 0 { Decision::Allow } else { Decision::Reject };
            session.tasks.clone().spawn(async move {
                tokio::time::sleep(after).await;
                let reason = Some(format!("number {number}"));
                let answer = Answer { decision, scope: Scope::Once, reason };
                (decision, session.answer(&"bob".into(), permission, answer).await)
            })
        })
        .collect();
    let mut told = Vec::new();
    for answer in answers {
        told.push(answer.await.unwrap());
    }
    told
}

/// Everybody was told the one outcome that is stored, in words that fit what they had asked for. Gives it.
async fn one_outcome(
    world: &World,
    session: &SessionHandle,
    permission: &Permission,
    told: Vec<(Decision, Result<Permission, Refusal>)>,
) -> Permission {
    let stored = session.permission(permission.id).await.unwrap();
    let outcome = stored.outcome.clone().unwrap();
    for (decision, answer) in told {
        let fits = stored.state == PermissionState::Resolved && outcome.decision == decision;
        match answer {
            Ok(got) => {
                assert!(fits, "{decision:?} was not what counts");
                assert_eq!(got, stored);
            }
            Err(Refusal::PermissionAlreadyResolved(got)) => {
                assert!(!fits, "the same again is not refused");
                assert_eq!(*got, stored);
            }
            Err(other) => panic!("{other}"),
        }
    }
    let resolved = world.store.kinds().iter().filter(|kind| **kind == EventKind::PermissionResolved).count();
    assert_eq!(resolved, 1);
    stored
}

/// What the agent heard, in order: its answers among the rest.
fn heard(agent: &mut RunningAgent) -> Vec<PermissionReply> {
    let mut answers = Vec::new();
    while let Ok(command) = agent.commands.try_recv() {
        if let AgentCommand::AnswerPermission { reply, answer } = command {
            assert_eq!(reply, ReplyToken("question".into()));
            answers.push(answer);
        }
    }
    answers
}

fn option_of(decision: Decision) -> PermissionReply {
    PermissionReply::Selected(match decision {
        Decision::Allow => "agents_allow_once".into(),
        Decision::Reject => "agents_reject_once".into(),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_hundred_answers_one_counts_and_the_agent_hears_it_once() {
    let mut world = World::new(|_| {}).await;
    let (session, mut agent, _, permission) = asked(&mut world).await;
    let told = all_answer(&session, &permission, |_| Duration::ZERO).await;
    let stored = one_outcome(&world, &session, &permission, told).await;
    assert_eq!(stored.state, PermissionState::Resolved);
    assert_eq!(heard(&mut agent), [option_of(stored.outcome.unwrap().decision)]);
}

#[tokio::test(start_paused = true)]
async fn answers_and_the_expiry_at_the_same_moment_have_one_outcome() {
    // The first callers at the deadline, before it, and behind it.
    for (first_ms, decided_by_caller) in
        [(TIMEOUT_MS, None), (TIMEOUT_MS - 50, Some(true)), (TIMEOUT_MS + 50, Some(false))]
    {
        let mut world = world().await;
        let (session, mut agent, _, permission) = asked(&mut world).await;
        let told = all_answer(&session, &permission, |number| {
            Duration::from_millis(first_ms + u64::try_from(number / 10).unwrap())
        })
        .await;
        let stored = one_outcome(&world, &session, &permission, told).await;
        let outcome = stored.outcome.unwrap();
        let by_caller = matches!(outcome.by, DecidedBy::Caller(_));
        assert!(by_caller || outcome.by == DecidedBy::Timeout, "{outcome:?}");
        assert_eq!(stored.state == PermissionState::Resolved, by_caller);
        if let Some(expected) = decided_by_caller {
            assert_eq!(by_caller, expected, "first answers after {first_ms} ms");
        }
        assert_eq!(heard(&mut agent), [option_of(outcome.decision)]);
    }
}

#[tokio::test(start_paused = true)]
async fn answers_and_a_cancel_at_the_same_moment_have_one_outcome() {
    for (cancelled_after, counts) in [(0, Some("cancel")), (5, None), (10, Some("answer"))] {
        let mut world = World::new(|_| {}).await;
        let (session, mut agent, turn, permission) = asked(&mut world).await;
        let cancelling = session.clone();
        let cancelled = session.tasks.spawn(async move {
            tokio::time::sleep(Duration::from_millis(cancelled_after)).await;
            cancelling.cancel(&"carol".into(), turn.id).await
        });
        let told = all_answer(&session, &permission, |_| Duration::from_millis(5)).await;
        cancelled.await.unwrap().unwrap();
        let stored = one_outcome(&world, &session, &permission, told).await;
        let outcome = stored.outcome.unwrap();
        let expected = match stored.state {
            PermissionState::Cancelled => {
                assert_eq!(outcome.by, DecidedBy::Cancel);
                PermissionReply::Cancelled
            }
            state => {
                assert_eq!(state, PermissionState::Resolved);
                option_of(outcome.decision)
            }
        };
        if let Some(counts) = counts {
            assert_eq!(stored.state == PermissionState::Cancelled, counts == "cancel");
        }
        assert_eq!(heard(&mut agent), [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_expires_by_a_clock_that_nobody_sets() {
    let mut world = world().await;
    let (session, agent, turn, permission) = asked(&mut world).await;
    // Time stands still on the wall in this test; only the monotonic clock goes.
    tokio::time::sleep(Duration::from_millis(TIMEOUT_MS - 1)).await;
    assert_eq!(session.snapshot().await.unwrap().pending_permissions.len(), 1);
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert!(session.snapshot().await.unwrap().pending_permissions.is_empty());
    let stored = session.permission(permission.id).await.unwrap();
    assert_eq!(stored.state, PermissionState::Expired);
    agent.says(AgentEvent::PromptFinished { turn: turn.id, result: Ok("end_turn".into()) }).await;
    session.turn_ended(turn.id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_question_is_rejected_once_its_last_reader_is_gone_for_good() {
    let on_no_subscriber = OnNoSubscriber::Reject;
    let mut world = World::new(|settings| {
        settings.permissions = PermissionSettings { on_no_subscriber, ..permissions() }.into();
    })
    .await;
    let reader = world.registry.audience().join(Readership::SessionsOf(Owner::Anyone));
    let (session, mut agent, _, permission) = asked(&mut world).await;
    let is_pending = || async { session.snapshot().await.unwrap().pending_permissions.len() == 1 };
    tokio::time::sleep(LINGER * 3).await;
    assert!(is_pending().await);
    // A page that is loaded again.
    drop(reader);
    tokio::time::sleep(LINGER / 2).await;
    assert!(is_pending().await);
    let reader = world.registry.audience().join(Readership::Session(session.id()));
    tokio::time::sleep(LINGER * 3).await;
    assert!(is_pending().await);
    drop(reader);
    tokio::time::sleep(LINGER * 2).await;
    assert!(!is_pending().await);
    let stored = session.permission(permission.id).await.unwrap();
    let outcome = stored.outcome.unwrap();
    assert_eq!((outcome.by, stored.state), (DecidedBy::Policy, PermissionState::Resolved));
    assert_eq!(heard(&mut agent), [option_of(Decision::Reject)]);

    // With nobody there the next one does not wait at all.
    agent.says(question()).await;
    super::until(&session, crate::session::snapshot::SessionState::Running).await;
    let asked_before = Instant::now();
    while heard(&mut agent).is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(Instant::now(), asked_before, "no time has passed");
}
