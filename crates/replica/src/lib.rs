//! Replication of one partition, and what brokers know of each other, as pure step functions (`docs/spec/replication.md`).
//!
//! Each state machine is a struct with `step(&mut self, event, now) -> Actions`. The crate never reads a clock, a file or a
//! socket: time is an argument, what a log holds is part of an event, and what has to happen comes back as actions, in the
//! order in which the caller performs them. No input panics. Every state is `Clone + Eq + Hash`, so that a model can search
//! all orders of events with the code that the broker runs.
//!
//! * [`types`]: ids, positions, the configuration of a partition as the metadata has it.
//! * [`leader`]: counts what members hold, moves the high watermark, proposes ISR changes, resigns.
//! * [`follower`]: appends what fits, finds where its history branches, truncates.
//! * [`session`]: frames that name only what changed; a frame of an earlier connection is never counted.
//! * [`takeover`]: a new leader fetches what it lacks before its first record.
//! * [`lease`], [`liveness`]: until when a broker may act, and when the controller reports it as dead.
//! * [`prevote`]: whether an election of the metadata group could be won.
//!
//! The broker uses [`prevote`], [`lease`] and [`liveness`], and nothing else yet.
pub mod follower;
pub mod leader;
pub mod lease;
pub mod liveness;
pub mod prevote;
pub mod session;
pub mod takeover;
pub mod types;
