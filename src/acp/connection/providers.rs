//! What goose knows about a model provider. ACP has no request for it; goose has one of its own.

use serde::Serialize;

use super::Connection;
use crate::acp::translate;

/// goose's request, whose name says that it may change: whoever asks has to live with no answer.
const PROVIDERS_LIST: &str = "_goose/unstable/providers/list";

/// A provider that the agent knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderFacts {
    /// The model it has when nobody names one.
    pub default_model: Option<String>,
    /// The variables that have to be set for it.
    pub needs: Vec<String>,
}

impl Connection {
    /// Asks about one provider. `None`: the agent does not answer such questions; `Some(None)`: it knows none of that
    /// name.
    pub async fn provider(&self, id: &str) -> Option<Option<ProviderFacts>> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            provider_ids: [&'a str; 1],
        }
        let params = Params { provider_ids: [id] };
        let reply = self.request(PROVIDERS_LIST, &params, self.limits.request_timeout).await.ok()?;
        let fields = translate::fields(Some(&reply));
        let entries: Vec<&serde_json::value::RawValue> = translate::read(fields.get("entries").copied())?;
        let entry = entries.into_iter().map(|entry| translate::fields(Some(entry))).find(|entry| {
            translate::read::<String>(entry.get("providerId").copied()).is_some_and(|found| found == id)
        });
        Some(entry.map(|entry| provider_facts(&entry)))
    }
}

fn provider_facts(entry: &translate::Fields<'_>) -> ProviderFacts {
    let keys: Vec<&serde_json::value::RawValue> =
        translate::read(entry.get("configKeys").copied()).unwrap_or_default();
    let keys = keys.into_iter().map(|key| translate::fields(Some(key)));
    let required = keys.filter(|key| {
        translate::read(key.get("required").copied()).unwrap_or(false)
            && translate::read::<serde_json::Value>(key.get("default").copied()).is_none()
    });
    ProviderFacts {
        default_model: translate::read(entry.get("defaultModel").copied()),
        needs: required.filter_map(|key| translate::read(key.get("name").copied())).collect(),
    }
}
