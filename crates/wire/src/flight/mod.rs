//! Batches of the log to Arrow record batches and back (`specs/formats/flight.md`).
//!
//! [`schema`] names the columns of a stream seen as a table; [`gather`] fills them from batches, one memory copy per column
//! where it can; [`ingest`] takes record batches sent by clients apart into records,
//! [`digest`] adds up what they hold, and [`spread`] says which partition each row goes to; [`check`] finds rows that would be
//! refused before they are sent, and [`letters`] makes dead letters of them.
pub mod check;
mod columns;
pub mod digest;
pub mod gather;
mod headers;
pub mod ingest;
pub mod letters;
pub mod schema;
pub mod spread;
mod values;
