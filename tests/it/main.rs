//! Integration tests: one binary, the real gander, the real goose.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails, in its helpers too")]

mod architecture;
mod audit;
mod backup;
mod beats;
mod callers;
mod client_tools;
mod command_line;
mod connections;
mod crash;
mod cycles;
mod deaths;
mod ends;
mod extensions;
mod floor;
mod hostile;
mod idempotency;
mod inbox;
mod logs;
mod metrics;
mod openapi;
mod outcomes;
mod permissions;
mod plan;
mod problems;
mod process;
mod queue;
mod reads;
mod replay;
mod restart;
mod service;
mod sessions;
mod settings;
mod starts;
mod steer;
mod stopping;
mod storage;
mod tickets;
mod streams;
mod support;
mod tool_servers;
mod turns;
mod wake;
