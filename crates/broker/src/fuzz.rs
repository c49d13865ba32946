//! Doors for the fuzz targets (`crates/fuzz`) to parsers of foreign bytes that nothing else outside may call.
use crate::engine::{EngineSettings, ViewChanges};
use crate::nats::NatsSettings;
use crate::partition::PartitionSpec;
use crate::{metadata, nats};
use async_nats::HeaderMap;
use async_nats::header::HeaderValue;

pub use crate::flight::fuzz::{flight_document, flight_put};
pub use crate::liftbridge::fuzz::{grpc_frames, grpc_timeout};

/// A metadata snapshot file for `index`: length of its state when it counts.
pub fn metadata_snapshot(index: u64, bytes: &[u8]) -> Option<usize> {
    metadata::read_snapshot(index, bytes).map(|state| state.len())
}

/// The NATS headers that mean something: incarnation of a copy of `cluster`, hash of a message id.
pub fn nats_headers(origin: &str, id: &str, cluster: &str) -> (Option<u64>, u128) {
    let mut headers = HeaderMap::new();
    for (name, value) in [("Bascule-Origin", origin), ("Nats-Msg-Id", id)] {
        if let Ok(value) = value.parse::<HeaderValue>()
            && !value.as_str().is_empty()
        {
            headers.insert(name, value);
        }
    }
    (
        nats::origin::incarnation_of_copy(&headers, cluster),
        nats::origin::message_id(&headers),
    )
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
