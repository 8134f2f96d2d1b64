//! gander: an HTTP and server-sent events gateway in front of goose.
//!
//! The modules in reading order; `ARCHITECTURE.md` has the bird's-eye view.

/// Configuration: defaults, file and environment in layers. The only reader of the environment.
pub mod config;
/// The core: sessions, turns, permissions, events and the ports to agent and log.
pub mod session;
/// The Agent Client Protocol adapter: JSON-RPC over a child's pipes, ACP to core types.
pub mod acp;
/// What is goose's own: launching, homes, catalogue, the todo list as plan.
pub mod goose;
/// Child processes and their ends. Knows neither goose nor sessions.
pub mod process;
/// The event log's and the records' `SQLite` store.
pub mod store;
/// The HTTP adapter: routes, bodies, problems, streams.
pub mod http;
/// Wires everything together. The only module that knows all others.
pub mod app;
/// The command line.
pub mod cli;
/// The built-in scripted model.
pub mod demo;
/// Soft and hard shutdown, and the tracker of all tasks.
pub mod shutdown;
/// Log output.
pub mod telemetry;
