//! The layers, and which of them a key came from.

use std::ffi::OsStr;
use std::path::Path;

use figment::error::Kind;
use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use serde::de::DeserializeOwned;

use super::error::{ConfigError, Origin, Problem, Violation};
use super::{DEFAULTS, Environment, environment};

/// The marker in every child's environment. A gander that a session's shell starts finds it there, and it
/// is no setting.
const MARKER: &str = "GANDER_INSTANCE";

/// A setting that a flag of the command line makes.
#[derive(Clone, Debug)]
pub struct Flag {
    /// The flag as it is typed, such as `--listen`.
    pub name: &'static str,
    /// The key that it sets, such as `server.listen`.
    pub key: &'static str,
    /// The value, read like the value of a variable.
    pub value: String,
}

/// All layers, lowest first.
pub(super) struct Layers(Vec<Layer>);

struct Layer {
    origin: Origin,
    values: Dict,
}

impl Layers {
    pub(super) fn read(
        file: Option<&Path>,
        environment: &Environment,
        flags: &[Flag],
    ) -> Result<Self, ConfigError> {
        let defaults = parse_toml(DEFAULTS, Path::new("gander.default.toml"))?;
        let mut layers = vec![Layer { origin: Origin::Defaults, values: defaults.clone() }];
        if let Some(path) = file {
            let text = std::fs::read_to_string(path)
                .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
            layers.push(Layer { origin: Origin::File(path.to_owned()), values: parse_toml(&text, path)? });
        }
        for (name, value) in environment.own().filter(|(name, _)| name != MARKER) {
            layers.push(Layer {
                values: read_variable(&name, value, &defaults)?,
                origin: Origin::Variable(name),
            });
        }
        for flag in flags {
            let path: Vec<&str> = flag.key.split('.').collect();
            let value = read_value(&flag.value, find(&defaults, &path));
            layers.push(Layer { origin: Origin::Flag(flag.name.to_owned()), values: nest(&path, value) });
        }
        Ok(Self(layers))
    }

    pub(super) fn extract<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        let merged = self.0.iter().fold(Figment::new(), |figment, layer| figment.merge(layer));
        merged.extract().map_err(|error: figment::Error| {
            let mut path = error.path.clone();
            // An unknown key is in figment's path already; a missing one is not.
            if let Kind::MissingField(name) = &error.kind {
                path.push(name.to_string());
            }
            // A list's entry is named by the list: a list from a variable has no visible numbers.
            let path: Vec<&str> = path.iter().map(String::as_str).filter(|part| !is_index(part)).collect();
            let origin = self.origin(&path);
            ConfigError::Key { key: path.join("."), problem: Problem::from_kind(error.kind), origin }
        })
    }

    /// Adds where the broken key's value came from.
    pub(super) fn locate(&self, violation: Violation) -> ConfigError {
        let path: Vec<&str> = violation.key.splitn(3, '.').collect();
        let origin = self.origin(&path);
        ConfigError::Key { key: violation.key, problem: violation.problem, origin }
    }

    /// The highest layer that has the key, or as much of its path as any layer has.
    fn origin(&self, path: &[&str]) -> Origin {
        (0..=path.len())
            .rev()
            .find_map(|length| {
                self.0.iter().rev().find(|layer| find(&layer.values, &path[..length]).is_some())
            })
            .map_or(Origin::Defaults, |layer| layer.origin.clone())
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.to_string())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

fn is_index(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

fn parse_toml(text: &str, path: &Path) -> Result<Dict, ConfigError> {
    Toml::from_str::<Dict>(text).map_err(|error| {
        let end = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..end]).count();
        ConfigError::Malformed { path: path.to_owned(), line, detail: error.message().to_owned() }
    })
}

fn read_variable(name: &str, value: &OsStr, defaults: &Dict) -> Result<Dict, ConfigError> {
    let not_a_setting = || ConfigError::Variable { name: name.to_owned() };
    let words = name.strip_prefix(environment::PREFIX).ok_or_else(not_a_setting)?;
    // What follows a second `__` is a table's key: one that the defaults have, or else the table's own, which is
    // kept as it is: a variable's name, with whatever underscores it has.
    let mut parts = words.splitn(3, "__");
    let section =
        parts.next().map(str::to_lowercase).filter(|part| !part.is_empty()).ok_or_else(not_a_setting)?;
    let key =
        parts.next().map(str::to_lowercase).filter(|part| !part.is_empty()).ok_or_else(not_a_setting)?;
    let mut path = vec![section.as_str(), key.as_str()];
    let own = parts.next();
    let known = own.map(str::to_lowercase).filter(|known| find(defaults, &[&section, &key, known]).is_some());
    path.extend(known.as_deref().or(own));
    let text = value.to_str().ok_or_else(|| ConfigError::Key {
        key: path.join("."),
        problem: Problem::NotUtf8,
        origin: Origin::Variable(name.to_owned()),
    })?;
    Ok(nest(&path, read_value(text, find(defaults, &path))))
}

/// Reads the text of a variable or flag as what the default is. Text stays text, so that a model called
/// `4` needs no quotes; what is no TOML stays text too and is then complained about by its type.
fn read_value(text: &str, default: Option<&Value>) -> Value {
    let as_text = || Value::from(text);
    let is_toml = match default {
        None | Some(Value::String(..) | Value::Char(..)) => false,
        Some(Value::Array(..)) => text.trim_start().starts_with('['),
        Some(_) => true,
    };
    if !is_toml {
        return as_text();
    }
    match Toml::from_str::<Dict>(&format!("value = {}", text.trim())) {
        Ok(mut values) if values.len() == 1 => values.remove("value").unwrap_or_else(as_text),
        _ => as_text(),
    }
}

fn find<'values>(values: &'values Dict, path: &[&str]) -> Option<&'values Value> {
    let (first, rest) = path.split_first()?;
    let value = values.get(*first)?;
    if rest.is_empty() { Some(value) } else { find(value.as_dict()?, rest) }
}

fn nest(path: &[&str], value: Value) -> Dict {
    match path.split_first() {
        None => Dict::new(),
        Some((first, [])) => Dict::from([((*first).to_owned(), value)]),
        Some((first, rest)) => Dict::from([((*first).to_owned(), Value::from(nest(rest, value)))]),
    }
}
