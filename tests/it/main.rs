//! Integration tests: one binary, the real gander, the real goose.

mod replay;
