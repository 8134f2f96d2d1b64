//! What is goose's own.
//!
//! - [`catalogue`]: its extensions and their names.
//! - [`extensions`]: which of them a session gets.
//! - [`belonging`]: which of those that are loaded belong to it.
//! - [`home`]: a session's `GOOSE_PATH_ROOT`.
//! - [`launch`]: how it is started, and whether it is what was asked for.
//! - [`listing`]: what a goose says it has.
//! - [`log`]: what its log says of extensions that did not load.
//! - [`memory`]: what it remembers for everywhere, kept within a session's home.
//! - [`noted`]: which sessions in the user's home are gander's.
//! - [`outcome`]: what its own words say of a turn's end.
//! - [`places`]: where it keeps what is its own.
//! - [`plan`]: its todo list, read as the plan.
//! - [`remembered`]: what it must not remember of permissions.
//! - [`servers`]: the tool servers (MCP) it gets.
//! - [`skills`]: where its skills are.
//! - [`steer`]: how words are put into its running turn.
//! - [`tools`]: what its tools do, as far as the permission rules have to know.
//! - [`updates`]: what its updates mean beyond ACP.
//! - [`version`]: which versions gander works with.

pub mod belonging;
pub mod catalogue;
pub mod extensions;
pub mod home;
pub mod launch;
pub mod listing;
pub mod log;
pub mod memory;
pub mod noted;
pub mod outcome;
pub mod places;
pub mod plan;
pub mod remembered;
pub mod serve;
pub mod servers;
pub mod skills;
pub mod starting;
pub mod steer;
pub mod tools;
pub mod updates;
pub mod version;
