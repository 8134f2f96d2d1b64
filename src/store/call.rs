//! Requests to the writer that are not events: work within a commit, answered when the commit is done.

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::answers::{self, AnswerKey, StoredAnswer};
use super::record::Fault;
use super::writer::Job;
use crate::session::log::StoreError;

/// Work within a commit, whose answer is sent when the commit is done.
pub(super) trait Call: Send {
    /// Does it. What fails must leave nothing behind.
    fn run(&mut self, connection: &Connection);
    /// Answers.
    fn conclude(self: Box<Self>, committed: Result<(), StoreError>);
    /// Whether it is done again, together with the events, when a commit found no room; else it is refused then.
    fn is_patient(&self) -> bool {
        false
    }
}

struct CallOf<T, F> {
    work: Option<F>,
    result: Option<Result<T, Fault>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Call for CallOf<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, Fault> + Send,
{
    fn run(&mut self, connection: &Connection) {
        self.result = self.work.take().map(|work| work(connection));
    }

    fn conclude(self: Box<Self>, committed: Result<(), StoreError>) {
        let result = match self.result {
            Some(result) => committed.and_then(|()| result.map_err(StoreError::from)),
            None => committed.and(Err(StoreError::Closed)),
        };
        // Who asked may have left; the work is done all the same.
        let _ = self.reply.send(result);
    }
}

/// Keeps the answer to a request. What was asked for is done: without its answer the same request would do it twice.
struct FinishAnswer {
    key: AnswerKey,
    answer: StoredAnswer,
    result: Result<(), Fault>,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

impl Call for FinishAnswer {
    fn run(&mut self, connection: &Connection) {
        self.result = answers::finish(connection, &self.key, &self.answer);
    }

    fn conclude(self: Box<Self>, committed: Result<(), StoreError>) {
        // Who asked may have left.
        let _ = self.reply.send(committed.and(self.result.map_err(StoreError::from)));
    }

    fn is_patient(&self) -> bool {
        true
    }
}

/// Asks the writer to keep an answer, also when it has to wait for room.
pub(super) async fn finish_answer(
    jobs: mpsc::Sender<Job>,
    key: AnswerKey,
    answer: StoredAnswer,
) -> Result<(), StoreError> {
    let (reply, done) = oneshot::channel();
    let call = Box::new(FinishAnswer { key, answer, result: Ok(()), reply });
    jobs.send(Job::Call(call)).await.map_err(|_| StoreError::Closed)?;
    done.await.unwrap_or(Err(StoreError::Closed))
}

/// Asks the writer to do `work` within a commit.
pub(super) async fn call<T, F>(jobs: mpsc::Sender<Job>, work: F) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    let call = Box::new(CallOf { work: Some(work), result: None, reply });
    jobs.send(Job::Call(call)).await.map_err(|_| StoreError::Closed)?;
    answer.await.unwrap_or(Err(StoreError::Closed))
}
