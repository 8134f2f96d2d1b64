//! What may happen in a session, and what it does: pure, without async, locks, clocks or ids of its own making.
//!
//! ```text
//!              started                 prompt              agent asks
//!  starting ───────────▶ idle ───────────────▶ running ◀──────────────▶ awaiting_permission
//!     │                 ▲    ▲                   │ │ answered, expired          │
//!     │ start failed    │    │  turn ended       │ │ cancel                     │ cancel
//!     ▼                 │    ├───────────────────┘ └──────▶ cancelling ◀────────┘
//!   failed       change │    └────────── turn ended ────────────┘
//!     │        settings │
//!     │ prompt          │ hibernate, agent exit, restart: from any of them
//!     ▼                 ▼
//!  running ◀─ prompt ─ hibernated
//! ```
//!
//! A queued turn begins when those before it are over, and wakes the session like any other.
//!
//! A prompt to a session without an agent begins its turn at once and keeps what is to be sent until the agent is
//! there: to callers waking is a part of the turn.
//!
//! Every input is a method that takes a [`Step`] and leaves in it the events to append, the records to write and the
//! commands for the agent. The order of the events is the order callers see; the commands are sent when the events are
//! committed.
//!
//! Architecture invariant: a turn, a tool call and a permission that were begun are ended by exactly one final event.
//! Every way out of a turn goes through [`Machine::end_turn`], which closes what is open in it first, or, when it was
//! still queued, through [`Machine::end_queued`].

mod crash_loop;
mod ending;
mod from_agent;
mod from_callers;
mod judging;
mod mode;
mod notices;
mod permissions;
mod queue;
mod steer;
mod step;
mod stopping;
mod tool_calls;
mod usage;
#[cfg(test)]
mod tests;

pub use self::crash_loop::CrashBounds;
use self::crash_loop::CrashLoop;
pub(super) use self::from_callers::Settings;
pub(super) use self::step::Step;
use self::stopping::Stop;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use self::notices::NoticeCount;
use self::permissions::PendingReply;
use self::usage::TurnMeter;
use super::agent::{AgentCommand, ConfigOption, LaunchError, Setting};
use super::audit::By;
use super::event::{EventBody, EventKind, SessionChange};
use super::handle::Refusal;
use super::id::{EventId, MessageId, PermissionId, TurnId};
use super::log::{Change, SessionRecord};
use super::permission::{DecidedBy, PermissionSettings};
use super::policy::Policy;
use super::snapshot::{SessionState, Snapshot};
use super::turn::{TurnError, TurnErrorClass, TurnState};

/// How many tool calls can be open at once; over it the oldest is closed. No model comes near it.
const OPEN_TOOL_CALLS: usize = 256;
/// How many ended tool calls of a turn are remembered.
const REMEMBERED_CALLS: usize = 4096;
/// How much of the agent's last message a turn carries; the log has all of it.
const TURN_TEXT_BYTES: usize = 1024 * 1024;

/// The bounds the machine keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) output_bytes: usize,
    pub(super) pending_permissions: usize,
    /// How long a turn may take; zero: as long as it likes.
    pub(super) turn_duration: Duration,
    pub(super) crash: CrashBounds,
    pub(super) queued_turns: usize,
    /// Notices that the agent may give in one turn.
    pub(super) turn_notices: usize,
}

/// The large states a session goes through; the finer ones follow from what is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// An agent is being started.
    Starting,
    /// It runs.
    Ready,
    /// None runs.
    Hibernated,
    /// None runs, since it did not start.
    Failed,
    /// Nothing follows but the end.
    Deleting,
}

/// Which stream of text a message is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageKind {
    Agent,
    Thought,
    User,
}

/// The message that is being streamed.
#[derive(Debug)]
struct OpenMessage {
    kind: MessageKind,
    agents_id: Option<String>,
    id: MessageId,
}

/// What the snapshot does not show of an open tool call.
#[derive(Debug, Default)]
struct ToolCallNotes {
    /// Live output passed on so far.
    output_bytes: usize,
    /// Whether the end of the live output was told.
    truncated: bool,
    /// Whether its permission was refused.
    rejected: bool,
    /// Whether another call has begun under the same id.
    told_twice: bool,
    /// The turn it began in.
    turn: Option<TurnId>,
}

/// A session's state and what may happen in it.
#[derive(Debug)]
pub(super) struct Machine {
    /// What is kept, and nearly all that callers see. Its `last_event_id` counts every event as it is made.
    record: SessionRecord,
    bounds: Bounds,
    permissions: Arc<PermissionSettings>,
    /// The gateway's rules with the session's own.
    policy: Policy,
    phase: Phase,
    /// Why the running turn is being stopped.
    stop: Option<Stop>,
    crash_loop: CrashLoop,
    /// Whether a change of settings is under way.
    patching: bool,
    /// The mode that an agent (its generation) went to though nobody set it.
    drifted: Option<(u32, String)>,
    /// The agent's settings with all choices, also where the snapshot has a part of them. Empty without an agent.
    all_options: Vec<ConfigOption>,
    /// What the running turn waits to send until there is an agent, in the right mode.
    held: Option<AgentCommand>,
    message: Option<OpenMessage>,
    /// The last message of the running turn, cut at [`TURN_TEXT_BYTES`].
    turn_text: String,
    turn_meter: TurnMeter,
    notice_count: NoticeCount,
    tool_notes: HashMap<String, ToolCallNotes>,
    /// Calls of the running turn that have ended: what the agent still says about them begins nothing anew.
    ended_calls: HashSet<String>,
    /// What the agent is asked to take for the running turn.
    asked_steers: Vec<steer::Asked>,
    replies: HashMap<PermissionId, PendingReply>,
    /// The state last told.
    told: Option<(SessionState, Option<String>)>,
}

impl Machine {
    /// A new session.
    pub(super) fn new(record: SessionRecord, bounds: Bounds, permissions: Arc<PermissionSettings>) -> Self {
        Self {
            policy: Policy::new(&permissions.policy, &record.snapshot.permission_policy),
            record,
            bounds,
            permissions,
            phase: Phase::Starting,
            stop: None,
            crash_loop: CrashLoop::default(),
            patching: false,
            drifted: None,
            all_options: Vec::new(),
            held: None,
            message: None,
            turn_text: String::new(),
            turn_meter: TurnMeter::default(),
            notice_count: NoticeCount::default(),
            tool_notes: HashMap::new(),
            ended_calls: HashSet::new(),
            asked_steers: Vec::new(),
            replies: HashMap::new(),
            told: None,
        }
    }

    /// A session as an earlier run left it, its running turn with its prompt. [`Machine::gateway_restarted`] is next.
    pub(super) fn restore(
        record: SessionRecord,
        last_event_id: EventId,
        bounds: Bounds,
        permissions: Arc<PermissionSettings>,
    ) -> Self {
        let mut machine = Self::new(record, bounds, permissions);
        machine.record.snapshot.last_event_id = last_event_id;
        machine.told = Some((machine.record.snapshot.state, machine.record.snapshot.state_reason.clone()));
        machine.phase = match machine.record.snapshot.state {
            _ if machine.record.deleting => Phase::Deleting,
            SessionState::Failed => Phase::Failed,
            SessionState::Hibernated => Phase::Hibernated,
            _ => Phase::Ready,
        };
        // The notes are not kept. A call that is still open is taken for one of the turn that ran.
        let turn = machine.current_turn();
        let open = &machine.record.snapshot.open_tool_calls;
        machine.tool_notes = open
            .iter()
            .map(|call| (call.id.clone(), ToolCallNotes { turn, ..ToolCallNotes::default() }))
            .collect();
        machine
    }

    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.record.snapshot
    }

    pub(super) fn record(&self) -> &SessionRecord {
        &self.record
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.phase == Phase::Deleting
    }

    pub(super) fn current_turn(&self) -> Option<TurnId> {
        self.record.snapshot.current_turn.as_ref().map(|turn| turn.id)
    }

    /// Ends a step: tells the state if it changed; gives the records to write.
    pub(super) fn settle(&mut self, step: &mut Step) -> Vec<Change> {
        let state = self.state();
        let reason = self.record.snapshot.state_reason.clone();
        if self.told.as_ref() != Some(&(state, reason.clone())) && self.phase != Phase::Deleting {
            self.record.snapshot.state = state;
            step.session_changed = true;
            let body = EventBody::State { state, reason: reason.clone(), by: step.by.take() };
            self.push(step, EventKind::SessionState, body);
            self.told = Some((state, reason));
        }
        let mut changes = Vec::with_capacity(1 + step.turns.len() + step.permissions.len());
        if step.session_changed {
            self.record.snapshot.updated_at = step.now;
            // The prompt can be megabytes; the turn's own record has it.
            let prompt = self.record.snapshot.current_turn.as_mut().and_then(|turn| turn.prompt.take());
            changes.push(Change::Session(Box::new(self.record.clone())));
            if let Some(turn) = &mut self.record.snapshot.current_turn {
                turn.prompt = prompt;
            }
        }
        changes.extend(step.turns.drain(..).map(|turn| Change::Turn(Box::new(turn))));
        changes.extend(step.permissions.drain(..).map(|permission| Change::Permission(Box::new(permission))));
        step.session_changed = false;
        changes
    }

    fn state(&self) -> SessionState {
        match self.phase {
            Phase::Starting if self.record.snapshot.current_turn.is_none() => SessionState::Starting,
            Phase::Starting if self.is_stopping() => SessionState::Cancelling,
            Phase::Starting => SessionState::Running,
            Phase::Hibernated => SessionState::Hibernated,
            Phase::Failed => SessionState::Failed,
            Phase::Deleting => self.record.snapshot.state,
            Phase::Ready if self.open_turn().is_none() => SessionState::Idle,
            Phase::Ready if self.is_stopping() => SessionState::Cancelling,
            Phase::Ready if self.record.snapshot.pending_permissions.is_empty() => SessionState::Running,
            Phase::Ready => SessionState::AwaitingPermission,
        }
    }

    /// Appends an event of the running turn, or of none.
    fn push(&mut self, step: &mut Step, kind: EventKind, body: EventBody) -> EventId {
        let turn = self.current_turn();
        self.push_in(step, kind, turn, body)
    }

    fn push_in(
        &mut self,
        step: &mut Step,
        kind: EventKind,
        turn: Option<TurnId>,
        body: EventBody,
    ) -> EventId {
        let id = self.record.snapshot.last_event_id.next();
        self.record.snapshot.last_event_id = id;
        step.events.push((kind, turn, body));
        id
    }

    fn push_change(&mut self, step: &mut Step, change: SessionChange) {
        step.session_changed = true;
        self.push(step, EventKind::SessionUpdated, EventBody::Session { session: Box::new(change) });
    }

    /// The session exists: its first events.
    pub(super) fn created(&mut self, step: &mut Step, by: By) {
        let snapshot = &self.record.snapshot;
        let session = SessionChange {
            id: Some(snapshot.id),
            owner: Some(snapshot.owner.clone()),
            cwd: snapshot.cwd.clone(),
            title: snapshot.title.clone().map(Some),
            metadata: Some(snapshot.metadata.clone()),
            mode: Some(snapshot.mode),
            provider: snapshot.provider.clone(),
            model: snapshot.model.clone(),
            thinking_effort: snapshot.thinking_effort.clone().map(Some),
            permission_policy: Some(snapshot.permission_policy.clone()),
            by: Some(by),
            ..SessionChange::default()
        };
        step.session_changed = true;
        self.push(step, EventKind::SessionCreated, EventBody::Session { session: Box::new(session) });
    }

    /// The agent did not start.
    pub(super) fn start_failed(&mut self, step: &mut Step, error: &LaunchError) {
        if self.phase != Phase::Starting {
            return;
        }
        self.phase = Phase::Failed;
        self.record.snapshot.state_reason = Some(error.to_string());
        self.held = None;
        let class = match error {
            LaunchError::ProviderNotConfigured { .. }
            | LaunchError::SettingRefused { setting: Setting::Provider | Setting::Model, .. } => {
                TurnErrorClass::ProviderNotConfigured
            }
            _ => TurnErrorClass::StartFailed,
        };
        let error = TurnError { class, message: error.to_string(), retryable: class.is_retryable() };
        self.end_turn(step, TurnState::Failed, None, Some(error), &DecidedBy::AgentExit);
    }

    /// Whether the session has an agent, or one that is being started.
    pub(super) fn has_agent(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Ready)
    }

    /// An agent is being started, for the first time or again.
    pub(super) fn start(&mut self, step: &mut Step) {
        self.phase = Phase::Starting;
        self.record.snapshot.state_reason = None;
        step.start_agent = true;
    }

    /// Lets the agent go, or says why not; `Ok(false)` when there is none.
    pub(super) fn hibernate(&mut self) -> Result<bool, Refusal> {
        let next = self.open_turn().filter(|_| self.phase == Phase::Ready);
        if let Some(turn) = self.current_turn().or(next) {
            return Err(Refusal::TurnInProgress(turn));
        }
        match self.phase {
            Phase::Hibernated | Phase::Failed => Ok(false),
            _ => {
                self.refuse_while_busy()?;
                self.phase = Phase::Hibernated;
                self.forget_agent();
                Ok(true)
            }
        }
    }

    /// The agent's process is gone.
    fn forget_agent(&mut self) {
        self.replies.clear();
        self.held = None;
        self.all_options = Vec::new();
        if let Some(agent) = &mut self.record.snapshot.agent {
            agent.pid = None;
        }
    }

    /// The gateway was restarted: closes what the last run left open. Nothing of the agent is left.
    pub(super) fn gateway_restarted(&mut self, step: &mut Step) {
        let error = TurnError {
            class: TurnErrorClass::GatewayRestarted,
            message: "the gateway was restarted".into(),
            retryable: true,
        };
        self.agent_lost(step, &error, &DecidedBy::Restart);
        self.record.snapshot.state_reason =
            self.record.snapshot.state_reason.take().filter(|_| self.phase == Phase::Failed);
    }

    /// A session without an agent is not refused: it can be woken.
    pub(super) fn refuse_while_busy(&self) -> Result<(), Refusal> {
        match self.phase {
            Phase::Deleting => Err(Refusal::Busy("it is being deleted")),
            Phase::Starting if self.current_turn().is_none() => Err(Refusal::Busy("it is starting")),
            _ if self.patching => Err(Refusal::Busy("its settings are being changed")),
            _ => Ok(()),
        }
    }
}

/// Appends to `text` as much of `more` as fits, never cutting a character.
fn push_bounded(text: &mut String, more: &str, limit: usize) {
    let room = limit.saturating_sub(text.len());
    text.push_str(&more[..more.floor_char_boundary(room)]);
}
