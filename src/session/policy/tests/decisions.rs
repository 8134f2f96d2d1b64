//! Who wins over whom, and what each part of a rule means.

use serde_json::{Value, json};

use super::*;
use crate::session::permission::Decision;

fn action(rules: Value, call: &Call) -> Action {
    call.decide(&server(rules), &[]).action
}

#[test]
fn reject_goes_before_ask_before_allow() {
    let call = Call::write("a");
    let all = json!([{"action": "allow"}, {"action": "ask", "tool": "write"}, {"action": "reject", "kind": "edit"}]);
    assert_eq!(action(all, &call), Action::Reject);
    assert_eq!(action(json!([{"action": "allow"}, {"action": "ask"}]), &call), Action::Ask);
    assert_eq!(action(json!([{"action": "allow"}]), &call), Action::Allow);
}

#[test]
fn without_a_rule_the_mode_decides() {
    let none = server(json!([]));
    let look = Call::new("look", json!({}));
    for (mode, write, reads) in [
        (Mode::Auto, Action::Allow, Action::Allow),
        (Mode::Approve, Action::Ask, Action::Ask),
        (Mode::SmartApprove, Action::Ask, Action::Allow),
        (Mode::Chat, Action::Reject, Action::Reject),
    ] {
        assert_eq!(Call::write("a").in_mode(mode).decide(&none, &[]).action, write, "{mode:?}");
        assert_eq!(look.clone().in_mode(mode).decide(&none, &[]).action, reads, "{mode:?}");
    }
}

#[test]
fn rules_bind_in_every_mode() {
    let rules = server(json!([{"action": "reject", "tool": "write"}, {"action": "ask", "tool": "look"}]));
    for mode in Mode::ALL {
        assert!(rules.restricts(mode));
        assert_eq!(Call::write("a").in_mode(mode).decide(&rules, &[]).action, Action::Reject);
    }
    let look = Call::new("look", json!({}));
    assert_eq!(look.clone().in_mode(Mode::Auto).decide(&rules, &[]).action, Action::Ask);
    assert_eq!(look.in_mode(Mode::SmartApprove).decide(&rules, &[]).action, Action::Ask);
}

#[test]
fn a_rule_for_one_mode_is_silent_in_the_others() {
    let rules = server(json!([{"action": "reject", "mode": "auto"}, {"action": "allow", "mode": "approve"}]));
    assert!(rules.restricts(Mode::Auto) && !rules.restricts(Mode::Approve));
    assert_eq!(Call::write("a").in_mode(Mode::Auto).decide(&rules, &[]).action, Action::Reject);
    assert_eq!(Call::write("a").decide(&rules, &[]).action, Action::Allow);
    assert_eq!(Call::write("a").in_mode(Mode::SmartApprove).decide(&rules, &[]).action, Action::Ask);
}

#[test]
fn a_default_of_reject_is_a_list_of_what_is_allowed() {
    let call = Call::write("a").in_mode(Mode::Auto);
    let other = Call::new("tree", json!({"path": "."})).in_mode(Mode::Auto);
    let listed = policy(json!({"default": "reject", "rules": [{"action": "allow", "tool": "write"}]}));
    let open = policy(json!({"default": "allow", "rules": [{"action": "allow"}]}));
    let nothing = PermissionPolicy::default();
    for both in [Policy::new(&listed, &nothing), Policy::new(&listed, &open), Policy::new(&open, &listed)] {
        assert!(both.restricts(Mode::Auto));
        assert_eq!(call.decide(&both, &[]).action, Action::Allow);
        assert_eq!(other.decide(&both, &[]).action, Action::Reject);
    }
    let asking = policy(json!({"default": "reject", "rules": [{"action": "ask", "tool": "write"}]}));
    assert_eq!(call.decide(&Policy::new(&asking, &nothing), &[]).action, Action::Ask);
    let ask = policy(json!({"rules": [{"action": "ask"}]}));
    assert_eq!(
        other.decide(&Policy::new(&listed, &ask), &[]).action,
        Action::Reject,
        "asking would loosen it"
    );
    let verdict = other.decide(&Policy::new(&open, &listed), &[]);
    assert_eq!(verdict.rule.as_deref(), Some("session.default"));
}

#[test]
fn the_stricter_default_counts() {
    let with = |default: &str| policy(json!({"default": default}));
    let decide = |server: &str, session: &PermissionPolicy| {
        Call::write("a").decide(&Policy::new(&with(server), session), &[]).action
    };
    assert_eq!(decide("ask", &with("allow")), Action::Ask);
    assert_eq!(decide("allow", &with("ask")), Action::Ask);
    assert_eq!(decide("allow", &with("allow")), Action::Allow);
    assert_eq!(decide("allow", &PermissionPolicy::default()), Action::Allow);
    assert_eq!(decide("allow", &with("reject")), Action::Reject);
    assert_eq!(decide("reject", &with("allow")), Action::Reject);
}

#[test]
fn a_verdict_names_what_decided() {
    let gateway = policy(json!({"rules": [{"action": "allow", "tool": "look"}]}));
    let session =
        policy(json!({"rules": [{"action": "ask", "tool": "x"}, {"action": "reject", "path": "/etc/**"}]}));
    let both = Policy::new(&gateway, &session);
    let verdict = Call::write("/etc/passwd").decide(&both, &[]);
    assert_eq!(verdict.rule.as_deref(), Some("session.rules[1]"));
    assert_eq!(verdict.reason, "session.rules[1] rejects calls with path `/etc/**`.");
    assert_eq!(Call::new("look", json!({})).decide(&both, &[]).rule.as_deref(), Some("server.rules[0]"));
    let verdict = Call::write("a").decide(&both, &[]);
    assert_eq!(
        (verdict.rule, verdict.reason.as_str()),
        (None, "No rule allows this call, and mode approve asks.")
    );
}

#[test]
fn all_given_parts_have_to_fit() {
    let call = Call::new(
        "files__put",
        json!({"path": "src/a.rs", "depth": 1.0, "url": "https://example.org/x", "deep": {"a/b": [true]}}),
    );
    let fits = |parts: Value| {
        let mut rule = json!({"action": "allow"});
        rule.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
        action(json!([rule]), &call) == Action::Allow
    };
    assert!(
        fits(json!({"tool": "files__*"}))
            && !fits(json!({"tool": "files_*x"}))
            && !fits(json!({"tool": "FILES__put"}))
    );
    assert!(fits(json!({"extension": "server"})) && !fits(json!({"extension": "developer"})));
    assert!(fits(json!({"kind": "other"})) && !fits(json!({"kind": "edit"})));
    assert!(
        fits(json!({"path": "src/**"}))
            && fits(json!({"path": "/work/src/a.rs"}))
            && !fits(json!({"path": "/src/**"}))
    );
    assert!(fits(json!({"input": {"/depth": 1}})) && !fits(json!({"input": {"/depth": "1"}})));
    assert!(
        fits(json!({"input": {"/url": "https://example.org/*"}}))
            && !fits(json!({"input": {"/url": "http://*"}}))
    );
    assert!(fits(json!({"input": {"/deep/a~1b": [true]}})) && !fits(json!({"input": {"/missing": null}})));
    assert!(!fits(json!({"tool": "files__*", "path": "/etc/**"})));
    assert!(!fits(json!({"command": "ls"})), "not the shell");
}

#[test]
fn what_is_not_known_fits_restricting_rules_alone() {
    let rules = |action: &str| server(json!([{"action": action, "tool": "write", "extension": "developer"}]));
    let decide = |policy: &Policy| {
        Call::write("a")
            .request(policy, |request| policy.decide(&ToolRequest { tool: None, ..*request }, &[]).action)
    };
    assert_eq!(decide(&rules("allow")), Action::Ask);
    assert_eq!(decide(&rules("reject")), Action::Reject);
    let long = "x".repeat(70_000);
    let call = Call::new("put", json!({"text": long}));
    assert_eq!(action(json!([{"action": "allow", "input": {"/text": "x*"}}]), &call), Action::Ask);
    assert_eq!(action(json!([{"action": "reject", "input": {"/text": "*y*"}}]), &call), Action::Reject);
}

#[test]
fn paths_are_compared_where_they_really_lead() {
    let allow =
        |path: &str| action(json!([{"action": "allow", "path": "**"}]), &Call::write(path)) == Action::Allow;
    assert!(allow("a") && allow("/work/a") && allow("./b/../a"));
    assert!(!allow("../a") && !allow("/etc/passwd") && !allow("b/../../etc/x") && !allow("/workshop/a"));
    assert!(!allow("link/a"), "a link out of the folder");
    assert!(!allow("~/a"), "nobody knows what ~ is to the tool");
    let reject = |pattern: &str, path: &str| {
        action(json!([{"action": "allow"}, {"action": "reject", "path": pattern}]), &Call::write(path))
            == Action::Reject
    };
    assert!(
        reject("/etc/**", "/etc/passwd")
            && reject("/etc/**", "../etc/passwd")
            && !reject("/etc/**", "/opt/x")
    );
    assert!(
        reject("/outside/**", "link/a") && reject("link/**", "link/a") && reject("link/**", "/outside/a")
    );
    assert!(
        reject("/alias/**", "/real/a")
            && reject("/real/**", "/alias/a")
            && reject("/alias/*.key", "/real/a.key")
    );
    assert!(reject("/etc/**", "~/a"), "it may be anywhere");
    let tree = |path: &str| {
        action(
            json!([{"action": "reject", "path": "/work/secret/**"}]),
            &Call::new("tree", json!({"path": path})),
        )
    };
    assert_eq!(tree("."), Action::Reject, "it shows what lies below");
    assert_eq!(tree("docs"), Action::Ask);
}

#[test]
fn a_path_that_nobody_looked_up_is_not_allowed() {
    let rules = server(json!([{"action": "allow", "path": "**"}]));
    let verdict = Call::write("a").request(&rules, |request| {
        rules.decide(&ToolRequest { resolved: &ResolvedPaths::default(), ..*request }, &[])
    });
    assert_eq!(verdict.action, Action::Ask);
}

#[test]
fn a_shell_line_is_not_allowed_by_its_looks() {
    let call = Call::shell("git status; rm -rf /");
    assert_eq!(action(json!([{"action": "allow", "input": {"/command": "git *"}}]), &call), Action::Ask);
    let exact = json!([{"action": "allow", "input": {"/command": "git status; rm -rf /"}}]);
    assert_eq!(action(exact, &call), Action::Allow, "this very line");
    assert_eq!(action(json!([{"action": "allow", "tool": "shell"}]), &call), Action::Allow, "every line");
}

#[test]
fn always_remembers_a_tool_or_a_file() {
    let none = server(json!([]));
    let grant = |call: &Call, decision| call.request(&none, |request| Grant::of(request, decision));
    let file = grant(&Call::write("b/../a"), Decision::Allow).unwrap();
    let remembered = std::slice::from_ref(&file);
    assert_eq!(file.words(), "Always allow `write` of /work/a in this session");
    assert_eq!(Call::write("/work/a").decide(&none, remembered).action, Action::Allow);
    assert_eq!(Call::write("/work/b").decide(&none, remembered).action, Action::Ask);
    assert_eq!(Call::new("edit", json!({"path": "a"})).decide(&none, remembered).action, Action::Ask);
    assert_eq!(grant(&Call::write("~/a"), Decision::Allow), None);
    let tool = grant(&Call::new("look", json!({"x": 1})), Decision::Reject).unwrap();
    assert_eq!(tool.words(), "Always reject every call of `look` in this session");
    let verdict = Call::new("look", json!({"x": 2})).in_mode(Mode::Auto).decide(&none, &[file.clone(), tool]);
    assert_eq!((verdict.action, verdict.grant), (Action::Reject, Some(1)));
    for rules in [json!([{"action": "ask", "tool": "write"}]), json!([{"action": "reject", "tool": "write"}])]
    {
        let verdict = Call::write("a").decide(&server(rules), remembered);
        assert_ne!(verdict.action, Action::Allow, "a rule is stronger");
    }
    let stored = serde_json::to_value(&file).unwrap();
    let expected = json!({
        "decision": "allow", "tool": "write", "extension": "developer", "calls": "files", "files": ["/work/a"]
    });
    assert_eq!(stored, expected);
    assert_eq!(serde_json::from_value::<Grant>(stored).unwrap(), file);
}

#[test]
fn faults_say_where_and_what() {
    let faults = |text: Value| -> Vec<(String, String)> {
        let policy: PermissionPolicy = serde_json::from_value(text).unwrap();
        policy.faults().into_iter().map(|fault| (fault.pointer, fault.detail)).collect()
    };
    let rule = |parts: Value| {
        let mut rule = json!({"action": "allow"});
        rule.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
        let mut found = faults(json!({"rules": [{"action": "ask"}, rule]}));
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    };
    for (parts, pointer, word) in [
        (json!({"tool": ""}), "/rules/1/tool", "empty"),
        (json!({"tool": "sh?ll"}), "/rules/1/tool", "wildcard"),
        (json!({"extension": "x".repeat(2_000)}), "/rules/1/extension", "longer"),
        (json!({"path": "~/.ssh/**"}), "/rules/1/path", "~"),
        (json!({"path": "../x"}), "/rules/1/path", ".."),
        (json!({"path": "a/**.rs"}), "/rules/1/path", "whole name"),
        (json!({"path": "a", "command": "ls"}), "/rules/1/path", "command"),
        (json!({"command": "ls; rm"}), "/rules/1/command", "';'"),
        (json!({"command": "  "}), "/rules/1/command", "git status"),
        (json!({"input": {"url": "x"}}), "/rules/1/input/url", "pointer"),
        (json!({"input": {"/a/b": "x".repeat(2_000)}}), "/rules/1/input/~1a~1b", "longer"),
    ] {
        let (found, detail) = rule(parts);
        assert_eq!(found, pointer, "{detail}");
        assert!(detail.contains(word), "{detail}");
    }
    let many = vec![json!({"action": "ask"}); 201];
    assert_eq!(faults(json!({"rules": many}))[0].0, "/rules");
    assert_eq!(faults(json!({"timeout_s": 0}))[0].0, "/timeout_s");
    assert!(serde_json::from_value::<PermissionPolicy>(json!({"rule": []})).is_err(), "unknown fields");
    assert!(serde_json::from_value::<PermissionPolicy>(json!({"on_timeout": "allow"})).is_err());
    assert_eq!(serde_json::to_value(PermissionPolicy::default()).unwrap(), json!({}));
}
