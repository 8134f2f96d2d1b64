//! gander: an HTTP and server-sent events gateway in front of goose.
//!
//! The modules in reading order; `ARCHITECTURE.md` has the bird's-eye view.
//!
//! - [`config`]: defaults, file and environment in layers; the only reader of the environment.
//! - [`session`]: the core: sessions, turns, permissions, events, and the ports to agent and log.
//! - [`acp`]: the Agent Client Protocol over a child's pipes, to and from the core's types.
//! - [`client_tools`]: gander's own file system and terminal for the agent's tools.
//! - [`goose`]: what is goose's own: launching, homes, catalogue, the todo list as plan.
//! - [`mcp_proxy`]: between an agent and MCP servers that its first question would lose.
//! - [`process`]: child processes and their ends; knows neither goose nor sessions.
//! - [`store`]: the event log and the records in `SQLite`.
//! - [`http`]: routes, bodies, problems, streams.
//! - [`app`]: wires everything together; the only module that knows all others.
//! - [`cli`]: the command line.
//! - [`demo`]: the built-in scripted model.
//! - [`observer`]: follows committed events, for figures, the log and traces; a log line for each turn.
//! - [`metrics`]: figures about the running gateway.
//! - [`traces`]: spans for OpenTelemetry collectors.
//! - [`ip_range`]: ranges of IP addresses, as configurations name them.
//! - [`shutdown`]: soft and hard shutdown, and the tracker of all tasks.
//! - [`telemetry`]: log output.

pub mod config;
pub mod session;
pub mod acp;
pub mod client_tools;
pub mod goose;
pub mod mcp_proxy;
pub mod process;
pub mod store;
pub mod http;
pub mod app;
pub mod cli;
pub mod demo;
pub mod observer;
pub mod metrics;
pub mod traces;
pub mod ip_range;
pub mod shutdown;
pub mod telemetry;
