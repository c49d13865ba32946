//! Headers that mark a copy, and what proves that it is this broker's own.
pub(crate) mod origin;
pub(crate) mod seal;
