//! What holds for any rules and any call.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn rule() -> impl Strategy<Value = Rule> {
    let action = prop_oneof![Just(Action::Allow), Just(Action::Ask), Just(Action::Reject)];
    let tool = prop::option::of(prop::sample::select(vec!["shell", "write", "look", "w*", "*", "server__*"]));
    let mode = prop::option::weighted(0.3, prop::sample::select(Mode::ALL.to_vec()));
    let path = prop::option::of(prop::sample::select(vec!["**", "/etc/**", "link/**", "/outside/*", "a"]));
    let command =
        prop::option::of(prop::sample::select(vec!["ls", "ls *", "git *", "git push *", "rm", "*", "sh *"]));
    (action, tool, mode, path, command, any::<u8>()).prop_map(|(action, tool, mode, path, command, which)| {
        let mut rule = Rule::new(action);
        rule.tool = tool.map(str::to_owned);
        rule.mode = mode;
        match which % 3 {
            0 => rule.path = path.map(str::to_owned),
            1 => rule.command = command.map(str::to_owned),
            _ => {}
        }
        rule
    })
}

fn rules() -> impl Strategy<Value = PermissionPolicy> {
    let default = prop::option::of(prop_oneof![Just(Action::Allow), Just(Action::Ask), Just(Action::Reject)]);
    (prop::collection::vec(rule(), 0..5), default).prop_map(|(rules, default)| PermissionPolicy {
        rules,
        default,
        ..PermissionPolicy::default()
    })
}

fn call() -> impl Strategy<Value = Call> {
    let lines = vec![
        "ls",
        "ls -l",
        "git status; rm x",
        "git push",
        "$X",
        "sh -c 'rm x'",
        "echo $(ls)",
        "ls && git log",
        "(",
    ];
    let line = prop_oneof![prop::sample::select(lines).prop_map(str::to_owned), ".{0,20}"];
    let path = prop_oneof![
        prop::sample::select(vec!["a", "/etc/x", "link/a", "../a", "~/x"]).prop_map(str::to_owned),
        ".{0,20}"
    ];
    let call = prop_oneof![
        line.prop_map(|line| Call::shell(&line)),
        path.prop_map(|path| Call::write(&path)),
        Just(Call::new("look", json!({}))),
        Just(Call::new("server__run", json!({"command": "rm x"}))),
    ];
    (call, prop::sample::select(Mode::ALL.to_vec())).prop_map(|(call, mode)| call.in_mode(mode))
}

/// What is remembered of an earlier call.
fn grants() -> impl Strategy<Value = Vec<Grant>> {
    use crate::session::permission::Decision;
    let grant =
        (call(), prop_oneof![Just(Decision::Allow), Just(Decision::Reject)]).prop_map(|(call, decision)| {
            let none = Policy::new(&PermissionPolicy::default(), &PermissionPolicy::default());
            call.request(&none, |request| Grant::of(request, decision))
        });
    prop::collection::vec(grant, 0..4).prop_map(|grants| grants.into_iter().flatten().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_reject_or_ask_rule_more_never_loosens(
        server in rules(), session in rules(), call in call(), grants in grants(),
        mut more in rule(), on_server in any::<bool>(),
    ) {
        let before = call.decide(&Policy::new(&server, &session), &grants).action;
        let add = |more: &Rule| {
            let (mut server, mut session) = (server.clone(), session.clone());
            if on_server { server.rules.push(more.clone()) } else { session.rules.push(more.clone()) }
            call.decide(&Policy::new(&server, &session), &grants).action
        };
        more.action = Action::Reject;
        let after = add(&more);
        prop_assert!(after >= before, "{before:?} became {after:?}");
        // An ask rule may turn a rejection by its own level's default into a question, never anything into consent.
        more.action = Action::Ask;
        let after = add(&more);
        prop_assert!(before == Action::Allow || after != Action::Allow, "{before:?} became {after:?}");
    }

    #[test]
    fn the_order_of_rules_means_nothing(
        server in rules(), session in rules(), call in call(), grants in grants(), turn in any::<prop::sample::Index>(),
    ) {
        let before = call.decide(&Policy::new(&server, &session), &grants).action;
        let turned = |policy: &PermissionPolicy| {
            let mut policy = policy.clone();
            policy.rules.reverse();
            if !policy.rules.is_empty() {
                let by = turn.index(policy.rules.len());
                policy.rules.rotate_left(by);
            }
            policy
        };
        let after = call.decide(&Policy::new(&turned(&server), &turned(&session)), &grants).action;
        prop_assert_eq!(before, after);
    }

    #[test]
    fn a_session_never_loosens_what_the_gateway_says(server in rules(), session in rules(), call in call()) {
        let nothing = PermissionPolicy::default();
        let alone = call.decide(&Policy::new(&server, &nothing), &[]);
        let both = call.decide(&Policy::new(&server, &session), &[]);
        // What the gateway leaves to the mode, a session may spare; what a rule or the default says, it may not.
        let said = alone.rule.is_some() || call.mode == Mode::Chat;
        prop_assert!(!said || both.action >= alone.action, "{alone:?} became {both:?}");
    }

    #[test]
    fn a_remembered_answer_never_beats_a_rule(server in rules(), session in rules(), call in call(), grants in grants()) {
        let both = Policy::new(&server, &session);
        let without = call.decide(&both, &[]);
        let with = call.decide(&both, &grants);
        let said = without.rule.is_some() || call.mode == Mode::Chat;
        prop_assert!(!said || with.action >= without.action, "{without:?} became {with:?}");
    }

    #[test]
    fn nothing_restricting_means_that_the_agent_may_decide(session in rules(), call in call()) {
        let both = Policy::new(&PermissionPolicy::default(), &session);
        if !both.restricts(call.mode) && call.mode == Mode::Auto {
            prop_assert_eq!(call.decide(&both, &[]).action, Action::Allow);
        }
    }
}
