//! `_native.log_*`: a data directory that no broker uses.
use crate::engine::raised;
use crate::failure::native_error;
use bascule_broker::engine::EngineError;
use bascule_broker::tools::{self, RepairRequest};
use bascule_client::ErrorCode;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::Value;
use std::path::PathBuf;

fn answer(
    py: Python<'_>,
    work: impl FnOnce() -> Result<Value, EngineError> + Send,
) -> PyResult<Bound<'_, PyBytes>> {
    let document = py.detach(work).map_err(|error| raised(&error))?;
    Ok(PyBytes::new(py, document.to_string().as_bytes()))
}

#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // extracted from Python by value
pub(crate) fn log_verify(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyBytes>> {
    answer(py, || tools::verify(&path))
}

#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // extracted from Python by value
pub(crate) fn log_inspect(
    py: Python<'_>,
    path: PathBuf,
    start: u64,
    most: usize,
) -> PyResult<Bound<'_, PyBytes>> {
    answer(py, || tools::inspect(&path, start, most))
}

type MetadataParts<'py> = (u64, Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>, String);

#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // extracted from Python by value
pub(crate) fn log_metadata(py: Python<'_>, path: PathBuf) -> PyResult<MetadataParts<'_>> {
    let found = py
        .detach(|| tools::read_metadata(&path))
        .map_err(|error| raised(&error))?;
    let entries = found.entries.iter().map(|entry| PyBytes::new(py, entry));
    Ok((
        found.index,
        PyBytes::new(py, &found.state),
        entries.collect(),
        found.problem,
    ))
}

#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // extracted from Python by value
pub(crate) fn log_repair<'py>(
    py: Python<'py>,
    path: PathBuf,
    request: &[u8],
    now_ns: i64,
) -> PyResult<Bound<'py, PyBytes>> {
    let request: RepairRequest = serde_json::from_slice(request).map_err(|error| {
        native_error(
            ErrorCode::InvalidArgument,
            &format!("repair: {error}"),
            "{}",
        )
    })?;
    answer(py, || tools::repair(&path, &request, now_ns))
}
