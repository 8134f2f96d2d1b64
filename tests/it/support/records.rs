//! What is left of a running gander's work: its log and its figures.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Gander, script};

/// In every prompt, input, output and answer of those who look whether any of it is left somewhere.
pub(crate) const WORD: &str = "heron";

/// A prompt whose model runs a command and then answers, with [`WORD`] in all of it.
pub(crate) fn prompt_with_word() -> String {
    let call = json!({"call": {"tool": "shell", "input": {"command": format!("echo {WORD} sings")}}});
    format!("{WORD}?\n{}", script(&json!([[call], [{"text": format!("The {WORD} has sung.")}]])))
}

impl Gander {
    /// The lines of its log with this message, where it logs JSON.
    pub(crate) fn log_lines(&self, message: &str) -> Vec<Value> {
        let log = self.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["message"] == message).collect()
    }

    /// Its figures, as Prometheus reads them.
    pub(crate) async fn figures(&self) -> String {
        let answer = self.request(Method::GET, "/metrics").send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let content_type = answer.headers()["content-type"].to_str().unwrap();
        assert!(content_type.starts_with("application/openmetrics-text"), "{content_type}");
        answer.text().await.unwrap()
    }
}

/// The value of a figure with these labels.
pub(crate) fn figure(figures: &str, name: &str) -> f64 {
    let line = figures.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not in\n{figures}")).parse().unwrap()
}
