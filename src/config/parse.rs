//! How values are read from TOML and from variables.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, Deserialize, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};

use super::secret::Secret;

/// No duration is longer, so that adding one to a point in time never overflows.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// Reads "15s" or "1h 30m" (humantime), at most a year.
pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    const EXPECTED: &str = "a duration of at most 365 days, such as \"15s\"";
    let text = deserializer.deserialize_str(Text(EXPECTED))?;
    humantime::parse_duration(&text)
        .ok()
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| de::Error::invalid_value(Unexpected::Str(&text), &EXPECTED))
}

/// Reads an IP address with a port.
pub(super) fn socket_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    const EXPECTED: &str = "an IP address and a port, such as \"127.0.0.1:4665\"";
    let text = deserializer.deserialize_str(Text(EXPECTED))?;
    text.parse().map_err(|_| de::Error::invalid_value(Unexpected::Str(&text), &EXPECTED))
}

/// Like [`socket_address`]; empty text is none.
pub(super) fn optional_socket_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    const EXPECTED: &str = "an IP address and a port, such as \"127.0.0.1:9465\", or nothing";
    let text = deserializer.deserialize_str(Text(EXPECTED))?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| de::Error::invalid_value(Unexpected::Str(&text), &EXPECTED))
}

/// Reads one word of an enum, from text only: a plain derive would also take a variant's number.
pub(super) fn word<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: for<'text> Deserialize<'text>,
{
    let text = deserializer.deserialize_str(Text("a word"))?;
    T::deserialize(string_deserializer::<D::Error>(&text))
}

/// Reads text of which nothing means "not set".
pub(super) fn optional_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = deserializer.deserialize_str(Text("text"))?;
    let text = text.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// Reads a path of which nothing means "not set".
pub(super) fn optional_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(optional_text(deserializer)?.map(PathBuf::from))
}

/// Reads a list or comma-separated text. Entries are trimmed; empty and repeated ones are dropped.
pub(super) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: for<'text> Deserialize<'text>,
{
    deserializer.deserialize_any(ListVisitor(PhantomData))
}

/// Reads variables: values may be text, numbers or booleans, and are never shown in an error.
pub(super) fn variables<'de, D>(deserializer: D) -> Result<BTreeMap<String, Secret>, D::Error>
where
    D: Deserializer<'de>,
{
    struct Variables;

    impl<'de> Visitor<'de> for Variables {
        type Value = BTreeMap<String, Secret>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a table of variables")
        }

        fn visit_str<E: de::Error>(self, _: &str) -> Result<Self::Value, E> {
            Err(E::invalid_type(Unexpected::Other("text"), &self))
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut variables = BTreeMap::new();
            while let Some((name, VariableValue(value))) = map.next_entry::<String, _>()? {
                variables.insert(name, value);
            }
            Ok(variables)
        }
    }

    deserializer.deserialize_map(Variables)
}

fn string_deserializer<E: de::Error>(text: &str) -> StrDeserializer<'_, E> {
    text.into_deserializer()
}

/// Takes text and nothing else, and says what the text is expected to be.
struct Text(&'static str);

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<T: for<'text> Deserialize<'text>> ListVisitor<T> {
    fn read<'entry, E: de::Error>(entries: impl Iterator<Item = &'entry str>) -> Result<Vec<T>, E> {
        let mut seen: Vec<&str> = Vec::new();
        for entry in entries.map(str::trim).filter(|entry| !entry.is_empty()) {
            if !seen.contains(&entry) {
                seen.push(entry);
            }
        }
        seen.into_iter().map(|entry| T::deserialize(string_deserializer(entry))).collect()
    }
}

impl<'de, T: for<'text> Deserialize<'text>> Visitor<'de> for ListVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list or comma-separated text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Self::read(text.split(','))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut entries: Vec<String> = Vec::new();
        while let Some(entry) = sequence.next_element::<String>()? {
            entries.push(entry);
        }
        Self::read(entries.iter().map(String::as_str))
    }
}

/// The value of a variable, which TOML may hold as text, number or boolean.
struct VariableValue(Secret);

impl<'de> Deserialize<'de> for VariableValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;

        impl Visitor<'_> for Scalar {
            type Value = VariableValue;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("text, a number or a boolean")
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<VariableValue, E> {
                Ok(VariableValue(Secret::new(value)))
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<VariableValue, E> {
                Ok(VariableValue(Secret::new(value.to_string())))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<VariableValue, E> {
                Ok(VariableValue(Secret::new(value.to_string())))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<VariableValue, E> {
                Ok(VariableValue(Secret::new(value.to_string())))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<VariableValue, E> {
                Ok(VariableValue(Secret::new(value.to_string())))
            }
        }

        deserializer.deserialize_any(Scalar)
    }
}
