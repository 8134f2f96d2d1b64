//! A machine that remembers all it has told, and inputs for it.

use super::*;

pub(super) const BOUNDS: Bounds = Bounds {
    output_bytes: 10,
    pending_permissions: 3,
    turn_duration: Duration::from_mins(10),
    crash: CrashBounds { deaths: 3, within: Duration::from_mins(1), cooldown: Duration::from_mins(1) },
    queued_turns: 2,
    turn_notices: 5,
};

pub(super) fn at(seconds: u64) -> Timestamp {
    Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

pub(super) fn record() -> SessionRecord {
    let launch = LaunchSpec { cwd: Some(PathBuf::from("/work")), ..LaunchSpec::new(Mode::Approve) };
    SessionRecord::new(Snapshot::new("alice", &launch, at(0)), launch)
}

pub(super) fn token() -> ResumeToken {
    ResumeToken("agents_1".into())
}

pub(super) fn facts() -> AgentFacts {
    AgentFacts {
        name: "goose".into(),
        version: "1.52.0".into(),
        transport: "stdio",
        pid: Some(7),
        cwd: PathBuf::from("/work"),
        mode: Mode::Approve,
        extensions: Vec::new(),
        config_options: Vec::new(),
        default_effort: None,
    }
}

/// A machine with everything it has told.
pub(super) struct Walk {
    pub(super) machine: Machine,
    pub(super) events: Vec<(EventKind, Option<TurnId>, EventBody)>,
    pub(super) commands: Vec<AgentCommand>,
    pub(super) changes: Vec<Change>,
    /// What was to be put into turns.
    pub(super) steers: Vec<MessageId>,
    /// Whether an agent was to be started.
    pub(super) starts: bool,
    /// The modes that the agent was to be set to.
    pub(super) modes: Vec<Mode>,
    pub(super) now: u64,
}

impl Walk {
    fn of(machine: Machine) -> Self {
        Self {
            machine,
            events: Vec::new(),
            commands: Vec::new(),
            changes: Vec::new(),
            steers: Vec::new(),
            starts: false,
            modes: Vec::new(),
            now: 1,
        }
    }

    /// The session as an earlier gateway left it, and nothing of what that one told.
    pub(super) fn left_by(&self) -> Self {
        let record = self.machine.record().clone();
        let last = record.snapshot.last_event_id;
        let machine = Machine::restore(record, last, BOUNDS, Arc::new(permissions()));
        Self { now: self.now + 1, ..Self::of(machine) }
    }

    pub(super) fn new() -> Self {
        let mut walk = Self::of(Machine::new(record(), BOUNDS, Arc::new(permissions())));
        walk.step(|machine, step| machine.created(step, "alice".into()));
        walk.step(Machine::start);
        walk.starts = false;
        walk
    }

    pub(super) fn ready() -> Self {
        let mut walk = Self::new();
        walk.step(|machine, step| machine.started(step, facts(), token(), Vec::new()));
        walk
    }

    pub(super) fn step<T>(&mut self, input: impl FnOnce(&mut Machine, &mut Step) -> T) -> T {
        let mut step = Step::new(at(self.now));
        let result = input(&mut self.machine, &mut step);
        self.changes.extend(self.machine.settle(&mut step));
        if step.commands.iter().any(|command| matches!(command, AgentCommand::Prompt { .. })) {
            let agent = self.machine.snapshot().agent.as_ref().unwrap();
            assert_eq!(agent.mode, self.machine.agent_mode().as_str(), "prompted in another mode");
        }
        self.events.append(&mut step.events);
        self.commands.append(&mut step.commands);
        self.starts |= step.start_agent;
        self.modes.extend(step.set_mode);
        result
    }

    pub(super) fn agent(&mut self, event: AgentEvent) {
        self.step(|machine, step| machine.agent_event(step, event));
    }

    pub(super) fn prompt(&mut self) -> TurnId {
        let id = TurnId::new();
        self.step(|machine, step| machine.prompt(step, id, "alice".into(), Prompt::Text("do it".into())))
            .unwrap();
        id
    }

    pub(super) fn queue(&mut self) -> Result<TurnId, Refusal> {
        let id = TurnId::new();
        let prompt = Prompt::Text("do it then".into());
        self.step(|machine, step| machine.queue(step, id, "bob".into(), prompt)).map(|turn| turn.id)
    }

    pub(super) fn begin_queued(&mut self, id: TurnId) {
        let turn = self.stored(id);
        self.step(|machine, step| machine.begin_queued(step, turn));
    }

    /// A turn's record, as the store has it now.
    pub(super) fn stored(&self, id: TurnId) -> Turn {
        let turns = self.changes.iter().rev().filter_map(|change| match change {
            Change::Turn(turn) => Some(turn),
            _ => None,
        });
        Turn::clone(turns.into_iter().find(|turn| turn.id == id).unwrap())
    }

    /// The gateway is restarted.
    pub(super) fn restart(&mut self) {
        self.machine = self.left_by().machine;
        self.step(Machine::gateway_restarted);
    }

    pub(super) fn call(&mut self, id: &str) {
        self.agent(AgentEvent::ToolCallStarted(ToolCall {
            id: id.into(),
            tool: Some("shell".into()),
            extension: Some("developer".into()),
            input: Some(serde_json::json!({"command": "ls"})),
            ..ToolCall::default()
        }));
    }

    pub(super) fn ask(&mut self, id: &str, reply: &str) {
        self.agent(ask(id, reply, false));
    }

    pub(super) fn finish(&mut self, turn: TurnId, reason: &str) {
        self.agent(AgentEvent::PromptFinished { turn, result: Ok(reason.into()) });
    }

    pub(super) fn kinds(&self) -> Vec<&'static str> {
        self.events.iter().map(|(kind, _, _)| kind.as_str()).collect()
    }

    pub(super) fn state(&self) -> SessionState {
        self.machine.snapshot().state
    }

    pub(super) fn last_turn(&self) -> Turn {
        self.events
            .iter()
            .rev()
            .find_map(|(_, _, body)| match body {
                EventBody::Turn { turn, .. } => Some((**turn).clone()),
                _ => None,
            })
            .unwrap()
    }

    pub(super) fn last_call(&self) -> ToolCall {
        self.events
            .iter()
            .rev()
            .find_map(|(kind, _, body)| match body {
                EventBody::ToolCall { tool_call } if *kind == EventKind::ToolCallFinished => {
                    Some((**tool_call).clone())
                }
                _ => None,
            })
            .unwrap()
    }

    pub(super) fn pending(&self) -> PermissionId {
        self.machine.snapshot().pending_permissions[0].id
    }
}

pub(super) fn ask(id: &str, reply: &str, plan_write: bool) -> AgentEvent {
    let option = |kind: &str| AgentOption { id: format!("agents_{kind}"), kind: kind.into() };
    AgentEvent::PermissionRequested(AgentPermissionRequest {
        reply: ReplyToken(reply.into()),
        tool_call: ToolCall { id: id.into(), title: Some("shell · ls".into()), ..ToolCall::default() },
        options: vec![
            option("allow_always"),
            option("allow_once"),
            option("reject_once"),
            option("reject_always"),
        ],
        plan_write,
    })
}

pub(super) fn answer(decision: Decision) -> Answer {
    Answer { decision, scope: Scope::Once, reason: None }
}

pub(super) fn chunk(message_id: Option<&str>, text: &str) -> AgentEvent {
    AgentEvent::MessageChunk { message_id: message_id.map(str::to_owned), text: text.into() }
}
