//! A session of the gateway under test, and what tests do with one.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Event, EventStream, Gander, answer, text};

/// A session of a [`Gander`].
pub(crate) struct Session<'gander> {
    pub(crate) gander: &'gander Gander,
    pub(crate) id: String,
    /// As it was made.
    pub(crate) snapshot: Value,
}

impl Session<'_> {
    /// The path of something in it: `""`, `"/turns"`, …
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{rest}", self.id)
    }

    /// The snapshot now.
    pub(crate) async fn now(&self) -> Value {
        self.gander.get(&self.path("")).await
    }

    /// Begins a turn.
    pub(crate) async fn prompt(&self, prompt: &str) -> Value {
        self.gander.post(&self.path("/turns"), &json!({"prompt": prompt}), StatusCode::ACCEPTED).await
    }

    /// Begins a turn and waits for its end.
    pub(crate) async fn turn(&self, prompt: &str) -> Value {
        let request = self.gander.request(Method::POST, &self.path("/turns")).header("prefer", "wait=30");
        answer(request.json(&json!({"prompt": prompt})), StatusCode::OK).await
    }

    /// Its events from the first on, and then live.
    pub(crate) async fn events(&self) -> EventStream {
        self.events_with("").await
    }

    /// Its events with a query such as `?after=7`.
    pub(crate) async fn events_with(&self, query: &str) -> EventStream {
        EventStream::open(self.gander.request(Method::GET, &self.path(&format!("/events{query}")))).await
    }

    /// All its events so far.
    pub(crate) async fn log(&self) -> Vec<Event> {
        self.events_with("?follow=false").await.rest().await
    }

    /// Answers a permission; the status must be 200.
    pub(crate) async fn answer(&self, permission: &Value, decision: &str) -> Value {
        let path = self.path(&format!("/permissions/{}", text(&permission["id"])));
        self.gander.post(&path, &json!({"decision": decision}), StatusCode::OK).await
    }

    /// PATCH; the status must be 200.
    pub(crate) async fn patch(&self, body: &Value) -> Value {
        answer(self.gander.request(Method::PATCH, &self.path("")).json(body), StatusCode::OK).await
    }

    /// Cancels a turn; the status must be 202.
    pub(crate) async fn cancel(&self, turn: &Value) -> Value {
        let path = self.path(&format!("/turns/{}/cancel", text(&turn["id"])));
        answer(self.gander.request(Method::POST, &path), StatusCode::ACCEPTED).await
    }

    /// Lets its agent go; gives the snapshot.
    pub(crate) async fn hibernate(&self) -> Value {
        self.gander.post(&self.path("/hibernate"), &json!({}), StatusCode::OK).await
    }

    /// Deletes it; the status must be 204.
    pub(crate) async fn delete(&self) {
        let response = self.gander.request(Method::DELETE, &self.path("")).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
    }
}
