//! Pure codecs: the NATS envelope, the Liftbridge protobuf messages, Iggy frames, Flight columns. No I/O.
//!
//! * [`envelope`]: the header of enveloped messages, all 15 types, and the order of recognition tests.
//! * [`iggy`]: frames of Iggy's binary protocol, and its commands that move records.
//! * [`jetstream`]: control headers of JetStream publishers, and their acks.
//! * [`liftbridge`]: the messages as prost structs, and the hot ones by hand, straight from and to bytes.
//! * [`ErrorCode`]: the codes of errors, generated from `specs/errors.toml`.
//! * [`methods`]: the methods of the gRPC port and the actions of policies, generated from `specs/proto` and `specs/methods.toml`.
//! * [`flight`]: batches of the log to Arrow record batches and back.
//! * [`peer`]: frames between brokers.
//! * [`partitioning`]: which partition a key belongs to.
//! * [`subject`]: NATS subjects: validity, the subject of a partition, filters with wildcards.
pub mod envelope;
mod error_code;
pub mod flight;
pub mod iggy;
pub mod jetstream;
pub mod liftbridge;
pub mod methods;
pub mod partitioning;
pub mod peer;
mod protobuf;
pub mod subject;

pub use error_code::ErrorCode;
