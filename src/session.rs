//! The core: sessions, turns, permissions, events, and the ports to the agent and the log.
//!
//! Reading order: [`id`], [`event`], [`snapshot`], then the ports [`agent`] and [`log`] (with [`order`]), then `state` (what may
//! happen), `actor` (the task that makes it happen), [`handle`] and [`registry`] (the way in).

mod actor;
pub mod agent;
pub mod audience;
pub mod audit;
pub mod event;
pub mod handle;
pub mod id;
pub mod links;
pub mod log;
pub mod order;
pub mod permission;
pub mod plan;
pub mod policy;
pub mod registry;
pub mod run;
pub mod snapshot;
mod state;
#[cfg(test)]
mod fake_permissions;
pub mod tool_call;
pub mod turn;
