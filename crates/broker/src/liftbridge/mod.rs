//! The Liftbridge service: hot methods over raw bodies, admin methods forwarded to the control plane.
//!
//! Publish, PublishAsync and Subscribe are served on the HTTP/2 bodies themselves: many framed messages lie in one chunk,
//! all complete frames of what has arrived are taken in at once, and acks and deliveries are written by hand. Every other
//! method crosses to the control plane as raw bytes. Foreign words (stop positions, ack inboxes, asynchronous errors) exist
//! only in this folder.
//!
//! * `context`: what all of it uses of the broker.
//! * `raw_service`: a service over raw bodies. [`mod@methods`]: dispatch of `/proto.API/*`; [`mod@admin`]: our own methods;
//!   [`mod@health`]: `grpc.health.v1`; `reflection`.
//! * `frames`, `reply`, `call`: gRPC framing, response bodies, what came with a call.
//! * `route`, `refusal`, `resume`: the checks before an append, in the order of liftbridge §3.7, how each failure
//!   reads, and waking a paused partition.
//! * `publish`, `publish_async` (`intake`, `responses`), `acks`, `to_subject`: publishing.
//! * `position`, `subscribe`, `generation`, `subscription`, `reverse`: reading.
//! * `cursors`: where readers stand.
//! * `forward`: everything else.
mod acks;
mod admin;
mod call;
mod context;
mod cursors;
mod damaged;
mod forward;
mod frames;
pub(crate) mod fuzz;
mod generation;
mod health;
mod intake;
mod methods;
mod position;
mod publish;
mod publish_async;
mod raw_service;
pub(crate) mod reflection;
mod refusal;
mod reply;
mod responses;
mod resume;
mod reverse;
mod route;
mod subscribe;
mod subscription;
#[cfg(test)]
mod tests;
mod to_subject;
mod wanted;

pub(crate) use admin::AdminMethods;
pub(crate) use context::LiftbridgeContext;
pub(crate) use cursors::{GroupPosition, GroupPositions};
pub(crate) use health::HealthMethods;
pub(crate) use methods::LiftbridgeMethods;
pub(crate) use raw_service::RawService;
