use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::DefaultBodyLimit;
use axum::http::HeaderValue;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::Value;
use tower::ServiceExt;

use super::*;

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
struct Order {
    title: Option<String>,
    lines: Vec<Line>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Line {
    count: u32,
}

async fn json(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn order(content_type: Option<&'static str>, body: impl Into<Body>) -> (u16, Value) {
    let app = Router::new()
        .route("/", post(async |JsonBody(order): JsonBody<Order>| format!("{:?}", order.title)))
        .layer(DefaultBodyLimit::max(256));
    let mut request = Request::post("/").body(body.into()).unwrap();
    if let Some(content_type) = content_type {
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    json(app.oneshot(request).await.unwrap()).await
}

const JSON: Option<&str> = Some("application/json");

#[tokio::test]
async fn a_body_is_json_by_its_content_type_and_none_means_an_empty_object() {
    for (content_type, body, status) in [
        (JSON, "{}", 200),
        (Some("Application/JSON; charset=utf-8"), "{}", 200),
        (None, "", 200),
        (JSON, "", 200),
        (Some("application/x-www-form-urlencoded"), "", 200),
        (None, "{}", 415),
        (Some("text/plain"), "{}", 415),
        (Some("application/jsonp"), "{}", 415),
    ] {
        let (answered, body) = order(content_type, body).await;
        assert_eq!(answered, status, "{content_type:?}");
        if status == 415 {
            assert_eq!(body["code"], "unsupported-media-type");
        }
    }
}

#[tokio::test]
async fn broken_json_is_malformed_also_behind_a_wrong_field() {
    for body in [
        &b"{"[..],
        b"{\"title\": 5",
        b"{\"unknown\": 1,}",
        b"{} {}",
        b"not json",
        b"{\"title\": \"\xff\"}",
        b"{\"title\": \"\\ud800\"}",
    ] {
        let (status, answer) = order(JSON, body.to_vec()).await;
        assert_eq!((status, answer["code"].as_str()), (400, Some("malformed-request")), "{body:?}");
    }
    let deep = "[".repeat(200);
    assert_eq!(order(JSON, deep).await.0, 400);
}

#[tokio::test]
async fn what_does_not_fit_is_named_by_a_pointer() {
    for (body, pointer, says) in [
        (r#"{"titel": "x"}"#, "/titel", "unknown field `titel`"),
        (r#"{"title": 5}"#, "/title", "invalid type"),
        (r#"{"lines": [{"count": 1}, {"count": -1}]}"#, "/lines/1/count", "invalid value"),
        (r#"{"lines": [{"count": 1, "a/b~c": 0}]}"#, "/lines/0/a~1b~0c", "unknown field"),
        (r#"{"lines": [{}]}"#, "/lines/0", "missing field `count`"),
        (r#"{"title": "a", "title": "b"}"#, "", "duplicate field `title`"),
        ("[]", "", "has to be a JSON object"),
        (" null", "", "has to be a JSON object"),
    ] {
        let (status, answer) = order(JSON, body).await;
        assert_eq!((status, answer["code"].as_str()), (422, Some("invalid-request")), "{body}");
        assert_eq!(answer["errors"][0]["pointer"], pointer, "{body}: {answer}");
        let detail = answer["errors"][0]["detail"].as_str().unwrap();
        assert!(detail.contains(says) && !detail.contains("line 1"), "{body}: {detail}");
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_too_large() {
    let (status, answer) = order(JSON, format!(r#"{{"title": "{}"}}"#, "x".repeat(300))).await;
    assert_eq!((status, answer["code"].as_str()), (413, Some("body-too-large")));
}

#[tokio::test]
async fn a_query_that_cannot_be_read_names_its_parameter() {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct List {
        limit: Option<usize>,
        state: Option<String>,
    }
    let app = || {
        Router::new().route(
            "/",
            get(async |QueryParams(list): QueryParams<List>| format!("{:?} {:?}", list.limit, list.state)),
        )
    };
    for (query, names) in
        [("limit=x", "limit"), ("lmit=5", "lmit"), ("limit=1&limit=2", "limit"), ("limit=-1", "limit")]
    {
        let request = Request::get(format!("/?{query}")).body(Body::empty()).unwrap();
        let (status, answer) = json(app().oneshot(request).await.unwrap()).await;
        assert_eq!((status, answer["code"].as_str()), (400, Some("malformed-request")), "{query}");
        assert!(answer["detail"].as_str().unwrap().contains(names), "{query}: {answer}");
    }
    let request = Request::get("/?limit=5&state=idle").body(Body::empty()).unwrap();
    assert_eq!(app().oneshot(request).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_path_that_is_no_text_names_nothing() {
    let app = Router::new().route("/{id}", get(async |PathText(id): PathText<String>| id));
    let request = Request::get("/%ff").body(Body::empty()).unwrap();
    let (status, answer) = json(app.oneshot(request).await.unwrap()).await;
    assert_eq!((status, answer["code"].as_str()), (404, Some("not-found")));
}

#[test]
fn an_id_that_is_none_is_not_found() {
    assert_eq!(SessionId::identify("20261130_1").unwrap_err().code(), Code::SessionNotFound);
    assert_eq!(TurnId::identify("").unwrap_err().code(), Code::TurnNotFound);
    assert_eq!(PermissionId::identify("..").unwrap_err().code(), Code::PermissionNotFound);
    let id = SessionId::new();
    assert_eq!(SessionId::identify(&id.to_string()).unwrap(), id);
}

#[test]
fn pages_are_cut_and_lead_to_each_other() {
    let ids: Vec<TurnId> = (0..3).map(|_| TurnId::new()).collect();
    let (page, limit) = PageRequest::<TurnId>::new(Some(2), None).unwrap().to_store();
    assert_eq!((page.limit, page.before, limit), (3, None, 2));
    let mut entries = ids.clone();
    let cursor = next_cursor(&mut entries, limit, |id| *id).unwrap();
    assert_eq!(entries, ids[..2]);
    let (page, _) = PageRequest::<TurnId>::new(None, Some(&cursor)).unwrap().to_store();
    assert_eq!((page.before, page.limit), (Some(ids[1]), DEFAULT_PAGE + 1));
    // Exactly full: nothing follows.
    assert_eq!(next_cursor(&mut entries, 2, |id| *id), None);

    for (limit, cursor) in [(Some(0), None), (Some(MAX_PAGE + 1), None), (None, Some("x")), (None, Some(""))]
    {
        let refused = PageRequest::<TurnId>::new(limit, cursor).unwrap_err();
        assert_eq!(refused.code(), Code::MalformedRequest, "{limit:?} {cursor:?}");
    }
}

#[test]
fn preferences_are_read_and_unknown_ones_ignored() {
    let of = |values: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(PREFER, HeaderValue::from_static(value));
        }
        Preference::of(&headers)
    };
    let wait = |seconds| Some(Duration::from_secs(seconds));
    for (values, respond_async, waits) in [
        (&[][..], false, None),
        (&["respond-async"][..], true, None),
        (&["Respond-Async, wait=30"][..], true, wait(30)),
        (&["handling=lenient", "wait = \"5\"; x=1"][..], false, wait(5)),
        (&["wait=1, wait=9"][..], false, wait(1)),
        (&["respond-asynchronously, waiter=3"][..], false, None),
    ] {
        let preference = of(values).unwrap();
        assert_eq!(preference, Preference { respond_async, wait: waits }, "{values:?}");
    }
    for value in ["wait", "wait=", "wait=soon", "wait=-1", "wait=1.5", "wait=99999999999"] {
        assert_eq!(of(&[value]).unwrap_err().code(), Code::MalformedRequest, "{value}");
    }
}
