//! `GET /v1/permissions`: what all of a caller's sessions ask, and the wait for the next question.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::auth::{Caller, Role};
use super::events::{ended, readers, reserve_stream};
use super::permissions::{PermissionList, list, visible_to};
use super::problem::{Code, Problem};
use super::request::QueryParams;
use super::stream::{EventKinds, OrderedEvents, Piece, Selection, Source};
use crate::session::audience::Readership;
use crate::session::event::EventKind;
use crate::session::log::{PermissionsOf, StoreError};
use crate::session::order::OrderFilter;
use crate::session::permission::PermissionState;

/// Which permissions, which part of the list, and how long to wait for the first one.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InboxQuery {
    /// Only those in this state.
    #[param(inline)]
    state: Option<PermissionState>,
    /// How many at most.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
    /// With `state=pending` and without a cursor. When nothing is pending: wait for the first request, so many seconds
    /// at most.
    #[param(example = 25)]
    wait_s: Option<u32>,
}

impl InboxQuery {
    fn wait(&self, longest: Duration) -> Result<Duration, Problem> {
        let Some(wait_s) = self.wait_s else { return Ok(Duration::ZERO) };
        let refused =
            |detail| Err(Problem::new(Code::MalformedRequest, format!("in the query: wait_s: {detail}")));
        match (self.state, &self.cursor) {
            (Some(PermissionState::Pending), None) => Ok(Duration::from_secs(wait_s.into()).min(longest)),
            (_, Some(_)) => refused("does not go with a cursor"),
            _ => refused("goes with state=pending only"),
        }
    }
}

/// List permission requests, or wait for one
///
/// Those of all the caller's sessions, newest first; for an admin those of everybody's.
///
/// With `state=pending` and `wait_s` an empty list is held back until there is a request to answer, at most as long as the
/// gateway lets anybody wait (`limits.wait`). It comes back empty when the time is up, when gander stops, and when the
/// caller's token is taken away. What waits counts as an open stream, and its caller as one who sees questions.
#[utoipa::path(
    get,
    path = "/v1/permissions",
    operation_id = "listPermissions",
    tag = "permissions",
    params(InboxQuery),
    responses(
        (status = 200, description = "The requests.", body = PermissionList),
        (status = "4XX", response = super::openapi::Refused),
        (status = 400, description = "`malformed-request`: `wait_s` without `state=pending`, or with a cursor", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`at-capacity`: too many open streams; `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn list_permissions(
    State(api): State<Api>,
    caller: Caller,
    QueryParams(query): QueryParams<InboxQuery>,
) -> Result<Json<PermissionList>, Problem> {
    caller.require(Role::Read)?;
    let wait = query.wait(api.settings.wait)?;
    let page = || {
        let of = PermissionsOf::Owner(visible_to(&caller));
        list(&api, of, query.state, query.limit, query.cursor.as_deref())
    };
    if wait.is_zero() {
        return page().await.map(Json);
    }
    let of = vec![Readership::SessionsOf(visible_to(&caller))];
    let _counted = reserve_stream(&api, &caller)?.read_as(readers(&api, &caller, of));
    let filter = OrderFilter { owner: visible_to(&caller), sessions: None };
    let mut questions = Questions::new(OrderedEvents::new(Arc::clone(api.registry.store()), filter, &[]));
    let mut over = Box::pin(async {
        tokio::select! {
            () = ended(&api, &caller) => {}
            () = tokio::time::sleep(wait) => {}
        }
    });
    loop {
        // What is asked behind this look is told as an event; what was asked before it is in the list.
        let found = page().await?;
        if !found.permissions.is_empty() {
            return Ok(Json(found));
        }
        let more = tokio::select! {
            biased;
            () = &mut over => false,
            more = questions.next() => more?,
        };
        if !more {
            return Ok(Json(found));
        }
    }
}

/// The requests of all of a caller's sessions, as they are made.
struct Questions<S> {
    source: S,
    selection: Selection,
    /// Everything up to here was looked at.
    place: u64,
}

impl<S: Source> Questions<S> {
    /// Those from now on.
    fn new(source: S) -> Self {
        let mut kinds = EventKinds::default();
        kinds.insert(EventKind::PermissionRequested);
        let place = source.head();
        Self { source, selection: Selection { turn: None, kinds: Some(kinds) }, place }
    }

    /// Waits for the next ones; false when there never will be any. May be dropped and called again.
    async fn next(&mut self) -> Result<bool, StoreError> {
        while self.source.wait(self.place).await {
            let head = self.source.head();
            while self.place < head {
                // None: the events are gone, together with their session.
                let Some(batch) = self.source.read(self.place).await? else { break };
                self.place = batch.through;
                if batch.pieces.iter().flat_map(Piece::frames).any(|(_, frame)| self.selection.takes(&frame))
                {
                    return Ok(true);
                }
            }
            self.place = self.place.max(head);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::FromRequestParts;
    use axum::http::Request;
    use futures_util::FutureExt;

    use super::super::fake_log::FakeLog;
    use super::super::stream::SessionEvents;
    use super::*;

    fn wait(query: &str) -> Result<Duration, Problem> {
        let (mut parts, ()) = Request::get(format!("/?{query}")).body(()).unwrap().into_parts();
        let query = QueryParams::<InboxQuery>::from_request_parts(&mut parts, &()).now_or_never().unwrap();
        query?.0.wait(Duration::from_mins(5))
    }

    #[test]
    fn only_the_first_page_of_what_is_pending_is_waited_for() {
        assert_eq!(wait("").unwrap(), Duration::ZERO);
        assert_eq!(wait("state=pending&limit=2&cursor=x").unwrap(), Duration::ZERO);
        assert_eq!(wait("state=pending&wait_s=25&limit=2").unwrap(), Duration::from_secs(25));
        assert_eq!(wait("state=pending&wait_s=4000000000").unwrap(), Duration::from_mins(5));
        for bad in
            ["wait_s=1", "state=expired&wait_s=1", "state=pending&cursor=x&wait_s=1", "wait_s=-1", "wait=1"]
        {
            assert_eq!(wait(bad).unwrap_err().code(), Code::MalformedRequest, "{bad}");
        }
    }

    #[tokio::test]
    async fn only_what_is_asked_from_now_on_ends_the_wait() {
        let log = FakeLog::new(1_000);
        log.commit_plain(EventKind::PermissionRequested, None, 1);
        let mut questions = Questions::new(SessionEvents::new(log.log.clone()));
        assert!(questions.next().now_or_never().is_none());
        log.commit_plain(EventKind::PermissionResolved, None, 3);
        assert!(questions.next().now_or_never().is_none());
        log.commit_plain(EventKind::PermissionRequested, None, 1);
        log.commit_plain(EventKind::Notice, None, 1);
        assert!(questions.next().await.unwrap());
        assert!(questions.next().now_or_never().is_none(), "it was told once");
        log.log.close();
        assert!(!questions.next().await.unwrap());
    }
}
