//! Integration tests: one binary, the real gander, the real goose.
#![expect(clippy::unwrap_used, reason = "what goes wrong in a test is to fail it")]

mod replay;
