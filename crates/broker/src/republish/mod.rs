//! Copies of direct publishes on NATS, after commit, to whoever listens on the subject.
//!
//! * `republisher`: the task; `queue`: the copies of one partition; `job`: those of one append; `format`: what they look like.
//! * `interest`: whether anybody listens.
//! * `marks`: the headers by which a broker knows a copy, and its own ones.
pub(crate) mod format;
pub(crate) mod interest;
pub(crate) mod job;
pub(crate) mod marks;
pub(crate) mod queue;
pub(crate) mod republisher;
