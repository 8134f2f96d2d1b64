//! goose's question `server/discover`, and the answer to it.

use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::forward::{self, Body};

/// The question's name, in the body and (goose 1.52) in the header `mcp-method`.
const DISCOVER: &str = "server/discover";
const METHOD_HEADER: &str = "mcp-method";
const JSON: &str = "application/json";
/// The longest body that is read to see whether it is the question, in bytes. goose's has some 300.
const PROBE_BYTES: usize = 16 * 1024;

/// Whether a request was the question.
pub(super) enum Outcome {
    /// It was.
    Answered(Response<Body>),
    /// It is to be passed on.
    Other(Request<Body>),
}

/// A JSON-RPC request, as far as it matters. Borrows, so that the id goes back as it came, digit by digit.
#[derive(Deserialize)]
struct Call<'body> {
    #[serde(borrow)]
    id: Option<&'body RawValue>,
    method: Option<String>,
}

/// Answers the question, and gives back any other request.
pub(super) async fn answer(request: Request<Incoming>) -> Outcome {
    if !may_be_discover(request.method(), request.headers()) {
        return Outcome::Other(request.map(forward::streamed));
    }
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, PROBE_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            tracing::debug!(%error, "a request to a tool server broke off");
            return Outcome::Answered(forward::plain(StatusCode::BAD_REQUEST, "the request is not whole"));
        }
    };
    match refusal(&body) {
        Some(answer) => {
            let mut response = Response::new(forward::whole(answer));
            response.headers_mut().insert(CONTENT_TYPE, forward::content_type(JSON));
            Outcome::Answered(response)
        }
        None => Outcome::Other(Request::from_parts(parts, forward::whole(body))),
    }
}

/// Whether a request may be the question, by what is known before its body: a header that names another method tells
/// that it is not.
fn may_be_discover(method: &Method, headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let is_json = text(CONTENT_TYPE.as_str())
        .and_then(|kind| kind.get(..JSON.len()))
        .is_some_and(|kind| kind.eq_ignore_ascii_case(JSON));
    let length = text(CONTENT_LENGTH.as_str()).and_then(|length| length.parse::<usize>().ok());
    *method == Method::POST
        && is_json
        && length.is_some_and(|length| length <= PROBE_BYTES)
        && headers.get(METHOD_HEADER).is_none_or(|method| method == DISCOVER)
}

/// The answer to the question; `None`: it is another request.
fn refusal(body: &[u8]) -> Option<Bytes> {
    let call: Call<'_> = serde_json::from_slice(body).ok()?;
    if call.method.as_deref() != Some(DISCOVER) {
        return None;
    }
    let id = call.id?.get();
    let error = r#"{"code":-32601,"message":"Method not found"}"#;
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_is_answered_under_its_own_id() {
        for id in ["0", "18446744073709551616", "1.50", r#""text \" é""#] {
            let body = format!(r#"{{"method": "server/discover", "params": {{"id": 7}}, "id": {id}}}"#);
            let expected = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"Method not found"}}}}"#
            );
            assert_eq!(refusal(body.as_bytes()).unwrap(), expected);
        }
        for other in [
            "",
            "{}",
            "[]",
            r#"{"id": 1, "method": "initialize"}"#,
            r#"{"method": "server/discover"}"#,
            r#"{"id": null, "method": "server/discover"}"#,
            r#"{"id": 1, "params": {"method": "server/discover"}}"#,
            r#"[{"id": 1, "method": "server/discover"}]"#,
            r#"{"id": 1, "method": "server/discover""#,
        ] {
            assert_eq!(refusal(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn only_what_may_be_the_question_is_read() {
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            let pairs = pairs.iter();
            pairs.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
        };
        let json = ("content-type", "application/json");
        for (pairs, expected) in [
            (&[json, ("content-length", "309")][..], true),
            (&[("content-type", "Application/JSON; charset=utf-8"), ("content-length", "309")], true),
            (&[json, ("content-length", "309"), ("mcp-method", "server/discover")], true),
            (&[json, ("content-length", "309"), ("mcp-method", "tools/call")], false),
            (&[json, ("content-length", "16385")], false),
            (&[json], false),
            (&[("content-type", "text/plain"), ("content-length", "309")], false),
            (&[("content-length", "309")], false),
        ] {
            assert_eq!(may_be_discover(&Method::POST, &headers(pairs)), expected, "{pairs:?}");
            assert!(!may_be_discover(&Method::GET, &headers(pairs)), "{pairs:?}");
        }
    }
}
