//! Rules that decide before anybody is asked, on the real goose.

use std::path::Path;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{shell, story, until_asked};
use crate::support::{Gander, Session, Setup, carried, kinds, only, refusal, script, text};

const RULES: &str = r#"
[[permissions.rules]]
action = "reject"
command = "touch *"
"#;

/// Whether the session's folder has this file.
fn has(session: &Session<'_>, file: &str) -> bool {
    Path::new(&text(&session.snapshot["cwd"])).join(file).exists()
}

/// The states that were told.
async fn states(session: &Session<'_>) -> Vec<String> {
    carried(&session.log().await, "session.state", "state").into_iter().map(text).collect()
}

#[tokio::test]
async fn a_reject_rule_holds_in_auto() {
    let gander = Setup::real().config(RULES).start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    assert_eq!(
        (&session.snapshot["mode"], &session.snapshot["agent"]["mode"]),
        (&json!("auto"), &json!("approve"))
    );
    assert_eq!(session.snapshot["permission_policy"], json!({}));
    let turn = session.turn(&shell("touch made")).await;
    assert_eq!((&turn["state"], &turn["text"]), (&json!("completed"), &json!("That was it.")));
    assert!(!has(&session, "made"));
    let log = session.log().await;
    let requested = &only(&log, "permission.requested").data["permission"];
    assert_eq!((&requested["state"], &requested["outcome"]), (&json!("pending"), &Value::Null));
    let permission = &only(&log, "permission.resolved").data["permission"];
    assert_eq!((&permission["id"], &permission["state"]), (&requested["id"], &json!("resolved")));
    let outcome = &permission["outcome"];
    assert_eq!((&outcome["decision"], &outcome["scope"]), (&json!("reject"), &json!("once")));
    assert_eq!((&outcome["by"], &outcome["rule"]), (&json!("policy"), &json!("server.rules[0]")));
    assert!(text(&outcome["reason"]).contains("touch"), "{outcome}");
    assert_eq!(only(&log, "tool_call.finished").data["tool_call"]["status"], "rejected");
    assert_eq!(
        story(&log, &turn),
        [
            "turn.started",
            "message.delta",
            "tool_call.started",
            "permission.requested",
            "permission.resolved",
            "tool_call.finished",
            "message.delta",
            "turn.completed"
        ]
    );
    assert_eq!(gander.get(&session.path("/permissions")).await["permissions"], json!([permission]));
    assert!(!states(&session).await.contains(&"awaiting_permission".to_owned()));

    // What no rule touches runs unasked, and the decision is told too.
    let turn = session.turn(&shell("echo hello > there")).await;
    assert_eq!(turn["state"], "completed");
    assert!(has(&session, "there"));
    let log = session.log().await;
    let outcome = &carried(&log, "permission.resolved", "permission")[1]["outcome"];
    assert_eq!(
        (&outcome["decision"], &outcome["by"], &outcome["rule"]),
        (&json!("allow"), &json!("policy"), &Value::Null)
    );
    gander.stop().await;
}

#[tokio::test]
async fn an_allow_rule_spares_the_question_in_approve_and_only_this_one() {
    let gander = Setup::real().start().await;
    let policy = json!({"rules": [
        {"action": "allow", "command": "touch *"},
        {"action": "allow", "tool": "write", "path": "out/**"},
    ]});
    let session = gander.session(&json!({"mode": "approve", "permission_policy": policy})).await;
    assert_eq!(session.snapshot["permission_policy"], policy);
    assert_eq!(session.snapshot["agent"]["mode"], "approve");
    session.turn(&shell("touch made && touch 'made too'")).await;
    assert!(has(&session, "made") && has(&session, "made too"));
    let write = |path: &str| {
        script(&json!([
            [{"call": {"tool": "write", "input": {"path": path, "content": "x"}}}],
            [{"text": "Written."}],
        ]))
    };
    session.turn(&write("out/deep/file")).await;
    assert!(has(&session, "out/deep/file"));
    assert!(!states(&session).await.contains(&"awaiting_permission".to_owned()));
    let mut events = session.events_with("?after=latest").await;
    for prompt in [write("out/../other"), shell("touch made; rm made")] {
        let (_, permission) = until_asked(&session, &mut events, &prompt).await;
        assert_eq!(permission["state"], "pending");
        session.answer(&permission, "reject").await;
        events.until("turn.completed").await;
    }
    assert!(has(&session, "made") && !has(&session, "other"));
    gander.stop().await;
}

/// What is said of a call before it is made.
async fn explained(session: &Session<'_>, call: &Value) -> Value {
    session.gander.post(&session.path("/permissions/explain"), call, StatusCode::OK).await
}

#[tokio::test]
async fn what_is_explained_is_what_happens() {
    let rules = r#"
[[permissions.rules]]
action = "reject"
command = "rm *"
[[permissions.rules]]
action = "ask"
path = "/etc/**"
[[permissions.rules]]
action = "allow"
command = "echo *"
"#;
    let gander = Setup::real().config(rules).start().await;
    let own = json!({"rules": [
        {"action": "reject", "command": "echo secret"},
        {"action": "allow", "tool": "write", "path": "notes/*"},
        {"action": "reject", "tool": "tree", "input": {"/depth": 9}},
    ]});
    let shell = |line: &str| json!({"tool": "shell", "input": {"command": line}});
    let write = |path: &str| json!({"tool": "write", "input": {"path": path, "content": "x"}});
    let calls = [
        shell("echo one"),
        shell("echo one; date"),
        shell("date"),
        shell("rm -rf nothing"),
        shell("echo $(rm nothing)"),
        shell("ec''ho secret"),
        write("notes/a"),
        write("/etc/gander-was-here"),
        write("notes/../b"),
        json!({"tool": "tree", "input": {"path": "."}}),
        json!({"tool": "tree", "input": {"path": ".", "depth": 9}}),
        json!({"tool": "todo__todo_write", "input": {"content": "- [ ] one"}}),
    ];
    let steps: Vec<Value> =
        calls.iter().map(|call| json!([{"call": {"tool": call["tool"], "input": call["input"]}}])).collect();
    let replies: Vec<Value> = steps.into_iter().chain([json!([{"text": "Done."}])]).collect();
    for mode in ["auto", "smart_approve", "approve"] {
        let session = gander.session(&json!({"mode": mode, "permission_policy": own})).await;
        let mut expected = Vec::new();
        for call in &calls {
            expected.push((call, explained(&session, call).await));
        }
        let mut events = session.events_with("?after=latest").await;
        session.prompt(&script(&json!(replies))).await;
        let mut found = Vec::new();
        loop {
            let event = events.next().await.unwrap();
            match event.kind() {
                "permission.requested" => {
                    let permission = event.data["permission"].clone();
                    let now = gander.get(&super::answer_path(&session, &permission)).await;
                    if now["state"] == "pending" {
                        found.push((permission["tool_call"].clone(), json!("ask"), Value::Null));
                        session.answer(&permission, "reject").await;
                    }
                }
                "permission.resolved" if event.data["permission"]["outcome"]["by"] == "policy" => {
                    let permission = &event.data["permission"];
                    let outcome = &permission["outcome"];
                    found.push((
                        permission["tool_call"].clone(),
                        outcome["decision"].clone(),
                        outcome["rule"].clone(),
                    ));
                }
                "turn.completed" => break,
                _ => {}
            }
        }
        // The plan's write is told by the plan alone.
        assert_eq!(session.now().await["plan"]["version"], 1);
        let (plan, told) = expected.split_last().unwrap();
        assert_eq!(plan.1["decision"], "allow");
        assert_eq!(found.len(), told.len(), "{found:#?}");
        for ((call, said), (real, decision, rule)) in told.iter().zip(&found) {
            assert_eq!((&real["tool"], &real["input"]), (&call["tool"], &call["input"]));
            assert_eq!(said["decision"], *decision, "{mode}: {call}: {said}");
            if decision != "ask" {
                assert_eq!(said["rule"], *rule, "{mode}: {call}: {said}");
            }
            assert!(said["reason"].is_string());
        }
        let decisions: Vec<&str> = told.iter().map(|(_, said)| said["decision"].as_str().unwrap()).collect();
        let (loose, read) = match mode {
            "auto" => ("allow", "allow"),
            "smart_approve" => ("ask", "allow"),
            _ => ("ask", "ask"),
        };
        assert_eq!(
            decisions,
            ["allow", loose, loose, "reject", "reject", "reject", "allow", "ask", loose, read, "reject",],
            "{mode}"
        );
        session.delete().await;
    }
    gander.stop().await;
}

#[tokio::test]
async fn what_is_asked_to_explain_is_checked() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({"mode": "chat"})).await;
    let said = explained(&session, &json!({"tool": "shell", "input": {"command": "ls"}})).await;
    assert_eq!(
        (&said["decision"], &said["rule"]),
        (&json!("reject"), &Value::Null),
        "no tool runs in a chat"
    );
    session.patch(&json!({"mode": "smart_approve"})).await;
    let said = explained(&session, &json!({"tool": "shell", "input": {"command": "ls"}})).await;
    assert_eq!(said["decision"], "ask");
    assert!(text(&said["reason"]).contains("asking its model"), "{said}");
    let path = session.path("/permissions/explain");
    for (body, pointer) in [
        (json!({"tool": "shell"}), ""),
        (json!({"tool": "", "input": {}}), "/tool"),
        (json!({"tool": "shell", "input": "ls"}), "/input"),
        (json!({"tool": "shell", "input": {}, "mode": "auto"}), "/mode"),
    ] {
        let problem = refusal(gander.request(Method::POST, &path).json(&body), 422, "invalid-request").await;
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}");
    }
    gander.stop().await;
}

#[tokio::test]
async fn new_rules_bind_from_the_next_prompt_on_whatever_lies_between() {
    let gander = Setup::real().start().await;
    let session = gander.session(&json!({"mode": "auto"})).await;
    assert_eq!(session.snapshot["agent"]["mode"], "auto");
    let mut events = session.events_with("?after=latest").await;
    // In the middle of a turn goose goes on as it began.
    let replies = json!([
        [{"call": {"tool": "shell", "input": {"command": "echo first; until [ -e told ]; do sleep 0.01; done"}}}],
        [{"call": {"tool": "shell", "input": {"command": "touch second"}}}],
        [{"text": "Both."}],
    ]);
    session.prompt(&script(&replies)).await;
    events.until("tool_call.output").await;
    let policy = json!({"rules": [{"action": "ask", "tool": "shell"}], "timeout_s": 60});
    let changed = session.patch(&json!({"permission_policy": policy})).await;
    assert_eq!((&changed["permission_policy"], &changed["agent"]["mode"]), (&policy, &json!("auto")));
    std::fs::write(Path::new(&text(&session.snapshot["cwd"])).join("told"), "").unwrap();
    let told = events.through("turn.completed").await;
    assert!(has(&session, "second") && !kinds(&told).contains(&"permission.requested"));
    let updated = &only(&told, "session.updated").data["session"];
    assert_eq!((&updated["permission_policy"], &updated["by"]), (&policy, &json!("default")));

    let asks = async |events: &mut crate::support::EventStream, file: &str| {
        let (_, permission) = until_asked(&session, events, &shell(&format!("touch {file}"))).await;
        let now = session.now().await;
        assert_eq!((&now["mode"], &now["agent"]["mode"]), (&json!("auto"), &json!("approve")));
        assert_eq!(now["state"], "awaiting_permission");
        session.answer(&permission, "reject").await;
        events.until("turn.completed").await;
        assert!(!has(&session, file));
    };
    asks(&mut events, "third").await;

    // Taken back, and set again while the session sleeps.
    let removed = session.patch(&json!({"permission_policy": {"rules": null}})).await;
    assert_eq!(removed["permission_policy"], json!({"timeout_s": 60}), "the rest stays");
    session.turn(&shell("touch fourth")).await;
    assert!(has(&session, "fourth"));
    assert_eq!(session.now().await["agent"]["mode"], "auto");
    gander.post(&session.path("/hibernate"), &json!({}), StatusCode::OK).await;
    let asleep = session.patch(&json!({"permission_policy": {"rules": policy["rules"]}})).await;
    assert_eq!((&asleep["state"], &asleep["permission_policy"]), (&json!("hibernated"), &policy));
    let mut events = session.events_with("?after=latest").await;
    asks(&mut events, "fifth").await;

    // A change of the mode that the rules do not let through to goose.
    let patched = session.patch(&json!({"mode": "smart_approve"})).await;
    assert_eq!((&patched["mode"], &patched["agent"]["mode"]), (&json!("smart_approve"), &json!("approve")));
    let both = session.patch(&json!({"mode": "auto", "permission_policy": null})).await;
    assert_eq!((&both["permission_policy"], &both["agent"]["mode"]), (&json!({}), &json!("auto")));
    gander.stop().await;
}

#[tokio::test]
async fn a_sessions_policy_outlives_a_restart() {
    let gander = Setup::real().start().await;
    let policy = json!({
        "rules": [{"action": "reject", "command": "touch *"}],
        "default": "ask", "timeout_s": 30, "on_timeout": "reject", "on_no_subscriber": "reject",
    });
    let session = gander.session(&json!({"mode": "auto", "permission_policy": policy})).await;
    let cwd = text(&session.snapshot["cwd"]);
    let (id, dir) = (session.id.clone(), gander.dir.clone());
    gander.stop().await;
    let gander = Setup::real().dir(dir).start().await;
    let session = Session { gander: &gander, id, snapshot: json!({ "cwd": cwd }) };
    assert_eq!(session.now().await["permission_policy"], policy);
    session.turn(&shell("touch made")).await;
    assert!(!has(&session, "made"));
    let log = session.log().await;
    assert_eq!(only(&log, "permission.resolved").data["permission"]["outcome"]["rule"], "session.rules[0]");
    gander.stop().await;
}

#[tokio::test]
async fn a_policy_that_cannot_be_is_refused_at_its_place() {
    let gander = Setup::fake().start().await;
    let session = gander.session(&json!({})).await;
    for (policy, pointer) in [
        (json!({"rules": [{"action": "allow"}, {"action": "forbid"}]}), "/permission_policy/rules/1/action"),
        (json!({"rules": [{"action": "ask", "tol": "x"}]}), "/permission_policy/rules/0/tol"),
        (json!({"rules": [{"action": "ask", "path": "../x"}]}), "/permission_policy/rules/0/path"),
        (json!({"default": "maybe"}), "/permission_policy/default"),
        (json!({"timeout_s": 0}), "/permission_policy/timeout_s"),
        (json!({"on_timeout": "allow"}), "/permission_policy/on_timeout"),
        (json!({"on_no_subscriber": "allow"}), "/permission_policy/on_no_subscriber"),
        (json!({"ruls": []}), "/permission_policy/ruls"),
    ] {
        let body = json!({ "permission_policy": policy });
        for request in
            [gander.request(Method::POST, "/v1/sessions"), gander.request(Method::PATCH, &session.path(""))]
        {
            let problem = refusal(request.json(&body), 422, "invalid-request").await;
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
        }
    }
    assert_eq!(session.now().await["permission_policy"], json!({}));
    gander.stop().await;
}

async fn plan_of(gander: &Gander, mode: &str) -> (Value, Vec<String>) {
    let session = gander.session(&json!({ "mode": mode })).await;
    let write = json!({"call": {"tool": "todo__todo_write", "input": {"content": "- [ ] one"}}});
    session.turn(&script(&json!([[write], [{"text": "Planned."}]]))).await;
    let log = session.log().await;
    let told = kinds(&log).into_iter().filter(|kind| kind.starts_with("permission.")).map(str::to_owned);
    (session.now().await["plan"].clone(), told.collect())
}

#[tokio::test]
async fn the_plan_is_written_unasked_unless_a_rule_rejects_it() {
    let rule = |action: &str| format!("[[permissions.rules]]\naction = \"{action}\"\ntool = \"todo__*\"");
    let gander = Setup::real().config(&rule("ask")).start().await;
    let (plan, told) = plan_of(&gander, "auto").await;
    assert_eq!((&plan["version"], told), (&json!(1), Vec::new()), "an ask rule does not ask about it");
    gander.stop().await;
    let gander = Setup::real().config(&rule("reject")).start().await;
    let (plan, told) = plan_of(&gander, "auto").await;
    assert_eq!(plan["version"], 0);
    assert_eq!(told, ["permission.requested", "permission.resolved"]);
    gander.stop().await;
}
