//! gander
fn main() {}
