//! Answers to requests with an idempotency key.

use super::super::{AnswerKey, AnswerState, StoredAnswer};
use super::*;

const KEY: AnswerKey = [1; 32];
const BODY: [u8; 32] = [2; 32];
const HOUR_MS: i64 = 60 * 60 * 1000;

fn answer() -> StoredAnswer {
    StoredAnswer {
        status: 201,
        headers: vec![("location".into(), "/v1/sessions/1".into())],
        body: b"{\"id\":\"1\"}".to_vec(),
    }
}

fn now_ms() -> i64 {
    Timestamp::now().as_millis()
}

#[tokio::test]
async fn the_same_request_gets_the_same_answer_across_restarts() {
    let (dir, store) = fresh();
    let now = now_ms();
    assert_eq!(store.begin_answer(KEY, BODY, now).await.unwrap(), AnswerState::Fresh);
    assert_eq!(store.begin_answer(KEY, BODY, now).await.unwrap(), AnswerState::InProgress);
    assert_eq!(store.begin_answer(KEY, [3; 32], now).await.unwrap(), AnswerState::Mismatch);
    store.finish_answer(KEY, None, answer()).await.unwrap();
    assert_eq!(store.begin_answer(KEY, BODY, now).await.unwrap(), AnswerState::Stored(answer()));
    store.close().await;

    let store = open(dir.path());
    assert_eq!(store.begin_answer(KEY, BODY, now).await.unwrap(), AnswerState::Stored(answer()));
    assert_eq!(store.begin_answer(KEY, [3; 32], now).await.unwrap(), AnswerState::Mismatch);
    assert_eq!(store.begin_answer([9; 32], BODY, now).await.unwrap(), AnswerState::Fresh);
}

#[tokio::test]
async fn a_request_that_failed_may_run_again() {
    let (_dir, store) = fresh();
    let now = now_ms();
    store.begin_answer(KEY, BODY, now).await.unwrap();
    store.forget_answer(KEY).await.unwrap();
    assert_eq!(store.begin_answer(KEY, [3; 32], now).await.unwrap(), AnswerState::Fresh);
    store.finish_answer(KEY, None, answer()).await.unwrap();
    store.forget_answer(KEY).await.unwrap();
    assert_eq!(store.begin_answer(KEY, [3; 32], now).await.unwrap(), AnswerState::Stored(answer()));
}

#[tokio::test]
async fn a_request_that_the_last_run_did_not_answer_may_run_again() {
    let (dir, store) = fresh();
    let now = now_ms();
    store.begin_answer(KEY, BODY, now).await.unwrap();
    store.close().await;
    let store = open(dir.path());
    assert_eq!(store.begin_answer(KEY, BODY, now).await.unwrap(), AnswerState::Fresh);
}

#[tokio::test]
async fn old_answers_go() {
    let (dir, store) = fresh();
    let now = now_ms();
    let kept = 24 * HOUR_MS;
    for (key, age) in [(1, 25 * HOUR_MS), (2, 23 * HOUR_MS)] {
        store.begin_answer([key; 32], BODY, now - age).await.unwrap();
        store.finish_answer([key; 32], None, answer()).await.unwrap();
    }
    let all = "SELECT count(*) FROM answers";
    assert_eq!(count(&store, all).await, 2);
    store.close().await;

    let store = open(dir.path());
    assert_eq!(count(&store, all).await, 1, "a start removes what is old");
    assert_eq!(store.begin_answer([2; 32], BODY, now).await.unwrap(), AnswerState::Stored(answer()));
    let later = now - 23 * HOUR_MS + kept + 1;
    assert_eq!(store.begin_answer([2; 32], [3; 32], later).await.unwrap(), AnswerState::Fresh);
    store.begin_answer([4; 32], BODY, later + kept + 1).await.unwrap();
    assert_eq!(count(&store, all).await, 1, "a request removes what is old");
}

#[tokio::test]
async fn what_an_answer_says_of_a_session_goes_with_it_and_that_it_was_given_stays() {
    let (_dir, store) = fresh();
    let (kept, gone) = (Writing::new(&store).await, Writing::new(&store).await);
    let now = now_ms();
    let about = [Some(gone.log.session()), Some(kept.log.session()), None];
    for (key, session) in (1..).zip(about) {
        store.begin_answer([key; 32], BODY, now).await.unwrap();
        store.finish_answer([key; 32], session, answer()).await.unwrap();
        assert_eq!(store.begin_answer([key; 32], BODY, now).await.unwrap(), AnswerState::Stored(answer()));
    }
    // This one is answered only when its session is gone.
    store.begin_answer([4; 32], BODY, now).await.unwrap();
    store.delete_session(gone.log.number(), deletion()).await.unwrap();
    store.finish_answer([4; 32], about[0], answer()).await.unwrap();

    let empty = StoredAnswer { body: Vec::new(), ..answer() };
    for (key, stored) in [(1, empty.clone()), (2, answer()), (3, answer()), (4, empty)] {
        let state = store.begin_answer([key; 32], BODY, now).await.unwrap();
        assert_eq!(state, AnswerState::Stored(stored), "{key}");
    }
    assert_eq!(store.begin_answer([1; 32], [3; 32], now).await.unwrap(), AnswerState::Mismatch);
}
