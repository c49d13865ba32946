//! The Python module `bascule._native` in a build that has failpoints.
//!
//! A crate of its own has a library file of its own: both builds use one target directory, and compile what they share once.
pub use _native as native;
