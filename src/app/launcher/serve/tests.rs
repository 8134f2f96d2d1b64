use super::*;
use crate::session::agent::Mode;

fn serve() -> Serve {
    let second = Duration::from_secs(1);
    let settings = ServeSettings {
        host: "127.0.0.1".parse().unwrap(),
        allow_remote_host: false,
        port: 0,
        startup_timeout: second,
        health_interval: second,
        health_timeout: second,
        restart_backoff: second,
        restart_backoff_max: 30 * second,
        ping_interval: second,
        ping_timeout: second,
    };
    let limits =
        WebSocketLimits { sent_bytes: 1, received_bytes: 1, ping_interval: second, ping_timeout: second };
    Serve::new(settings, LaunchSpec::new(Mode::Approve), limits, 1, &CancellationToken::new())
}

#[test]
fn each_start_in_a_row_is_waited_for_longer_up_to_a_limit() {
    let serve = serve();
    for (times, longest) in [(1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (40, 30), (u32::MAX, 30)] {
        let longest = Duration::from_secs(longest);
        let pauses: Vec<Duration> = (0..50).map(|_| serve.pause(times)).collect();
        assert!(pauses.iter().all(|pause| *pause >= longest / 2 && *pause <= longest), "{times}: {pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{times}: gateways would come in step");
    }
}

#[tokio::test]
async fn who_needs_it_waits_for_a_start_and_not_for_a_loop() {
    let serve = serve();
    assert_eq!(serve.fault().as_deref(), Some("goose serve is being started"));
    let fault = |times| Fault { why: "signal 9".into(), times };
    serve.state.send_replace(State::Down(fault(1)));
    assert_eq!(serve.fault().as_deref(), Some("goose serve does not run: signal 9"));
    assert!(timeout(Duration::from_millis(1), serve.up()).await.is_err(), "one failure is waited for");
    serve.state.send_replace(State::Down(fault(NOT_WAITED_FOR)));
    let Err(LaunchError::Failed { detail, .. }) = serve.up().await else {
        panic!("a loop is not waited for")
    };
    assert_eq!(detail, "goose serve does not run: signal 9 (3 times in a row)");
    serve.state.send_replace(State::Ended);
    assert!(matches!(serve.up().await, Err(LaunchError::Cancelled)));
}
