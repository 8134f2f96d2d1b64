//! Modes, settings, slash commands and extensions, as an agent tells of them in updates and answers.

use agent_client_protocol_schema::v1::{SessionConfigKind, SessionConfigOption, SessionConfigSelectOptions};
use serde_json::value::RawValue;

use super::{Fields, fields, read};
use crate::session::agent::{AgentEvent, ConfigChoice, ConfigOption, ExtensionStatus, Skill, SlashCommand};

pub(super) fn commands(update: &Fields<'_>, emit: &mut impl FnMut(AgentEvent)) -> bool {
    let Some(told) = available_commands(update) else { return false };
    emit(told);
    true
}

/// The slash commands of an update or an answer, the skills among them told by goose (`_meta.commandType`). `None` when
/// there is no list.
pub(in crate::acp) fn available_commands(list: &Fields<'_>) -> Option<AgentEvent> {
    let commands = read::<Vec<&RawValue>>(list.get("availableCommands").copied())?;
    let commands = commands.into_iter().filter_map(|command| {
        let command = fields(Some(command));
        let name = read(command.get("name").copied())?;
        let description = read(command.get("description").copied()).unwrap_or_default();
        let kind: Option<String> = read(fields(command.get("_meta").copied()).get("commandType").copied());
        Some(SlashCommand { name, description, kind: kind.map(|kind| kind.to_lowercase()) })
    });
    let commands: Vec<SlashCommand> = commands.collect();
    let skills = commands.iter().filter(|command| command.kind.as_deref() == Some("skill")).map(|command| {
        Skill { name: command.name.clone(), description: command.description.clone(), path: None }
    });
    Some(AgentEvent::CommandsUpdated { skills: skills.collect(), commands })
}

pub(super) fn mode(update: &Fields<'_>, emit: &mut impl FnMut(AgentEvent)) -> bool {
    let Some(mode) = read(update.get("currentModeId").copied()) else { return false };
    emit(AgentEvent::ModeChanged(mode));
    true
}

pub(super) fn options(update: &Fields<'_>, emit: &mut impl FnMut(AgentEvent)) -> bool {
    let Some(options) = config_options(update.get("configOptions").copied()) else { return false };
    emit(AgentEvent::ConfigOptionsUpdated(options));
    true
}

/// The settings of an update or an answer; one that cannot be read, or is of a type that gander does not know, is
/// left out, as ACP wants it. `None` when there is no list.
pub(in crate::acp) fn config_options(list: Option<&RawValue>) -> Option<Vec<ConfigOption>> {
    let list = read::<Vec<&RawValue>>(list)?;
    Some(list.into_iter().filter_map(|option| read(Some(option))).filter_map(config_option).collect())
}

fn config_option(option: SessionConfigOption) -> Option<ConfigOption> {
    let (current_value, choices) = match option.kind {
        SessionConfigKind::Select(select) => (select.current_value.0.to_string(), choices(select.options)),
        SessionConfigKind::Boolean(boolean) => (boolean.current_value.to_string(), Vec::new()),
        _ => return None,
    };
    let category = option.category.and_then(|category| match serde_json::to_value(category) {
        Ok(serde_json::Value::String(category)) => Some(category),
        _ => None,
    });
    let id = option.id.0.to_string();
    Some(ConfigOption {
        id,
        name: option.name,
        category,
        current_value: Some(current_value),
        choices,
        omitted_choices: 0,
    })
}

fn choices(options: SessionConfigSelectOptions) -> Vec<ConfigChoice> {
    let options = match options {
        SessionConfigSelectOptions::Ungrouped(options) => options,
        SessionConfigSelectOptions::Grouped(groups) => {
            groups.into_iter().flat_map(|group| group.options).collect()
        }
        _ => Vec::new(),
    };
    options
        .into_iter()
        .map(|option| ConfigChoice { value: option.value.0.to_string(), name: option.name })
        .collect()
}

/// What the answer to a session's start says of the extensions (`_meta.extensionResults`). `None` when it says
/// nothing.
pub(in crate::acp) fn extension_results(meta: Option<&RawValue>) -> Option<Vec<ExtensionStatus>> {
    let results = read::<Vec<&RawValue>>(fields(meta).get("extensionResults").copied())?;
    let results = results.into_iter().filter_map(|result| {
        let result = fields(Some(result));
        Some(ExtensionStatus {
            name: read(result.get("name").copied())?,
            // What does not say that it loaded did not.
            loaded: read(result.get("success").copied()).unwrap_or(false),
            error: read(result.get("error").copied()),
        })
    });
    Some(results.collect())
}
