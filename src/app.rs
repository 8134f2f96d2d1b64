//! Wires everything together.

mod launcher;
