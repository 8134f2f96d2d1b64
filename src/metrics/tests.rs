use super::*;

#[test]
fn every_figure_is_there_from_the_start_or_with_its_first_event() {
    let metrics = Metrics::new();
    metrics.answered("GET", "/v1/info", Some(200), Duration::from_millis(3));
    metrics.answered("BREW", "(no such path)", None, Duration::ZERO);
    metrics.streamed(10);
    metrics.committed(300, Duration::from_millis(1));
    let moment = Moment { sessions: vec![("idle", 2)], agents: 1, processes_killed: 4, ..Moment::default() };
    let text = metrics.text(&moment);
    for line in [
        r#"gander_http_requests_total{method="GET",route="/v1/info",status="200"} 1"#,
        r#"gander_http_requests_total{method="other",route="(no such path)",status="499"} 1"#,
        "gander_streamed_bytes_total 10",
        "gander_committed_bytes_total 300",
        "gander_commit_seconds_count 1",
        r#"gander_sessions{state="idle"} 2"#,
        "gander_agents 1",
        "gander_processes_killed_total 4",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let text = metrics.text(&Moment { processes_killed: 3, ..Moment::default() });
    assert!(text.contains("gander_processes_killed_total 4"), "a counter never goes back");
}
