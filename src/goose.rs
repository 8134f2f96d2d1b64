//! What is goose's own: its extensions, a session's home, the todo list as plan.

/// goose's extensions and their names.
pub mod catalogue;
/// Which extensions a session gets.
pub mod extensions;
/// A session's `GOOSE_PATH_ROOT`.
pub mod home;
/// The todo list as plan.
pub mod plan;
/// What goose means by its updates, beyond ACP.
pub mod updates;
