//! The model over a real socket.

use super::*;

async fn start() -> (Tasks, ScriptedModel) {
    let tasks = Tasks::new();
    let model = ScriptedModel::start_with_pace(&tasks, Duration::ZERO).await.unwrap();
    (tasks, model)
}

/// Ends the model and waits for its tasks.
async fn end(tasks: Tasks) {
    tasks.hard().cancel();
    tasks.finished().await;
}

async fn ask(model: &ScriptedModel, body: &Value) -> reqwest::Response {
    try_ask(model, body).await.unwrap()
}

async fn try_ask(model: &ScriptedModel, body: &Value) -> reqwest::Result<reqwest::Response> {
    let url = format!("http://{}/v1/chat/completions", model.address());
    let client = client();
    client.post(url).header("content-type", "application/json").body(body.to_string()).send().await
}

fn scripted(script: &Value, stream: bool) -> Value {
    let prompt = format!("Go.\n```script\n{script}\n```\n<turn-context>\nnow\n</turn-context>");
    json!({ "model": MODEL, "stream": stream, "messages": [{ "role": "user", "content": prompt }] })
}

fn client() -> reqwest::Client {
    // It is made for TLS too; which of those there are it uses is the program's to say.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

#[tokio::test]
async fn a_script_is_streamed_chunk_by_chunk() {
    let (tasks, model) = start().await;
    let script = json!([[{ "text": "Hel" }, { "text": "lo" }]]);
    let response = ask(&model, &scripted(&script, true)).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let body = response.text().await.unwrap();
    let events: Vec<&str> = body.split_terminator("\n\n").collect();
    assert_eq!(events.len(), 5);
    assert!(events[0].contains("\"Hel\"") && events[1].contains("\"lo\""));
    assert_eq!(events[4], "data: [DONE]");
    end(tasks).await;
}

#[tokio::test]
async fn the_first_chunk_arrives_though_the_rest_hangs_and_shutdown_ends_it() {
    let (tasks, model) = start().await;
    let mut response = ask(&model, &scripted(&json!([[{ "text": "first" }, "hang"]]), true)).await;
    let chunk = response.chunk().await.unwrap().unwrap();
    assert!(std::str::from_utf8(&chunk).unwrap().contains("first"));
    end(tasks).await;
    assert!(response.chunk().await.is_err());
}

#[tokio::test]
async fn a_hang_as_the_first_step_sends_not_even_headers() {
    let (tasks, model) = start().await;
    let request = scripted(&json!([["hang"]]), true);
    let end_once_asked = async {
        while model.requests().is_empty() {
            tokio::task::yield_now().await;
        }
        end(tasks).await;
    };
    let (answer, ()) = tokio::join!(try_ask(&model, &request), end_once_asked);
    assert!(answer.is_err());
}

#[tokio::test]
async fn a_drop_cuts_the_answer_short() {
    let (tasks, model) = start().await;
    let response =
        ask(&model, &scripted(&json!([[{ "text": "first" }, "drop", { "text": "never" }]]), true)).await;
    assert!(response.text().await.is_err());
    end(tasks).await;
}

#[tokio::test]
async fn an_http_error_has_its_status_body_and_headers() {
    let (tasks, model) = start().await;
    let error = json!({ "status": 429, "body": { "error": { "message": "slow" } }, "headers": { "retry-after": "3" } });
    let response = ask(&model, &scripted(&json!([[{ "error": error }]]), true)).await;
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "3");
    assert_eq!(response.json::<Value>().await.unwrap()["error"]["message"], "slow");
    end(tasks).await;
}

#[tokio::test]
async fn unstreamed_answers_malformed_scripts_and_bad_requests_are_plain_json() {
    let (tasks, model) = start().await;
    let whole: Value = ask(&model, &scripted(&json!([[{ "text": "a" }, { "text": "b" }]]), false))
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(whole["choices"][0]["message"]["content"], "ab");
    let wrong: Value = ask(&model, &scripted(&json!([[{ "txt": 1 }]]), false)).await.json().await.unwrap();
    let said = wrong["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(said.starts_with("I cannot play this script") && said.contains("txt"), "{said}");
    assert_eq!(ask(&model, &json!({ "messages": 3 })).await.status(), 400);
    assert_eq!(model.requests().len(), 3);
    assert_eq!(model.requests()[2], json!({ "messages": 3 }));
    end(tasks).await;
}

#[tokio::test]
async fn side_calls_use_up_no_reply() {
    let (tasks, model) = start().await;
    let mut request = scripted(&json!([[{ "text": "the reply" }]]), false);
    let title = json!({ "role": "system", "content": "Generate a short title (four words or less)" });
    request["messages"].as_array_mut().unwrap().insert(0, title);
    let answer: Value = ask(&model, &request).await.json().await.unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "Go.");
    end(tasks).await;
}

#[tokio::test]
async fn the_soft_signal_lets_a_connection_end_and_then_ends_the_model() {
    let (tasks, model) = start().await;
    let url = format!("http://{}/v1/models", model.address());
    let client = client();
    let models: Value = client.get(&url).send().await.unwrap().json().await.unwrap();
    assert_eq!(models["data"][0]["id"], MODEL);
    tasks.soft().cancel();
    assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    drop(client);
    tasks.finished().await;
}

#[test]
fn the_kept_requests_are_bounded_in_number_and_bytes() {
    let mut recent = Recent::default();
    for number in 0..200_u8 {
        recent.push(Bytes::from(vec![number; 10]));
    }
    assert_eq!((recent.bodies.len(), recent.bytes), (KEPT_REQUESTS, KEPT_REQUESTS * 10));
    assert_eq!(recent.bodies.back().unwrap()[0], 199);
    recent.push(Bytes::from(vec![0; KEPT_BYTES + 1]));
    assert_eq!((recent.bodies.len(), recent.bytes), (0, 0));
}
