//! Notices: the latest ones are kept, and an agent has so many for a turn.

use super::{Machine, Step};
use crate::session::agent::{Notice, NoticeLevel};
use crate::session::event::{EventBody, EventKind};

/// How many notices a snapshot shows.
const KEPT_NOTICES: usize = 50;

/// How much the agent has had told since its turn began.
#[derive(Debug, Default)]
pub(super) struct NoticeCount {
    told: usize,
    /// Until the turn's end, those between two turns with the later one's.
    left_out: usize,
}

impl Machine {
    /// Tells and keeps a notice.
    pub(in crate::session) fn notice(&mut self, step: &mut Step, notice: Notice) {
        let notices = &mut self.record.snapshot.notices;
        if notices.len() == KEPT_NOTICES {
            notices.remove(0);
        }
        notices.push(notice.clone());
        step.session_changed = true;
        let Notice { level, code, message } = notice;
        self.push(step, EventKind::Notice, EventBody::Notice { level, code, message });
    }

    /// Tells what the agent has to say, unless it has said too much in this turn: each of its notices is an event for
    /// good.
    pub(super) fn agent_notice(&mut self, step: &mut Step, notice: Notice) {
        if self.notice_count.told >= self.bounds.turn_notices {
            self.notice_count.left_out += 1;
            return;
        }
        self.notice_count.told += 1;
        self.notice(step, notice);
    }

    /// A turn begins: the agent may speak again.
    pub(super) fn count_notices_anew(&mut self) {
        self.notice_count.told = 0;
    }

    /// The turn ends: tells how much was left out.
    pub(super) fn tell_left_out_notices(&mut self, step: &mut Step) {
        let left_out = std::mem::take(&mut self.notice_count).left_out;
        if left_out > 0 {
            let message = format!("{left_out} more notices of the agent were left out (limits.turn_notices)");
            let code = "notices-left-out".into();
            self.notice(step, Notice { level: NoticeLevel::Warning, code, message });
        }
    }
}
