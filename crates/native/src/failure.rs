//! Typed failures of the data plane as Python sees them.
use bascule_client::ErrorCode;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

pyo3::create_exception!(
    bascule._native,
    NativeError,
    PyException,
    "A typed failure from the data plane: `args` = (code, sentence, JSON details)."
);

/// The exception for a failure; `details` is a JSON object.
pub(crate) fn native_error(code: ErrorCode, message: &str, details: &str) -> PyErr {
    NativeError::new_err((code.as_str(), message.to_owned(), details.to_owned()))
}
