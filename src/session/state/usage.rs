//! What the model calls use: summed for the session by the agent, and for a turn from that.
//!
//! The agent tells a session's sums, and each call that makes a message. The sums have more: goose 1.52 counts the calls
//! for a summary of the conversation in them and tells of no message with those (measured). So a turn's usage is by how
//! much the sums grew in it. Where the agent tells none, or they fall, it is the sum of the calls that it tells; and where
//! they grew by less than that, since a turn that broke off has ended before they were told.

use super::{Machine, Step};
use crate::session::agent::{ContextUsage, ModelCallUsage};
use crate::session::event::{EventBody, EventKind};
use crate::session::snapshot::SessionUsage;
use crate::session::turn::{Cost, TurnUsage};

/// Costs are added up in binary; what is left over beyond this is noise.
const COST_DIGITS: f64 = 1e12;

/// What the running turn uses.
#[derive(Debug, Default)]
pub(super) struct TurnMeter {
    /// The session's when the turn began.
    before: SessionUsage,
    /// Whether the session's sums were told in the turn.
    is_told: bool,
    /// The sum of the calls that were told one by one.
    calls: Option<TurnUsage>,
}

impl TurnMeter {
    /// For a turn that begins in a session with this usage.
    pub(super) fn begin(before: SessionUsage) -> Self {
        Self { before, is_told: false, calls: None }
    }

    fn count(&mut self, used: &ModelCallUsage) {
        let sum = self.calls.get_or_insert_default();
        add(&mut sum.input_tokens, used.input_tokens);
        add(&mut sum.output_tokens, used.output_tokens);
        add(&mut sum.total_tokens, used.total_tokens);
        if let Some(amount) = used.cost {
            let cost = sum.cost.get_or_insert_with(|| Cost { amount: 0.0, currency: "USD".into() });
            cost.amount += amount;
        }
    }

    /// What the turn used, in a session that has used so much now. `None`: nothing is known of any call.
    pub(super) fn end(self, now: &SessionUsage) -> Option<TurnUsage> {
        let grown = self.growth(now);
        match self.calls {
            None => grown.filter(|grown| grown.input_tokens != Some(0) || grown.output_tokens != Some(0)),
            // The sums that were told may be those from before the turn, of an agent that has just been started.
            Some(calls) => Some(grown.filter(|grown| grown.total_tokens >= total(&calls)).unwrap_or(calls)),
        }
    }

    fn growth(&self, now: &SessionUsage) -> Option<TurnUsage> {
        let tokens = |now: Option<u64>, before: Option<u64>| now?.checked_sub(before.unwrap_or(0));
        if !self.is_told {
            return None;
        }
        let input_tokens = Some(tokens(now.input_tokens, self.before.input_tokens)?);
        let output_tokens = Some(tokens(now.output_tokens, self.before.output_tokens)?);
        let total_tokens =
            input_tokens.zip(output_tokens).map(|(input, output)| input.saturating_add(output));
        let cost = now.cost.as_ref().and_then(|now| {
            let before = match &self.before.cost {
                Some(before) if before.currency == now.currency => before.amount,
                Some(_) => return None,
                None => 0.0,
            };
            let amount = ((now.amount - before) * COST_DIGITS).round() / COST_DIGITS;
            (amount >= 0.0).then(|| Cost { amount, currency: now.currency.clone() })
        });
        Some(TurnUsage { input_tokens, output_tokens, total_tokens, cost })
    }
}

impl Machine {
    pub(super) fn model_call_used(&mut self, used: &ModelCallUsage) {
        if self.current_turn().is_some() {
            self.turn_meter.count(used);
        }
    }

    pub(super) fn usage_updated(&mut self, step: &mut Step, update: ContextUsage) {
        self.turn_meter.is_told |= update.input_tokens.is_some() && update.output_tokens.is_some();
        let mut usage = self.record.snapshot.usage.clone();
        usage.context_used = update.context_used.or(usage.context_used);
        usage.context_size = update.context_size.or(usage.context_size);
        usage.input_tokens = update.input_tokens.or(usage.input_tokens);
        usage.output_tokens = update.output_tokens.or(usage.output_tokens);
        usage.total_tokens = match (usage.input_tokens, usage.output_tokens) {
            (Some(input), Some(output)) => Some(input.saturating_add(output)),
            _ => None,
        };
        usage.cost = update.cost.or(usage.cost);
        if usage != self.record.snapshot.usage {
            self.record.snapshot.usage = usage.clone();
            step.session_changed = true;
            self.push(step, EventKind::UsageUpdated, EventBody::Usage { usage });
        }
    }
}

/// Tokens altogether, as far as a call says. Agents may tell the total alone, or leave it out.
fn total(used: &TurnUsage) -> Option<u64> {
    used.total_tokens.or_else(|| Some(used.input_tokens?.saturating_add(used.output_tokens?)))
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}
