//! The Agent Client Protocol adapter: JSON-RPC over an agent's pipes, ACP to core types.
//!
//! One `Connection` serves one agent. A reader task takes what one read brought, line by line, through `rpc`
//! (bytes to messages) and `translate` (messages to the core's events) and sends it to the core as one batch; a
//! writer task empties a bounded queue into the agent's standard input.
//!
//! Architecture invariant: only methods named in this module reach the agent, with ids made here. What a newer agent
//! says and this module does not know is passed on, never an error.

mod connection;
mod rpc;
mod stdio;
mod translate;

pub use connection::{AgentPipes, AgentSelf, Connection, Limits, NewSession, ProviderFacts, ToolPort};
pub use stdio::{Redactor, StderrTail};
