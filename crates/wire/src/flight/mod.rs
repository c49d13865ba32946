//! Batches of the log to Arrow record batches and back (`specs/formats/flight.md`).
pub mod gather;
pub mod ingest;
pub mod schema;
