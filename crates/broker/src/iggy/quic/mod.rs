//! Iggy's clients over QUIC: the same commands and the same sessions as over TCP.
//!
//! A connection of QUIC is a connection of a client: one session, one place in the limits, one member of groups. Each request
//! has a bidirectional stream of its own, which the client ends behind the request, and the broker behind the reply.
//!
//! * `listener`: from the socket to connections.
//! * `transport`: windows, streams and times of a connection.
//! * `requests`: the requests of a connection, in the order of their streams.
mod listener;
mod requests;
#[cfg(test)]
mod tests;
mod transport;

pub(crate) use listener::{QuicListening, listen_quic};
