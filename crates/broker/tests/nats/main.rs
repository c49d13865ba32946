//! The NATS side of a broker, against a real nats-server. One binary: it links the whole broker.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod acks;
mod connection;
mod copies;
mod frames;
mod ingest;
mod support;
