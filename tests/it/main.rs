//! Integration tests: one binary, the real gander, the real goose.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails, in its helpers too")]

mod process;
mod reads;
mod replay;
mod support;
mod turns;
