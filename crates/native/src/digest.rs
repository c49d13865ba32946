//! `_native.row_digest`: what Spark's tasks compute of the rows that they stage or verify.
use crate::failure::native_error;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use bascule_client::ErrorCode;
use bascule_wire::flight::digest::RowDigest;
use bascule_wire::flight::ingest::Ingest;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

#[pyfunction]
pub(crate) fn row_digest<'py>(
    py: Python<'py>,
    batches: &Bound<'py, PyAny>,
    stream: &str,
) -> PyResult<(u64, Bound<'py, PyBytes>)> {
    // Copied, because others may write to it while the interpreter is released.
    let batches = PyBuffer::<u8>::get(batches)?.to_vec(py)?;
    let digest = py.detach(|| digest(batches, stream));
    let digest = digest.map_err(|text| native_error(ErrorCode::InvalidArgument, &text, "{}"))?;
    let bytes = PyBytes::new(py, &digest.value().to_le_bytes());
    Ok((digest.rows(), bytes))
}

fn digest(batches: Vec<u8>, stream: &str) -> Result<RowDigest, String> {
    let mut digest = RowDigest::new(stream);
    let mut decoder = StreamDecoder::new();
    let mut rest = Buffer::from_vec(batches);
    while !rest.is_empty() {
        let batch = decoder.decode(&mut rest);
        let Some(batch) = batch.map_err(|error| format!("not an Arrow IPC stream: {error}"))?
        else {
            break;
        };
        let rows = Ingest::bind(&batch, stream).and_then(|rows| rows.digest(&mut digest));
        rows.map_err(|error| error.to_string())?;
    }
    decoder
        .finish()
        .map_err(|error| format!("the Arrow IPC stream is cut off: {error}"))?;
    Ok(digest)
}
