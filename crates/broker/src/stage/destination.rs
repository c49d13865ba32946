//! Where staged rows are to go: what a call needs to know of a stream and of its partitions.
use bascule_log::LogReader;

/// The stream that a call stages rows for.
#[derive(Clone, Debug)]
pub struct StageStream {
    /// Numeric id.
    pub id: u64,
    /// Name, unique in its namespace.
    pub name: String,
    /// Incarnations of its partitions.
    pub incarnations: Vec<u64>,
}

/// An open partition that rows are staged for.
#[derive(Clone, Debug)]
pub struct StagePartition {
    /// Number in its stream.
    pub number: u32,
    /// Incarnation.
    pub incarnation: u64,
    /// Subject that it listens on, left out of its records; empty = none.
    pub subject: String,
    /// Largest record that it stores, bytes.
    pub max_record_bytes: usize,
    /// Of its log, whose keys encrypt the pieces.
    pub reader: LogReader,
}
