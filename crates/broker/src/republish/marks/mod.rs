//! Headers and reply subjects that mark a republished message, and the proof that it is this broker's own.
pub(crate) mod origin;
pub(crate) mod probe;
pub(crate) mod seal;
