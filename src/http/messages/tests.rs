use serde_json::json;

use super::super::fake_log::{FakeLog, Stored};
use super::*;
use crate::session::event::{EventBody, EventKind};
use crate::session::id::MessageId;
use crate::session::run::RunBuilder;
use crate::session::turn::{Turn, TurnState};

/// Writes events as the core does.
struct Writer {
    log: FakeLog,
    turn: Option<TurnId>,
}

impl Writer {
    fn new() -> Self {
        Self { log: FakeLog::new(1_000), turn: None }
    }

    fn push(&self, kind: EventKind, body: &EventBody) {
        let mut builder = RunBuilder::new(self.log.log.head().committed.next());
        builder.push(self.log.log.session(), self.turn, Timestamp::now(), kind, body).unwrap();
        let run = builder.finish().unwrap().unwrap();
        let json = run.frames_after(EventId(0)).next().unwrap().json().to_vec();
        self.log.commit(&[Stored { kind, turn: self.turn, json }]);
    }

    fn turn(&self, prompt: Prompt) -> Turn {
        Turn {
            id: TurnId::new(),
            session_id: self.log.log.session(),
            state: TurnState::Running,
            prompt: Some(prompt),
            text: None,
            stop_reason: None,
            error: None,
            usage: None,
            created_at: Timestamp::now(),
            started_at: None,
            ended_at: None,
            first_event_id: EventId(1),
            last_event_id: None,
            request_id: None,
            traceparent: None,
        }
    }

    fn begin_turn(&mut self, prompt: Prompt) -> TurnId {
        let turn = self.turn(prompt);
        let id = turn.id;
        self.turn = Some(id);
        self.push(
            EventKind::TurnStarted,
            &EventBody::Turn { turn: Box::new(turn), by: Some("alice".into()) },
        );
        id
    }

    /// Queues a turn; gives it as its start tells it.
    fn queue_turn(&self, prompt: Prompt) -> Turn {
        let turn = self.turn(prompt);
        self.log.store.keep_turn(turn.clone());
        let body = EventBody::Turn { turn: Box::new(turn.clone()), by: Some("alice".into()) };
        self.push(EventKind::TurnQueued, &body);
        Turn { prompt: None, ..turn }
    }

    fn begin_queued(&mut self, turn: Turn) {
        self.turn = Some(turn.id);
        self.push(EventKind::TurnStarted, &EventBody::Turn { turn: Box::new(turn), by: None });
    }

    fn delta(&self, message_id: MessageId, text: &str) {
        self.push(EventKind::MessageDelta, &EventBody::Text { message_id, text: text.into() });
    }

    fn other(&self) {
        let body = EventBody::Text { message_id: MessageId::new(), text: "thinking".into() };
        self.push(EventKind::ThoughtDelta, &body);
    }

    async fn read(&self, after: u64, limit: usize) -> MessageList {
        read_messages(&self.log.store, &self.log.log, EventId(after), limit).await.unwrap()
    }

    /// Page by page.
    async fn read_all(&self, limit: usize) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut after = 0;
        loop {
            let page = self.read(after, limit).await;
            assert!(page.messages.len() <= limit);
            messages.extend(page.messages);
            match page.next_cursor {
                Some(cursor) => after = cursor.parse().unwrap(),
                None => return messages,
            }
        }
    }
}

/// Who says what, for short.
fn lines(messages: &[Message]) -> Vec<(MessageRole, &str)> {
    messages.iter().map(|message| (message.role, message.text.as_str())).collect()
}

#[tokio::test]
async fn pieces_are_joined_between_prompts_and_other_events() {
    let mut writer = Writer::new();
    assert_eq!(writer.read(0, 10).await.messages, []);
    let turn = writer.begin_turn(Prompt::Text("hello".into()));
    let (first, second) = (MessageId::new(), MessageId::new());
    writer.delta(first, "Good ");
    writer.other();
    writer.delta(first, "day \"to\nyou\".");
    writer.delta(second, "What now?");
    writer.other();
    let page = writer.read(0, 10).await;
    assert_eq!(
        lines(&page.messages),
        [
            (MessageRole::User, "hello"),
            (MessageRole::Assistant, "Good day \"to\nyou\"."),
            (MessageRole::Assistant, "What now?"),
        ]
    );
    assert_eq!(page.messages[0].id, turn.as_uuid());
    assert_eq!(page.messages[1].id, first.as_uuid());
    assert_eq!(page.messages[2].turn_id, Some(turn));
    assert_eq!((page.next_cursor, page.last_event_id), (None, EventId(6)));
}

#[tokio::test]
async fn behind_a_cursor_that_was_made_up_there_is_nothing() {
    let mut writer = Writer::new();
    writer.begin_turn(Prompt::Text("hello".into()));
    for after in [1, 2, u64::MAX] {
        let page = writer.read(after, 10).await;
        assert_eq!((page.messages, page.next_cursor, page.last_event_id), (vec![], None, EventId(1)));
    }
}

#[tokio::test]
async fn what_the_agent_echoes_is_the_users() {
    let mut writer = Writer::new();
    writer.begin_turn(Prompt::Text("/help".into()));
    let body = EventBody::Text { message_id: MessageId::new(), text: "help me".into() };
    writer.push(EventKind::MessageUser, &body);
    let page = writer.read(0, 10).await;
    assert_eq!(lines(&page.messages), [(MessageRole::User, "/help"), (MessageRole::User, "help me")]);
}

#[tokio::test]
async fn a_queued_prompt_stands_where_the_agent_got_it() {
    let mut writer = Writer::new();
    writer.begin_turn(Prompt::Text("first".into()));
    let message = MessageId::new();
    writer.delta(message, "I am ");
    let next = writer.queue_turn(Prompt::Text("second".into()));
    let blocks = vec![json!({"type": "text", "text": "x".repeat(PAGE_BYTES)})];
    let last = writer.queue_turn(Prompt::Blocks(blocks.clone()));
    writer.queue_turn(Prompt::Text("cancelled before the agent got it".into()));
    writer.delta(message, "at it.");
    writer.begin_queued(next);
    writer.delta(MessageId::new(), "Done.");
    writer.begin_queued(last);
    writer.delta(MessageId::new(), "Long.");
    let page = writer.read(0, 200).await;
    let mut messages = page.messages;
    assert_eq!(messages.pop().unwrap().content, Some(blocks), "a page is bounded in bytes");
    assert_eq!(
        lines(&messages),
        [
            (MessageRole::User, "first"),
            (MessageRole::Assistant, "I am at it."),
            (MessageRole::User, "second"),
            (MessageRole::Assistant, "Done."),
        ]
    );
    let rest = writer.read(page.next_cursor.unwrap().parse().unwrap(), 200).await;
    assert_eq!(lines(&rest.messages), [(MessageRole::Assistant, "Long.")]);
}

#[tokio::test]
async fn a_prompt_of_blocks_is_given_as_blocks_and_as_text() {
    let mut writer = Writer::new();
    let blocks = vec![
        json!({"type": "text", "text": "look"}),
        json!({"type": "image", "mimeType": "image/png", "data": "aGk="}),
        json!({"type": "text", "text": "here"}),
    ];
    writer.begin_turn(Prompt::Blocks(blocks.clone()));
    let page = writer.read(0, 10).await;
    assert_eq!(page.messages[0].text, "look\n\nhere");
    assert_eq!(page.messages[0].content, Some(blocks));
}

#[tokio::test]
async fn pages_of_every_size_give_the_same_messages_and_cut_none() {
    let mut writer = Writer::new();
    for turn in 0..4 {
        writer.begin_turn(Prompt::Text(format!("question {turn}")));
        for _ in 0..=turn {
            let message = MessageId::new();
            for piece in 0..3 {
                writer.delta(message, &format!("{piece} "));
                writer.other();
            }
        }
    }
    let whole = writer.read(0, 200).await.messages;
    assert_eq!(whole.len(), 4 + 1 + 2 + 3 + 4);
    assert!(whole.iter().all(|message| message.role == MessageRole::User || message.text == "0 1 2 "));
    for limit in 1..=whole.len() {
        assert_eq!(writer.read_all(limit).await, whole, "{limit} on a page");
    }
    let last_page = writer.read(0, whole.len()).await;
    assert_eq!(last_page.next_cursor, None, "a full page with nothing behind it is the last");
}

#[tokio::test]
async fn a_message_longer_than_one_read_of_the_store_is_one_message() {
    let mut writer = Writer::new();
    writer.begin_turn(Prompt::Text("count".into()));
    let message = MessageId::new();
    for _ in 0..=READ_EVENTS {
        writer.delta(message, "x");
    }
    let second = MessageId::new();
    writer.delta(second, "done");
    let page = writer.read(0, 2).await;
    assert_eq!(page.messages[1].text.len(), READ_EVENTS + 1);
    let rest = writer.read(page.next_cursor.unwrap().parse().unwrap(), 2).await;
    assert_eq!(lines(&rest.messages), [(MessageRole::Assistant, "done")]);
}

#[tokio::test]
async fn a_page_is_bounded_in_bytes() {
    let mut writer = Writer::new();
    writer.begin_turn(Prompt::Text("x".repeat(PAGE_BYTES)));
    writer.delta(MessageId::new(), "answer");
    let page = writer.read(0, 200).await;
    assert_eq!(page.messages.len(), 1);
    assert!(page.next_cursor.is_some());
    assert_eq!(writer.read_all(200).await.len(), 2);
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_passed_over() {
    let mut writer = Writer::new();
    for json in
        ["", "{}", "[]", r#"{"type":"message.delta","time":"2026-01-01T00:00:00.000Z","turn_id":null}"#]
    {
        let json = json.as_bytes().to_vec();
        writer.log.commit(&[Stored { kind: EventKind::MessageDelta, turn: None, json }]);
    }
    writer.begin_turn(Prompt::Text("hello".into()));
    assert_eq!(lines(&writer.read(0, 10).await.messages), [(MessageRole::User, "hello")]);
}
