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
    store.finish_answer(KEY, answer()).await.unwrap();
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
    store.finish_answer(KEY, answer()).await.unwrap();
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
        store.finish_answer([key; 32], answer()).await.unwrap();
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
