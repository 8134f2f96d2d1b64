//! Either of the two that are set side by side.

use super::bare::BareRelay;
use super::gateway::{Gander, Setup};
use super::subscriber::{ReadBuffer, Subscriber};
use super::{Outcome, Programs};

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Bare,
    Gander,
}

/// Both, in the order in which they take turns.
pub(crate) const SIDES: [Side; 2] = [Side::Bare, Side::Gander];

/// One that runs, with sessions that are ready.
pub(crate) enum Relay {
    Bare(BareRelay),
    Gander(Gander),
}

impl Relay {
    pub(crate) async fn start(side: Side, programs: &Programs, sessions: usize) -> Outcome<Self> {
        match side {
            Side::Bare => Ok(Self::Bare(BareRelay::start(&programs.agent, sessions).await?)),
            Side::Gander => {
                let mut gander = Setup::new(programs)?.start().await?;
                gander.add_sessions(sessions).await?;
                Ok(Self::Gander(gander))
            }
        }
    }

    pub(crate) fn pid(&self) -> Outcome<u32> {
        match self {
            Self::Bare(relay) => relay.pid(),
            Self::Gander(gander) => gander.pid(),
        }
    }

    /// Follows a session's new events.
    pub(crate) async fn subscribe(&self, session: usize, buffer: &ReadBuffer) -> Outcome<Subscriber> {
        match self {
            Self::Bare(relay) => relay.subscribe(session, buffer).await,
            Self::Gander(gander) => gander.subscribe(session, buffer).await,
        }
    }

    /// Begins a turn in a session.
    pub(crate) async fn prompt(&mut self, session: usize, text: &str) -> Outcome<()> {
        match self {
            Self::Bare(relay) => relay.prompt(session, text).await,
            Self::Gander(gander) => gander.prompt(session, text).await,
        }
    }

    /// Ends it with its agents.
    pub(crate) async fn stop(self) -> Outcome<()> {
        match self {
            Self::Bare(relay) => relay.stop().await,
            Self::Gander(gander) => gander.stop().await.map(drop),
        }
    }
}

/// A figure of each side, once per round.
#[derive(Debug, Default)]
pub(crate) struct Sides {
    pub(crate) bare: Vec<f64>,
    pub(crate) gander: Vec<f64>,
}

impl Sides {
    pub(crate) fn push(&mut self, side: Side, value: f64) {
        match side {
            Side::Bare => self.bare.push(value),
            Side::Gander => self.gander.push(value),
        }
    }
}
