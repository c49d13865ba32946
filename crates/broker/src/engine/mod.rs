//! What the binding crate drives.
