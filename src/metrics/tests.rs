use super::*;
use crate::session::permission::DecidedBy;

#[test]
fn every_figure_is_there_from_the_start_or_with_its_first_event() {
    let metrics = Metrics::new();
    metrics.answered(Some("GET"), "/v1/info", Some(200), Duration::from_millis(3));
    metrics.answered(None, "(no such path)", None, Duration::ZERO);
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

#[test]
fn what_alerts_watch_is_at_zero_before_it_happens() {
    let text = Metrics::new().text(&Moment::default());
    let mut expected = vec!["gander_http_internal_errors_total 0".to_owned()];
    // The document and not the list in the code: a class that is new must not be forgotten there.
    let document: serde_json::Value =
        serde_json::from_str(include_str!("../../openapi/gander.json")).unwrap();
    let classes = &document["components"]["schemas"]["TurnErrorClass"]["x-extensible-enum"];
    for class in classes.as_array().unwrap() {
        expected.push(format!(r#"gander_turns_total{{state="failed",class={class}}} 0"#));
        expected.push(format!(r#"gander_turns_total{{state="interrupted",class={class}}} 0"#));
    }
    for state in ["completed", "cancelled"] {
        expected.push(format!(r#"gander_turns_total{{state="{state}",class=""}} 0"#));
    }
    for by in [
        DecidedBy::Caller("alice".into()),
        DecidedBy::Policy,
        DecidedBy::Timeout,
        DecidedBy::Cancel,
        DecidedBy::AgentExit,
        DecidedBy::Restart,
    ] {
        let by = String::from(by);
        let by = by.split(':').next().unwrap();
        for decision in ["allow", "reject"] {
            expected.push(format!(r#"gander_permissions_total{{by="{by}",decision="{decision}"}} 0"#));
        }
    }
    for line in expected {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn only_gander_s_own_faults_are_internal_errors() {
    let metrics = Metrics::new();
    for status in [Some(200), Some(500), Some(503), None, Some(500)] {
        metrics.answered(Some("GET"), "/v1/info", status, Duration::ZERO);
    }
    let text = metrics.text(&Moment::default());
    assert!(text.contains("gander_http_internal_errors_total 2\n"), "{text}");
}
