//! What is goose's own: its extensions, a session's home, how it is started, what its updates mean.

/// goose's extensions and their names.
pub mod catalogue;
/// Which extensions a session gets.
pub mod extensions;
/// A session's `GOOSE_PATH_ROOT`.
pub mod home;
/// How goose is started, and whether it is what was asked for.
pub mod launch;
/// The todo list, read as the plan.
pub mod plan;
/// What goose means by its updates, beyond ACP.
pub mod updates;
/// Which versions of goose gander works with.
pub mod version;
