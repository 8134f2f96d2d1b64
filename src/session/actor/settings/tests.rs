use std::sync::Mutex;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::session::agent::{AgentGone, BoxFuture, ConfigChoice, Sweep, Unfit};

/// Settings as goose 1.52 keeps them.
#[derive(Clone, Debug)]
struct Kept {
    provider: String,
    model: String,
    /// What was asked for last, whether the model has it or not.
    effort: String,
    mode: String,
}

/// An agent that changes its settings as goose does.
struct GooseLike {
    kept: Mutex<Kept>,
    asked: Mutex<Vec<String>>,
}

impl GooseLike {
    fn new(kept: Kept) -> Self {
        Self { kept: Mutex::new(kept), asked: Mutex::default() }
    }

    fn options(&self) -> Vec<ConfigOption> {
        let kept = self.kept.lock().unwrap();
        let option = |id: &str, current: &str, choices: &[&str]| ConfigOption {
            id: id.into(),
            name: id.into(),
            category: None,
            current_value: Some(current.into()),
            choices: choices
                .iter()
                .map(|value| ConfigChoice { value: (*value).into(), name: (*value).into() })
                .collect(),
            omitted_choices: 0,
        };
        let efforts: &[&str] =
            if kept.model.starts_with("thinks") { &["off", "low", "high"] } else { &["off"] };
        let effort = if efforts.contains(&kept.effort.as_str()) { &kept.effort } else { "off" };
        vec![
            option("provider", &kept.provider, &[]),
            option("model", &kept.model, &[]),
            option("thinking_effort", effort, efforts),
            option("mode", &kept.mode, &["auto", "approve", "smart_approve", "chat"]),
        ]
    }

    fn set(&self, id: &str, value: &str) -> Result<Vec<ConfigOption>, AgentFailure> {
        self.asked.lock().unwrap().push(format!("{id}={value}"));
        {
            let mut kept = self.kept.lock().unwrap();
            match id {
                "provider" if value == "nosuch" => return Err(not_taken("Unknown provider".into())),
                "provider" if kept.provider == value => {}
                "provider" => {
                    value.clone_into(&mut kept.provider);
                    "plain-default".clone_into(&mut kept.model);
                }
                "model" => match value.strip_suffix("-high") {
                    Some(model) => {
                        model.clone_into(&mut kept.model);
                        "high".clone_into(&mut kept.effort);
                    }
                    None => value.clone_into(&mut kept.model),
                },
                "thinking_effort" => value.clone_into(&mut kept.effort),
                // A mode that this agent does not get into, and does not say so.
                "mode" if value == "chat" => "auto".clone_into(&mut kept.mode),
                _ => value.clone_into(&mut kept.mode),
            }
        }
        Ok(self.options())
    }

    fn current(&self) -> Vec<String> {
        self.options().into_iter().filter_map(|option| option.current_value).collect()
    }
}

impl Agent for GooseLike {
    fn send(&self, command: AgentCommand) -> Result<(), AgentGone> {
        let AgentCommand::SetConfigOption { id, value, done } = command else { panic!("{command:?}") };
        done.send(self.set(&id, &value)).unwrap();
        Ok(())
    }

    fn prepare_turn(&self) -> BoxFuture<Result<(), Unfit>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn check_extensions(&self, _: Mode) -> BoxFuture<Result<Vec<Notice>, Unfit>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn sweep(&self) -> BoxFuture<Sweep> {
        Box::pin(std::future::ready(Sweep { killed: 0, complete: true }))
    }

    fn background(&self) -> BoxFuture<usize> {
        Box::pin(std::future::ready(0))
    }

    fn end(&self, _: Duration) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

fn changed(agent: &GooseLike, default_effort: Option<&str>, patch: &SessionPatch) -> Result<(), String> {
    let before = Settings { options: agent.options(), default_effort: default_effort.map(ToOwned::to_owned) };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(change(agent, before, patch, patch.mode)).map_err(|refusal| refusal.to_string())
}

fn kept(model: &str, effort: &str) -> Kept {
    Kept { provider: "p".into(), model: model.into(), effort: effort.into(), mode: "approve".into() }
}

fn effort(effort: Option<&str>) -> SessionPatch {
    SessionPatch { thinking_effort: Some(effort.map(ToOwned::to_owned)), ..SessionPatch::default() }
}

#[test]
fn settings_are_set_in_order() {
    let agent = GooseLike::new(kept("plain", "off"));
    let patch = SessionPatch {
        provider: Some("q".into()),
        model: Some("thinks".into()),
        mode: Some(Mode::Auto),
        ..effort(Some("low"))
    };
    changed(&agent, None, &patch).unwrap();
    let asked = agent.asked.lock().unwrap();
    assert_eq!(*asked, ["provider=q", "model=thinks", "thinking_effort=low", "mode=auto"]);
}

#[test]
fn an_effort_that_the_model_does_not_offer_is_never_asked_for() {
    let agent = GooseLike::new(kept("plain", "off"));
    let refused = changed(&agent, None, &effort(Some("high"))).unwrap_err();
    assert_eq!(refused, "thinking_effort: plain offers off only");
    assert!(agent.asked.lock().unwrap().is_empty(), "the agent would remember it for its next model");
    let agent = GooseLike::new(kept("thinks", "off"));
    let refused = changed(&agent, None, &effort(Some("hihg"))).unwrap_err();
    assert_eq!(refused, "thinking_effort: thinks offers off, low, high only");
}

#[test]
fn without_an_effort_the_session_has_again_what_it_began_with() {
    for (default, expected) in [(Some("low"), "low"), (None, "off"), (Some("unheard of"), "off")] {
        let agent = GooseLike::new(kept("thinks", "high"));
        changed(&agent, default, &effort(None)).unwrap();
        assert_eq!(agent.current()[2], expected, "{default:?}");
    }
}

fn patches() -> impl Strategy<Value = SessionPatch> {
    let names = |names: &'static [&'static str]| prop::option::of(prop::sample::select(names));
    let provider = names(&["p", "q", "nosuch"]);
    let model = names(&["plain", "thinks", "thinks-more", "thinks-high"]);
    let effort = prop::option::of(names(&["off", "low", "high", "bogus"]));
    let mode = prop::option::of(prop::sample::select(&Mode::ALL[..]));
    (provider, model, effort, mode).prop_map(|(provider, model, effort, mode)| SessionPatch {
        provider: provider.map(Into::into),
        model: model.map(Into::into),
        thinking_effort: effort.map(|effort| effort.map(Into::into)),
        mode,
        ..SessionPatch::default()
    })
}

proptest! {
    /// A change is made whole or not at all, whatever the agent makes of it on the way.
    #[test]
    fn a_change_is_all_or_nothing(model in "plain|thinks", effort in "off|low|high", patch in patches()) {
        let agent = GooseLike::new(kept(&model, &effort));
        let before = agent.current();
        match changed(&agent, Some("low"), &patch) {
            Err(_) => prop_assert_eq!(agent.current(), before),
            Ok(()) => {
                let now = agent.current();
                let mode = patch.mode.map(|mode| mode.as_str().to_owned());
                let asked = [patch.provider, patch.model, patch.thinking_effort.flatten(), mode];
                for (asked, now) in asked.into_iter().zip(now) {
                    prop_assert!(asked.is_none_or(|asked| asked == now));
                }
            }
        }
    }
}
