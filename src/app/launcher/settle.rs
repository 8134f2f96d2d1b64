//! Gives a session that goose has made or loaded the settings it is to have.
//!
//! Both need it (measured). After a load goose has the provider, model, effort and mode that it has *saved*, whatever it
//! was started with. A new session takes provider, model and mode from the environment, but takes what it does not
//! know or cannot use without a word: an unknown model's name, an effort, and a provider whose key is missing, which only
//! an attempt to set something brings to light.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::acp::{Connection, NewSession};
use crate::goose::launch::Launch;
use crate::session::agent::settings::{check_choice, check_set};
use crate::session::agent::{
    AgentCommand, AgentFailure, ConfigOption, LaunchError, LaunchSpec, Mode, Notice, NoticeLevel, Setting,
};
use crate::session::turn::TurnErrorClass;

/// Why a session does not get ready.
pub(super) enum NotReady {
    /// goose refuses a request, or is gone.
    Failed(AgentFailure),
    /// What was asked for cannot be had.
    Refused(LaunchError),
}

impl From<AgentFailure> for NotReady {
    fn from(failure: AgentFailure) -> Self {
        Self::Failed(failure)
    }
}

/// How a session began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// goose made it.
    New,
    /// goose has loaded it.
    Loaded,
}

/// What goose was started with.
pub(super) struct Started<'a> {
    pub(super) launch: &'a Launch,
    /// The provider that the session has if it names none.
    pub(super) provider: Option<&'a str>,
    /// The mode that a new session is in by itself.
    pub(super) mode: Mode,
    pub(super) origin: Origin,
}

/// What became of a session's settings.
pub(super) struct Settled {
    /// The session as it is now.
    pub(super) session: NewSession,
    /// The thinking effort that a new session had before one was set.
    pub(super) default_effort: Option<String>,
    /// What could not be had, where that is no reason to fail.
    pub(super) notices: Vec<Notice>,
}

/// Sets what is not as `spec` wants it.
pub(super) async fn settle(
    connection: &Arc<Connection>,
    spec: &LaunchSpec,
    started: Started<'_>,
    session: NewSession,
) -> Result<Settled, NotReady> {
    let mut settling = Settling { connection, options: session.config_options.clone().unwrap_or_default() };
    let result = settling.set_all(spec, &started).await;
    let (default_effort, notices) = match result {
        Ok(settled) => settled,
        Err(NotReady::Failed(failure)) if failure.class == TurnErrorClass::ProviderNotConfigured => {
            return Err(NotReady::Refused(settling.why_no_provider(spec, started.provider, failure).await));
        }
        Err(error) => return Err(error),
    };
    let Settling { options, .. } = settling;
    let by_itself = Some(started.mode.as_str());
    let mode = match (started.origin, session.mode.as_deref()) {
        // Not even started as it was asked to: that fails the start, whatever it says later.
        (Origin::New, found) if found != by_itself => session.mode,
        _ => Setting::Mode.current(&options).map(ToOwned::to_owned).or(session.mode),
    };
    let session = NewSession { mode, config_options: Some(options), extensions: session.extensions };
    Ok(Settled { session, default_effort, notices })
}

struct Settling<'a> {
    connection: &'a Arc<Connection>,
    /// As goose last told them.
    options: Vec<ConfigOption>,
}

impl Settling<'_> {
    async fn set_all(
        &mut self,
        spec: &LaunchSpec,
        started: &Started<'_>,
    ) -> Result<(Option<String>, Vec<Notice>), NotReady> {
        let Started { launch, origin, .. } = *started;
        if self.options.is_empty() {
            // Measured: of a provider that it does not know goose offers no settings at all.
            let message = "goose has no working model provider".to_owned();
            let class = TurnErrorClass::ProviderNotConfigured;
            return Err(AgentFailure { class, code: None, message }.into());
        }
        // The mode comes first, since its answer proves that there is a provider; that it is still the right one is
        // proved by the last answer.
        if origin == Origin::Loaded || Setting::Mode.of(&self.options).is_some() {
            self.set(Setting::Mode, spec.mode.as_str()).await?;
        }
        if let Some(provider) = &spec.provider {
            self.ensure(Setting::Provider, provider).await?;
        }
        let own_model = match origin {
            Origin::New if launch.wants_providers_model => Some(self.providers_model(spec).await?),
            _ => None,
        };
        if let Some(model) = own_model.as_ref().or(spec.model.as_ref()) {
            self.ensure(Setting::Model, model).await?;
        }
        let mut notices = Vec::new();
        let by_itself = Setting::ThinkingEffort.current(&self.options).map(ToOwned::to_owned);
        if origin == Origin::New {
            notices.extend(ignored_effort(launch, &self.options));
        }
        if let Some(effort) = &spec.thinking_effort {
            match check_choice(Setting::ThinkingEffort, effort, &self.options) {
                Ok(()) => self.ensure(Setting::ThinkingEffort, effort).await?,
                Err(detail) if origin == Origin::Loaded => {
                    // No turn could ever change it if the session did not start for that.
                    let message = format!("the thinking effort {effort} could not be set again: {detail}");
                    let code = "setting-not-restored".to_owned();
                    notices.push(Notice { level: NoticeLevel::Warning, code, message });
                }
                Err(detail) => return Err(refused(Setting::ThinkingEffort, detail)),
            }
        }
        let default_effort = by_itself.filter(|_| origin != Origin::Loaded);
        Ok((default_effort, notices))
    }

    /// Sets what is not set already.
    async fn ensure(&mut self, setting: Setting, value: &str) -> Result<(), NotReady> {
        if setting.current(&self.options) == Some(value) {
            return Ok(());
        }
        self.set(setting, value).await
    }

    async fn set(&mut self, setting: Setting, value: &str) -> Result<(), NotReady> {
        let (done, answer) = oneshot::channel();
        let gone = || AgentFailure {
            class: TurnErrorClass::AgentExited,
            code: None,
            message: "the agent ended".into(),
        };
        let (id, asked) = (setting.as_str().to_owned(), value.to_owned());
        let command = AgentCommand::SetConfigOption { id, value: asked, done };
        self.connection.send(command).map_err(|_| gone())?;
        self.options = match answer.await.map_err(|_| gone())? {
            Ok(options) => options,
            Err(failure) if failure.class == TurnErrorClass::AgentError => {
                return Err(refused(setting, failure.message));
            }
            Err(failure) => return Err(failure.into()),
        };
        check_set(setting, value, &self.options).map_err(|detail| refused(setting, detail))
    }

    async fn providers_model(&self, spec: &LaunchSpec) -> Result<String, NotReady> {
        let provider = spec.provider.as_deref().unwrap_or_default();
        let facts = self.connection.provider(provider).await.flatten();
        facts.and_then(|facts| facts.default_model).ok_or_else(|| {
            let detail = format!("must be named: goose does not tell which one {provider} has by itself");
            refused(Setting::Model, detail)
        })
    }

    /// goose says only that it has no provider, not why.
    async fn why_no_provider(
        &self,
        spec: &LaunchSpec,
        provider: Option<&str>,
        failure: AgentFailure,
    ) -> LaunchError {
        let not_configured = |detail| LaunchError::ProviderNotConfigured { detail };
        let Some(provider) = spec.provider.as_deref().or(provider) else {
            return not_configured(failure.message);
        };
        match self.connection.provider(provider).await {
            Some(None) => {
                let detail = format!("goose knows no provider {provider:?}");
                LaunchError::SettingRefused { setting: Setting::Provider, detail }
            }
            Some(Some(facts)) if !facts.needs.is_empty() => not_configured(format!(
                "the provider {provider} is not set up: it needs {}",
                facts.needs.join(", ")
            )),
            _ => not_configured(format!("the provider {provider} is not set up: {}", failure.message)),
        }
    }
}

/// goose takes an effort that it does not know for `off`, without a word.
fn ignored_effort(launch: &Launch, options: &[ConfigOption]) -> Option<Notice> {
    let wanted = launch.environment.get("GOOSE_THINKING_EFFORT")?;
    let option = Setting::ThinkingEffort.of(options).filter(|option| option.choices.len() > 1)?;
    let current = option.current_value.as_deref().unwrap_or_default();
    if option.offers(wanted) || current.eq_ignore_ascii_case(wanted) {
        return None;
    }
    let message = format!(
        "goose knows no thinking effort {wanted:?} (goose.thinking_effort or GOOSE_THINKING_EFFORT) and uses {current}"
    );
    Some(Notice { level: NoticeLevel::Warning, code: "setting-ignored".to_owned(), message })
}

fn refused(setting: Setting, detail: String) -> NotReady {
    NotReady::Refused(LaunchError::SettingRefused { setting, detail })
}
