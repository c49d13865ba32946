//! One function per fuzz target: bytes in, nothing out; a broken promise is a panic.
//!
//! The same functions are driven by libFuzzer (`fuzz/`, a workspace of its own), by the replay of the kept inputs
//! (`tests/replay.rs`, part of `make test`) and by `tests/torture/rig_fuzz.py`. A target that reads checksummed bytes
//! has two forms: the bytes as they are, and with the checksums recomputed, so that the code after them is reached.
//!
//! Nothing here is part of the broker.
mod flight;
mod iggy;
mod input;
mod log;
mod memory;
mod nats;
mod peer;
mod protobuf;
mod record;
mod seam;

/// What a target does with one input.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also the folder of its kept inputs: `fuzz/corpus/<name>`.
pub const TARGETS: &[(&str, Target)] = &[
    ("batch", record::batch),
    ("batch_build", record::build),
    ("batch_codec", record::codec),
    ("batch_encrypted", record::encrypted),
    ("batch_rewrite", record::rewrite),
    ("batches", record::batches),
    ("envelope", nats::envelope),
    ("flight_documents", flight::documents),
    ("flight_put", flight::put),
    ("grpc_frames", protobuf::frames),
    ("iggy_v1", iggy::v1),
    ("iggy_v1b", iggy::v1b),
    ("iggy_v2", iggy::v2),
    ("liftbridge_hot", protobuf::hot),
    ("liftbridge_messages", protobuf::messages),
    ("log_checkpoint", log::checkpoint),
    ("log_epochs", log::epochs),
    ("log_index", log::index),
    ("log_journal", log::journal),
    ("log_preamble", log::preamble),
    ("log_producers", log::producers),
    ("log_recover", log::recover),
    ("message_ids", log::message_ids),
    ("metadata_snapshot", seam::metadata_snapshot),
    ("nats_headers", nats::headers),
    ("nats_operations", nats::operations),
    ("peer_frames", peer::frames),
    ("seam_documents", seam::documents),
    ("subjects", nats::subjects),
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.map(|(_, target)| *target)
}
