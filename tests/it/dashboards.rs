//! What `deploy/` shows of the figures: a dashboard and alert rules, whose figures gander really has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Setup, script, until_async};

fn deployed(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)).unwrap()
}

/// Every `expr` in a document.
fn expressions(document: &Value, into: &mut Vec<String>) {
    match document {
        Value::Object(fields) => {
            into.extend(fields.get("expr").map(|expression| expression.as_str().unwrap().to_owned()));
            fields.values().for_each(|value| expressions(value, into));
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, into)),
        _ => {}
    }
}

/// The figures that an expression names, each with the labels that it selects by.
fn named(expression: &str) -> Vec<(String, Vec<String>)> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find("gander_") {
        rest = &rest[at..];
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        let selector = behind.strip_prefix('{').and_then(|behind| behind.split_once('}'));
        let labels = selector.map_or("", |(labels, _)| labels).split(", ").filter(|label| !label.is_empty());
        let labels = labels.map(|label| label.split(['=', '!']).next().unwrap().to_owned());
        found.push((name.to_owned(), labels.collect()));
        rest = behind;
    }
    found
}

/// The labels of every figure.
fn labels_of(figures: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in figures.lines().filter(|line| !line.starts_with('#')) {
        let end = line.find(['{', ' ']).unwrap();
        let labels = found.entry(line[..end].to_owned()).or_default();
        if let Some((selector, _)) = line[end..].strip_prefix('{').and_then(|rest| rest.rsplit_once("} ")) {
            // No value has this in it: they are names of routes, states and the like.
            labels.extend(selector.split("\",").map(|label| label.split('=').next().unwrap().to_owned()));
        }
    }
    found
}

#[tokio::test]
async fn every_figure_of_the_dashboard_and_of_the_alerts_is_one_that_gander_has() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "approve"})).await;
    let mut events = session.events().await;
    let calls = json!([[{"call": {"tool": "shell", "input": {"command": "true"}}}], [{"text": "done"}]]);
    session.prompt(&script(&calls)).await;
    let permission = events.until("permission.requested").await.data["permission"].clone();
    session.answer(&permission, "allow").await;
    events.until("turn.completed").await;
    let counted = r#"gander_turns_total{state="completed",class=""} 1"#;
    until_async("the turn is counted", || async { gander.figures().await.contains(counted) }).await;
    let known = labels_of(&gander.figures().await);

    let dashboard: Value = serde_json::from_str(&deployed("grafana/gander.json")).unwrap();
    let alerts: Value = serde_yaml_ng::from_str(&deployed("prometheus/alerts.yaml")).unwrap();
    let mut used = BTreeSet::new();
    for (document, at_least) in [(dashboard, 40), (alerts, 15)] {
        let mut found = Vec::new();
        expressions(&document, &mut found);
        assert!(found.len() >= at_least, "{found:?}");
        for expression in found {
            for (figure, labels) in named(&expression) {
                let known =
                    known.get(&figure).unwrap_or_else(|| panic!("{figure} of {expression} is no figure"));
                // What the scrape adds is not in the text.
                for label in labels.iter().filter(|label| !["job", "instance"].contains(&label.as_str())) {
                    assert!(
                        known.contains(label),
                        "{figure} of {expression} has no label {label}: {known:?}"
                    );
                }
                used.insert(figure);
            }
        }
    }
    // And the other way round: nothing that is counted is left without a panel or an alert.
    let is_used = |figure: &&String| {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| figure.strip_suffix(end));
        used.contains(*figure) || base.is_some_and(|base| used.contains(&format!("{base}_bucket")))
    };
    let unseen: Vec<_> = known.keys().filter(|figure| !is_used(figure)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
    gander.stop().await;
}
