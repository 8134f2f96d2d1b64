//! The core: sessions, turns, permissions, events, and the ports to the agent and the log.

pub mod agent;
pub mod event;
pub mod handle;
pub mod id;
pub mod log;
pub mod permission;
pub mod plan;
pub mod registry;
pub mod run;
pub mod snapshot;
pub mod tool_call;
pub mod turn;
