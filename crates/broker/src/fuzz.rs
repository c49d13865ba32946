//! Doors for the fuzz targets (`crates/fuzz`) to parsers of foreign bytes that nothing else outside may call.
use crate::engine::{EngineSettings, ViewChanges};
use crate::nats::NatsSettings;
use crate::partition::PartitionSpec;
use crate::{metadata, nats};
use bytes::Bytes;

pub use crate::flight::fuzz::{flight_document, flight_put};
pub use crate::liftbridge::fuzz::{grpc_frames, grpc_timeout};
pub use crate::partition::fuzz_message_ids as message_ids;

/// A metadata snapshot file for `index`: length of its state when it counts.
pub fn metadata_snapshot(index: u64, bytes: &[u8]) -> Option<usize> {
    metadata::read_snapshot(index, bytes).map(|state| state.len())
}

/// A NATS header block: names and values, unusable lines and status, or `None` with more than `most` headers.
pub fn nats_headers(block: &Bytes, most: usize) -> Option<NatsHeaders> {
    let block = nats::client::headers::parse(block, most)?;
    let origin = crate::republish::marks::origin::origin(&block.headers).is_some();
    let id = crate::partition::message_id(&block.headers);
    Some(NatsHeaders {
        headers: block.headers,
        unusable: block.unusable,
        status: block.status,
        origin,
        id,
    })
}

/// The operations that a NATS server sends in `bytes`, up to the first that is not complete: for each where it ends, and of
/// a message subject, reply, header block and payload. `None` when something is not the protocol.
pub fn nats_operations(bytes: &[u8]) -> Option<Vec<NatsOperation<'_>>> {
    use nats::client::protocol::{Operation, Step, next};
    let mut operations = Vec::new();
    let mut at = 0;
    loop {
        match next(bytes, at) {
            Ok(Step::Incomplete(needed)) => {
                assert!(needed > bytes.len() - at, "the operation is there");
                return Some(operations);
            }
            Ok(Step::Complete(operation, end)) => {
                let part = |span: std::ops::Range<usize>| bytes.get(span).unwrap_or(OUTSIDE);
                let parts = match operation {
                    Operation::Message(frame) => {
                        let parts = [frame.subject, frame.reply, frame.headers, frame.payload];
                        Some(parts.map(part))
                    }
                    Operation::Error(text) | Operation::Info(text) => {
                        Some([part(text), b"", b"", b""])
                    }
                    Operation::Ping | Operation::Pong | Operation::Ok => None,
                };
                operations.push(NatsOperation { at, end, parts });
                at = end;
            }
            Err(_) => return None,
        }
    }
}

/// What a part would be that lies outside of what was read.
const OUTSIDE: &[u8] = b"\x00outside\x00";

/// One operation of a NATS server.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct NatsOperation<'a> {
    pub at: usize,
    pub end: usize,
    pub parts: Option<[&'a [u8]; 4]>,
}

/// What a NATS header block says.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct NatsHeaders {
    pub headers: Vec<(Bytes, Bytes)>,
    pub unusable: u32,
    pub status: Option<u16>,
    pub origin: bool,
    pub id: u128,
}

/// A document of the seam, chosen by `kind`: whether it is taken.
pub fn seam_document(kind: u8, bytes: &[u8]) -> bool {
    match kind % 4 {
        0 => serde_json::from_slice::<EngineSettings>(bytes).is_ok(),
        1 => serde_json::from_slice::<ViewChanges>(bytes).is_ok(),
        2 => serde_json::from_slice::<NatsSettings>(bytes).is_ok(),
        _ => {
            let specs = serde_json::from_slice::<Vec<PartitionSpec>>(bytes);
            for spec in specs.iter().flatten() {
                let _ = (spec.retention(), spec.batch_limits());
                let _ = (spec.cleaner_interval(), spec.log_identity());
            }
            specs.is_ok()
        }
    }
}
