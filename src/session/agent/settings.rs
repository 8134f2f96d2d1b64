//! The settings that an agent offers: what is set, and what can be.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A setting that callers can change by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The model's provider.
    Provider,
    /// The model.
    Model,
    /// How much the model thinks.
    ThinkingEffort,
    /// The mode.
    Mode,
}

impl Setting {
    /// As in the API, and the id of the agent's option.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Model => "model",
            Self::ThinkingEffort => "thinking_effort",
            Self::Mode => "mode",
        }
    }

    /// The agent's option for it. `None` when the agent offers none.
    #[must_use]
    pub fn of(self, options: &[ConfigOption]) -> Option<&ConfigOption> {
        options.iter().find(|option| option.id == self.as_str())
    }

    /// What is set now.
    #[must_use]
    pub fn current(self, options: &[ConfigOption]) -> Option<&str> {
        self.of(options)?.current_value.as_deref()
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One choice of a [`ConfigOption`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigChoice {
    /// What is set.
    pub value: String,
    /// For people.
    pub name: String,
}

/// A setting that the agent offers (ACP session config option).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigOption {
    /// `provider`, `mode`, `model`, …
    pub id: String,
    /// For people.
    pub name: String,
    /// ACP's category, as open text.
    pub category: Option<String>,
    /// What is set now.
    pub current_value: Option<String>,
    /// What can be set. Of a long list only what is set now, unless the session is asked for with
    /// `?config_options=all`.
    pub choices: Vec<ConfigChoice>,
    /// How many choices are left out here.
    #[serde(default)]
    pub omitted_choices: usize,
}

impl ConfigOption {
    /// How long a list of choices may be before it is shortened. The modes, efforts and most providers' models fit;
    /// goose knows more than eighty providers, and some of those have hundreds of models.
    const SHOWN_CHOICES: usize = 50;

    /// Whether a value is among the choices.
    #[must_use]
    pub fn offers(&self, value: &str) -> bool {
        self.choices.iter().any(|choice| choice.value == value)
    }

    /// The values to choose from, for people.
    #[must_use]
    pub fn offered(&self) -> String {
        let values: Vec<&str> = self.choices.iter().map(|choice| choice.value.as_str()).collect();
        values.join(", ")
    }

    /// With only the current one of a long list of choices.
    #[must_use]
    pub fn shortened(&self) -> Self {
        if self.choices.len() <= Self::SHOWN_CHOICES {
            return self.clone();
        }
        let is_current = |choice: &&ConfigChoice| Some(&choice.value) == self.current_value.as_ref();
        let choices: Vec<ConfigChoice> = self.choices.iter().filter(is_current).cloned().collect();
        Self {
            id: self.id.clone(),
            name: self.name.clone(),
            category: self.category.clone(),
            current_value: self.current_value.clone(),
            omitted_choices: self.choices.len() - choices.len(),
            choices,
        }
    }
}

/// Why a value cannot be asked for: it is not among the choices.
pub fn check_choice(setting: Setting, value: &str, options: &[ConfigOption]) -> Result<(), String> {
    let model = Setting::Model.current(options).unwrap_or("this model");
    match setting.of(options) {
        Some(option) if option.offers(value) => Ok(()),
        Some(option) => Err(format!("{model} offers {} only", option.offered())),
        None => Err(format!("{model} offers none")),
    }
}

/// Why a value is not set, going by what the agent says after it was asked for.
pub fn check_set(setting: Setting, value: &str, options: &[ConfigOption]) -> Result<(), String> {
    match setting.current(options) {
        Some(current) if current == value => Ok(()),
        current => Err(format!("the agent made {} of it", current.unwrap_or("nothing"))),
    }
}

/// The thinking effort in force. `None` when the agent offers nothing to choose from.
#[must_use]
pub fn thinking_effort(options: &[ConfigOption]) -> Option<&str> {
    let effort = Setting::ThinkingEffort.of(options).filter(|option| option.choices.len() > 1)?;
    effort.current_value.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(choices: usize) -> ConfigOption {
        let choice = |number| ConfigChoice { value: format!("v{number}"), name: format!("V{number}") };
        ConfigOption {
            id: "thinking_effort".into(),
            name: "Thinking effort".into(),
            category: None,
            current_value: Some("v0".into()),
            choices: (0..choices).map(choice).collect(),
            omitted_choices: 0,
        }
    }

    #[test]
    fn a_long_list_is_cut_to_what_is_set() {
        let short = option(ConfigOption::SHOWN_CHOICES);
        assert_eq!(short.shortened(), short);
        let long = option(ConfigOption::SHOWN_CHOICES + 1).shortened();
        assert_eq!((long.offered().as_str(), long.omitted_choices), ("v0", ConfigOption::SHOWN_CHOICES));
        let unset = ConfigOption { current_value: None, ..option(60) }.shortened();
        assert_eq!((unset.choices.len(), unset.omitted_choices), (0, 60));
    }

    #[test]
    fn an_effort_is_one_of_several() {
        assert_eq!(thinking_effort(&[option(2)]), Some("v0"));
        for nothing_to_choose in [vec![option(1)], vec![option(0)], vec![]] {
            assert_eq!(thinking_effort(&nothing_to_choose), None);
        }
    }
}
