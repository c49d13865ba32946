//! Typed failures of the data plane as Python sees them.
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

pyo3::create_exception!(
    bascule._native,
    NativeError,
    PyException,
    "A typed failure from the data plane: `args` = (code, sentence, JSON details)."
);

/// An exception with a code of `specs/errors.toml`.
pub(crate) fn native_error(code: &str, message: &str, details: &str) -> PyErr {
    NativeError::new_err((code.to_owned(), message.to_owned(), details.to_owned()))
}
