//! Where a span belongs: W3C Trace Context.

use std::fmt;
use std::time::SystemTime;

use opentelemetry_proto::tonic::trace::v1::Span;

use super::Attributes;
use crate::session::id::TurnId;

/// A trace. Never all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub(super) [u8; 16]);

/// A span within a trace. Never all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(pub(super) [u8; 8]);

/// A span's place, as the header `traceparent` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// Whether the trace is kept.
    pub sampled: bool,
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Without random bytes no token could have been made either; an id that is not random is still an id.
    if getrandom::fill(&mut bytes).is_err() || bytes == [0; N] {
        bytes[N - 1] = 1;
    }
    bytes
}

impl TraceId {
    /// A new one.
    #[must_use]
    pub fn random() -> Self {
        Self(random())
    }
}

impl SpanId {
    /// A new one.
    #[must_use]
    pub fn random() -> Self {
        Self(random())
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

impl Context {
    /// Reads a `traceparent` header. A later version may have more behind the four parts that are known.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().splitn(5, '-');
        let mut hex = |digits: usize| {
            let part = parts.next()?;
            let is_hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            (part.len() == digits && is_hex).then(|| u128::from_str_radix(part, 16).ok())?
        };
        let version = hex(2)?;
        let trace = hex(32).filter(|trace| *trace != 0)?;
        let span = hex(16).and_then(|span| u64::try_from(span).ok()).filter(|span| *span != 0)?;
        let flags = hex(2)?;
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        Some(Self {
            trace: TraceId(trace.to_be_bytes()),
            span: SpanId(span.to_be_bytes()),
            sampled: flags & 1 == 1,
        })
    }

    /// Of a turn that this `traceparent` asked for. The ids follow from the turn's: the last half of it is random.
    #[must_use]
    pub(super) fn of_turn(
        turn: TurnId,
        traceparent: Option<&str>,
        sampling: &Sampling,
    ) -> (Self, Option<Self>) {
        let id = turn.as_uuid().into_bytes();
        let mut span = [0; 8];
        span.copy_from_slice(&id[8..]);
        let parent = traceparent.and_then(Self::parse);
        (sampling.child(parent, SpanId(span), || TraceId(id)), parent)
    }

    /// A span below this one.
    pub(super) fn below(self) -> Self {
        Self { span: SpanId::random(), ..self }
    }

    /// This span, over.
    pub(super) fn span(
        self,
        parent: Option<Self>,
        name: String,
        (start, end): (SystemTime, SystemTime),
        attributes: Attributes,
    ) -> Span {
        Span {
            trace_id: self.trace.0.to_vec(),
            span_id: self.span.0.to_vec(),
            parent_span_id: parent.map(|parent| parent.span.0.to_vec()).unwrap_or_default(),
            // The trace's lowest flag: it is sampled.
            flags: 1,
            name,
            kind: super::attributes::INTERNAL,
            start_time_unix_nano: nanos(start),
            end_time_unix_nano: nanos(end.max(start)),
            attributes: attributes.into_list(),
            ..Span::default()
        }
    }
}

/// Since 1970, for five hundred years.
pub(super) fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Which traces are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Of those that begin here: 0 none, 1 all.
    pub ratio: f64,
    /// Whether a caller's trace is kept when the caller says so; else it is decided like one that begins here.
    pub caller_decides: bool,
}

impl Sampling {
    /// A span below the caller's, or the first of a trace.
    pub(super) fn child(
        &self,
        parent: Option<Context>,
        span: SpanId,
        new_trace: impl FnOnce() -> TraceId,
    ) -> Context {
        let trace = parent.map_or_else(new_trace, |parent| parent.trace);
        let sampled = match parent {
            Some(parent) if self.caller_decides => parent.sampled,
            _ => self.takes(trace),
        };
        Context { trace, span, sampled }
    }

    /// By the trace's id alone, so that all who see a trace decide alike.
    fn takes(&self, trace: TraceId) -> bool {
        // The last seven bytes are random, also in ids of other makers (W3C Trace Context, level 2).
        let mut last = [0; 8];
        last[1..].copy_from_slice(&trace.0[9..]);
        #[expect(clippy::cast_precision_loss, reason = "nobody sets a ratio so finely")]
        let place = u64::from_be_bytes(last) as f64 / (1_u64 << 56) as f64;
        place < self.ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_as_the_w3c_writes_it_and_else_ignored() {
        let context = Context::parse(PARENT).unwrap();
        assert!(context.sampled);
        assert_eq!(context.to_string(), PARENT);
        let unsampled = Context::parse(&PARENT.replace("-01", "-00")).unwrap();
        assert!(!unsampled.sampled);
        // Later versions.
        assert_eq!(Context::parse(&format!("cc{}", &PARENT[2..])), Some(context));
        assert_eq!(Context::parse(&format!("cc{}-more", &PARENT[2..])), Some(context));
        assert_eq!(Context::parse(&PARENT.replace("-01", "-03")), Some(context));
        for invalid in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Context::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn the_caller_decides_or_the_ratio_does() {
        let all = Sampling { ratio: 1.0, caller_decides: true };
        let none = Sampling { ratio: 0.0, ..all };
        let parent = Context::parse(PARENT);
        let unsampled = parent.map(|parent| Context { sampled: false, ..parent });
        let sampled =
            |sampling: Sampling, parent| sampling.child(parent, SpanId::random(), TraceId::random).sampled;
        assert!(
            sampled(all, None) && sampled(none, parent) && !sampled(all, unsampled) && !sampled(none, None)
        );
        let alone = |ratio| Sampling { ratio, caller_decides: false };
        assert!(sampled(alone(1.0), unsampled) && !sampled(alone(0.0), parent));
        let half = (0..1000).filter(|_| sampled(alone(0.5), None)).count();
        assert!((300..700).contains(&half), "{half}");
    }

    #[test]
    fn a_turn_has_the_same_span_whenever_it_is_asked_for() {
        let all = Sampling { ratio: 1.0, caller_decides: true };
        let turn = TurnId::new();
        let (context, parent) = Context::of_turn(turn, Some(PARENT), &all);
        assert_eq!(Context::of_turn(turn, Some(PARENT), &all), (context, parent));
        assert_eq!((context.trace, parent), (parent.unwrap().trace, Context::parse(PARENT)));
        let (alone, none) = Context::of_turn(turn, None, &all);
        assert_eq!((alone.span, none), (context.span, None));
        assert_ne!(Context::of_turn(TurnId::new(), None, &all).0.span, alone.span);
    }
}
