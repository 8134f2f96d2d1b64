//! What is said of a span, by OpenTelemetry's semantic conventions where they have a word for it.

use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{Span, Status, status};

/// More of a text than this is cut off, in bytes.
const TEXT_BYTES: usize = 1024;
/// And of what was said, when that is asked for.
const CONTENT_BYTES: usize = 16 * 1024;

pub(super) const SERVER: i32 = SpanKind::Server as i32;
pub(super) const INTERNAL: i32 = SpanKind::Internal as i32;

/// A span's attributes.
#[derive(Clone, Debug, Default)]
pub struct Attributes(Vec<KeyValue>);

impl Attributes {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text, if there is one.
    #[must_use]
    pub fn text<'text>(self, key: &str, value: impl Into<Option<&'text str>>) -> Self {
        let value = value.into().map(|value| any_value::Value::StringValue(cut(value, TEXT_BYTES)));
        self.with(key, value)
    }

    /// Adds a number, if there is one.
    #[must_use]
    pub fn number(self, key: &str, value: impl Into<Option<u64>>) -> Self {
        let value = value.into().map(|value| i64::try_from(value).unwrap_or(i64::MAX));
        self.with(key, value.map(any_value::Value::IntValue))
    }

    /// Adds a list of one text, if there is one.
    #[must_use]
    pub(super) fn list(self, key: &str, value: Option<&str>) -> Self {
        let value = value.map(|value| {
            let value = AnyValue { value: Some(any_value::Value::StringValue(cut(value, TEXT_BYTES))) };
            any_value::Value::ArrayValue(ArrayValue { values: vec![value] })
        });
        self.with(key, value)
    }

    /// Adds what was said, which has been cut ([`excerpt`]).
    #[must_use]
    pub(super) fn content(self, key: &str, value: Option<String>) -> Self {
        self.with(key, value.map(any_value::Value::StringValue))
    }

    fn with(mut self, key: &str, value: Option<any_value::Value>) -> Self {
        if value.is_some() {
            let value = Some(AnyValue { value });
            self.0.push(KeyValue { key: key.to_owned(), value, ..KeyValue::default() });
        }
        self
    }

    pub(super) fn into_list(self) -> Vec<KeyValue> {
        self.0
    }
}

/// As much of what was said as a span has of it.
pub(super) fn excerpt(said: &str) -> String {
    cut(said, CONTENT_BYTES)
}

fn cut(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}

/// Says that what the span tells of went wrong.
pub(super) fn fail(span: &mut Span) {
    span.status = Some(Status { code: status::StatusCode::Error as i32, ..Status::default() });
}
