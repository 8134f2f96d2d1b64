//! Who speaks: the model, or goose in a message that looks like the model's.
//!
//! goose writes its own words whole, in one chunk, in a message of its own whose id it makes. It makes ids of the same
//! kind for a model whose provider names none, so an id and the words prove nothing. What comes next does (measured):
//! a finished message of the model is followed by its usage under its id, with the time to its first token, also when
//! the provider tells no usage; goose's words are a run's last, or stand before what a caller has put into it.
//! So a chunk that may be goose's is held until the next event that tells, a moment later, and no other is.

use crate::goose::outcome::{self, OwnWords};
use crate::session::agent::{AgentEvent, AgentEvents, AgentFailure, Notice};

/// Tells the model's words from goose's.
#[derive(Default)]
pub(super) struct Speech {
    /// The agent's id of the message that was last spoken of.
    last_message: Option<String>,
    held: Option<Held>,
    /// What goose said outside of any message about a failure: it counts if nothing comes after it.
    said: Option<OwnWords>,
}

/// A chunk that may be goose's.
struct Held {
    message_id: Option<String>,
    text: String,
    words: OwnWords,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Speaker {
    Model,
    Goose,
    NotKnownYet,
}

impl Speech {
    /// Takes an event, tells `events` what it says of a held chunk, and gives the event back unless it is held.
    pub(super) fn hear(&mut self, mut event: AgentEvent, events: &mut AgentEvents) -> Option<AgentEvent> {
        if let Some(held) = self.held.take() {
            match held.speaker(&event) {
                Speaker::NotKnownYet => self.held = Some(held),
                Speaker::Model => {
                    let Held { message_id, text, .. } = held;
                    events.push(AgentEvent::MessageChunk { message_id, text });
                }
                Speaker::Goose => {
                    events.push(AgentEvent::Notice(held.words.notice()));
                    event = held.words.end(event);
                }
            }
        }
        if let Some(said) = self.said.take() {
            match event {
                AgentEvent::PromptFinished { .. } => event = said.end(event),
                ref event if is_aside(event) => self.said = Some(said),
                _ => {}
            }
        }
        match event {
            AgentEvent::Notice(notice) => Some(AgentEvent::Notice(self.status(notice))),
            AgentEvent::MessageChunk { message_id, text } => {
                let words = self.may_be_own(message_id.as_deref(), &text);
                self.spoken(message_id.as_deref());
                let Some(words) = words else {
                    return Some(AgentEvent::MessageChunk { message_id, text });
                };
                self.held = Some(Held { message_id, text, words });
                None
            }
            AgentEvent::ThoughtChunk { ref message_id, .. } => {
                self.spoken(message_id.as_deref());
                Some(event)
            }
            event => Some(event),
        }
    }

    /// goose's status messages are its own in any case.
    fn status(&mut self, notice: Notice) -> Notice {
        if notice.code != "agent-status" {
            return notice;
        }
        match outcome::own_words(&notice.message) {
            Some(words @ OwnWords::Failure(_)) => {
                let notice = words.notice();
                self.said = Some(words);
                notice
            }
            _ => notice,
        }
    }

    /// What the chunk says, if goose may have written it.
    fn may_be_own(&self, message_id: Option<&str>, text: &str) -> Option<OwnWords> {
        if outcome::is_output_limit(text) {
            return Some(OwnWords::OutputLimit);
        }
        // A message that goes on is the model's.
        let is_new = message_id != self.last_message.as_deref();
        message_id.filter(|id| is_new && outcome::is_own_id(id)).and_then(|_| outcome::own_words(text))
    }

    fn spoken(&mut self, message_id: Option<&str>) {
        if self.last_message.as_deref() != message_id {
            self.last_message = message_id.map(ToOwned::to_owned);
        }
    }
}

impl Held {
    /// Who wrote it, going by what came next.
    fn speaker(&self, next: &AgentEvent) -> Speaker {
        if self.words == OwnWords::OutputLimit {
            // Told with the model's message and id; the stop reason tells.
            return match next {
                AgentEvent::PromptFinished { result: Ok(reason), .. } if reason == "max_tokens" => {
                    Speaker::Goose
                }
                event if is_aside(event) => Speaker::NotKnownYet,
                _ => Speaker::Model,
            };
        }
        match next {
            AgentEvent::MessageChunk { message_id, .. } if *message_id == self.message_id => Speaker::Model,
            // goose has its usage told under its own words too when an empty answer had one, but no first token.
            AgentEvent::ModelCallUsed(usage)
                if usage.message_id == self.message_id && usage.first_token_ms.is_some() =>
            {
                Speaker::Model
            }
            // Only the model goes on by itself.
            AgentEvent::ThoughtChunk { .. } | AgentEvent::ToolCallStarted(_) => Speaker::Model,
            event if is_aside(event) => Speaker::NotKnownYet,
            _ => Speaker::Goose,
        }
    }
}

/// What goose tells at moments of its own.
fn is_aside(event: &AgentEvent) -> bool {
    matches!(
        event,
        AgentEvent::ModelCallUsed(_)
            | AgentEvent::UsageUpdated(_)
            | AgentEvent::CommandsUpdated { .. }
            | AgentEvent::TitleChanged(_)
            | AgentEvent::ModeChanged(_)
            | AgentEvent::ConfigOptionsUpdated(_)
            | AgentEvent::Notice(_)
            | AgentEvent::Steered { .. }
            | AgentEvent::Unknown(_)
    )
}

impl OwnWords {
    /// The turn's end as it is, after these words.
    fn end(self, event: AgentEvent) -> AgentEvent {
        let AgentEvent::PromptFinished { turn, result: Ok(reason) } = event else { return event };
        let result = match self {
            Self::Failure(failure) if reason == "end_turn" => {
                Err(AgentFailure { class: failure.class, code: None, message: failure.message })
            }
            Self::MaxTurnRequests if reason == "end_turn" => Ok("max_turn_requests".to_owned()),
            _ => Ok(reason),
        };
        AgentEvent::PromptFinished { turn, result }
    }
}

#[cfg(test)]
mod tests;
