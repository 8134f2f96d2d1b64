//! What a caller wants an answer to be (RFC 9110, section 12.5.1).

use axum::http::{HeaderMap, header};

pub(super) const EVENT_STREAM: &str = "text/event-stream";
pub(super) const JSON_LINES: &str = "application/x-ndjson";
pub(super) const JSON: &str = "application/json";

/// The weight of a media type in thousandths; 0 when the caller does not name it. Wildcards name nothing: they leave
/// the choice to the gateway.
pub(super) fn weight_of(headers: &HeaderMap, media_type: &str) -> u16 {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges = values.flat_map(|value| value.split(','));
    ranges.filter_map(|range| weight(range, media_type)).max().unwrap_or(0)
}

/// The weight of a media range, if it is the given type.
fn weight(range: &str, media_type: &str) -> Option<u16> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(media_type) {
        return None;
    }
    let weight = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let Some(weight) = weight else { return Some(1_000) };
    let (whole, fraction) = weight.split_once('.').unwrap_or((weight, ""));
    let thousandths: u16 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    Some(whole.parse::<u16>().ok()?.saturating_mul(1_000).saturating_add(thousandths).min(1_000))
}
