use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

/// A line, or the head and length of one that was too long.
type Split = Result<Vec<u8>, (Vec<u8>, u64)>;

fn split(limit: usize, reads: &[&[u8]]) -> Vec<Split> {
    let mut lines = Vec::new();
    let mut splitter = LineSplitter::new(limit);
    let mut each = |line: Line<'_>| {
        lines.push(match line {
            Line::Whole(line) => Ok(line.to_vec()),
            Line::TooLong { head, bytes } => Err((head.to_vec(), bytes)),
        });
    };
    for read in reads {
        splitter.push(read, &mut each);
    }
    splitter.finish(&mut each);
    lines
}

fn messages(line: &str) -> Vec<String> {
    let mut messages = Vec::new();
    read_messages(line, |message| {
        messages.push(match message {
            Ok(Message::Request { id, method, params }) => {
                format!("request {} {method} {:?}", id.get(), params.map(RawValue::get))
            }
            Ok(Message::Notification { method, params }) => {
                format!("notification {method} {:?}", params.map(RawValue::get))
            }
            Ok(Message::Response { id, outcome: Ok(result) }) => {
                format!("result {} {}", id.get(), result.get())
            }
            Ok(Message::Response { id, outcome: Err(error) }) => {
                format!("error {} {} {} {:?}", id.get(), error.code, error.message, error.data)
            }
            Err(NotJsonRpc) => "not JSON-RPC".to_owned(),
        });
    });
    messages
}

#[test]
fn a_line_is_the_same_wherever_it_is_cut() {
    let text = "{\"a\":\"äöü…\u{1f980}\"}\n\nsecond\r\nunfinished ß".as_bytes();
    let whole = split(1000, &[text]);
    assert_eq!(whole.len(), 4);
    for cut in 0..=text.len() {
        assert_eq!(split(1000, &[&text[..cut], &text[cut..]]), whole, "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = text.chunks(1).collect();
    assert_eq!(split(1000, &bytes), whole);
}

#[test]
fn a_long_line_keeps_its_head_only_and_the_next_is_whole() {
    let long = vec![b'x'; 100_000];
    let mut text = long.clone();
    text.extend_from_slice(b"\nnext\n");
    let expected = vec![Err((long[..HEAD_BYTES].to_vec(), 100_000)), Ok(b"next".to_vec())];
    assert_eq!(split(50_000, &[&text]), expected);
    let pieces: Vec<&[u8]> = text.chunks(777).collect();
    assert_eq!(split(50_000, &pieces), expected);
}

#[test]
fn a_line_of_exactly_the_limit_is_whole() {
    assert_eq!(split(4, &[b"1234\n12345\n"]), [Ok(b"1234".to_vec()), Err((b"12345".to_vec(), 5))]);
    assert_eq!(split(4, &[b"12", b"34\n12", b"345\n"]), [Ok(b"1234".to_vec()), Err((b"12345".to_vec(), 5))]);
}

#[test]
fn the_buffer_shrinks_back_after_a_big_line() {
    let mut splitter = LineSplitter::new(10_000_000);
    splitter.push(&vec![b'x'; 5_000_000], |_| panic!("there is no line yet"));
    assert!(splitter.line.capacity() >= 5_000_000);
    splitter.push(b"\n", |line| assert!(matches!(line, Line::Whole(line) if line.len() == 5_000_000)));
    assert!(splitter.line.capacity() <= KEPT_CAPACITY);

    let mut splitter = LineSplitter::new(1_000_000);
    splitter.push(&vec![b'x'; 900_000], |_| panic!("there is no line yet"));
    splitter.push(&vec![b'x'; 900_000], |_| panic!("there is no line yet"));
    assert!(splitter.line.capacity() <= HEAD_BYTES, "what is left out is not kept");
}

#[test]
fn messages_of_every_kind() {
    assert_eq!(
        messages(r#"{"jsonrpc":"2.0","id":"a-\u00e4","method":"m","params":{"x":1}}"#),
        [r#"request "a-\u00e4" m Some("{\"x\":1}")"#],
        "an id stays as it was written"
    );
    assert_eq!(messages(r#"{"id":null,"method":"m"}"#), ["request null m None"]);
    assert_eq!(messages(r#"{"id":1.50,"method":"m","params":null}"#), ["request 1.50 m None"]);
    assert_eq!(messages(r#"{"method":"m\u0041","params":[]}"#), [r#"notification mA Some("[]")"#]);
    assert_eq!(messages(r#"{"id":7,"result":null}"#), ["result 7 null"]);
    assert_eq!(
        messages(r#"{"id":7,"error":{"code":-32603,"message":"Internal error","data":"why"}}"#),
        [r#"error 7 -32603 Internal error Some(String("why"))"#]
    );
    assert_eq!(messages(r#"{"id":7,"error":"oops"}"#), ["error 7 0  None"]);
}

#[test]
fn what_is_not_json_rpc_is_told() {
    for line in
        ["", "  ", "garbage", "{", "{}", "17", "null", r#"{"id":1}"#, r#"{"result":1}"#, "[]", "[", "[1]"]
    {
        assert_eq!(messages(line), ["not JSON-RPC"], "{line:?}");
    }
}

#[test]
fn a_batch_gives_its_messages() {
    assert_eq!(
        messages(r#" [{"id":1,"result":{}},3,{"method":"m"},[{"method":"nested"}]]"#),
        ["result 1 {}", "not JSON-RPC", "notification m None", "not JSON-RPC"]
    );
}

#[test]
fn the_head_of_a_long_line_tells_its_method() {
    let cut = br#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"te"#;
    assert_eq!(method_of_head(cut).as_deref(), Some("session/update"));
    let request = br#"{"jsonrpc":"2.0","id":1,"method":"session/update","params":{"te"#;
    assert_eq!(method_of_head(request), None, "a request wants an answer");
    let late = br#"{"method":"session/update","id":1,"params":{"te"#;
    assert_eq!(method_of_head(late), None, "a request wants an answer");
    let answer = br#"{"jsonrpc":"2.0","id":4,"result":{"x":"\"method\":\"session/update\""#;
    assert_eq!(method_of_head(answer), None);
    let inside = br#"{"params":{"method":"session/update","x":"aaaa"#;
    assert_eq!(method_of_head(inside), None, "only a message's own method counts");
    assert_eq!(method_of_head(b"xxxxxxxxxx"), None);
    assert_eq!(
        method_of_head(b"{\"method\":\"session/update\",\"params\":\"\xff\xfe"),
        Some("session/update".into())
    );
}

#[test]
fn lines_out() {
    let id: Box<RawValue> = serde_json::from_str(r#""\u00e4 1""#).unwrap();
    let text = |line: serde_json::Result<Vec<u8>>| String::from_utf8(line.unwrap()).unwrap();
    assert_eq!(
        text(result_line(&id, &serde_json::json!({"a": "x\ny"}))),
        "{\"jsonrpc\":\"2.0\",\"id\":\"\\u00e4 1\",\"result\":{\"a\":\"x\\ny\"}}\n"
    );
    assert_eq!(
        text(error_line(&id, -32601, "Method not found")),
        "{\"jsonrpc\":\"2.0\",\"id\":\"\\u00e4 1\",\"error\":{\"code\":-32601,\"message\":\"Method not found\"}}\n"
    );
    assert_eq!(
        text(request_line(3, "m", &serde_json::json!({}))),
        "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"m\",\"params\":{}}\n"
    );
    assert_eq!(text(notification_line("m", &())), "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":null}\n");
}

proptest! {
    /// Whatever comes in whatever pieces: the lines are those of the whole, and nothing panics.
    #[test]
    fn any_bytes_in_any_pieces(
        bytes in prop::collection::vec(prop_oneof![4 => any::<u8>(), 1 => Just(b'\n'), 1 => Just(b'{')], 0..2000),
        piece in 1_usize..300,
        limit in 1_usize..300,
    ) {
        let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
        let lines = split(limit, &pieces);
        let mut expected: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        if expected.last().is_some_and(|last| last.is_empty()) {
            expected.pop();
        }
        prop_assert_eq!(lines.len(), expected.len());
        for (line, expected) in lines.iter().zip(expected) {
            match line {
                Ok(line) => prop_assert_eq!(line.as_slice(), expected),
                Err((head, length)) => {
                    prop_assert!(expected.len() > limit);
                    prop_assert_eq!(*length, expected.len() as u64);
                    prop_assert_eq!(head.as_slice(), &expected[..HEAD_BYTES.min(expected.len())]);
                    method_of_head(head);
                }
            }
            messages(&String::from_utf8_lossy(expected));
        }
    }

    /// Garbage between messages takes nothing away from them.
    #[test]
    fn garbage_between_messages(garbage in prop::collection::vec("[^\n]{0,40}", 1..20), piece in 1_usize..60) {
        let mut text = String::new();
        for (number, garbage) in garbage.iter().enumerate() {
            write!(text, "{garbage}\n{{\"id\":{number},\"result\":\"ä\"}}\n").unwrap();
        }
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece).collect();
        let found: Vec<String> = split(1000, &pieces)
            .into_iter()
            .flat_map(|line| messages(&String::from_utf8_lossy(&line.unwrap())))
            .filter(|message| message.ends_with("\"ä\""))
            .collect();
        let expected: Vec<String> = (0..garbage.len()).map(|number| format!("result {number} \"ä\"")).collect();
        prop_assert_eq!(found, expected);
    }
}
