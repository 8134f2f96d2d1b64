//! A session whose agent dies again and again gets no other for a while: each start costs the machine something, and a
//! caller that only repeats its prompt would start one after the other.
//!
//! What counts is the end of a running agent that nobody asked for. A start that fails is told as such and tried again
//! at once. Nothing of this is kept over a restart: whoever restarts the gateway has often mended what was wrong.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Machine, Phase};
use crate::session::handle::Refusal;
use crate::session::id::Timestamp;

/// How many deaths within how long are too many, and how long no other agent is started then.
#[derive(Clone, Copy, Debug)]
pub struct CrashBounds {
    /// How many.
    pub deaths: usize,
    /// Within how long.
    pub within: Duration,
    /// How long no turn is taken then.
    pub cooldown: Duration,
}

/// The agent's last deaths.
#[derive(Debug, Default)]
pub(super) struct CrashLoop {
    /// Since a turn was last finished, oldest first; fewer than are too many.
    deaths: VecDeque<Timestamp>,
    /// Until when no other agent is started.
    until: Option<Timestamp>,
}

impl Machine {
    /// The agent has died. `Some`: once too often, and why.
    pub(super) fn count_death(&mut self, now: Timestamp, how: &str) -> Option<String> {
        let CrashBounds { deaths: limit, within, cooldown } = self.bounds.crash;
        let CrashLoop { deaths, until } = &mut self.crash_loop;
        // Later ones than now are of a clock that was set back since.
        deaths.retain(|death| *death <= now && death.plus(within) > now);
        deaths.push_back(now);
        if deaths.len() < limit {
            return None;
        }
        deaths.clear();
        *until = Some(now.plus(cooldown));
        let within = humantime::format_duration(within);
        Some(format!(
            "the agent ended {limit} times within {within} without finishing a turn, the last time: {how}"
        ))
    }

    /// The agent has finished a turn, well or not.
    pub(super) fn forget_deaths(&mut self) {
        self.crash_loop = CrashLoop::default();
    }

    /// How long no other agent is started, since the last ones have died; in whole seconds.
    pub(in crate::session) fn cooldown(&self, now: Timestamp) -> Option<Duration> {
        let left = self.crash_loop.until.filter(|_| self.phase == Phase::Failed)?.remaining(now);
        // More is left than there ever was when the clock was set back since.
        let is_over = left.is_zero() || left > self.bounds.crash.cooldown;
        (!is_over).then(|| Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0)))
    }

    /// Refuses what would start an agent, or use the one there is, when that cannot be now.
    pub(in crate::session) fn refuse_work(&self, now: Timestamp) -> Result<(), Refusal> {
        self.refuse_while_busy()?;
        let reason = || self.record.snapshot.state_reason.clone().unwrap_or_default();
        self.cooldown(now)
            .map_or(Ok(()), |retry_after| Err(Refusal::CoolingDown { reason: reason(), retry_after }))
    }
}
