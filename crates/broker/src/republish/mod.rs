//! Republishes direct publishes on NATS, after commit, for subscribers of the subject.
//!
//! * `observer`, `job`: queued commits of partitions; `republisher`: the task that takes it from there.
//! * `queue`: the records of one partition; `interest`, `answers`: whether anybody is subscribed; `format`: the messages.
//! * `marks`: the headers by which brokers recognize a republished message, and their own ones.
mod answers;
mod context;
mod format;
mod interest;
mod job;
pub(crate) mod marks;
mod observer;
mod queue;
mod republisher;

pub(crate) use answers::ProbeAnswers;
pub(crate) use context::RepublishContext;
pub(crate) use job::RepublishJobs;
pub(crate) use republisher::run;
