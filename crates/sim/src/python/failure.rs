//! Errors of the engine as Python sees them: a kind, a message, and where a damaged range lies.
use bascule_log::{Error, ReadError};
use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::PyException;

create_exception!(
    bascule_sim,
    SimError,
    PyException,
    "A refusal of the engine; `args` are its kind and its message."
);

/// The kind of an error.
pub(crate) fn kind(error: &Error) -> &'static str {
    match error {
        Error::Full { .. } => "full",
        Error::Failed { .. } => "failed",
        error if error.is_transient() => "exhausted",
        Error::Io { .. } => "io",
        Error::Exists { .. } => "exists",
        Error::Absent { .. } => "absent",
        Error::NewerFormat { .. } | Error::NewerBatch { .. } => "newer",
        Error::Foreign { .. } => "foreign",
        Error::StaleEpoch { .. } => "stale_epoch",
        Error::Batch { .. } => "batch",
        Error::NotNext { .. } => "not_next",
        Error::Diverged { .. } => "diverged",
        Error::NotABoundary { .. } => "no_boundary",
        Error::BelowHighWatermark { .. } => "committed",
        _ => "other",
    }
}

/// The exception for an error.
pub(crate) fn raise(error: &Error) -> PyErr {
    SimError::new_err((kind(error), error.to_string()))
}

/// The exception for a read that failed.
pub(crate) fn raise_read(error: &ReadError) -> PyErr {
    let (kind, _, _, message) = read_failure(error);
    SimError::new_err((kind, message))
}

/// Kind, damaged range and message of a failed read.
pub(crate) type ReadFailure = (&'static str, u64, u64, String);

/// What a failed read says.
pub(crate) fn read_failure(error: &ReadError) -> ReadFailure {
    let message = error.to_string();
    match error {
        ReadError::Damaged(damage) => ("damaged", damage.start, damage.end, message),
        ReadError::OutOfRange { start, end, .. } => ("out_of_range", *start, *end, message),
        ReadError::WouldBlock => ("would_block", 0, 0, message),
        ReadError::Closed => ("closed", 0, 0, message),
        ReadError::Io { .. } => ("io", 0, 0, message),
        _ => ("other", 0, 0, message),
    }
}
