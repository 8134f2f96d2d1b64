//! In which of the ways that gander and goose can be wired the tests run.
//!
//! `scripts/test` runs everything in the first way, the defaults, and once more in each of the others what must not
//! depend on it: sessions, turns, permissions, the plan, cancel. Only the real goose is wired in another way; the fake
//! agent knows no other.

/// The names of the variants, as `GANDER_TEST_VARIANT` has them, and what they set for gander.
type Variant = (&'static str, &'static [(&'static str, &'static str)]);

/// Every variant but the first, which sets nothing.
const VARIANTS: [Variant; 2] = [
    (
        // goose's tools use the disk and run commands by themselves.
        "without-client-tools",
        &[("GANDER_GOOSE__FILESYSTEM", "false"), ("GANDER_GOOSE__TERMINAL", "false")],
    ),
    ("websocket", &[("GANDER_GOOSE__TRANSPORT", "websocket")]),
];

/// The variant of this run; empty for the defaults.
pub(crate) fn variant() -> String {
    #[expect(clippy::disallowed_methods, reason = "scripts/test names the variant")]
    std::env::var("GANDER_TEST_VARIANT").unwrap_or_default()
}

/// Whether all sessions of the real goose share one process of it in this variant.
pub(crate) fn shares_goose() -> bool {
    variant() == "websocket"
}

/// Whether a process is the goose that all sessions share, or its shim, or one that it has yet to take notice of the end
/// of: it stays, and does so about once a second.
pub(super) fn is_of_all(pid: u32) -> bool {
    if !shares_goose() {
        return false;
    }
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let first = line.split(|byte| *byte == 0).nth(1);
    !super::lives(pid) || first.is_some_and(|first| first == b"shim" || first == b"serve")
}

/// The variables that make gander what the variant says. A test that sets one of them itself means it.
pub(super) fn environment() -> &'static [(&'static str, &'static str)] {
    let name = variant();
    if name.is_empty() {
        return &[];
    }
    let known = VARIANTS.iter().find(|(known, _)| *known == name);
    known.unwrap_or_else(|| panic!("GANDER_TEST_VARIANT={name}: there is no such variant")).1
}
