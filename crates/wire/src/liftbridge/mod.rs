//! The Liftbridge API, package `proto` (Liftbridge specification §2).
//!
//! [`messages`] has every message as a prost struct. The hot ones go by hand: [`publish`] reads a `PublishRequest` as
//! ranges into the received bytes, [`acks`] writes `PublishResponse` frames, [`delivery`] writes `Message` frames straight
//! from batch columns.
pub mod acks;
pub mod delivery;
pub mod messages;
pub mod publish;
