//! What is goose's own: its extensions, a session's home, the todo list as plan.

/// The todo list as plan.
pub mod plan;
/// What goose means by its updates, beyond ACP.
pub mod updates;
