//! Flight: JSON documents, and the Arrow messages of `DoPut`.
use crate::input::Input;
use arrow_flight::FlightData;
use bytes::Bytes;

/// Messages of one call, at most.
const MESSAGES: usize = 16;

/// Tickets, descriptors, put commands and action bodies; the first byte chooses.
pub(crate) fn documents(data: &[u8]) {
    if let Some((kind, body)) = data.split_first() {
        bascule_broker::fuzz::flight_document(*kind, body);
    }
}

/// The messages of one `DoPut`: heads and bodies, each behind two bytes of length.
pub(crate) fn put(data: &[u8]) {
    let mut input = Input::new(data);
    let mut messages = Vec::new();
    while !input.is_empty() && messages.len() < MESSAGES {
        messages.push(FlightData {
            data_header: Bytes::copy_from_slice(input.long()),
            data_body: Bytes::copy_from_slice(input.long()),
            ..FlightData::default()
        });
    }
    bascule_broker::fuzz::flight_put(messages);
}
