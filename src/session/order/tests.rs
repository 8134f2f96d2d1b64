use super::*;

#[test]
fn a_cursor_is_read_as_it_was_written_and_nothing_else_is() {
    let cursor = OrderCursor { store: StoreTag(0xab), position: Position(17) };
    let text = cursor.to_string();
    assert_eq!(text, "000000ab0000000000000011");
    assert_eq!(text.parse(), Ok(cursor));
    let far = OrderCursor { store: StoreTag(u32::MAX), position: Position(u64::MAX) };
    assert_eq!(far.to_string().parse(), Ok(far));
    for bad in ["", "17", "000000AB0000000000000011", "+00000ab0000000000000011", "000000ab000000000000001é"]
    {
        assert_eq!(bad.parse::<OrderCursor>(), Err(NotACursor), "{bad}");
    }
}

#[test]
fn a_filter_takes_an_owners_sessions_or_those_that_are_named() {
    let mine = OrderFilter { owner: Owner::Caller("alice".into()), sessions: None };
    assert!(mine.takes("alice", SessionNumber(1)) && !mine.takes("bob", SessionNumber(1)));
    let named = HashSet::from([SessionNumber(2)]);
    let one = OrderFilter { sessions: Some(named.clone()), ..mine };
    assert!(one.takes("alice", SessionNumber(2)) && !one.takes("alice", SessionNumber(1)));
    assert!(!one.takes("bob", SessionNumber(2)));
    let all = OrderFilter { owner: Owner::Anyone, sessions: Some(named) };
    assert!(all.takes("bob", SessionNumber(2)) && !all.takes("bob", SessionNumber(1)));
}
