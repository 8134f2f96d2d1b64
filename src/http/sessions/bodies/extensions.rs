//! Names of extensions.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use super::{Check, NAME_BYTES};
use crate::http::host::{ExtensionRefusal, ExtensionWish, HostFacts};

/// Names in a list of extensions.
pub(super) const NAMES: usize = 100;

/// A list of names, or text with commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::http) struct Names(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListOrText;

        impl<'de> Visitor<'de> for ListOrText {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of names or text with commas")
            }

            fn visit_str<E>(self, text: &str) -> Result<Names, E> {
                if text.trim().is_empty() {
                    return Ok(Names::default());
                }
                Ok(Names(text.split(',').map(|name| name.trim().to_owned()).collect()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element::<String>()? {
                    names.push(name.trim().to_owned());
                }
                Ok(Names(names))
            }
        }

        deserializer.deserialize_any(ListOrText)
    }
}

/// Names, as a list or as text with commas.
#[derive(ToSchema)]
#[serde(untagged)]
#[schema(as = Names)]
#[expect(dead_code, reason = "only describes what `Names` reads")]
pub(in crate::http) enum NamesSchema {
    List(Vec<String>),
    Text(String),
}

impl Names {
    /// Whether one of them is none that the gateway knows of.
    pub(super) fn has_unknown(&self, host: &dyn HostFacts) -> bool {
        self.0.iter().take(NAMES).any(|name| {
            let checked = host.check_extension(name, ExtensionWish::BeWithout);
            matches!(checked, Err(ExtensionRefusal::Unknown { .. }))
        })
    }
}

impl Check {
    pub(super) fn extensions(
        &mut self,
        field: &str,
        names: &[String],
        wish: ExtensionWish,
        host: &dyn HostFacts,
    ) {
        if names.len() > NAMES {
            self.refuse(format!("/{field}"), format!("must not have more than {NAMES} names"));
            return;
        }
        for (index, name) in names.iter().enumerate() {
            // They become part of a command line: a name never looks like an option, or like two names.
            let sane = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
            if name.is_empty() || name.len() > NAME_BYTES || name.starts_with('-') || !sane {
                let detail = "must be an extension's name: letters, digits, _, - and . only";
                self.refuse(format!("/{field}/{index}"), detail);
            } else if let Err(refusal) = host.check_extension(name, wish) {
                self.refuse(format!("/{field}/{index}"), format!("{name}: {refusal}"));
            }
        }
    }
}
