//! Integration tests: one binary, the real gander, the real goose.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails, in its helpers too")]

mod permissions;
mod plan;
mod process;
mod reads;
mod replay;
mod sessions;
mod support;
mod turns;
