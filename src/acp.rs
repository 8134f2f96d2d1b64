//! The Agent Client Protocol adapter: JSON-RPC with an agent, ACP to core types.
//!
//! One `Connection` serves one agent. A reader task takes what one read brought, message by message, through `rpc`
//! (bytes to messages) and `translate` (messages to the core's events) and sends it to the core as one batch; a
//! writer task empties a bounded queue towards the agent. Neither knows what carries the messages: that is behind the two
//! traits of `transport`.
//!
//! Architecture invariant: only methods named in this module reach the agent, with ids made here. What a newer agent
//! says and this module does not know is passed on, never an error.

mod connection;
mod rpc;
mod stdio;
mod translate;
mod transport;
mod websocket;

pub use connection::{
    AgentPipes, AgentSelf, AgentSocket, Connection, KeptSession, Limits, NewSession, ProviderFacts, ToolPort,
};
pub use stdio::{Redactor, StderrTail};
pub use websocket::{SocketCloser, WebSocket, WebSocketError, WebSocketLimits};
