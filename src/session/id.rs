//! Ids and times: gander's own, never the agent's.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(transparent)]
        #[schema(value_type = String, format = Uuid)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id, later than every id made before in this process.
            #[must_use]
            #[expect(clippy::new_without_default, reason = "a default id would suggest a fixed value")]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// The sixteen bytes, for storage.
            #[must_use]
            pub fn as_uuid(&self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::try_parse(text).map(Self)
            }
        }
    };
}

id_type!(
    /// A session, for as long as it exists.
    SessionId
);
id_type!(
    /// A prompt turn.
    TurnId
);
id_type!(
    /// A permission request.
    PermissionId
);
id_type!(
    /// A remembered answer to a permission request.
    GrantId
);
id_type!(
    /// A message of the agent: all its deltas carry the same one.
    MessageId
);

/// A session's short number in the store: the upper part of every event's key. At most 23 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionNumber(pub u32);

/// An event's number within its session: 1, 2, 3, … At most 40 bits. 0 stands for "before the first".
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(transparent)]
pub struct EventId(pub u64);

impl EventId {
    /// The id that follows.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A moment, in JSON as RFC 3339 UTC with milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, utoipa::ToSchema)]
#[schema(value_type = String, format = DateTime)]
pub struct Timestamp(SystemTime);

impl Timestamp {
    /// The present, by the system's clock.
    #[must_use]
    pub fn now() -> Self {
        Self(SystemTime::now())
    }

    /// This moment plus a span; a span past the end of time is cut to 100 years.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);
        Self(self.0.checked_add(span.min(CENTURY)).unwrap_or(self.0))
    }

    /// How long until this moment; zero when it has passed.
    #[must_use]
    pub fn remaining(self, now: Self) -> Duration {
        self.0.duration_since(now.0).unwrap_or(Duration::ZERO)
    }

    /// Milliseconds since 1970, for storage.
    #[must_use]
    pub fn as_millis(self) -> i64 {
        let millis = self.0.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis();
        i64::try_from(millis).unwrap_or(i64::MAX)
    }
}

impl Timestamp {
    /// The moment so many milliseconds after 1970; `None` for one that cannot be told.
    #[must_use]
    pub fn from_millis(millis: i64) -> Option<Self> {
        let since = Duration::from_millis(u64::try_from(millis).ok()?);
        SystemTime::UNIX_EPOCH.checked_add(since).map(Self)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self(time)
    }
}

impl From<Timestamp> for SystemTime {
    fn from(Timestamp(time): Timestamp) -> Self {
        time
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_millis(self.0).fmt(f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_rfc3339(&text).map(Self).map_err(de::Error::custom)
    }
}
