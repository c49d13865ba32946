//! Doors for the fuzz targets (`crates/fuzz`) to parsers of foreign bytes that nothing else outside may call.
use crate::engine::{EngineSettings, ViewChanges};
use crate::nats::NatsSettings;
use crate::partition::PartitionSpec;
use crate::{metadata, nats};
use bytes::Bytes;

pub use crate::flight::fuzz::{flight_document, flight_put};
pub use crate::liftbridge::fuzz::{grpc_frames, grpc_timeout};

/// A metadata snapshot file for `index`: length of its state when it counts.
pub fn metadata_snapshot(index: u64, bytes: &[u8]) -> Option<usize> {
    metadata::read_snapshot(index, bytes).map(|state| state.len())
}

/// A NATS header block: names and values, unusable lines and status, or `None` with more than `most` headers.
pub fn nats_headers(block: &Bytes, most: usize) -> Option<NatsHeaders> {
    let block = nats::headers::parse(block, most)?;
    let origin = nats::origin::origin(&block.headers).is_some();
    let id = nats::origin::message_id(&block.headers);
    Some(NatsHeaders {
        headers: block.headers,
        unusable: block.unusable,
        status: block.status,
        origin,
        id,
    })
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
