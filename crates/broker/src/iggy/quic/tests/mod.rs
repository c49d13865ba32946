//! The listener over real sockets, with a client of QUIC that knows only frames.
mod bounds;
mod certificates;
mod client;
mod requests;
