use tempfile::TempDir;

use super::*;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

const TEN_MINUTES: u64 = 600;

#[test]
fn a_ticket_is_good_while_it_is_used_and_ten_minutes_after() {
    let mut book = Book::default();
    let ticket = hash("t");
    assert!(book.make(ticket, Some([1; 32]), 8, at(0)));
    assert_eq!(book.begin_use(&ticket, at(TEN_MINUTES - 1)).unwrap().token, Some([1; 32]));
    let much_later = 1_000_000;
    assert!(book.begin_use(&ticket, at(much_later)).is_some(), "it is in use");
    book.end_use(&ticket, at(much_later));
    book.end_use(&ticket, at(much_later + 5));
    assert!(book.begin_use(&ticket, at(much_later + 5 + TEN_MINUTES - 1)).is_some());
    book.end_use(&ticket, at(much_later + 700));
    assert_eq!(book.begin_use(&ticket, at(much_later + 700 + TEN_MINUTES)), None);
    assert_eq!(book.begin_use(&hash("another"), at(0)), None);
}

#[test]
fn each_token_has_so_many_and_old_ones_make_room() {
    let mut book = Book::default();
    for (ticket, made) in [("a", true), ("b", true), ("c", false)] {
        assert_eq!(book.make(hash(ticket), Some([1; 32]), 2, at(0)), made, "{ticket}");
    }
    assert!(book.make(hash("d"), Some([2; 32]), 2, at(0)), "another token's are not counted together");
    assert!(book.make(hash("c"), Some([1; 32]), 2, at(TEN_MINUTES)));
    assert_eq!(book.tickets.len(), 1, "what is no longer valid is not kept");
}

#[test]
fn a_clock_that_was_set_back_ends_no_ticket() {
    let mut book = Book::default();
    assert!(book.make(hash("t"), None, 1, at(10_000)));
    assert!(book.begin_use(&hash("t"), at(5_000)).is_some());
}

#[tokio::test]
async fn tickets_outlive_the_process_as_hashes() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("stream-tickets");
    let tasks = Tasks::new();
    let before = Tickets::kept_in(path.clone());
    let secret = before.make(Some([7; 32]), 1, &tasks).await.unwrap().unwrap().into_secret();
    assert!(before.make(Some([7; 32]), 1, &tasks).await.unwrap().is_none(), "as many as it may have");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains(&secret) && !text.contains(&secret[PREFIX.len()..]));
    let after = Tickets::kept_in(path.clone());
    assert_eq!(after.begin_use(&secret).unwrap().token, Some([7; 32]));
    assert!(after.begin_use("gander_ticket_00").is_none());

    std::fs::write(&path, "no ticket\n").unwrap();
    assert!(Tickets::kept_in(path).begin_use(&secret).is_none());
}

#[tokio::test]
async fn one_that_is_in_use_when_the_process_ends_was_used_last_then() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("stream-tickets");
    let tasks = Tasks::new();
    let tickets = Tickets::kept_in(path.clone());
    let secret = tickets.make(None, 1, &tasks).await.unwrap().unwrap().into_secret();
    let in_use = tickets.begin_use(&secret).unwrap();
    let long_ago = SystemTime::now() - 2 * VALID_UNUSED;
    tickets.lock().tickets.get_mut(&hash(&secret)).unwrap().last_used = long_ago;
    tickets.keep(&tasks);
    tasks.hard().cancel();
    tasks.finished().await;
    drop(in_use);
    assert!(Tickets::kept_in(path).begin_use(&secret).is_some());
}
