//! Bounds and times of a connection.
use crate::limits::Limits;
use quinn::{IdleTimeout, ServerConfig, TransportConfig, VarInt};
use std::sync::Arc;
use std::time::Duration;

/// Requests that a connection may have open. They are read one after the other; clients have one at a time.
const STREAMS: u32 = 8;
/// Bytes that a request may be ahead of what is read of it.
const STREAM_WINDOW: u32 = 128 << 10;
/// The same of all requests of a connection. Room for each of them, so that one which is not read yet keeps none from arriving.
const WINDOW: u32 = STREAMS * STREAM_WINDOW;
/// Bytes of replies that a client has not acknowledged.
const SEND_WINDOW: u64 = 1 << 20;
/// A side that is silent is asked whether it is there …
const KEEPALIVE: Duration = Duration::from_secs(5);
/// … and is gone when it has not answered for so long, milliseconds.
const IDLE_MS: u32 = 10_000;
/// Bytes of a connection that arrive before the listener has seen it.
const EARLY_BYTES: u64 = 16 << 10;

/// The configuration of the endpoint, but for its cryptography.
pub(super) fn configure(config: &mut ServerConfig, limits: &Limits) {
    let handshakes = limits.handshakes.clamp(1, 1 << 16);
    config
        .transport_config(Arc::new(transport()))
        // Limits count a connection by its address, and it is shown with it.
        .migration(false)
        .max_incoming(handshakes)
        .incoming_buffer_size(EARLY_BYTES)
        .incoming_buffer_size_total(EARLY_BYTES * handshakes as u64);
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(STREAMS.into())
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(WINDOW.into())
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        .datagram_send_buffer_size(0)
        .keep_alive_interval(Some(KEEPALIVE))
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE_MS))));
    transport
}
