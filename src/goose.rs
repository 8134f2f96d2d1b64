//! What is goose's own: its extensions, a session's home, the todo list as plan.

pub mod catalogue;
