//! The status of a read that meets damage: `DATA_LOSS`, a sentence with offsets, file and remedy, and the range in trailers
//! of its own, which other clients pass over. Not in `grpc-status-details-bin`: Go clients refuse what is not theirs there.
use crate::grpc_status::Coded;
use crate::partition::{PartitionIdentity, damage_sentence};
use bascule_log::integrity::Damage;
use bascule_wire::ErrorCode;
use serde_json::json;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

/// Trailer: first damaged offset.
const START: &str = "bascule-damaged-start";
/// Trailer: first offset after the damage; reading can continue there.
const END: &str = "bascule-damaged-end";

/// The error for a subscriber.
pub(super) fn damaged(identity: &PartitionIdentity, damage: &Damage) -> Status {
    let what = format!(
        "partition {} of stream {}",
        identity.number, identity.stream
    );
    let mut trailers = MetadataMap::new();
    trailers.insert(START, MetadataValue::from(damage.start));
    trailers.insert(END, MetadataValue::from(damage.end));
    Status::with_metadata(Code::DataLoss, damage_sentence(&what, damage), trailers).detailed(
        ErrorCode::Damaged,
        json!({"start": damage.start, "end": damage.end, "fault": damage.fault.name()}),
    )
}
