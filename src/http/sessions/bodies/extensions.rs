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
    /// Extensions that the agent has, or that it can be without.
    pub(super) fn extensions(
        &mut self,
        field: &str,
        names: &[String],
        wish: ExtensionWish,
        host: &dyn HostFacts,
    ) {
        self.each_name(field, names, |name| {
            // They become part of a command line: a name never looks like an option, or like two names.
            let sane = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
            if name.starts_with('-') || !sane {
                return Err("must be an extension's name: letters, digits, _, - and . only".into());
            }
            host.check_extension(name, wish).map_err(|refusal| format!("{name}: {refusal}"))
        });
    }

    /// Extensions and servers that have to be there; whether they are shows when the agent has started.
    pub(super) fn required(&mut self, names: &[String]) {
        self.each_name("require_extensions", names, |name| {
            let sane = !name.chars().any(char::is_control);
            sane.then_some(()).ok_or_else(|| "must not have control characters".into())
        });
    }

    fn each_name(&mut self, field: &str, names: &[String], check: impl Fn(&str) -> Result<(), String>) {
        if names.len() > NAMES {
            return self.refuse(format!("/{field}"), format!("must not have more than {NAMES} names"));
        }
        for (index, name) in names.iter().enumerate() {
            let checked = if name.is_empty() || name.len() > NAME_BYTES {
                Err(format!("must be a name of 1 to {NAME_BYTES} bytes"))
            } else {
                check(name)
            };
            if let Err(detail) = checked {
                self.refuse(format!("/{field}/{index}"), detail);
            }
        }
    }
}
