//! Records that come in without a call of their publisher.
pub(crate) mod nats;
